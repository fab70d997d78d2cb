//! Published GGUF files, found through `RUSHLIGHT_TEST_MODELS`.
#![allow(clippy::print_stderr)]

use std::path::PathBuf;

use rushlight_asset::config::{Activation, AttentionKind, RopeScaling};
use rushlight_asset::{Checkpoint, Container, Format, TokenizerSource};

/// The path of a test model, or `None` where tests run without models.
fn model(name: &str) -> Option<PathBuf> {
    let Some(root) = std::env::var_os("RUSHLIGHT_TEST_MODELS") else {
        eprintln!("skipped: RUSHLIGHT_TEST_MODELS does not say where models are");
        return None;
    };
    Some(PathBuf::from(root).join("models").join(name))
}

#[test]
fn smollm2() {
    let Some(path) = model("SmolLM2-135M-Instruct.Q4_1.gguf") else {
        return;
    };
    let checkpoint = Checkpoint::open(&path).unwrap();
    let config = &checkpoint.config;
    assert_eq!(config.architecture, "llama");
    assert_eq!(
        (
            config.layers,
            config.heads,
            config.kv_heads,
            config.head_dim
        ),
        (30, 9, 3, 64)
    );
    assert_eq!((config.vocab_size, config.hidden_size), (49_152, 576));
    assert_eq!((config.intermediate_size, config.context), (1_536, 8_192));
    assert_eq!((config.norm_eps, config.norm_offset), (1e-5, 0.0));
    assert_eq!(config.activation, Activation::Silu);
    assert_eq!(config.rope.theta, 100_000.0);
    assert_eq!(config.rope.scaling, RopeScaling::None);
    assert!(config.tied_head);
    assert_eq!(config.attention, vec![AttentionKind::Full; 30]);
    assert_eq!(checkpoint.source.container, Container::Gguf { version: 3 });
    assert_eq!(checkpoint.weights.len(), 272);
    assert_eq!(checkpoint.weights.unrecognised().len(), 0);
    // As the model's card has it.
    assert_eq!(checkpoint.parameter_count(), 134_515_008);
    let shares = checkpoint.weights.by_format();
    assert_eq!(shares[0].format, Format::Q4_1);
    let embed = checkpoint.weights.find("embed.weight").unwrap();
    assert_eq!(
        (embed.format(), embed.shape()),
        (Format::Q8_0, &[49_152, 576][..])
    );
    let q = checkpoint.weights.find("layers.29.q.weight").unwrap();
    assert!(q.is_reordered());
    assert!(
        !checkpoint
            .weights
            .find("layers.29.v.weight")
            .unwrap()
            .is_reordered()
    );
    let TokenizerSource::Gguf(tokenizer) = &checkpoint.tokenizer else {
        panic!("the tokenizer is in the file");
    };
    assert_eq!(
        (tokenizer.model.as_str(), tokenizer.pre.as_deref()),
        ("gpt2", Some("smollm"))
    );
    assert_eq!(
        (tokenizer.tokens.len(), tokenizer.merges.len()),
        (49_152, 48_900)
    );
    assert_eq!(
        (tokenizer.bos, tokenizer.eos, tokenizer.add_bos),
        (Some(1), Some(2), Some(false))
    );
    assert!(
        tokenizer
            .chat_template
            .as_deref()
            .unwrap()
            .contains("<|im_start|>")
    );
    assert_eq!(checkpoint.generation.eos_token_ids, [2]);
    checkpoint.weights.intact().unwrap();
}

#[test]
fn gemma3() {
    let Some(path) = model("gemma-3-270m-q4_k_m.gguf") else {
        return;
    };
    let checkpoint = Checkpoint::open(&path).unwrap();
    let config = &checkpoint.config;
    assert_eq!(config.architecture, "gemma3");
    assert_eq!(
        (
            config.layers,
            config.heads,
            config.kv_heads,
            config.head_dim
        ),
        (18, 4, 1, 256)
    );
    assert_eq!((config.vocab_size, config.hidden_size), (262_144, 640));
    assert_eq!(config.activation, Activation::GeluTanh);
    assert_eq!(config.norm_offset, 0.0);
    assert_eq!(config.embedding_scale, 640_f32.sqrt());
    assert_eq!(config.attention_scale, None);
    assert!(config.tied_head);
    assert_eq!(config.rope.theta, 1_000_000.0);
    assert_eq!(config.sliding_rope.as_ref().unwrap().theta, 10_000.0);
    for (layer, kind) in config.attention.iter().enumerate() {
        let full = layer % 6 == 5;
        let window = AttentionKind::Sliding { window: 512 };
        assert_eq!(
            *kind,
            if full { AttentionKind::Full } else { window },
            "{layer}"
        );
    }
    assert_eq!(checkpoint.weights.unrecognised().len(), 0);
    assert_eq!(checkpoint.parameter_count(), 268_098_176);
    let down = checkpoint.weights.find("layers.0.down.weight").unwrap();
    assert_eq!(
        (down.format(), down.shape()),
        (Format::Q6_K, &[640, 2_048][..])
    );
    for name in [
        "attention_norm",
        "q_norm",
        "k_norm",
        "post_attention_norm",
        "mlp_norm",
        "post_mlp_norm",
    ] {
        assert!(
            checkpoint
                .weights
                .find(&format!("layers.17.{name}.weight"))
                .is_some(),
            "{name}"
        );
    }
    let TokenizerSource::Gguf(tokenizer) = &checkpoint.tokenizer else {
        panic!("the tokenizer is in the file");
    };
    assert_eq!(tokenizer.model, "llama");
    assert_eq!(tokenizer.scores.as_ref().unwrap().len(), 262_144);
    assert_eq!(
        tokenizer.token_types.as_ref().unwrap()[..6],
        [3, 3, 3, 3, 3, 4]
    );
    assert_eq!((tokenizer.bos, tokenizer.eos), (Some(2), Some(1)));
}
