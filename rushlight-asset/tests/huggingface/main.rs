//! Hugging Face directories: the spellings of `config.json`, shards, and what must be refused.
// Helpers outside test functions fail their test as tests do.
#![allow(clippy::unwrap_used)]

mod files;

use proptest::prelude::*;
use rushlight_asset::config::{Activation, AttentionKind, Rope, RopeScaling};
use rushlight_asset::error::Item;
use rushlight_asset::{AssetError, Checkpoint, Config, ErrorKind, TokenizerSource};
use rushlight_testkit::scratch::Scratch;
use serde_json::{Value, json};

/// A safetensors file of F32 tensors, all ones.
fn safetensors(tensors: &[(&str, &[usize])]) -> Vec<u8> {
    let mut header = serde_json::Map::new();
    let mut end = 0;
    for (name, shape) in tensors {
        let begin = end;
        end += shape.iter().product::<usize>() * 4;
        let entry = json!({"dtype": "F32", "shape": shape, "data_offsets": [begin, end]});
        header.insert((*name).to_owned(), entry);
    }
    let header = Value::Object(header).to_string();
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend(header.as_bytes());
    bytes.extend(1_f32.to_le_bytes().repeat(end / 4));
    bytes
}

const EMBED: (&str, &[usize]) = ("model.embed_tokens.weight", &[16, 8]);
const NORM: (&str, &[usize]) = ("model.norm.weight", &[8]);

fn llama() -> Value {
    json!({
        "model_type": "llama",
        "vocab_size": 16,
        "hidden_size": 8,
        "intermediate_size": 12,
        "num_hidden_layers": 3,
        "num_attention_heads": 2,
        "max_position_embeddings": 64,
        "rms_norm_eps": 1e-5,
        "tie_word_embeddings": true,
        "eos_token_id": 3,
    })
}

fn with(mut config: Value, changes: Value) -> Value {
    for (key, value) in changes.as_object().unwrap() {
        config[key] = value.clone();
    }
    config
}

fn open_with(config: &Value, files: &[(&str, Vec<u8>)]) -> Result<Checkpoint, AssetError> {
    let scratch = Scratch::new();
    scratch.write("config.json", config.to_string());
    for (name, bytes) in files {
        scratch.write(name, bytes);
    }
    Checkpoint::open(scratch.path())
}

fn open(config: &Value) -> Result<Checkpoint, AssetError> {
    open_with(
        config,
        &[("model.safetensors", safetensors(&[EMBED, NORM]))],
    )
}

fn config(changes: Value) -> Config {
    open(&with(llama(), changes)).unwrap().config
}

#[track_caller]
fn refused(changes: Value, kind: ErrorKind, words: &str) {
    let error = open(&with(llama(), changes)).expect_err("a refusal");
    assert_eq!(error.kind(), kind, "{error}");
    assert!(error.to_string().contains(words), "{error}");
    assert!(
        error
            .file()
            .is_some_and(|file| file.ends_with("config.json")),
        "{error}"
    );
}

#[test]
fn defaults_are_those_of_the_family() {
    let checkpoint = open(&llama()).unwrap();
    let config = &checkpoint.config;
    assert_eq!((config.kv_heads, config.head_dim), (2, 4));
    assert_eq!(config.activation, Activation::Silu);
    assert_eq!(config.attention, [AttentionKind::Full; 3]);
    let rope = Rope {
        theta: 10_000.0,
        dim: 4,
        scaling: RopeScaling::None,
    };
    assert_eq!(config.rope, rope);
    assert!(config.tied_head);
    assert_eq!(checkpoint.generation.eos_token_ids, [3]);
}

#[test]
fn missing_and_mistyped_fields_are_named() {
    for field in [
        "model_type",
        "vocab_size",
        "hidden_size",
        "intermediate_size",
        "num_hidden_layers",
        "num_attention_heads",
    ] {
        refused(
            json!({field: null}),
            ErrorKind::Missing,
            &format!("`{field}`"),
        );
        refused(
            json!({field: []}),
            ErrorKind::Malformed,
            &format!("`{field}`"),
        );
    }
    refused(
        json!({"num_hidden_layers": 1e12}),
        ErrorKind::Limit,
        "num_hidden_layers",
    );
    refused(
        json!({"hidden_size": 0}),
        ErrorKind::Malformed,
        "must not be zero",
    );
    refused(json!({"hidden_size": -8}), ErrorKind::Malformed, "is -8");
    refused(json!({"hidden_size": 9}), ErrorKind::Missing, "head_dim");
    let error = open_with(&json!([]), &[]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Malformed, "{error}");
}

