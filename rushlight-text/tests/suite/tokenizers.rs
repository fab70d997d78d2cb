//! Ids and text against what `transformers` and llama.cpp make.

use std::collections::BTreeSet;

use rushlight_text::{GgufVocabulary, Specials, TextErrorKind, Tokenizer, TokenizerConfig};
use serde_json::json;

use crate::models::{self, HUB, hub};

#[test]
fn every_golden_text_encodes_and_decodes() {
    for (name, directory) in HUB {
        let Some(tokenizer) = hub(directory) else {
            return;
        };
        for case in models::goldens()[name]["texts"].as_array().unwrap() {
            let text = case["text"].as_str().unwrap();
            let ids = models::ids(&case["ids"]);
            assert_eq!(
                tokenizer.encode(text, Specials::Recognised).unwrap(),
                ids,
                "{name}: {text:?}"
            );
            assert_eq!(
                tokenizer.decode(&ids, false).unwrap(),
                case["decoded"].as_str().unwrap(),
                "{name}: {text:?}"
            );
        }
    }
}

const MIXED: &str = "Hello world, naïve 東京 🦀  two";

#[test]
fn gguf_vocabularies_encode_as_llama_cpp_does() {
    let (Some(smollm2), Some(gemma3)) = (models::smollm2(), models::gemma3_gguf()) else {
        return;
    };
    assert_eq!(
        smollm2.encode_prompt(MIXED, Specials::AsText).unwrap(),
        [
            19556, 905, 28, 15486, 46494, 17097, 247, 126, 16736, 122, 15107, 116, 218, 216, 827
        ]
    );
    assert_eq!(
        gemma3.encode_prompt(MIXED, Specials::AsText).unwrap(),
        [
            2, 9259, 1902, 236764, 120362, 86459, 236743, 248714, 138, 13498
        ]
    );
    for tokenizer in [smollm2, gemma3] {
        let ids = tokenizer.encode_prompt(MIXED, Specials::AsText).unwrap();
        assert_eq!(tokenizer.decode(&ids, true).unwrap(), MIXED);
    }
}

/// Gemma's vocabulary is the same in both files, so scores must merge as ranks do.
#[test]
fn scores_and_ranks_make_the_same_ids() {
    let (Some(by_score), Some(by_rank)) = (models::gemma3_gguf(), hub("gemma3")) else {
        return;
    };
    let prose = include_str!("../../../rushlight-testkit/data/perplexity.txt");
    let texts = models::goldens()["gemma3"]["texts"].as_array().unwrap();
    let texts = texts.iter().map(|case| case["text"].as_str().unwrap());
    for text in texts.chain([prose, MIXED, "<table> <h1>x</h1>\n\n\n  a   b"]) {
        assert_eq!(
            by_score.encode(text, Specials::AsText).unwrap(),
            by_rank.encode(text, Specials::AsText).unwrap(),
            "{text:?}"
        );
    }
}

#[test]
fn content_never_makes_a_control_id() {
    for name in ["qwen3", "gemma3", "llama3_1", "deepseek_v3", "gptoss"] {
        let Some(tokenizer) = hub(name) else { return };
        let all: Vec<&str> = tokenizer.control_spellings().collect();
        assert!(all.len() > 8, "{name}");
        let text = all.join("");
        let ids = tokenizer.encode(&text, Specials::AsText).unwrap();
        assert!(ids.iter().all(|id| !tokenizer.is_control(*id)), "{name}");
        assert_eq!(tokenizer.decode(&ids, false).unwrap(), text, "{name}");
        let recognised = tokenizer.encode(&text, Specials::Recognised).unwrap();
        assert_eq!(recognised.len(), all.len(), "{name}");
        assert!(
            recognised.iter().all(|id| tokenizer.is_control(*id)),
            "{name}"
        );
    }
    for tokenizer in [models::smollm2(), models::gemma3_gguf()] {
        let Some(tokenizer) = tokenizer else { return };
        let text: String = tokenizer.control_spellings().collect();
        let ids = tokenizer.encode(&text, Specials::AsText).unwrap();
        assert!(ids.iter().all(|id| !tokenizer.is_control(*id)));
        assert_eq!(tokenizer.decode(&ids, false).unwrap(), text);
    }
}

