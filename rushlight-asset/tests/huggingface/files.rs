//! The files beside `config.json`: shards and their index, generation defaults, tokenizers.

use super::*;

fn index(map: Value) -> Vec<u8> {
    json!({"metadata": {}, "weight_map": map})
        .to_string()
        .into_bytes()
}

#[test]
fn shards_are_read_by_their_index() {
    let files = |map: Value| {
        [
            ("model.safetensors.index.json", index(map)),
            ("one.safetensors", safetensors(&[EMBED])),
            ("two.safetensors", safetensors(&[NORM])),
        ]
    };
    let sound = json!({EMBED.0: "one.safetensors", NORM.0: "two.safetensors"});
    let checkpoint = open_with(&llama(), &files(sound)).unwrap();
    assert_eq!(checkpoint.weights.len(), 2);
    assert_eq!(checkpoint.source.files.len(), 2);
    for (map, kind, words) in [
        (
            json!({EMBED.0: "one.safetensors", NORM.0: "three.safetensors"}),
            ErrorKind::Missing,
            "three.safetensors",
        ),
        (
            json!({EMBED.0: "one.safetensors", NORM.0: "one.safetensors"}),
            ErrorKind::Missing,
            "its shard does not",
        ),
        (
            json!({EMBED.0: "two.safetensors", NORM.0: "two.safetensors"}),
            ErrorKind::Missing,
            "its shard does not",
        ),
        (
            json!({EMBED.0: "two.safetensors", NORM.0: "one.safetensors"}),
            ErrorKind::Mismatch,
            "the index says it is in two.safetensors",
        ),
        (
            json!({NORM.0: "one.safetensors"}),
            ErrorKind::Mismatch,
            "the index does not have it",
        ),
        (
            json!({EMBED.0: 1}),
            ErrorKind::Malformed,
            "should be a string",
        ),
        (json!([]), ErrorKind::Malformed, "no such object"),
    ] {
        let error = open_with(&llama(), &files(map)).unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
        assert!(error.to_string().contains(words), "{error}");
    }
}

#[test]
fn the_index_cannot_leave_its_directory() {
    for place in [
        "../secret.safetensors",
        "/etc/passwd",
        "sub/one.safetensors",
        "..",
        ".",
        "",
        "..\\secret.safetensors",
        "C:secret.safetensors",
        "one\0.safetensors",
    ] {
        let files = [(
            "model.safetensors.index.json",
            index(json!({EMBED.0: place})),
        )];
        let error = open_with(&llama(), &files).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Malformed, "{place:?}: {error}");
        assert!(error.to_string().contains("plain name"), "{error}");
    }
}

#[test]
fn weights_without_an_index() {
    let one = [("weights.safetensors", safetensors(&[EMBED]))];
    assert_eq!(open_with(&llama(), &one).unwrap().weights.len(), 1);
    let error = open_with(&llama(), &[]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Missing, "{error}");
    let two = [
        ("a.safetensors", safetensors(&[EMBED])),
        ("b.safetensors", safetensors(&[NORM])),
    ];
    let error = open_with(&llama(), &two).unwrap_err();
    assert!(
        error.to_string().contains("2 .safetensors files"),
        "{error}"
    );
    let error = open_with(&llama(), &[("model.safetensors", Vec::new())]).unwrap_err();
    assert!(error.to_string().contains("empty"), "{error}");
}

#[test]
fn generation_defaults() {
    let read = |text: &str| {
        let weights = safetensors(&[EMBED]);
        open_with(
            &llama(),
            &[
                ("model.safetensors", weights),
                ("generation_config.json", text.as_bytes().to_vec()),
            ],
        )
        .map(|checkpoint| checkpoint.generation)
    };
    let lists = read(r#"{"eos_token_id":[1,2],"stop_strings":["<|im_end|>","<end_of_turn>"]}"#);
    let lists = lists.unwrap();
    assert_eq!(lists.eos_token_ids, [1, 2]);
    assert_eq!(lists.stop_strings, ["<|im_end|>", "<end_of_turn>"]);
    let mixed = read(r#"{"stop_strings":"<turn|>","stop":["<fallback>"]}"#).unwrap();
    assert_eq!(mixed.stop_strings, ["<turn|>", "<fallback>"]);
    assert!(
        mixed.eos_token_ids.is_empty(),
        "config.json speaks only where this file is absent"
    );
    let sampling = read(
        r#"{"do_sample":true,"temperature":0.6,"top_k":20,"top_p":0.95,"min_p":0.1,
            "repetition_penalty":1.1,"eos_token_id":7,"transformers_version":"5"}"#,
    )
    .unwrap();
    assert_eq!(
        (sampling.do_sample, sampling.temperature),
        (Some(true), Some(0.6))
    );
    assert_eq!((sampling.top_k, sampling.top_p), (Some(20), Some(0.95)));
    assert_eq!(
        (sampling.min_p, sampling.repetition_penalty),
        (Some(0.1), Some(1.1))
    );
    for text in [
        r#"{"eos_token_id":-1}"#,
        r#"{"eos_token_id":["a"]}"#,
        r#"{"eos_token_id":4294967296}"#,
        r#"{"stop":[1]}"#,
        r#"{"temperature":"hot"}"#,
        r#"{"temperature":1e300}"#,
        "[]",
        "{",
    ] {
        let error = read(text).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Malformed, "{error}");
        assert!(error.file().unwrap().ends_with("generation_config.json"));
    }
}