#[test]
fn what_changes_the_mathematics_is_refused_by_name() {
    for (field, value) in [
        ("pretraining_tp", json!(2)),
        ("use_bidirectional_attention", json!(true)),
        ("use_bidirectional_attention", json!("all")),
        ("quantization_config", json!({"bits": 4})),
        ("quantization", json!({"bits": 4})),
        ("num_local_experts", json!(8)),
        ("residual_multiplier", json!(0.22)),
        ("logits_scaling", json!(8.0)),
        ("clip_qkv", json!(8.0)),
        ("rope_interleaved", json!(true)),
        ("no_rope_layers", json!([1, 1, 0])),
    ] {
        refused(json!({field: value}), ErrorKind::Unsupported, field);
    }
    refused(
        json!({"hidden_act": "relu2"}),
        ErrorKind::Unsupported,
        "`relu2`",
    );
    config(json!({"pretraining_tp": 1, "rope_interleaved": false, "quantization_config": null}));
}

#[test]
fn what_is_honoured() {
    let config = config(json!({
        "attn_logit_softcapping": 50.0,
        "final_logit_softcapping": 30,
        "embedding_multiplier": 12.0,
        "attention_multiplier": 0.0625,
        "hidden_act": "gelu_pytorch_tanh",
        "partial_rotary_factor": 0.5,
        "num_key_value_heads": 1,
        "head_dim": 8,
    }));
    assert_eq!(
        (config.attention_softcap, config.logit_softcap),
        (Some(50.0), Some(30.0))
    );
    assert_eq!(
        (config.embedding_scale, config.attention_scale),
        (12.0, Some(0.0625))
    );
    assert_eq!(config.activation, Activation::GeluTanh);
    assert_eq!(
        (config.rope.dim, config.kv_heads, config.head_dim),
        (4, 1, 8)
    );
}

#[test]
fn rotary_embeddings_in_both_spellings() {
    let llama3 = RopeScaling::Llama3 {
        factor: 8.0,
        low_freq_factor: 1.0,
        high_freq_factor: 4.0,
        original_context: 32,
    };
    let numbers = json!({
        "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 32,
    });
    for kind in ["rope_type", "type"] {
        let scaling = with(numbers.clone(), json!({kind: "llama3"}));
        let older = config(json!({"rope_theta": 5e5, "rope_scaling": scaling}));
        assert_eq!((older.rope.theta, &older.rope.scaling), (5e5, &llama3));
    }
    let newer = with(numbers, json!({"rope_type": "llama3", "rope_theta": 5e5}));
    let newer = config(json!({"rope_parameters": newer}));
    assert_eq!((newer.rope.theta, newer.rope.scaling), (5e5, llama3));
    let linear = config(json!({"rope_scaling": {"type": "linear", "factor": 2}}));
    assert_eq!(linear.rope.scaling, RopeScaling::Linear { factor: 2.0 });
    refused(
        json!({"rope_scaling": {"type": "linear"}}),
        ErrorKind::Missing,
        "rope_scaling.factor",
    );
    refused(
        json!({"rope_parameters": {"rope_type": "longrope", "factor": 2.0}}),
        ErrorKind::Unsupported,
        "`longrope`",
    );
    refused(
        json!({"rope_scaling": {"type": "linear", "factor": -2.0}}),
        ErrorKind::Mismatch,
        "out of range",
    );
}

