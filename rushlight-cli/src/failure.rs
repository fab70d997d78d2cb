//! What ends the program early: a sentence, its causes, and an exit code that says whose fault it was.

use std::error::Error;
use std::io;
use std::panic::{self, AssertUnwindSafe};
use std::path::Path;
use std::sync::Mutex;

use rushlight::asset::AssetError;
use rushlight::engine::EngineError;
use rushlight::grammar::{GrammarError, GrammarReport, Place};
use rushlight::text::{TextError, TextErrorKind};
use rushlight::{Fault, SessionError, SessionErrorKind};
use serde_json::{Value, json};

/// Who is at fault, as the exit code tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// Nobody: whoever read our output has seen enough.
    Closed = 0,
    /// The request cannot be met as it was asked.
    Request = 1,
    /// The command line is not one.
    Usage = 2,
    /// The model's file.
    File = 3,
    /// rushlight.
    Bug = 4,
    /// Nobody: Ctrl-C ended it, and the code is what shells report of a program that SIGINT ended.
    Interrupted = 130,
}

impl Exit {
    fn name(self) -> &'static str {
        match self {
            Exit::Closed => "closed",
            Exit::Request => "request",
            Exit::Usage => "usage",
            Exit::File => "file",
            Exit::Bug => "bug",
            Exit::Interrupted => "interrupted",
        }
    }
}

/// Why the program ends early.
#[derive(Debug)]
pub(crate) struct Failure {
    exit: Exit,
    message: String,
    causes: Vec<String>,
    /// Each problem of a grammar, with its place.
    problems: Vec<Value>,
    /// Whether it is on stderr already.
    told: bool,
}

impl Failure {
    pub(crate) fn new(exit: Exit, message: impl Into<String>) -> Failure {
        Failure {
            exit,
            message: message.into(),
            causes: Vec::new(),
            problems: Vec::new(),
            told: false,
        }
    }

    pub(crate) fn request(message: impl Into<String>) -> Failure {
        Failure::new(Exit::Request, message)
    }

    /// Stdout could not be written. A reader that went away (`| head`) is no error.
    pub(crate) fn output(error: &io::Error) -> Failure {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Failure::new(Exit::Closed, "the output was closed"),
            _ => Failure::request(format!("cannot write the output: {error}")),
        }
    }

    /// The operating system's refusal to `what` (read, write) a file that the user named.
    pub(crate) fn file(path: &Path, what: &str, error: &io::Error) -> Failure {
        Failure::request(format!("{}: cannot {what} it: {error}", path.display()))
    }

    /// Ctrl-C ended the work, and what there was of it is told.
    pub(crate) fn interrupted() -> Failure {
        Failure::new(Exit::Interrupted, "interrupted")
    }

    /// Names the file of the user's that the message is about.
    pub(crate) fn in_file(mut self, path: &Path) -> Failure {
        self.message = format!("{}: {}", path.display(), self.message);
        self
    }

    /// Names the model whose file is at fault, unless the message does.
    pub(crate) fn of_model(mut self, model: &str) -> Failure {
        if self.exit == Exit::File && !self.message.contains(model) {
            self.message = format!("{model}: {}", self.message);
        }
        self
    }

    pub(crate) fn exit(&self) -> Exit {
        self.exit
    }

    /// `error: …`, and a line for each cause that has something to add.
    pub(crate) fn text(&self) -> String {
        let mut text = format!("error: {}", self.message);
        for cause in &self.causes {
            text.push_str("\n  because: ");
            text.push_str(cause);
        }
        text
    }

    pub(crate) fn json(&self) -> Value {
        let mut error = json!({
            "message": self.message,
            "causes": self.causes,
            "fault": self.exit.name(),
            "exit_code": self.exit as u8,
        });
        if let (Some(error), false) = (error.as_object_mut(), self.problems.is_empty()) {
            error.insert("problems".to_owned(), json!(self.problems));
        }
        json!({"error": error})
    }

    /// Tells it on stderr, once.
    pub(crate) fn tell(&mut self, json: bool) {
        match (self.exit, json) {
            _ if self.told => {}
            (Exit::Closed | Exit::Interrupted, _) => {}
            (_, true) => eprintln!("{}", self.json()),
            (_, false) => eprintln!("{}", self.text()),
        }
        self.told = true;
    }

    fn because(mut self, error: &dyn Error) -> Failure {
        let mut cause = error.source();
        while let Some(error) = cause {
            let words = error.to_string();
            let said = |text: &String| text.contains(&words);
            if !said(&self.message) && !self.causes.iter().any(said) {
                self.causes.push(words);
            }
            cause = error.source();
        }
        self
    }
}

