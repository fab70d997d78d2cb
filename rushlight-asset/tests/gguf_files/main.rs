//! GGUF files on disk: split ones, reordered rows, tied heads, and parts that disagree.
// Helpers outside test functions fail their test as tests do.
#![allow(clippy::unwrap_used)]

mod parts;

use std::path::Path;

use proptest::prelude::*;
use rushlight_asset::config::{AttentionKind, RopeScaling};
use rushlight_asset::{AssetError, Checkpoint, Config, ErrorKind, Tensor, TokenizerSource};
use rushlight_testkit::gguf::GgufBuilder;
use rushlight_testkit::scratch::Scratch;

fn open(builder: &GgufBuilder) -> Result<Checkpoint, AssetError> {
    let scratch = Scratch::new();
    let path = scratch.path().join("model.gguf");
    builder.write(&path).unwrap();
    // On Unix a mapping outlives its file's name.
    Checkpoint::open(&path)
}

#[track_caller]
fn refused(builder: &GgufBuilder, kind: ErrorKind, words: &str) {
    let error = open(builder).expect_err("a refusal");
    assert_eq!(error.kind(), kind, "{error}");
    assert!(error.to_string().contains(words), "{error}");
    assert!(error.file().is_some(), "{error} names its file");
}

fn config(builder: &GgufBuilder) -> Config {
    open(builder).unwrap().config
}

fn floats(bytes: &[u8]) -> Vec<f32> {
    let (values, rest) = bytes.as_chunks::<4>();
    assert!(rest.is_empty());
    values.iter().map(|v| f32::from_le_bytes(*v)).collect()
}

#[test]
fn a_whole_model() {
    let checkpoint = open(&GgufBuilder::tiny_llama()).unwrap();
    assert_eq!(checkpoint.config.vocab_size, 259);
    assert_eq!(checkpoint.config.head_dim, 8);
    assert!(checkpoint.config.tied_head);
    assert_eq!(checkpoint.source.name.as_deref(), Some("Tiny"));
    assert_eq!(checkpoint.generation.eos_token_ids, [258]);
    assert_eq!(checkpoint.weights.unrecognised().len(), 0);
    assert_eq!(checkpoint.tokenizer.kind(), "gpt2");
    let tokens = checkpoint
        .source
        .metadata
        .iter()
        .find(|(key, _)| key == "tokenizer.ggml.tokens");
    assert_eq!(tokens.unwrap().1, "259 strings");
    let names: Vec<&str> = checkpoint
        .weights
        .iter()
        .map(Tensor::name)
        .take(3)
        .collect();
    assert_eq!(
        names,
        ["embed.weight", "final_norm.weight", "layers.0.q.weight"]
    );
}

/// The converter's `reshape(heads, 2, half, cols).swapaxes(1, 2)`, written out.
fn interleave(rows: &[Vec<f32>], heads: usize) -> Vec<f32> {
    let half = rows.len() / heads / 2;
    let mut stored = Vec::new();
    for head in 0..heads {
        for pair in 0..half {
            for side in 0..2 {
                stored.extend(&rows[head * 2 * half + side * half + pair]);
            }
        }
    }
    stored
}

#[test]
fn llama_rows_come_back_in_the_order_of_halves() {
    let rows =
        |count: usize| -> Vec<Vec<f32>> { (0..count).map(|row| vec![row as f32; 32]).collect() };
    let builder = GgufBuilder::tiny_llama()
        .without_tensor("blk.0.attn_q.weight")
        .without_tensor("blk.0.attn_k.weight")
        .f32_tensor("blk.0.attn_q.weight", &[32, 32], &interleave(&rows(32), 4))
        .f32_tensor("blk.0.attn_k.weight", &[16, 32], &interleave(&rows(16), 2))
        .f32_tensor(
            "blk.0.attn_k.bias",
            &[16],
            &interleave(&(0..16).map(|row| vec![row as f32]).collect::<Vec<_>>(), 2),
        );
    let checkpoint = open(&builder).unwrap();
    for (name, count) in [("layers.0.q.weight", 32), ("layers.0.k.weight", 16)] {
        let tensor = checkpoint.weights.find(name).unwrap();
        assert!(tensor.is_reordered());
        for (row, expected) in rows(count).iter().enumerate() {
            assert_eq!(
                &floats(tensor.row(row).unwrap()),
                expected,
                "{name} row {row}"
            );
        }
        assert_eq!(floats(&tensor.bytes()), rows(count).concat());
    }
    let bias = checkpoint.weights.find("layers.0.k.bias").unwrap();
    let expected: Vec<f32> = (0..16_u8).map(f32::from).collect();
    assert_eq!(floats(bias.row(0).unwrap()), expected);
    assert_eq!(floats(&bias.bytes()), expected);
}

