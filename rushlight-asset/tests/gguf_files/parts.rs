//! Split files, folders of files, and paths that are no model.

use super::*;

/// Writes the tiny model as two parts and returns the folder.
fn split(change: impl Fn(usize, GgufBuilder) -> GgufBuilder) -> Scratch {
    let scratch = Scratch::new();
    let whole = GgufBuilder::tiny_llama();
    let count = i32::try_from(open(&whole).unwrap().weights.len()).unwrap();
    let late = |name: &str| name.starts_with("blk.1.");
    let mut parts = [whole.clone(), whole];
    for tensor in open(&parts[0]).unwrap().weights.iter() {
        let name = tensor.stored_name();
        let not_here = usize::from(!late(name));
        parts[not_here] = parts[not_here].clone().without_tensor(name);
    }
    for (number, part) in parts.into_iter().enumerate() {
        let part = part
            .u16("split.no", u16::try_from(number).unwrap())
            .u16("split.count", 2)
            .i32("split.tensors.count", count);
        let name = format!("tiny-{:05}-of-00002.gguf", number + 1);
        change(number, part)
            .write(&scratch.path().join(name))
            .unwrap();
    }
    scratch
}

#[test]
fn a_split_model_opens_from_any_part_and_from_its_folder() {
    let scratch = split(|_, part| part);
    for name in ["", "tiny-00001-of-00002.gguf", "tiny-00002-of-00002.gguf"] {
        let path = if name.is_empty() {
            scratch.path().to_owned()
        } else {
            scratch.path().join(name)
        };
        let checkpoint = Checkpoint::open(&path).unwrap();
        assert_eq!(checkpoint.weights.len(), 20);
        assert_eq!(checkpoint.source.files.len(), 2);
        let late = checkpoint.weights.find("layers.1.down.weight").unwrap();
        assert!(late.file().ends_with("tiny-00002-of-00002.gguf"));
        assert_eq!(checkpoint.tokenizer.kind(), "gpt2");
    }
}

#[track_caller]
fn split_refused(scratch: &Scratch, kind: ErrorKind, words: &str) {
    let error = Checkpoint::open(&scratch.path().join("tiny-00001-of-00002.gguf")).unwrap_err();
    assert_eq!(error.kind(), kind, "{error}");
    assert!(error.to_string().contains(words), "{error}");
}

#[test]
fn a_missing_part_is_named() {
    let scratch = split(|_, part| part);
    std::fs::remove_file(scratch.path().join("tiny-00002-of-00002.gguf")).unwrap();
    split_refused(&scratch, ErrorKind::Missing, "tiny-00002-of-00002.gguf");
}

#[test]
fn parts_that_contradict_each_other_are_refused() {
    let scratch = split(|_, part| part.without("split.count").u16("split.count", 3));
    split_refused(&scratch, ErrorKind::Mismatch, "by its metadata part 1 of 3");
    let scratch = split(|number, part| match number {
        0 => part,
        _ => part.without("split.no").u16("split.no", 0),
    });
    split_refused(&scratch, ErrorKind::Mismatch, "by its metadata part 1 of 2");
    let scratch = split(|number, part| match number {
        0 => part,
        _ => part.without("split.count"),
    });
    split_refused(&scratch, ErrorKind::Mismatch, "it is whole");
    let scratch = split(|_, part| {
        part.without("split.tensors.count")
            .i32("split.tensors.count", 99)
    });
    split_refused(&scratch, ErrorKind::Mismatch, "99 tensors");
    let scratch = split(|_, part| part.without("split.count").u16("split.count", u16::MAX));
    split_refused(&scratch, ErrorKind::Limit, "65535 parts");
    let scratch = split(|_, part| {
        part.f32_tensor("twice.weight", &[1], &[0.0])
            .without("split.tensors.count")
    });
    split_refused(
        &scratch,
        ErrorKind::Malformed,
        "a second tensor for `twice.weight`",
    );
}

#[test]
fn a_part_under_another_name_cannot_find_the_others() {
    let scratch = split(|_, part| part);
    let renamed = scratch.path().join("renamed.gguf");
    std::fs::rename(scratch.path().join("tiny-00001-of-00002.gguf"), &renamed).unwrap();
    let error = Checkpoint::open(&renamed).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Missing);
    assert!(error.to_string().contains("part 1 of 2"), "{error}");
}

#[test]
fn a_folder_must_hold_one_model() {
    let scratch = Scratch::new();
    let error = Checkpoint::open(scratch.path()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotACheckpoint);
    GgufBuilder::tiny_llama()
        .write(&scratch.path().join("a.gguf"))
        .unwrap();
    assert_eq!(Checkpoint::open(scratch.path()).unwrap().weights.len(), 20);
    GgufBuilder::tiny_llama()
        .write(&scratch.path().join("b.GGUF"))
        .unwrap();
    let error = Checkpoint::open(scratch.path()).unwrap_err();
    assert!(error.to_string().contains("a.gguf, b.GGUF"), "{error}");
}

#[test]
fn paths_that_are_no_model() {
    let scratch = Scratch::new();
    let kind = |path: &Path| Checkpoint::open(path).unwrap_err().kind();
    assert_eq!(
        kind(&scratch.path().join("absent.gguf")),
        ErrorKind::NotFound
    );
    assert_eq!(kind(&scratch.write("empty.gguf", "")), ErrorKind::Malformed);
    assert_eq!(
        kind(&scratch.write("note.gguf", "hello, world")),
        ErrorKind::Malformed
    );
    assert_eq!(
        kind(&scratch.write("w.safetensors", "x")),
        ErrorKind::NotACheckpoint
    );
    if cfg!(unix) {
        assert_eq!(kind(Path::new("/dev/zero")), ErrorKind::Io);
    }
}

#[test]
fn assets_are_refused_by_name_alone() {
    for name in [
        "/some/where/model.aimodel",
        "/some/where/model.aimodelc",
        "here/Model.AIMODELC",
        "m.rlmodel",
        "m.RlModelC",
    ] {
        let error = Checkpoint::open(Path::new(name)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::PointedAtAsset);
        assert!(error.to_string().contains(name), "{error}");
    }
    // A directory with files of its own is refused the same way, not looked into.
    let scratch = Scratch::new();
    let asset = scratch.path().join("model.aimodelc");
    std::fs::create_dir(&asset).unwrap();
    std::fs::write(
        asset.join("metadata.json"),
        r#"{"producer":"coreai-build","assetVersion":"2.0"}"#,
    )
    .unwrap();
    assert_eq!(
        Checkpoint::open(&asset).unwrap_err().kind(),
        ErrorKind::PointedAtAsset
    );
}