#[test]
fn yarn() {
    let yarn = |changes: Value| {
        let base = json!({
            "rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16,
        });
        json!({"rope_parameters": with(base, changes)})
    };
    let expected = |beta_fast, attention_factor| RopeScaling::Yarn {
        factor: 4.0,
        original_context: 16,
        beta_fast,
        beta_slow: 1.0,
        attention_factor,
    };
    assert_eq!(config(yarn(json!({}))).rope.scaling, expected(32.0, None));
    let stated = json!({"beta_fast": 16, "attention_factor": 1.5, "truncate": true});
    assert_eq!(config(yarn(stated)).rope.scaling, expected(16.0, Some(1.5)));
    for field in ["mscale", "mscale_all_dim"] {
        refused(yarn(json!({field: 1.0})), ErrorKind::Unsupported, field);
    }
    refused(
        yarn(json!({"truncate": false})),
        ErrorKind::Unsupported,
        "truncate",
    );
}

#[test]
fn windows() {
    let window = AttentionKind::Sliding { window: 16 };
    let full = AttentionKind::Full;
    let attention = |changes: Value| config(changes).attention;
    assert_eq!(attention(json!({"sliding_window": 16})), [window; 3]);
    assert_eq!(attention(json!({"sliding_window": null})), [full; 3]);
    let unused = json!({"sliding_window": 16, "use_sliding_window": false});
    assert_eq!(attention(unused), [full; 3]);
    let pattern = json!({"sliding_window": 16, "sliding_window_pattern": 2});
    assert_eq!(attention(pattern), [window, full, window]);
    let first = json!({"sliding_window": 16, "use_sliding_window": true, "max_window_layers": 2});
    assert_eq!(attention(first), [full, full, window]);
    let types = |types: Value| json!({"sliding_window": 16, "layer_types": types});
    let listed = types(json!([
        "full_attention",
        "sliding_attention",
        "full_attention"
    ]));
    assert_eq!(attention(listed), [full, window, full]);
    refused(
        types(json!(["full_attention"])),
        ErrorKind::Mismatch,
        "1 entries for 3 layers",
    );
    let mamba = types(json!(["mamba", "full_attention", "full_attention"]));
    refused(mamba, ErrorKind::Unsupported, "\"mamba\"");
    refused(
        json!({"layer_types": ["sliding_attention", "full_attention", "full_attention"]}),
        ErrorKind::Missing,
        "sliding_window",
    );
}

#[test]
fn gemma3_as_published() {
    // The text tower of a multimodal model, which leans on the family's defaults.
    let multimodal = json!({
        "model_type": "gemma3",
        "eos_token_id": [1, 6],
        "text_config": {
            "model_type": "gemma3_text",
            "vocab_size": 16,
            "hidden_size": 8,
            "intermediate_size": 12,
            "num_hidden_layers": 7,
            "rope_scaling": {"factor": 8.0, "rope_type": "linear"},
            "sliding_window": 1024,
        },
        "vision_config": {"hidden_size": 1152, "num_hidden_layers": 27},
    });
    let tensors = safetensors(&[
        ("language_model.model.embed_tokens.weight", &[16, 8]),
        (
            "language_model.model.layers.0.post_attention_layernorm.weight",
            &[8],
        ),
        (
            "vision_tower.vision_model.embeddings.patch_embedding.bias",
            &[4],
        ),
    ]);
    let checkpoint = open_with(&multimodal, &[("model.safetensors", tensors)]).unwrap();
    let config = &checkpoint.config;
    assert_eq!(config.architecture, "gemma3");
    assert_eq!(
        (config.heads, config.kv_heads, config.head_dim),
        (8, 4, 256)
    );
    assert_eq!(config.rope.scaling, RopeScaling::Linear { factor: 8.0 });
    assert_eq!(config.rope.theta, 1e6);
    let sliding = config.sliding_rope.as_ref().unwrap();
    assert_eq!(
        (sliding.theta, &sliding.scaling),
        (10_000.0, &RopeScaling::None)
    );
    assert_eq!(config.attention[5], AttentionKind::Full);
    assert_eq!(config.attention[6], AttentionKind::Sliding { window: 1024 });
    assert_eq!(
        (config.norm_offset, config.embedding_scale),
        (1.0, 8_f32.sqrt())
    );
    assert_eq!(config.attention_scale, None, "256^-1/2 is 1/sqrt(head_dim)");
    assert_eq!(checkpoint.generation.eos_token_ids, [1, 6]);
    assert!(
        checkpoint
            .weights
            .find("layers.0.post_attention_norm.weight")
            .is_some()
    );
    let unrecognised: Vec<&str> = checkpoint.weights.unrecognised().collect();
    assert_eq!(
        unrecognised,
        ["vision_tower.vision_model.embeddings.patch_embedding.bias"]
    );

    let mut larger = multimodal;
    larger["text_config"]["query_pre_attn_scalar"] = json!(168);
    let tensors = safetensors(&[("language_model.model.embed_tokens.weight", &[16, 8])]);
    let config = open_with(&larger, &[("model.safetensors", tensors)])
        .unwrap()
        .config;
    assert_eq!(config.attention_scale, Some((1.0 / 168_f64.sqrt()) as f32));
}