#[test]
fn control_is_decided_by_mark_and_by_protocol() {
    let Some(qwen3) = hub("qwen3") else { return };
    for marker in [
        "<|im_start|>",
        "<think>",
        "</think>",
        "<tool_call>",
        "</tool_response>",
        "<|fim_prefix|>",
    ] {
        assert!(qwen3.control_id(marker).is_some(), "{marker}");
    }
    assert_eq!(
        qwen3.encode("<|im_start|>user", Specials::AsText).unwrap(),
        [27, 91, 318, 4906, 91, 29, 872]
    );
    let gemma3 = hub("gemma3").unwrap();
    for text in ["\n\n", "▁▁", "<table>", "</s>", "<h1>"] {
        let id = gemma3.id_of(text).unwrap();
        assert!(!gemma3.is_control(id), "{text:?}");
    }
    assert_eq!(
        gemma3.encode("<table>", Specials::AsText).unwrap(),
        [gemma3.id_of("<table>").unwrap()]
    );
    let unused = gemma3.id_of("<unused7>").unwrap();
    assert!(gemma3.is_unused(unused) && gemma3.is_control(unused));
    assert!(gemma3.is_unused(u32::MAX) && !gemma3.is_unused(9259));
    let deepseek = hub("deepseek_v3").unwrap();
    assert!(deepseek.control_id("<｜User｜>").is_some());
    assert!(deepseek.control_id("<｜tool▁sep｜>").is_some());
}

#[test]
fn roles_stops_and_bos() {
    let Some(qwen3) = hub("qwen3") else { return };
    assert_eq!((qwen3.bos(), qwen3.add_bos()), (None, false));
    assert_eq!(qwen3.stop_ids(), BTreeSet::from([151645, 151643]));
    assert_eq!(qwen3.vocab_size(), 151669);
    let gemma3 = hub("gemma3").unwrap();
    assert_eq!((gemma3.bos(), gemma3.add_bos()), (Some(2), true));
    assert_eq!(gemma3.stop_ids(), BTreeSet::from([1, 106]));
    assert_eq!(gemma3.with_bos(vec![2, 5]), [2, 5]);
    assert_eq!(gemma3.with_bos(vec![5]), [2, 5]);
    assert_eq!(gemma3.vocab_size(), 262145);
    let llama = hub("llama3_1").unwrap();
    assert_eq!((llama.bos(), llama.add_bos()), (Some(128000), true));
    assert!(
        llama
            .stop_ids()
            .is_superset(&BTreeSet::from([128001, 128009]))
    );
    let harmony = hub("gptoss").unwrap();
    assert_eq!(harmony.stop_ids(), BTreeSet::from([199999, 200002, 200012]));
    let deepseek = hub("deepseek_v3").unwrap();
    assert_eq!((deepseek.bos(), deepseek.add_bos()), (Some(0), true));
    let smollm2 = models::smollm2().unwrap();
    assert_eq!((smollm2.bos(), smollm2.add_bos()), (Some(1), false));
    assert_eq!(smollm2.stop_ids(), BTreeSet::from([0, 2]));
    let gemma3 = models::gemma3_gguf().unwrap();
    assert_eq!(gemma3.stop_ids(), BTreeSet::from([1, 106]));
}

#[test]
fn token_bytes_are_raw() {
    let Some(qwen3) = hub("qwen3") else { return };
    assert_eq!(qwen3.token_bytes(220), Some(&b" "[..]));
    assert_eq!(qwen3.token_bytes(151645), Some(&b"<|im_end|>"[..]));
    assert_eq!(qwen3.token_bytes(200_000), None);
    assert_eq!(qwen3.token_bytes(188), Some(&[0u8][..]));
    let gemma3 = models::gemma3_gguf().unwrap();
    assert_eq!(gemma3.token_bytes(236743), Some(&b" "[..]));
    assert_eq!(
        gemma3.token_bytes(gemma3.id_of("<0xE6>").unwrap()),
        Some(&[0xE6][..])
    );
    assert_eq!(gemma3.token_bytes(138), Some(&b"  "[..]));
    let same = hub("gemma3").unwrap();
    for id in (0..262144).filter(|id| !gemma3.is_unused(*id)) {
        assert_eq!(gemma3.token_bytes(id), same.token_bytes(id), "{id}");
    }
}

/// One word of a megabyte, a megabyte of prose, and a megabyte of white space.
#[test]
fn large_texts_come_back_as_they_were() {
    let tokenizers = [
        hub("qwen3"),
        hub("gemma3"),
        models::smollm2(),
        models::gemma3_gguf(),
    ];
    let prose = include_str!("../../../rushlight-testkit/data/perplexity.txt").repeat(42);
    for tokenizer in tokenizers {
        let Some(tokenizer) = tokenizer else { return };
        for text in [
            prose.clone(),
            "x".repeat(1 << 20),
            " ".repeat(1 << 20) + "x",
            "\n".repeat(1 << 20),
            "東".repeat(1 << 18),
        ] {
            let ids = tokenizer.encode(&text, Specials::AsText).unwrap();
            assert_eq!(tokenizer.decode(&ids, false).unwrap(), text);
        }
    }
}

