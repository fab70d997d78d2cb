//! Real checkpoints: the same greedy answer, bit for bit, however it is computed; and a file that is
//! shortened under a running program.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::sync::Arc;

use rushlight_asset::Checkpoint;
use rushlight_cpu::CpuBackend;
use rushlight_engine::plan::PrefillOptions;
use rushlight_engine::sample::{SampleVocab, SamplingOptions};
use rushlight_engine::{Engine, EngineOptions, ErrorKind, GenerateOptions, Sequence};
use rushlight_ir::arch;
use rushlight_ir::backend::{Backend, CompileOptions, Program};
use rushlight_testkit::gguf::GgufBuilder;
use rushlight_testkit::goldens::real_model;

fn program(checkpoint: &Checkpoint, threads: usize) -> Arc<dyn Program> {
    let has = |name: &str| checkpoint.weights.find(name).is_some();
    let graph = arch::build(&checkpoint.config, &has).unwrap();
    let options = CompileOptions {
        threads: Some(threads),
        ..CompileOptions::default()
    };
    CpuBackend::new()
        .compile(&graph, &checkpoint.weights, &options)
        .unwrap()
}

fn engine(program: &Arc<dyn Program>, chunk: usize) -> Engine {
    let width = program.signature().logits;
    let vocab = SampleVocab::new(width, width, &[]).unwrap();
    let prefill = PrefillOptions {
        chunk,
        threshold: chunk,
        ..PrefillOptions::default()
    };
    let options = EngineOptions {
        prefill,
        ..EngineOptions::default()
    };
    Engine::new(Arc::clone(program), vocab, options).unwrap()
}

fn greedy(max: usize) -> GenerateOptions {
    GenerateOptions {
        max_tokens: Some(max),
        sampling: SamplingOptions::greedy(),
        logits: true,
        ..GenerateOptions::default()
    }
}

/// Tokens and the bits of all logits of a greedy answer.
fn answer(
    engine: &Engine,
    sequence: &mut Sequence,
    prompt: &[u32],
    max: usize,
) -> Vec<(u32, Vec<u32>)> {
    let steps = engine.generate(sequence, prompt, greedy(max)).unwrap();
    steps
        .map(|step| {
            let step = step.unwrap();
            let bits = step.logits.unwrap().iter().map(|x| x.to_bits()).collect();
            (step.token, bits)
        })
        .collect()
}

#[test]
fn greedy_answers_are_bit_identical_however_they_are_computed() {
    for file in [
        "SmolLM2-135M-Instruct.Q4_1.gguf",
        "gemma-3-270m-q4_k_m.gguf",
    ] {
        let Some(path) = real_model(&format!("models/{file}")) else {
            return;
        };
        let checkpoint = Checkpoint::open(&path).unwrap();
        let two = program(&checkpoint, 2);
        let one = program(&checkpoint, 1);
        let prompt: Vec<u32> = (0..75).map(|i| 200 + (i * i * 37) % 4000).collect();
        let whole = engine(&two, 512);
        let cold = answer(&whole, &mut whole.sequence().unwrap(), &prompt, 12);

        let single = engine(&one, 512);
        assert_eq!(
            answer(&single, &mut single.sequence().unwrap(), &prompt, 12),
            cold,
            "{file}: one thread"
        );

        let chunked = engine(&two, 10);
        assert_eq!(
            answer(&chunked, &mut chunked.sequence().unwrap(), &prompt, 12),
            cold,
            "{file}: chunks"
        );

        let mut sequence = whole.sequence().unwrap();
        let mut other = prompt[..50].to_vec();
        other.extend([17, 18, 19]);
        answer(&whole, &mut sequence, &other, 5);
        let mut generation = whole.generate(&mut sequence, &prompt, greedy(12)).unwrap();
        let reused: Vec<u32> = generation
            .by_ref()
            .map(|step| step.unwrap().token)
            .collect();
        assert_eq!(generation.outcome().usage.cached, 50);
        assert_eq!(
            reused,
            cold.iter().map(|(token, _)| *token).collect::<Vec<_>>(),
            "{file}: reused"
        );

        let mut sequences = [whole.sequence().unwrap(), whole.sequence().unwrap()];
        let requests = sequences.iter_mut().zip([other, prompt.clone()]);
        let requests = requests.map(|(sequence, prompt)| (sequence, prompt, greedy(12)));
        let steps = whole.generate_batch(requests).unwrap();
        let mine = steps
            .filter(|(index, _)| *index == Some(1))
            .map(|(_, step)| {
                let step = step.unwrap();
                (
                    step.token,
                    step.logits
                        .unwrap()
                        .iter()
                        .map(|x| x.to_bits())
                        .collect::<Vec<_>>(),
                )
            });
        assert_eq!(mine.collect::<Vec<_>>(), cold, "{file}: beside another");
    }
}

#[test]
fn a_file_shortened_under_a_program_is_an_error_and_not_a_crash() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tiny.gguf");
    GgufBuilder::tiny_llama().write(&path).unwrap();
    let program = program(&Checkpoint::open(&path).unwrap(), 1);
    let engine = engine(&program, 512);
    let mut sequence = engine.sequence().unwrap();
    answer(&engine, &mut sequence, &[1, 2, 3], 2);
    std::fs::OpenOptions::new()
        .write(true)
        .open(&path)
        .unwrap()
        .set_len(100)
        .unwrap();
    let mut steps = engine
        .generate(&mut sequence, &[4, 5, 6], greedy(2))
        .unwrap();
    let error = steps.next().unwrap().unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Backend { .. }));
    let mut cause = std::error::Error::source(&error);
    let mut text = error.to_string();
    while let Some(error) = cause {
        text += &format!(": {error}");
        cause = error.source();
    }
    assert!(text.contains("tiny.gguf"), "{text}");
}