impl From<SessionError> for Failure {
    fn from(error: SessionError) -> Failure {
        if *error.kind() == SessionErrorKind::Cancelled {
            return Failure::interrupted();
        }
        let exit = match error.fault() {
            Fault::Request => Exit::Request,
            Fault::File => Exit::File,
            Fault::Bug => Exit::Bug,
        };
        let mut failure = Failure::new(exit, error.to_string()).because(&error);
        let report = error
            .source()
            .and_then(|source| source.downcast_ref::<GrammarReport>());
        failure.problems = report
            .into_iter()
            .flat_map(GrammarReport::problems)
            .map(problem)
            .collect();
        failure
    }
}

/// A grammar's problem as JSON: reason, tool, and the place in the terms of its source.
fn problem(error: &GrammarError) -> Value {
    let mut object = json!({"reason": error.message()});
    let mut set = |name: &str, value: Value| {
        if let Some(object) = object.as_object_mut() {
            object.insert(name.to_owned(), value);
        }
    };
    match error.place() {
        Some(Place::Json { pointer, keyword }) => {
            set("pointer", json!(pointer));
            set("keyword", json!(keyword));
        }
        Some(Place::Text { rule, line, column }) => {
            set("rule", json!(rule));
            set("line", json!(line));
            set("column", json!(column));
        }
        Some(Place::Token { position }) => set("token", json!(position)),
        _ => {}
    }
    if let Some(tool) = error.tool() {
        set("tool", json!(tool));
    }
    object
}

impl From<EngineError> for Failure {
    fn from(error: EngineError) -> Failure {
        SessionError::from(error).into()
    }
}

impl From<AssetError> for Failure {
    fn from(error: AssetError) -> Failure {
        SessionError::from(error).into()
    }
}

impl From<TextError> for Failure {
    fn from(error: TextError) -> Failure {
        let exit = match error.kind() {
            TextErrorKind::TemplateRaised
            | TextErrorKind::TemplateRejected
            | TextErrorKind::TemplateMissing
            | TextErrorKind::InvalidInput
            | TextErrorKind::TooLarge
            | TextErrorKind::Unspellable
            | TextErrorKind::UnknownToken => Exit::Request,
            _ => Exit::File,
        };
        Failure::new(exit, error.to_string()).because(&error)
    }
}

/// What the last panic of any thread said, and where.
static PANIC: Mutex<Option<String>> = Mutex::new(None);

/// Runs the program's work; a panic in it becomes a [`Failure`], told like any other.
pub(crate) fn guard(work: impl FnOnce() -> Result<(), Failure>) -> Result<(), Failure> {
    panic::set_hook(Box::new(|info| {
        if let Ok(mut last) = PANIC.lock() {
            *last = Some(info.to_string().replace('\n', " "));
        }
    }));
    // Nothing of the work is looked at after a panic.
    let end = panic::catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|_| {
        let message = "rushlight has met a bug of its own and cannot go on; please report it";
        Err(Failure::new(Exit::Bug, message))
    });
    end.map_err(|mut failure| {
        let panic = PANIC.lock().ok().and_then(|mut last| last.take());
        if failure.exit == Exit::Bug {
            failure.causes.extend(panic);
        }
        failure
    })
}

#[cfg(test)]
mod tests {
    use rushlight::grammar::GrammarErrorKind;

    use super::*;

    #[test]
    fn a_panic_becomes_our_fault_with_its_words_and_place() {
        let failure = guard(|| panic!("the lane went missing")).unwrap_err();
        assert_eq!(failure.exit(), Exit::Bug);
        assert_eq!(failure.json()["error"]["exit_code"], 4);
        let text = failure.text();
        assert!(text.starts_with("error: rushlight has met a bug"), "{text}");
        assert!(text.contains("the lane went missing"), "{text}");
        assert!(text.contains("failure.rs:"), "{text}");
    }

    #[test]
    fn what_ctrl_c_ended_is_interrupted_in_compiling_too() {
        let report = GrammarReport::from(GrammarError::new(
            GrammarErrorKind::Cancelled,
            "compiling was cancelled",
        ));
        let failure = Failure::from(SessionError::from(report));
        assert_eq!(failure.exit(), Exit::Interrupted);
    }

    #[test]
    fn faults_choose_the_exit_code() {
        let error = EngineError::invalid_option("top_p", 1.5, "above 0 and at most 1");
        let failure = Failure::from(error);
        assert_eq!(failure.exit(), Exit::Request);
        assert_eq!(
            failure.text(),
            "error: top_p is 1.5; it must be above 0 and at most 1"
        );
        let io = io::Error::new(io::ErrorKind::UnexpectedEof, "short read");
        let failure = Failure::from(EngineError::load("m.gguf", Fault::File, io));
        assert_eq!(failure.exit(), Exit::File);
        assert!(failure.text().contains("short read"), "{}", failure.text());
        let closed = Failure::output(&io::Error::from(io::ErrorKind::BrokenPipe));
        assert_eq!(closed.exit(), Exit::Closed);
    }
}
