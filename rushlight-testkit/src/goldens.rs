//! Tiny checkpoints with the logits that transformers computes from them.
//!
//! `data/make_goldens.py` is the recipe: bf16 weights, f32 arithmetic, prompts of 1, 9 and 70 tokens.

use std::path::{Path, PathBuf};

use serde::Deserialize;

/// Logits may differ by this much from the reference's, in f32 with f32 states.
pub const TOLERANCE: f32 = 2e-3;

/// The checkpoints, by folder name.
pub const NAMES: [&str; 4] = ["llama", "llama3-rope", "llama-tied-yarn", "gemma3-text"];

/// The folder of the test data.
pub fn data() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("data")
}

/// The folder of a golden checkpoint.
pub fn checkpoint(name: &str) -> PathBuf {
    data().join("goldens").join(name)
}

/// What the reference computed for one prompt.
#[derive(Clone, Debug, Deserialize)]
pub struct Case {
    /// Token ids.
    pub prompt: Vec<u32>,
    /// Logits after the last token, `[vocab]`.
    pub last_logits: Vec<f32>,
    /// The sum of the logits after each token.
    pub logits_row_sums: Vec<f32>,
    /// The likeliest token after each token.
    pub argmax: Vec<u32>,
    /// The greedy continuation.
    pub greedy: Vec<u32>,
    /// How far the likeliest token was ahead at each step of it.
    pub greedy_margins: Vec<f32>,
}

/// The reference's results for a golden checkpoint.
///
/// # Panics
/// If the data is not there or not as the recipe writes it.
pub fn cases(name: &str) -> Vec<Case> {
    #[derive(Deserialize)]
    struct Expected {
        cases: Vec<Case>,
    }
    let path = checkpoint(name).join("expected.json");
    let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let expected: Expected =
        serde_json::from_str(&text).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    expected.cases
}

/// The folder of the real models and tokenizers, which `make test` fetches; `None` where
/// `RUSHLIGHT_TEST_MODELS` is not set.
pub fn real_models() -> Option<PathBuf> {
    std::env::var_os("RUSHLIGHT_TEST_MODELS").map(PathBuf::from)
}

/// The path of a real model's file, for example `models/gemma-3-270m-q4_k_m.gguf`; says why there is
/// none where `RUSHLIGHT_TEST_MODELS` is not set.
///
/// # Panics
/// If the variable is set and the file is not there.
pub fn real_model(file: &str) -> Option<PathBuf> {
    let Some(folder) = real_models() else {
        eprintln!("RUSHLIGHT_TEST_MODELS is not set: {file} is not tested");
        return None;
    };
    let path = folder.join(file);
    assert!(path.exists(), "{} is not there", path.display());
    Some(path)
}