#[test]
fn a_tied_head_is_the_embedding_whatever_the_file_holds() {
    let head: (&str, &[usize]) = ("lm_head.weight", &[16, 8]);
    let both = || safetensors(&[EMBED, head, NORM]);
    let tied = open_with(&llama(), &[("model.safetensors", both())]).unwrap();
    assert!(tied.config.tied_head);
    assert!(tied.weights.find("head.weight").is_none());
    assert_eq!(tied.weights.skipped()[0].name, "lm_head.weight");
    assert!(tied.weights.find("final_norm.weight").is_some());
    let own = with(llama(), json!({"tie_word_embeddings": false}));
    let own = open_with(&own, &[("model.safetensors", both())]).unwrap();
    assert!(!own.config.tied_head);
    assert!(own.weights.find("head.weight").is_some());
}

#[test]
fn rotary_frequencies_are_left_out_and_integers_refused() {
    let name = "model.layers.0.self_attn.rotary_emb.inv_freq";
    let file = safetensors(&[EMBED, (name, &[2])]);
    let checkpoint = open_with(&llama(), &[("model.safetensors", file)]).unwrap();
    assert_eq!(checkpoint.weights.skipped()[0].name, name);
    let header =
        r#"{"model.embed_tokens.weight":{"dtype":"I8","shape":[16,8],"data_offsets":[0,128]}}"#;
    let mut file = (header.len() as u64).to_le_bytes().to_vec();
    file.extend(header.as_bytes());
    file.extend([0; 128]);
    let error = open_with(&llama(), &[("model.safetensors", file)]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.to_string().contains("elements of type I8"), "{error}");
}

#[test]
fn the_vocabulary_is_the_embedding_s() {
    let error = open(&with(llama(), json!({"vocab_size": 17}))).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Mismatch);
    assert!(
        error.to_string().contains("16 rows for a vocabulary of 17"),
        "{error}"
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// Odd values in any field end in an error or a sound configuration, never in a panic.
    #[test]
    fn odd_fields_never_panic(
        field in prop::sample::select(vec![
            "vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers",
            "num_attention_heads", "num_key_value_heads", "head_dim", "max_position_embeddings",
            "rms_norm_eps", "rope_theta", "rope_scaling", "rope_parameters", "sliding_window",
            "sliding_window_pattern", "max_window_layers", "layer_types", "partial_rotary_factor",
            "query_pre_attn_scalar", "attention_multiplier", "text_config", "eos_token_id",
        ]),
        value in prop_oneof![
            Just(json!(0)), Just(json!(-1)), Just(json!(1)), Just(json!(u64::MAX)),
            Just(json!(1e300)), Just(json!(0.5)), Just(json!(1e-300)), Just(json!("x")),
            Just(json!([])), Just(json!({})), Just(json!([1, null, "full_attention"])),
            Just(json!({"full_attention": {}, "sliding_attention": {"rope_theta": 0}})),
            Just(json!({"rope_type": "yarn", "factor": 0.0})),
            (0..5_000_u32).prop_map(|n| json!(n)),
            any::<f64>().prop_map(|n| json!(n)),
        ],
    ) {
        if let Ok(checkpoint) = open(&with(llama(), json!({field: value}))) {
            let config = checkpoint.config;
            prop_assert_eq!(config.attention.len(), config.layers);
            prop_assert!(config.rope.dim <= config.head_dim);
            prop_assert!(config.heads.is_multiple_of(config.kv_heads));
        }
    }
}
