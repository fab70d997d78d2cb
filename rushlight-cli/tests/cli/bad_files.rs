//! Model files that are none, are damaged, or do not fit: exit code 3 and a sentence that helps.

use rushlight_testkit::gguf::GgufBuilder;
use rushlight_testkit::scratch::Scratch;

use crate::program::{Run, Tiny, command, end, run};

/// Runs a model made of these bytes in every way that opens it fully, and gives the last refusal.
fn refused(bytes: Vec<u8>, words: &[&str]) {
    let scratch = Scratch::new();
    let path = scratch.write("model.gguf", bytes);
    let model = path.to_str().unwrap();
    for arguments in [
        &["run", "--model", model, "--prompt", "Hi"][..],
        &["logits", "--model", model, "--tokens", "1"],
        &["bench", "--model", model],
    ] {
        let run = run(arguments);
        run.refused(3, words);
        assert!(
            run.stderr.contains("model.gguf") || words.len() > 1,
            "{run:?}"
        );
    }
}

fn tiny() -> GgufBuilder {
    GgufBuilder::tiny_llama()
}

#[test]
fn a_file_that_is_not_there() {
    run(&["run", "--model", "no/such.gguf", "--prompt", "Hi"]).refused(3, &["no/such.gguf"]);
    let run = run(&["run", "--model", "nonesuch", "--prompt", "Hi"]);
    run.refused(3, &["nonesuch", "store"]);
}

#[test]
fn damaged_headers() {
    refused(Vec::new(), &[]);
    refused(b"GGUF".to_vec(), &[]);
    refused(
        b"PK\x03\x04 not a model at all, but long enough".to_vec(),
        &["GGUF"],
    );
    let whole = tiny().build();
    refused(whole[..100].to_vec(), &[]);
    refused(whole[..whole.len() / 2].to_vec(), &["tensor"]);
    // A tensor count of 2^60.
    let mut absurd = whole;
    absurd[8..16].copy_from_slice(&(1_u64 << 60).to_le_bytes());
    refused(absurd, &[]);
}

#[test]
fn a_missing_tensor_is_named() {
    let model = tiny().without_tensor("blk.1.ffn_down.weight");
    refused(
        model.build(),
        &["blk.1.ffn_down.weight (layers.1.down.weight)"],
    );
}

#[test]
fn logits_that_are_no_numbers_are_refused_and_not_called_null() {
    let model = tiny().without_tensor("output_norm.weight").f32_tensor(
        "output_norm.weight",
        &[32],
        &[f32::NAN; 32],
    );
    let tiny = Tiny::of(&model);
    for more in [&[][..], &["--all"]] {
        let arguments = [
            &["logits", "--model", tiny.model(), "--tokens", "1,2"],
            more,
        ]
        .concat();
        run(&arguments).refused(3, &["NaN"]);
    }
}

#[test]
fn a_tensor_of_another_shape_is_named() {
    let model = tiny().without_tensor("blk.0.attn_q.weight").f32_tensor(
        "blk.0.attn_q.weight",
        &[16, 32],
        &[0.0; 16 * 32],
    );
    refused(model.build(), &["blk.0.attn_q.weight (layers.0.q.weight)"]);
}

#[test]
fn a_vocabulary_that_is_not_the_embeddings() {
    let tokens: Vec<String> = (0..300).map(|i| format!("t{i}")).collect();
    let model = tiny()
        .without("tokenizer.ggml.tokens")
        .without("tokenizer.ggml.token_type")
        .strings("tokenizer.ggml.tokens", &tokens)
        .i32s("tokenizer.ggml.token_type", &[1; 300]);
    refused(model.build(), &["300", "259"]);
}

#[test]
fn an_unknown_architecture_lists_the_known() {
    refused(stranger().build(), &["plover", "llama", "gemma3"]);
}

#[test]
fn an_unknown_block_format_is_told_with_its_tensor() {
    let model = tiny().without_tensor("output_norm.weight").tensor(
        "output_norm.weight",
        &[32],
        999,
        &[0; 128],
    );
    refused(model.build(), &["999", "output_norm.weight"]);
}

/// What can be told of a model that cannot be run is told.
#[test]
fn inspecting_an_unknown_architecture() {
    let tiny = Tiny::of(&stranger());
    let about = run(&["inspect", "--json", tiny.model()]).json();
    assert_eq!(about["architecture"], "plover");
    assert_eq!(about["runs"], false);
    let refusal = about["refusal"].as_str().unwrap();
    assert!(
        refusal.contains("plover") && refusal.contains("llama"),
        "{refusal}"
    );
    assert_eq!(about["config"]["layers"], 2);
    assert_eq!(about["tokenizer"]["ids"], 259);
    let text = run(&["inspect", tiny.model()]).good().stdout;
    assert!(text.contains("cannot be run"), "{text}");
}

/// The tiny Llama under another family's name.
fn stranger() -> GgufBuilder {
    tiny()
        .without("general.architecture")
        .string("general.architecture", "plover")
        .u32("plover.block_count", 2)
        .u32("plover.context_length", 256)
        .u32("plover.embedding_length", 32)
        .u32("plover.feed_forward_length", 64)
        .u32("plover.attention.head_count", 4)
        .u32("plover.attention.head_count_kv", 2)
        .f32("plover.attention.layer_norm_rms_epsilon", 1e-5)
        .f32("plover.rope.freq_base", 10_000.0)
}

/// Nothing that the program does with models writes into the store.
#[test]
fn a_store_that_cannot_be_written_serves() {
    let tiny = Tiny::new();
    let home = tiny.folder.path().join("home");
    let models = home.join("models");
    std::fs::create_dir_all(&models).unwrap();
    std::fs::copy(tiny.model(), models.join("Small.gguf")).unwrap();
    let read_only = |yes: bool| {
        for folder in [&models, &home] {
            let mut permissions = std::fs::metadata(folder).unwrap().permissions();
            permissions.set_readonly(yes);
            std::fs::set_permissions(folder, permissions).unwrap();
        }
    };
    read_only(true);
    let in_store = |arguments: &[&str]| -> Run {
        let mut command = command(arguments);
        command.env("RUSHLIGHT_HOME", &home);
        end(command, b"")
    };
    let runs = [
        in_store(&["models"]),
        in_store(&[
            "run",
            "--model",
            "Small",
            "--prompt",
            "Hi",
            "--max-tokens",
            "2",
        ]),
        in_store(&["run", "--model", "Smal", "--prompt", "Hi"]),
        in_store(&["models", "--json"]),
    ];
    // Windows cannot remove what is read-only.
    read_only(false);
    let [list, answer, misspelt, json] = runs;
    assert_eq!(list.good().stdout, "Small\n");
    answer.good();
    misspelt.refused(3, &["Smal", "the store has Small"]);
    assert_eq!(json.json()["models"][0]["name"], "Small");
}