#[test]
fn heads_that_do_not_divide_the_rows_are_refused() {
    let builder = GgufBuilder::tiny_llama()
        .without_tensor("blk.0.attn_q.weight")
        .f32_tensor("blk.0.attn_q.weight", &[30, 32], &[0.0; 960]);
    refused(&builder, ErrorKind::Mismatch, "30 rows are not 4 heads");
}

#[test]
fn a_head_of_its_own_is_not_tied() {
    let builder =
        GgufBuilder::tiny_llama().f32_tensor("output.weight", &[259, 32], &vec![0.0; 259 * 32]);
    let checkpoint = open(&builder).unwrap();
    assert!(!checkpoint.config.tied_head);
    assert!(checkpoint.weights.find("head.weight").is_some());
}

#[test]
fn unknown_tensors_are_kept_and_listed() {
    let builder = GgufBuilder::tiny_llama().f32_tensor("blk.0.extra.weight", &[8], &[0.0; 8]);
    let checkpoint = open(&builder).unwrap();
    let unrecognised: Vec<&str> = checkpoint.weights.unrecognised().collect();
    assert_eq!(unrecognised, ["blk.0.extra.weight"]);
    assert!(checkpoint.weights.find("blk.0.extra.weight").is_some());
}

#[test]
fn a_file_cannot_smuggle_in_a_canonical_name() {
    let builder = GgufBuilder::tiny_llama().f32_tensor("embed.weight", &[8], &[0.0; 8]);
    refused(
        &builder,
        ErrorKind::Malformed,
        "a second tensor for `embed.weight`",
    );
}

#[test]
fn vocabulary_embedding_and_tokenizer_must_agree() {
    let builder = GgufBuilder::tiny_llama().u32("llama.vocab_size", 300);
    refused(
        &builder,
        ErrorKind::Mismatch,
        "259 rows for a vocabulary of 300",
    );
    let builder = GgufBuilder::tiny_llama()
        .without_tensor("token_embd.weight")
        .f32_tensor("token_embd.weight", &[260, 32], &vec![0.0; 260 * 32]);
    refused(
        &builder,
        ErrorKind::Mismatch,
        "260 rows for a vocabulary of 259",
    );
    let builder = GgufBuilder::tiny_llama()
        .u32("llama.vocab_size", 259)
        .without("tokenizer.ggml.tokens")
        .without("tokenizer.ggml.token_type")
        .strings("tokenizer.ggml.tokens", &vec!["x"; 300]);
    refused(
        &builder,
        ErrorKind::Mismatch,
        "300 tokens for a vocabulary of 259",
    );
    let builder = GgufBuilder::tiny_llama()
        .without("tokenizer.ggml.token_type")
        .i32s("tokenizer.ggml.token_type", &[1, 1]);
    refused(&builder, ErrorKind::Mismatch, "2 entries for 259 tokens");
    let builder = GgufBuilder::tiny_llama()
        .without("tokenizer.ggml.eos_token_id")
        .u32("tokenizer.ggml.eos_token_id", 259);
    refused(
        &builder,
        ErrorKind::Mismatch,
        "token 259 of a vocabulary of 259",
    );
}

