//! From a file to a model: what it says of itself, and what is refused.

use super::*;

#[test]
fn the_summary_tells_what_the_file_holds() {
    let path = write("summary.gguf", &checkpoint());
    let summary = Summary::read(&path).unwrap();
    assert_eq!(summary.config.architecture, "llama");
    assert_eq!(summary.tokenizer, "gpt2");
    let layer = 2 * 32 * 32 + 2 * 16 * 32 + 3 * 64 * 32 + 2 * 32;
    assert_eq!(summary.parameters, 259 * 32 + 32 + 2 * layer);
    assert_eq!(summary.weight_bytes, 4 * summary.parameters);
    // 2 layers × keys and values × 2 heads × 8 elements.
    assert_eq!(
        summary.state_bytes(100, KvDtype::F16),
        100 * 2 * 2 * 2 * 8 * 2
    );
    let (model, _) = tiny("summary-2.gguf");
    assert_eq!(model.summary().signature, summary.signature);
    assert_eq!(
        model.stop_tokens(),
        [256, 258],
        "the end of texts and the end of turns"
    );
    assert_eq!(model.availability(), Availability::Available);
    assert!(!model.capabilities().tool_calling);
}

#[test]
fn sliding_states_are_counted_up_to_their_window() {
    let summary = Summary::read(&goldens::checkpoint("gemma3-text")).unwrap();
    let bytes = |context| summary.state_bytes(context, KvDtype::F32);
    let context = summary.config.context;
    assert_eq!(bytes(1) * 2, bytes(2));
    assert!(
        bytes(context) < bytes(1) * context as u64,
        "a window bounds some layers"
    );
}

#[test]
fn models_are_loaded_once_and_failures_are_not_kept() {
    let backend = Arc::new(ScriptedBackend::default());
    let models = Models::new(backend.clone(), LoadOptions::default());
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("models.gguf");
    let _ = std::fs::remove_file(&path);
    assert!(matches!(
        models.availability(&path),
        Availability::Unavailable(_)
    ));
    let error = models.load(&path, None).unwrap_err();
    assert_eq!(error.kind(), &SessionErrorKind::Checkpoint);
    assert_eq!(error.fault(), Fault::File);

    write("models.gguf", &checkpoint());
    assert_eq!(models.availability(&path), Availability::Available);
    let start = Barrier::new(4);
    let loaded: Vec<Arc<LocalModel>> = std::thread::scope(|scope| {
        let open = || {
            start.wait();
            models.load(&path, None).unwrap()
        };
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(open)).collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .collect()
    });
    assert_eq!(backend.compiled.load(Ordering::Relaxed), 1);
    assert!(loaded.iter().all(|model| Arc::ptr_eq(model, &loaded[0])));

    models.evict(&path);
    assert!(
        Arc::ptr_eq(&models.load(&path, None).unwrap(), &loaded[0]),
        "still in use"
    );
    drop(loaded);
    models.load(&path, None).unwrap();
    assert_eq!(backend.compiled.load(Ordering::Relaxed), 2);
}

#[test]
fn loading_reports_progress_and_time() {
    let path = write("progress.gguf", &checkpoint());
    let told = std::cell::Cell::new(None);
    let progress = |done, total| told.set(Some((done, total)));
    let backend = ScriptedBackend::default();
    let model =
        LocalModel::load(&path, &backend, &LoadOptions::default(), Some(&progress)).unwrap();
    assert_eq!(told.get(), Some((1, 1)));
    assert!(model.load_time() > Duration::ZERO);
}

#[test]
fn broken_checkpoints_are_the_files_fault() {
    let tiny = checkpoint;
    let missing = tiny().without_tensor("blk.1.ffn_up.weight");
    let error = refused("missing.gguf", &missing);
    assert_eq!(error.fault(), Fault::File);
    assert!(error.to_string().contains("layers.1"), "{error}");

    let unknown = tiny()
        .without("general.architecture")
        .string("general.architecture", "mamba");
    let error = refused("unknown.gguf", &unknown);
    assert!(error.to_string().contains("mamba"), "{error}");

    let template = tiny()
        .without("tokenizer.chat_template")
        .string("tokenizer.chat_template", "{% if %}");
    let error = refused("template.gguf", &template);
    assert_eq!(
        (error.kind(), error.fault()),
        (&SessionErrorKind::Template, Fault::File)
    );
}