/// Every field is honoured, asks for nothing, or is refused by its name.
#[test]
fn generation_fields_are_honoured_neutral_or_refused() {
    let read = |file: &'static str, text: &str| {
        let weights = safetensors(&[EMBED]);
        let model = match file {
            "config.json" => with(llama(), serde_json::from_str(text).unwrap()),
            _ => llama(),
        };
        let mut files = vec![("model.safetensors", weights)];
        if file != "config.json" {
            files.push((file, text.as_bytes().to_vec()));
        }
        open_with(&model, &files).map(|checkpoint| checkpoint.generation)
    };
    for neutral in [
        r#"{"transformers_version":"5.17.0","_from_model_config":true,"pad_token_id":0,
            "bos_token_id":1,"use_cache":true,"cache_implementation":"hybrid","max_length":4096,
            "max_new_tokens":512,"output_scores":true}"#,
        r#"{"num_beams":1,"no_repeat_ngram_size":0,"typical_p":1.0,"guidance_scale":1,
            "suppress_tokens":[],"forced_eos_token_id":null,"anything":null,"min_length":0}"#,
    ] {
        read("generation_config.json", neutral).unwrap();
    }
    for (text, field) in [
        (r#"{"num_beams":4}"#, "num_beams"),
        (r#"{"no_repeat_ngram_size":3}"#, "no_repeat_ngram_size"),
        (r#"{"typical_p":0.9}"#, "typical_p"),
        (r#"{"suppress_tokens":[1]}"#, "suppress_tokens"),
        (r#"{"bad_words_ids":[[2]]}"#, "bad_words_ids"),
        (r#"{"min_new_tokens":8}"#, "min_new_tokens"),
        (r#"{"forced_bos_token_id":1}"#, "forced_bos_token_id"),
        (r#"{"penalty_alpha":0.6}"#, "penalty_alpha"),
        (r#"{"token_healing":true}"#, "token_healing"),
        (r#"{"quantum_sampling":1}"#, "quantum_sampling"),
    ] {
        let error = read("generation_config.json", text).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
        assert_eq!(error.item(), Some(&Item::Key(field.to_owned())));
        assert!(error.file().unwrap().ends_with("generation_config.json"));
    }
    // config.json has fields of its own, but those of generation are held to the same.
    read("config.json", r#"{"no_repeat_ngram_size":0,"anything":1}"#).unwrap();
    let error = read("config.json", r#"{"no_repeat_ngram_size":3}"#).unwrap_err();
    assert_eq!(
        error.item(),
        Some(&Item::Key("no_repeat_ngram_size".to_owned()))
    );
}

#[test]
fn end_tokens_outside_the_vocabulary_are_refused() {
    for file in ["config.json", "generation_config.json"] {
        let vocab_size = llama()["vocab_size"].as_u64().unwrap();
        let end = json!({"eos_token_id": [0, vocab_size]});
        let mut files = vec![("model.safetensors", safetensors(&[EMBED]))];
        let model = match file {
            "config.json" => with(llama(), end),
            _ => {
                files.push((file, end.to_string().into_bytes()));
                llama()
            }
        };
        let error = open_with(&model, &files).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Mismatch, "{error}");
        assert_eq!(error.item(), Some(&Item::Key("eos_token_id".to_owned())));
        assert!(error.file().unwrap().ends_with(file), "{error}");
        assert!(
            error
                .to_string()
                .contains(&format!("vocabulary of {vocab_size}"))
        );
    }
}

#[test]
fn tokenizer_files_are_found() {
    let mut files = vec![
        ("model.safetensors", safetensors(&[EMBED])),
        ("tokenizer.json", b"{}".to_vec()),
    ];
    let found = |files: &[(&str, Vec<u8>)]| {
        let TokenizerSource::Files {
            tokenizer_json,
            tokenizer_config,
        } = open_with(&llama(), files).unwrap().tokenizer
        else {
            panic!("there is a tokenizer.json");
        };
        assert!(tokenizer_json.ends_with("tokenizer.json"));
        tokenizer_config
    };
    assert_eq!(found(&files), None);
    files.push(("tokenizer_config.json", b"{}".to_vec()));
    assert!(found(&files).unwrap().ends_with("tokenizer_config.json"));
}