fn with_added(config: serde_json::Value, added: &[(u32, &str)]) -> Tokenizer {
    let added: Vec<_> = added
        .iter()
        .map(|(id, content)| json!({"id": id, "content": content, "special": true}))
        .collect();
    let file = json!({
        "added_tokens": added,
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false},
        "decoder": {"type": "ByteLevel"},
        "model": {"type": "BPE", "vocab": {"a": 0, "b": 10}, "merges": []},
    });
    let config = TokenizerConfig::from_json(&config.to_string()).unwrap();
    Tokenizer::from_json(&file.to_string(), &config).unwrap()
}

/// BND-9.
#[test]
fn an_eot_token_of_the_configuration_is_an_extra_stop() {
    let tokenizer = with_added(
        json!({"eos_token": "<eos>", "eot_token": "<eot>"}),
        &[(1, "<eot>"), (2, "<eos>")],
    );
    assert_eq!(*tokenizer.extra_stop_ids(), BTreeSet::from([1]));
    assert_eq!(tokenizer.stop_ids(), BTreeSet::from([1, 2]));
    assert_eq!((tokenizer.eos(), tokenizer.eot()), (Some(2), Some(1)));
}

/// BND-10.
#[test]
fn turn_ends_of_the_configuration_are_extra_stops() {
    let tokenizer = with_added(
        json!({"end_of_turn": "<end_of_turn>", "im_end": "<|im_end|>", "endoftext": "<|endoftext|>"}),
        &[
            (3, "<end_of_turn>"),
            (4, "<|im_end|>"),
            (5, "<|endoftext|>"),
        ],
    );
    assert_eq!(*tokenizer.extra_stop_ids(), BTreeSet::from([3, 4, 5]));
}

/// GG-12, first half.
#[test]
fn turn_ends_are_known_by_their_spelling() {
    let vocabulary = models::tiny(&[("aa", 1), ("<end_of_turn>", 4), ("bb", 1)]);
    let tokenizer = Tokenizer::from_gguf(vocabulary).unwrap();
    assert_eq!(*tokenizer.extra_stop_ids(), BTreeSet::from([1]));
}

#[test]
fn what_cannot_be_spelled_is_an_error() {
    let tokenizer = with_added(json!({}), &[]);
    assert_eq!(
        tokenizer.encode("abba", Specials::AsText).unwrap(),
        [0, 10, 10, 0]
    );
    let error = tokenizer.encode("abc", Specials::AsText).unwrap_err();
    assert_eq!(error.kind(), TextErrorKind::Unspellable);
    let error = tokenizer.decode(&[0, 3], true).unwrap_err();
    assert_eq!(error.kind(), TextErrorKind::UnknownToken);
}

/// A vocabulary in which a control token's spelling could be merged from text.
#[test]
fn merges_cannot_make_a_control_token() {
    let spm = models::tiny(&[("<e", 1), ("s>", 1), ("<es>", 3)]);
    let spm = Tokenizer::from_gguf(spm).unwrap();
    assert_eq!(spm.encode("<es>", Specials::AsText).unwrap(), [0, 1]);
    assert_eq!(spm.encode("<es>", Specials::Recognised).unwrap(), [2]);

    for (pre, expected) in [("gpt-2", &[4, 5][..]), ("llama-bpe", &[4, 5][..])] {
        let bpe = GgufVocabulary {
            model: "gpt2".to_owned(),
            pre: Some(pre.to_owned()),
            tokens: ["<", "e", "s", ">", "<e", "s>", "<es>", "a"]
                .map(str::to_owned)
                .to_vec(),
            token_types: Some(vec![1, 1, 1, 1, 1, 1, 3, 1]),
            merges: ["< e", "s >", "<e s>"].map(str::to_owned).to_vec(),
            ..GgufVocabulary::default()
        };
        // GPT-2's pattern cuts `<es>` into three words.
        let expected = if pre == "gpt-2" {
            &[0, 1, 2, 3][..]
        } else {
            expected
        };
        let bpe = Tokenizer::from_gguf(bpe).unwrap();
        let ids = bpe.encode("<es>", Specials::AsText).unwrap();
        assert!(!ids.contains(&6), "{pre}: {ids:?} {expected:?}");
        assert_eq!(bpe.encode("a<es>", Specials::Recognised).unwrap(), [7, 6]);
    }
}

#[test]
fn a_space_is_put_before_words_and_taken_away_again() {
    let mut vocabulary = models::tiny(&[("▁a", 1), ("<x>", 3), ("▁", 1)]);
    vocabulary.add_space_prefix = Some(true);
    let tokenizer = Tokenizer::from_gguf(vocabulary).unwrap();
    let ids = tokenizer.encode("a<x>a a", Specials::Recognised).unwrap();
    assert_eq!(ids, [0, 1, 0, 0]);
    assert_eq!(tokenizer.decode(&ids, true).unwrap(), "a a a");
}