#[test]
fn sampling_keys_are_honoured_neutral_or_refused() {
    let neutral = GgufBuilder::tiny_llama()
        .f32("general.sampling.temp", 0.7)
        .i32("general.sampling.top_k", 20)
        .f32("general.sampling.penalty_repeat", 1.1)
        .i32("general.sampling.penalty_last_n", -1)
        .i32("general.sampling.mirostat", 0)
        .f32("general.sampling.mirostat_tau", 5.0)
        .f32("general.sampling.xtc_probability", 0.0);
    let generation = open(&neutral).unwrap().generation;
    assert_eq!(
        (generation.temperature, generation.top_k),
        (Some(0.7), Some(20))
    );
    assert_eq!(generation.repetition_penalty, Some(1.1));
    let tiny = GgufBuilder::tiny_llama;
    for (builder, key) in [
        (tiny().i32("general.sampling.mirostat", 2), "mirostat"),
        (
            tiny().f32("general.sampling.xtc_probability", 0.5),
            "xtc_probability",
        ),
        (
            tiny().string("general.sampling.sequence", "top_k;temperature"),
            "sequence",
        ),
        (
            tiny()
                .f32("general.sampling.penalty_repeat", 1.1)
                .i32("general.sampling.penalty_last_n", 64),
            "penalty_last_n",
        ),
        (tiny().f32("general.sampling.typ_p", 0.9), "typ_p"),
    ] {
        let key = format!("general.sampling.{key}");
        refused(&builder, ErrorKind::Unsupported, &key);
    }
    // A window of no penalty is none.
    open(&tiny().i32("general.sampling.penalty_last_n", 64)).unwrap();
}

#[test]
fn a_tokenizer_may_be_absent_and_an_id_unset() {
    let builder = GgufBuilder::tiny_llama()
        .without("tokenizer.ggml.eos_token_id")
        .i32("tokenizer.ggml.eos_token_id", -1);
    assert!(open(&builder).unwrap().generation.eos_token_ids.is_empty());
    let builder = GgufBuilder::tiny_llama()
        .u32("llama.vocab_size", 259)
        .without("tokenizer.ggml.model");
    assert_eq!(open(&builder).unwrap().tokenizer, TokenizerSource::None);
}

#[test]
fn missing_keys_are_named() {
    for suffix in [
        "block_count",
        "context_length",
        "embedding_length",
        "feed_forward_length",
        "attention.head_count",
        "attention.layer_norm_rms_epsilon",
    ] {
        let key = format!("llama.{suffix}");
        refused(
            &GgufBuilder::tiny_llama().without(&key),
            ErrorKind::Missing,
            &key,
        );
    }
    refused(
        &GgufBuilder::tiny_llama().without("general.architecture"),
        ErrorKind::Missing,
        "general.architecture",
    );
    // An architecture that nobody knows: the keys it lacks are its own, and the known are listed.
    let builder = GgufBuilder::tiny_llama()
        .without("general.architecture")
        .string("general.architecture", "mamba");
    refused(&builder, ErrorKind::Missing, "mamba.block_count");
    refused(&builder, ErrorKind::Missing, "llama, gemma3");
}

#[test]
fn an_architecture_is_passed_through() {
    let text = "general.architecture";
    let mut builder = GgufBuilder::new().string(text, "novel");
    for (suffix, value) in [
        ("block_count", 1),
        ("context_length", 64),
        ("embedding_length", 8),
        ("feed_forward_length", 8),
        ("attention.head_count", 2),
        ("vocab_size", 4),
    ] {
        builder = builder.u32(&format!("novel.{suffix}"), value);
    }
    builder = builder
        .f32("novel.attention.layer_norm_rms_epsilon", 1e-6)
        .f32_tensor("token_embd.weight", &[4, 8], &[0.0; 32]);
    let config = config(&builder);
    assert_eq!(
        (config.architecture.as_str(), config.kv_heads),
        ("novel", 2)
    );
}

