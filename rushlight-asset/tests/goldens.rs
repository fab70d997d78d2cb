//! The reference checkpoints that transformers wrote: their configuration and names.
// Helpers outside test functions fail their test as tests do.
#![allow(clippy::unwrap_used)]

use std::path::PathBuf;

use rushlight_asset::config::{Activation, AttentionKind, RopeScaling};
use rushlight_asset::{Checkpoint, Container, Format, TokenizerSource};

fn golden(name: &str) -> Checkpoint {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../rushlight-testkit/data/goldens");
    Checkpoint::open(&root.join(name)).unwrap()
}

#[test]
fn llama() {
    let checkpoint = golden("llama");
    let config = &checkpoint.config;
    assert_eq!(config.architecture, "llama");
    assert_eq!(
        (
            config.layers,
            config.heads,
            config.kv_heads,
            config.head_dim
        ),
        (4, 4, 2, 16)
    );
    assert_eq!((config.vocab_size, config.context), (320, 512));
    assert_eq!((config.norm_eps, config.norm_offset), (1e-6, 0.0));
    assert_eq!(config.rope.scaling, RopeScaling::None);
    assert_eq!((config.rope.theta, config.rope.dim), (10_000.0, 16));
    assert_eq!(config.sliding_rope, None);
    assert_eq!(
        (config.attention_scale, config.embedding_scale),
        (None, 1.0)
    );
    assert!(!config.tied_head);
    assert_eq!(config.activation, Activation::Silu);
    assert_eq!(checkpoint.source.container, Container::Safetensors);
    assert_eq!(checkpoint.tokenizer, TokenizerSource::None);
    assert_eq!(checkpoint.generation.eos_token_ids, [2]);
    assert_eq!(checkpoint.weights.len(), 3 + 4 * 9);
    assert_eq!(checkpoint.weights.unrecognised().len(), 0);
    let down = checkpoint.weights.find("layers.3.down.weight").unwrap();
    assert_eq!(
        (down.shape(), down.format()),
        (&[64, 128][..], Format::BF16)
    );
    assert_eq!(down.row(63).unwrap().len(), 256);
    assert!(down.row(64).is_err());
}

#[test]
fn llama3_rope() {
    let config = golden("llama3-rope").config;
    assert_eq!(
        config.rope.scaling,
        RopeScaling::Llama3 {
            factor: 8.0,
            low_freq_factor: 1.0,
            high_freq_factor: 4.0,
            original_context: 64
        }
    );
}

#[test]
fn llama_tied_yarn() {
    let checkpoint = golden("llama-tied-yarn");
    assert_eq!(
        checkpoint.config.rope.scaling,
        RopeScaling::Yarn {
            factor: 4.0,
            original_context: 64,
            beta_fast: 32.0,
            beta_slow: 1.0,
            attention_factor: None
        }
    );
    assert!(checkpoint.config.tied_head);
    assert!(checkpoint.weights.find("head.weight").is_none());
}

#[test]
fn gemma3() {
    let checkpoint = golden("gemma3-text");
    let config = &checkpoint.config;
    assert_eq!(config.architecture, "gemma3");
    assert_eq!((config.norm_offset, config.embedding_scale), (1.0, 8.0));
    assert_eq!(config.activation, Activation::GeluTanh);
    assert!(config.tied_head);
    let window = AttentionKind::Sliding { window: 24 };
    let mut kinds = vec![window; 7];
    kinds[5] = AttentionKind::Full;
    assert_eq!(config.attention, kinds);
    assert_eq!(config.rope.theta, 1_000_000.0);
    assert_eq!(config.sliding_rope.as_ref().unwrap().theta, 10_000.0);
    assert_eq!(checkpoint.weights.unrecognised().len(), 0);
    assert_eq!(checkpoint.weights.len(), 2 + 7 * 13);
    let norm = checkpoint
        .weights
        .find("layers.6.post_mlp_norm.weight")
        .unwrap();
    assert_eq!(
        norm.stored_name(),
        "model.layers.6.post_feedforward_layernorm.weight"
    );
    assert_eq!(norm.shape(), [64]);
    assert_eq!((norm.rows(), norm.cols()), (1, 64));
}
