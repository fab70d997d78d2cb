//! Printed graphs of the golden checkpoints, and what a checkpoint that does not fit is told.

use rushlight_asset::Checkpoint;
use rushlight_asset::config::{AttentionKind, Config};
use rushlight_ir::{Graph, IrError, IrErrorKind, arch, verify::verify};
use rushlight_testkit::goldens;

fn open(name: &str) -> Checkpoint {
    Checkpoint::open(&goldens::checkpoint(name)).unwrap()
}

fn build(checkpoint: &Checkpoint) -> Result<Graph, IrError> {
    let has = |name: &str| checkpoint.weights.find(name).is_some();
    let graph = arch::build(&checkpoint.config, &has)?;
    verify(&graph, &checkpoint.weights)?;
    Ok(graph)
}

#[test]
fn golden_graphs_print_as_recorded() {
    for name in goldens::NAMES {
        let graph = build(&open(name)).unwrap();
        insta::assert_snapshot!(name, graph.to_string());
    }
}

/// Opens a golden, changes its configuration, and gives the error.
fn refused(name: &str, change: impl FnOnce(&mut Config)) -> IrError {
    let mut checkpoint = open(name);
    change(&mut checkpoint.config);
    build(&checkpoint).unwrap_err()
}

#[test]
fn an_unknown_architecture_lists_the_known() {
    let error = refused("llama", |c| c.architecture = "mamba9".to_owned());
    assert_eq!(*error.kind(), IrErrorKind::UnknownArchitecture);
    assert_eq!(
        error.to_string(),
        "config: architecture: `mamba9` is not an architecture that rushlight runs; it runs gemma3, llama"
    );
}

#[test]
fn a_configuration_that_contradicts_itself_names_the_field() {
    type Change = fn(&mut Config);
    let rows: &[(&str, Change)] = &[
        ("config: kv_heads", |c| c.kv_heads = 3),
        ("config: layers", |c| c.layers = 0),
        ("config: hidden_size", |c| c.hidden_size = usize::MAX),
        ("config: attention", |c| c.attention.truncate(1)),
        ("config: attention", |c| {
            c.attention[0] = AttentionKind::Sliding { window: 0 }
        }),
        ("config: norm_eps", |c| c.norm_eps = f32::NAN),
        ("rope", |c| c.rope.theta = 0.0),
        ("rope", |c| c.rope.dim = 7),
    ];
    for (place, change) in rows {
        let error = refused("llama", change);
        assert_eq!(*error.kind(), IrErrorKind::Config, "{error}");
        assert_eq!(error.place(), *place, "{error}");
    }
}

#[test]
fn tensors_that_do_not_fit_are_named() {
    let shape = refused("llama", |c| c.vocab_size += 1);
    assert_eq!(*shape.kind(), IrErrorKind::TensorShape);
    assert_eq!(
        shape.to_string(),
        "main: tensor model.embed_tokens.weight (embed.weight): has shape [320, 64] where the \
         configuration makes it [321, 64]"
    );
    let missing = refused("llama", |c| {
        c.layers += 1;
        c.attention.push(AttentionKind::Full);
    });
    assert_eq!(*missing.kind(), IrErrorKind::MissingTensor);
    assert!(
        missing
            .place()
            .ends_with("model.layers.4.input_layernorm.weight (layers.4.attention_norm.weight)"),
        "{missing}"
    );
    let unused = refused("llama", |c| {
        c.layers -= 1;
        c.attention.pop();
    });
    assert_eq!(*unused.kind(), IrErrorKind::UnusedTensor);
    assert!(unused.place().contains("layers.3."), "{unused}");
}

#[test]
fn a_window_reaches_the_signature() {
    let graph = build(&open("gemma3-text")).unwrap();
    let windows = graph
        .signature()
        .states
        .iter()
        .filter(|s| s.kind == rushlight_ir::graph::StateKind::Window { tokens: 24 });
    assert_eq!(windows.count(), 6);
}