#[test]
fn absurd_hyperparameters_are_refused() {
    for suffix in [
        "block_count",
        "context_length",
        "embedding_length",
        "attention.head_count",
    ] {
        let key = format!("llama.{suffix}");
        let without = GgufBuilder::tiny_llama().without(&key);
        refused(
            &without.clone().u32(&key, 0),
            ErrorKind::Malformed,
            "must not be zero",
        );
        refused(&without.clone().u32(&key, u32::MAX), ErrorKind::Limit, &key);
        refused(
            &without.i32(&key, -1),
            ErrorKind::Malformed,
            "should be a non-negative integer",
        );
    }
    let key = "llama.attention.head_count_kv";
    let builder = GgufBuilder::tiny_llama().without(key).u32(key, 3);
    refused(
        &builder,
        ErrorKind::Mismatch,
        "4 query heads cannot share 3",
    );
    let builder = GgufBuilder::tiny_llama().u32("llama.rope.dimension_count", 16);
    refused(&builder, ErrorKind::Mismatch, "16 of a head's 8 elements");
    let builder = GgufBuilder::tiny_llama()
        .without("llama.rope.freq_base")
        .f32("llama.rope.freq_base", f32::NAN);
    refused(&builder, ErrorKind::Malformed, "should be a finite float");
}

#[test]
fn what_changes_the_mathematics_is_honoured_or_refused() {
    let tiny = GgufBuilder::tiny_llama;
    refused(
        &tiny().u32("llama.expert_count", 8),
        ErrorKind::Unsupported,
        "llama.expert_count",
    );
    refused(
        &tiny().f32("llama.logit_scale", 0.5),
        ErrorKind::Unsupported,
        "llama.logit_scale",
    );
    refused(
        &tiny().u32("llama.ssm.state_size", 16),
        ErrorKind::Unsupported,
        "llama.ssm.state_size",
    );
    refused(
        &tiny().u32("llama.attention.value_length", 4),
        ErrorKind::Unsupported,
        "values of 4",
    );
    refused(
        &tiny().string("llama.rope.scaling.type", "longrope"),
        ErrorKind::Unsupported,
        "`longrope`",
    );
    let config = config(
        &tiny()
            .u32("llama.expert_count", 0)
            .f32("llama.attention.scale", 0.5)
            .f32("llama.embedding_scale", 12.0)
            .f32("llama.attn_logit_softcapping", 50.0)
            .f32("llama.final_logit_softcapping", 30.0),
    );
    assert_eq!(config.attention_scale, Some(0.5));
    assert_eq!(config.embedding_scale, 12.0);
    assert_eq!(
        (config.attention_softcap, config.logit_softcap),
        (Some(50.0), Some(30.0))
    );
}

#[test]
fn values_for_each_layer_must_agree() {
    let key = "llama.attention.head_count_kv";
    let tiny = || GgufBuilder::tiny_llama().without(key);
    assert_eq!(config(&tiny().i32s(key, &[2, 2])).kv_heads, 2);
    refused(
        &tiny().i32s(key, &[2, 4]),
        ErrorKind::Unsupported,
        "layers that differ",
    );
    refused(&tiny().i32s(key, &[]), ErrorKind::Malformed, "empty array");
}

#[test]
fn rotary_scaling() {
    let scaling = |builder: &GgufBuilder| config(builder).rope.scaling;
    let kind = "llama.rope.scaling.type";
    let factor = "llama.rope.scaling.factor";
    let tiny = GgufBuilder::tiny_llama;
    assert_eq!(
        scaling(&tiny().string(kind, "none").f32(factor, 4.0)),
        RopeScaling::None
    );
    assert_eq!(
        scaling(&tiny().string(kind, "linear").f32(factor, 4.0)),
        RopeScaling::Linear { factor: 4.0 }
    );
    assert_eq!(
        scaling(&tiny().f32("llama.rope.scale_linear", 2.0)),
        RopeScaling::Linear { factor: 2.0 }
    );
    let yarn = tiny()
        .string(kind, "yarn")
        .f32(factor, 4.0)
        .u32("llama.rope.scaling.original_context_length", 64);
    let expected = |attention_factor| RopeScaling::Yarn {
        factor: 4.0,
        original_context: 64,
        beta_fast: 32.0,
        beta_slow: 1.0,
        attention_factor,
    };
    assert_eq!(scaling(&yarn), expected(None));
    let doubled = yarn.clone().f32("llama.rope.scaling.attn_factor", 2.0);
    assert_eq!(
        scaling(&doubled),
        expected(Some(2.0 * (0.1 * 4_f32.ln() + 1.0)))
    );
    refused(&yarn.without(factor), ErrorKind::Missing, factor);
}