#[test]
fn a_metaspace_that_only_begins_a_text() {
    let file = json!({
        "added_tokens": [{"id": 0, "content": "<x>", "special": true}],
        "pre_tokenizer": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": false},
        "decoder": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": false},
        "model": {"type": "BPE", "vocab": {"▁": 1, "a": 2, "▁a": 3}, "merges": ["▁ a"]},
    });
    let tokenizer = Tokenizer::from_json(&file.to_string(), &TokenizerConfig::default()).unwrap();
    let ids = tokenizer.encode("a<x>a a", Specials::Recognised).unwrap();
    assert_eq!(ids, [3, 0, 2, 3]);
    assert_eq!(tokenizer.decode(&ids, true).unwrap(), "aa a");
}

#[test]
fn unigram_keeps_control_pieces_out_of_text() {
    let file = json!({
        "added_tokens": [{"id": 1, "content": "</s>", "special": true}],
        "pre_tokenizer": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always"},
        "decoder": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always"},
        "model": {"type": "Unigram", "unk_id": 0, "vocab": [["<unk>", 0.0], ["</s>", 0.0], ["▁", -2.0], ["<", -9.0],
            ["/", -9.0], ["s", -9.0], [">", -9.0], ["▁a", -1.0]]},
    });
    let tokenizer = Tokenizer::from_json(&file.to_string(), &TokenizerConfig::default()).unwrap();
    assert_eq!(
        tokenizer.encode("a </s>", Specials::AsText).unwrap(),
        [7, 2, 3, 4, 5, 6]
    );
    assert_eq!(
        tokenizer.encode("a</s>", Specials::Recognised).unwrap(),
        [7, 1]
    );
}

#[test]
fn template_files_replace_the_configuration() {
    let directory = std::env::temp_dir().join(format!("rushlight-text-{}", std::process::id()));
    std::fs::create_dir_all(directory.join("additional_chat_templates")).unwrap();
    let file = json!({"added_tokens": [], "decoder": {"type": "ByteLevel"},
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false},
        "model": {"type": "BPE", "vocab": {"a": 0}, "merges": []}});
    let write = |name: &str, text: &str| std::fs::write(directory.join(name), text).unwrap();
    write("tokenizer.json", &file.to_string());
    write("tokenizer_config.json", r#"{"chat_template": "old"}"#);
    let load = || {
        Tokenizer::from_files(
            &directory.join("tokenizer.json"),
            Some(&directory.join("tokenizer_config.json")),
        )
    };
    let sources = |tokenizer: &Tokenizer| -> Vec<(String, String)> {
        let named = tokenizer.chat_template_source().unwrap().named();
        named.map(|(n, s)| (n.to_owned(), s.to_owned())).collect()
    };
    let pair = |n: &str, s: &str| (n.to_owned(), s.to_owned());
    write("chat_template.json", r#"{"chat_template": "processor"}"#);
    assert_eq!(sources(&load().unwrap()), [pair("default", "old")]);
    write("tokenizer_config.json", "{}");
    assert_eq!(sources(&load().unwrap()), [pair("default", "processor")]);
    let named = r#"{"chat_template": [{"name": "default", "template": "old"},
        {"name": "tool_use", "template": "old tools"}]}"#;
    write("tokenizer_config.json", named);
    write("chat_template.jinja", "new");
    assert_eq!(sources(&load().unwrap()), [pair("default", "new")]);
    write("additional_chat_templates/rag.jinja", "more");
    assert_eq!(
        sources(&load().unwrap()),
        [pair("default", "new"), pair("rag", "more")]
    );

    write(
        "special_tokens_map.json",
        r#"{"eos_token": "a", "pad_token": {"content": "a"}}"#,
    );
    let tokenizer = load().unwrap();
    assert_eq!((tokenizer.eos(), tokenizer.bos()), (Some(0), None));
    write("special_tokens_map.json", "[1]");
    let error = load().unwrap_err();
    assert!(
        error.to_string().contains("special_tokens_map.json"),
        "{error}"
    );
    std::fs::remove_file(directory.join("special_tokens_map.json")).unwrap();

    write("tokenizer.json", "{\n \"model\": 3\n}");
    let error = load().unwrap_err();
    assert_eq!(error.kind(), TextErrorKind::Malformed);
    assert!(error.to_string().contains("tokenizer.json:"), "{error}");
    std::fs::remove_file(directory.join("tokenizer.json")).unwrap();
    assert_eq!(load().unwrap_err().kind(), TextErrorKind::Io);
    std::fs::remove_dir_all(directory).unwrap();
}
