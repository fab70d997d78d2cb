//! Runs the program and looks at what it did.

use std::ffi::OsStr;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rushlight_testkit::gguf::GgufBuilder;
use rushlight_testkit::scratch::Scratch;
use serde_json::Value;

/// What a run of the program did.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Run {
    /// The run, which must have gone well.
    pub(crate) fn good(self) -> Run {
        assert_eq!(self.code, 0, "{self:?}");
        self
    }

    /// The JSON that it wrote.
    pub(crate) fn json(self) -> Value {
        let run = self.good();
        serde_json::from_str(&run.stdout).unwrap_or_else(|error| panic!("{error}: {run:?}"))
    }

    /// Fails unless it ended with this code, on stderr alone, in a sentence that has all these words.
    pub(crate) fn refused(&self, code: i32, words: &[&str]) {
        assert_eq!(self.code, code, "{self:?}");
        assert_eq!(self.stdout, "", "{self:?}");
        assert!(self.stderr.starts_with("error: "), "{self:?}");
        for word in words {
            assert!(self.stderr.contains(word), "{word:?} is not in {self:?}");
        }
        assert!(!self.stderr.contains("panicked"), "{self:?}");
    }
}

/// A command that knows no store but an empty one.
pub(crate) fn command<S: AsRef<OsStr>>(arguments: impl IntoIterator<Item = S>) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rushlight"));
    command
        .args(arguments)
        .env("RUSHLIGHT_HOME", env!("CARGO_TARGET_TMPDIR"))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

/// Runs the program without input.
pub(crate) fn run(arguments: &[&str]) -> Run {
    end(command(arguments), b"")
}

/// Runs the program with this input.
pub(crate) fn run_with(arguments: &[&str], input: impl AsRef<[u8]>) -> Run {
    let mut command = command(arguments);
    command.stdin(Stdio::piped());
    end(command, input.as_ref())
}

/// Runs a command to its end. The input must fit a pipe.
pub(crate) fn end(mut command: Command, input: &[u8]) -> Run {
    let mut child = command.spawn().unwrap();
    if let Some(mut stdin) = child.stdin.take() {
        // A program that has refused its arguments does not read.
        let _ = stdin.write_all(input);
    }
    let output = child.wait_with_output().unwrap();
    Run {
        code: output.status.code().expect("no signal ended it"),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

/// The tiny Llama of the testkit, whose token ids are bytes, in a folder of its own.
pub(crate) struct Tiny {
    pub(crate) folder: Scratch,
    path: PathBuf,
}

impl Tiny {
    pub(crate) fn new() -> Tiny {
        Tiny::of(&GgufBuilder::tiny_llama())
    }

    pub(crate) fn of(model: &GgufBuilder) -> Tiny {
        let folder = Scratch::new();
        let path = folder.write("tiny.gguf", model.build());
        Tiny { folder, path }
    }

    pub(crate) fn model(&self) -> &str {
        self.path.to_str().unwrap()
    }

    pub(crate) fn path(&self, name: &str) -> String {
        text(&self.folder.path().join(name))
    }
}

pub(crate) fn text(path: &Path) -> String {
    path.to_str().unwrap().to_owned()
}

/// The path of a test model, or `None` where tests run without models.
pub(crate) fn published(name: &str) -> Option<String> {
    let Some(root) = std::env::var_os("RUSHLIGHT_TEST_MODELS") else {
        eprintln!("skipped: RUSHLIGHT_TEST_MODELS does not say where models are");
        return None;
    };
    let path = PathBuf::from(root).join("models").join(name);
    assert!(path.is_file(), "{} is missing", path.display());
    Some(text(&path))
}