#[test]
fn rotary_divisors_become_configuration() {
    let divisors = [1.0, 1.0, 4.0, 8.0];
    let tiny = || GgufBuilder::tiny_llama().f32_tensor("rope_freqs.weight", &[4], &divisors);
    let checkpoint = open(&tiny()).unwrap();
    let factors = divisors.to_vec();
    assert_eq!(
        checkpoint.config.rope.scaling,
        RopeScaling::Factors { factors }
    );
    assert_eq!(checkpoint.weights.skipped()[0].name, "rope_freqs.weight");
    assert_eq!(checkpoint.weights.unrecognised().len(), 0);
    refused(
        &tiny()
            .string("llama.rope.scaling.type", "linear")
            .f32("llama.rope.scaling.factor", 2.0),
        ErrorKind::Unsupported,
        "beside the divisors",
    );
    let builder = GgufBuilder::tiny_llama().f32_tensor("rope_freqs.weight", &[3], &[1.0; 3]);
    refused(&builder, ErrorKind::Mismatch, "3 rotary divisors for 4");
    let builder = GgufBuilder::tiny_llama().f32_tensor("rope_freqs.weight", &[4], &[0.0; 4]);
    refused(&builder, ErrorKind::Mismatch, "out of range");
}

#[test]
fn windows() {
    let tiny = || GgufBuilder::tiny_llama().u32("llama.attention.sliding_window", 16);
    let window = AttentionKind::Sliding { window: 16 };
    assert_eq!(config(&tiny()).attention, [window; 2]);
    let pattern = "llama.attention.sliding_window_pattern";
    let every = config(&tiny().u32(pattern, 2)).attention;
    assert_eq!(every, [window, AttentionKind::Full]);
    let flags = |flags: &[u8]| {
        let len = flags.len() as u64;
        [&7_u32.to_le_bytes()[..], &len.to_le_bytes(), flags].concat()
    };
    let listed = config(&tiny().entry(pattern, 9, &flags(&[0, 1]))).attention;
    assert_eq!(listed, [AttentionKind::Full, window]);
    refused(
        &tiny().entry(pattern, 9, &flags(&[1])),
        ErrorKind::Mismatch,
        "1 entries for 2 layers",
    );
}

#[test]
fn a_file_without_weights_is_refused() {
    let mut builder = GgufBuilder::tiny_llama();
    for tensor in open(&builder).unwrap().weights.iter() {
        builder = builder.without_tensor(tensor.stored_name());
    }
    refused(&builder, ErrorKind::Missing, "no weights");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// Whatever bytes of the header change, the whole import ends without a panic, and every row
    /// of what it accepts can be read.
    #[test]
    fn damage_never_panics(
        edits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let builder = GgufBuilder::tiny_llama();
        let mut bytes = builder.build();
        for (at, value) in edits {
            let at = at.index(builder.header_len());
            bytes[at] = value;
        }
        let scratch = Scratch::new();
        if let Ok(checkpoint) = Checkpoint::open(&scratch.write("model.gguf", bytes)) {
            for tensor in checkpoint.weights.iter() {
                for row in 0..tensor.rows() {
                    prop_assert_eq!(tensor.row(row).unwrap().len(), tensor.row_bytes());
                }
            }
        }
    }

    /// Numbers out of range in any key of the architecture.
    #[test]
    fn odd_numbers_never_panic(
        key in prop::sample::select(vec![
            "block_count", "context_length", "embedding_length", "feed_forward_length",
            "attention.head_count", "attention.head_count_kv", "attention.key_length",
            "attention.sliding_window", "attention.sliding_window_pattern",
            "rope.dimension_count", "rope.freq_base", "rope.scaling.factor", "vocab_size",
        ]),
        value in prop_oneof![Just(0), Just(1), 2..300_u32, Just(u32::MAX), any::<u32>()],
        float in any::<f32>(),
        floats in any::<bool>(),
    ) {
        let key = format!("llama.{key}");
        let builder = GgufBuilder::tiny_llama().without(&key);
        let builder = if floats { builder.f32(&key, float) } else { builder.u32(&key, value) };
        if let Ok(checkpoint) = open(&builder) {
            prop_assert_eq!(checkpoint.config.attention.len(), checkpoint.config.layers);
        }
    }
}
