//! A file that shrinks while it is open: zeros and an error, not a crash.
// Helpers outside test functions fail their test as tests do.
#![allow(clippy::unwrap_used)]
#![cfg(unix)]

use std::fs::{self, OpenOptions};

use rushlight_asset::{Checkpoint, ErrorKind};
use rushlight_testkit::gguf::GgufBuilder;
use rushlight_testkit::scratch::Scratch;

const ROWS: usize = 4_096;

/// A model whose embedding spans many pages.
fn large(scratch: &Scratch) -> std::path::PathBuf {
    let path = scratch.path().join("model.gguf");
    GgufBuilder::tiny_llama()
        .u32("llama.vocab_size", 4_096)
        .without("tokenizer.ggml.model")
        .without_tensor("token_embd.weight")
        .f32_tensor("token_embd.weight", &[4_096, 32], &vec![1.0; ROWS * 32])
        .write(&path)
        .unwrap();
    path
}

fn truncate(path: &std::path::Path, len: u64) {
    OpenOptions::new()
        .write(true)
        .open(path)
        .unwrap()
        .set_len(len)
        .unwrap();
}

#[test]
fn reading_past_the_new_end_gives_zeros_and_an_error() {
    let scratch = Scratch::new();
    let path = large(&scratch);
    let checkpoint = Checkpoint::open(&path).unwrap();
    let embed = checkpoint.weights.find("embed.weight").unwrap();
    assert_ne!(embed.row(0).unwrap(), [0; 128]);
    checkpoint.weights.intact().unwrap();

    truncate(&path, embed.offset() + 128 * 100);
    assert_ne!(
        embed.row(0).unwrap(),
        [0; 128],
        "what is still there is still read"
    );
    // Backwards and forwards, from several threads.
    std::thread::scope(|scope| {
        for start in 0..4 {
            scope.spawn(move || {
                for row in (2_000 + start..ROWS).rev().step_by(4) {
                    assert_eq!(embed.row(row).unwrap(), [0; 128]);
                }
            });
        }
    });
    let error = checkpoint.weights.intact().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Damaged);
    assert_eq!(error.file(), Some(path.as_path()));

    // Another model opened afterwards is unharmed, even in the same place of the table.
    drop(checkpoint);
    let other = Checkpoint::open(&large(&Scratch::new())).unwrap();
    other.weights.intact().unwrap();
}

#[test]
fn a_file_that_was_restored_after_a_bad_read_stays_damaged() {
    let scratch = Scratch::new();
    let path = large(&scratch);
    let original = fs::read(&path).unwrap();
    let checkpoint = Checkpoint::open(&path).unwrap();
    let embed = checkpoint.weights.find("embed.weight").unwrap();
    truncate(&path, 100);
    assert_eq!(embed.row(ROWS - 1).unwrap(), [0; 128]);
    // In place, so that it is the same file.
    fs::write(&path, original).unwrap();
    assert_eq!(
        checkpoint.weights.intact().unwrap_err().kind(),
        ErrorKind::Damaged
    );
}

#[test]
fn a_change_of_length_is_seen_without_a_read() {
    let scratch = Scratch::new();
    let path = large(&scratch);
    let checkpoint = Checkpoint::open(&path).unwrap();
    truncate(&path, fs::metadata(&path).unwrap().len() + 1);
    assert_eq!(
        checkpoint.weights.intact().unwrap_err().kind(),
        ErrorKind::Damaged
    );
}

/// What this test does in a process of its own, because it dies of it.
const VICTIM: &str = "RUSHLIGHT_TEST_FOREIGN_BUS_ERROR";

#[test]
fn bus_errors_elsewhere_still_end_the_process() {
    use std::os::unix::process::ExitStatusExt;
    if std::env::var_os(VICTIM).is_some() {
        let scratch = Scratch::new();
        let _open = Checkpoint::open(&large(&scratch)).unwrap();
        let path = scratch.write("foreign", [1; 10_000]);
        // SAFETY: only read below, as bytes.
        let foreign = unsafe { memmap2::Mmap::map(&fs::File::open(&path).unwrap()) }.unwrap();
        truncate(&path, 0);
        println!("{}", foreign[9_000]);
        return;
    }
    let status = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "bus_errors_elsewhere_still_end_the_process"])
        .env(VICTIM, "1")
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .status()
        .unwrap();
    assert_eq!(status.signal(), Some(libc::SIGBUS), "{status}");
}
