//! Where the real models are, and tiny ones made here.

use std::path::PathBuf;
use std::sync::OnceLock;

use rushlight_text::{GgufVocabulary, Tokenizer};
use serde_json::Value;

use crate::gguf_file;

/// The directory of test models. Unset, it says so and the test is over; set, a missing file is a failure.
pub(crate) fn directory() -> Option<PathBuf> {
    let directory = std::env::var_os("RUSHLIGHT_TEST_MODELS");
    if directory.is_none() {
        println!("skipped: RUSHLIGHT_TEST_MODELS names no directory of models");
    }
    directory.map(PathBuf::from)
}

/// Names in the golden file, and directories of their tokenizers.
pub(crate) const HUB: [(&str, &str); 4] = [
    ("qwen3", "qwen3"),
    ("gemma3", "gemma3"),
    ("llama3.1", "llama3_1"),
    ("deepseek-v3", "deepseek_v3"),
];

/// A tokenizer from its `tokenizer.json`, loaded once.
pub(crate) fn hub(name: &str) -> Option<&'static Tokenizer> {
    static LOADED: [OnceLock<Tokenizer>; 5] = [const { OnceLock::new() }; 5];
    let root = directory()?.join("tokenizers");
    let names = ["qwen3", "gemma3", "llama3_1", "deepseek_v3", "gptoss"];
    let index = names.iter().position(|known| *known == name).unwrap();
    Some(LOADED[index].get_or_init(|| {
        let model = root.join(name);
        Tokenizer::from_files(
            &model.join("tokenizer.json"),
            Some(&model.join("tokenizer_config.json")),
        )
        .unwrap()
    }))
}

pub(crate) fn smollm2() -> Option<&'static Tokenizer> {
    static LOADED: OnceLock<Tokenizer> = OnceLock::new();
    let path = directory()?.join("models/SmolLM2-135M-Instruct.Q4_1.gguf");
    Some(LOADED.get_or_init(|| Tokenizer::from_gguf(gguf_file::vocabulary(&path)).unwrap()))
}

pub(crate) fn gemma3_gguf() -> Option<&'static Tokenizer> {
    static LOADED: OnceLock<Tokenizer> = OnceLock::new();
    let path = directory()?.join("models/gemma-3-270m-q4_k_m.gguf");
    Some(LOADED.get_or_init(|| Tokenizer::from_gguf(gguf_file::vocabulary(&path)).unwrap()))
}

/// What `transformers` renders and encodes.
pub(crate) fn goldens() -> &'static Value {
    static LOADED: OnceLock<Value> = OnceLock::new();
    LOADED.get_or_init(|| {
        let path = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../rushlight-testkit/data/chat-templates.json"
        );
        serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
    })
}

pub(crate) fn ids(value: &Value) -> Vec<u32> {
    value
        .as_array()
        .unwrap()
        .iter()
        .map(|id| id.as_u64().unwrap() as u32)
        .collect()
}

/// A SentencePiece vocabulary of all bytes, the printable ASCII characters and the given tokens with their types.
pub(crate) fn tiny(tokens: &[(&str, i32)]) -> GgufVocabulary {
    let mut vocabulary = GgufVocabulary {
        model: "llama".to_owned(),
        scores: Some(Vec::new()),
        token_types: Some(Vec::new()),
        add_space_prefix: Some(false),
        add_bos: Some(false),
        ..GgufVocabulary::default()
    };
    let mut push = |token: &str, kind: i32, score: f32| {
        vocabulary.tokens.push(token.to_owned());
        vocabulary.token_types.as_mut().unwrap().push(kind);
        vocabulary.scores.as_mut().unwrap().push(score);
    };
    for (token, kind) in tokens {
        push(token, *kind, -1.0);
    }
    for byte in 0..=255u8 {
        push(&format!("<0x{byte:02X}>"), 6, 0.0);
    }
    for c in ('!'..='~').chain(['▁']) {
        push(&c.to_string(), 1, -5.0);
    }
    vocabulary
}
