//! `rushlight chat`: a conversation, typed or piped.

mod lines;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use rushlight::{
    CancelToken, Event, GenerationOptions, LanguageModel, Response, Session, SessionError,
    SessionErrorKind, Transcript,
};
use serde_json::{Value, json};

use crate::atomic::AtomicFile;
use crate::failure::Failure;
use crate::input;
use crate::interrupt::Stop;
use crate::load::LoadArgs;
use crate::output::{Out, counted, note, thousands};
use crate::progress::Bar;
use crate::report;
use crate::sampling::SamplingArgs;
use crate::source::GuideArgs;
use lines::{Lines, Text};

const HELP: &str = "\
/reset        forget every turn, keep the instructions
/system TEXT  give other instructions; without a text, none
/save FILE    save the conversation as JSON, for --resume
/usage        tell tokens read, kept and made so far
/help         tell this
/quit         end (as Ctrl-D does)
A line that ends in \\ goes on in the next one; \"\"\" begins and ends a text of several lines. A line that
begins with a space is a prompt, whatever follows. Ctrl-C stops an answer, which is then no part of the
conversation, and neither is its question.";

/// Each line of stdin is a prompt, also where stdin is a pipe. With --json, each answer is a JSON object
/// on a line of its own.
#[derive(Args, Debug)]
pub(crate) struct ChatArgs {
    #[command(flatten)]
    load: LoadArgs,
    /// Instructions
    #[arg(long, value_name = "TEXT", conflicts_with = "resume")]
    system: Option<String>,
    /// Go on with a conversation that /save saved
    #[arg(long, value_name = "FILE")]
    resume: Option<PathBuf>,
    #[command(flatten)]
    sampling: SamplingArgs,
    #[command(flatten)]
    guide: GuideArgs,
}

pub(crate) fn run(args: &ChatArgs, out: &Out) -> Result<(), Failure> {
    args.sampling.check()?;
    let guide = args.guide.read()?;
    let transcript = args
        .resume
        .as_deref()
        .map(|path| {
            let json = input::file(path)?;
            Transcript::from_json(&json).map_err(|error| Failure::from(error).in_file(path))
        })
        .transpose()?;
    let stop = Stop::install()?;
    let model = args.load.load()?;
    // A base model is refused now, not at the first prompt.
    model.template()?;
    let options = args.sampling.resolve(&model, guide);
    // So is a grammar.
    let draws = {
        let cancel = CancelToken::new();
        let _armed = stop.arm(cancel.clone());
        let asked = model.generate_options(&options, &cancel)?;
        asked.sampling.temperature != 0.0
    };
    let context = model.engine().context();
    let model: Arc<dyn LanguageModel> = model;
    let session = match transcript {
        Some(transcript) => {
            let entries = transcript.entries().len();
            note(format_args!(
                "going on with a conversation of {}",
                counted(entries, "message")
            ));
            Session::resume(model, transcript)?
        }
        None => Session::new(model, args.system.as_deref())?,
    };
    let mut lines = Lines::open(out)?;
    let mut chat = Chat {
        session,
        options,
        stop,
        draws,
        context,
        total: Total::default(),
        failed: None,
        out,
    };
    if lines.is_typed() {
        note("/help tells what there is; Ctrl-D ends");
    }
    while let Some(text) = lines.next()? {
        match text {
            Text::Whole(text) if !chat.take(&text)? => break,
            Text::Whole(_) => {}
            Text::Unreadable(failure) => chat.fail(failure),
        }
    }
    // A person has seen the errors; a program learns at the end that not all went well.
    match chat.failed {
        Some(failure) if !lines.is_typed() => Err(failure),
        _ => Ok(()),
    }
}

struct Chat<'a> {
    session: Session,
    options: GenerationOptions,
    stop: Stop,
    /// Whether tokens are drawn, so that the seed matters.
    draws: bool,
    context: usize,
    total: Total,
    /// The first error of a turn or command, where there was one.
    failed: Option<Failure>,
    out: &'a Out,
}

/// Tokens of all turns.
#[derive(Default)]
struct Total {
    turns: usize,
    prompt: usize,
    cached: usize,
    completion: usize,
    /// Positions taken by the conversation.
    held: usize,
}

impl Chat<'_> {
    /// Takes a prompt or a command; `false` where it was the last.
    fn take(&mut self, text: &str) -> Result<bool, Failure> {
        if let Some(command) = text.strip_prefix('/') {
            let (name, rest) = command
                .split_once(char::is_whitespace)
                .unwrap_or((command, ""));
            return self.command(name.trim_end(), rest.trim());
        }
        let prompt = text.strip_prefix(' ').unwrap_or(text);
        if !prompt.trim().is_empty() {
            self.turn(prompt)?;
        }
        Ok(true)
    }

    fn turn(&mut self, prompt: &str) -> Result<(), Failure> {
        match self.stream(prompt)? {
            Ok(response) => {
                self.total.add(&response);
                if self.out.is_json() {
                    // One object a line, so that a program can read turn by turn.
                    return self.out.line(Value::Object(report::answer(&response)));
                }
                self.out.text("\n")?;
                note(report::summary(
                    &response,
                    response.seed.filter(|_| self.draws),
                ));
            }
            Err(error) if *error.kind() == SessionErrorKind::Cancelled => {
                if !self.out.is_json() {
                    self.out.text("\n")?;
                }
                note("stopped; this turn is not part of the conversation");
            }
            Err(error) => self.fail(error.into()),
        }
        Ok(())
    }

    /// Shows an answer as it comes. The outer error is of the output, the inner of the turn.
    fn stream(&mut self, prompt: &str) -> Result<Result<Response, SessionError>, Failure> {
        let bar = Bar::count("reading");
        let mut stream = match self.session.stream_blocking(prompt, &self.options) {
            Ok(stream) => stream,
            Err(error) => return Ok(Err(error)),
        };
        let _armed = self.stop.arm(stream.cancel_token());
        let mut end = Err(SessionError::new(
            SessionErrorKind::Panicked,
            "the turn had no end",
        ));
        for event in stream.by_ref() {
            match event {
                Ok(Event::Prefill { done, total }) => bar.at(done as u64, total as u64),
                Ok(Event::Text(piece)) => {
                    bar.clear();
                    if !self.out.is_json() {
                        self.out.text(&piece)?;
                    }
                }
                Ok(Event::Finished(response)) => end = Ok(response),
                Ok(_) => {}
                Err(error) => end = Err(error),
            }
        }
        bar.clear();
        Ok(end)
    }

    fn command(&mut self, name: &str, rest: &str) -> Result<bool, Failure> {
        match (name, rest) {
            ("quit", "") => return Ok(false),
            ("help", "") => note(HELP),
            ("usage", "") => self.usage()?,
            ("reset", "") => {
                self.session.reset();
                self.total.held = 0;
                note("every turn is forgotten; /usage goes on counting");
            }
            ("system", "") => {
                self.session.set_instructions(None);
                note("no instructions from here on");
            }
            ("system", text) => {
                self.session.set_instructions(Some(text));
                note("these are the instructions from here on");
            }
            ("save", "") => self.refuse("/save needs the name of a file"),
            ("save", file) => match self.save(Path::new(file)) {
                Ok(()) => note(format_args!("saved {file}")),
                Err(failure) => self.fail(failure),
            },
            ("quit" | "help" | "usage" | "reset", _) => {
                self.refuse(&format!("/{name} takes nothing after it"));
            }
            _ => self.refuse(&format!(
                "unknown command /{}; valid: /reset, /system, /save, /usage, /help, /quit (a prompt that \
                 begins with / is typed with a space before it)",
                name.escape_debug()
            )),
        }
        Ok(true)
    }

    fn refuse(&mut self, message: &str) {
        self.fail(Failure::request(message));
    }

    fn fail(&mut self, mut failure: Failure) {
        failure.tell(self.out.is_json());
        self.failed.get_or_insert(failure);
    }

    fn usage(&self) -> Result<(), Failure> {
        let total = &self.total;
        if self.out.is_json() {
            return self.out.line(json!({"usage": {
                "turns": total.turns,
                "prompt_tokens": total.prompt,
                "cached_tokens": total.cached,
                "completion_tokens": total.completion,
                "context_held": total.held,
                "context": self.context,
            }}));
        }
        note(format_args!(
            "{}: {} prompt tokens, {} of them kept from before; {} tokens answered; {} of {} \
             positions taken",
            counted(total.turns, "turn"),
            thousands(total.prompt as u64),
            thousands(total.cached as u64),
            thousands(total.completion as u64),
            thousands(total.held as u64),
            thousands(self.context as u64),
        ));
        Ok(())
    }

    fn save(&self, path: &Path) -> Result<(), Failure> {
        let mut file = AtomicFile::create(path)?;
        let json = self.session.transcript().to_json();
        file.file()
            .write_all(json.as_bytes())
            .map_err(|error| Failure::file(path, "write", &error))?;
        file.commit()
    }
}

impl Total {
    fn add(&mut self, response: &Response) {
        self.turns += 1;
        self.prompt += response.usage.prompt;
        self.cached += response.usage.cached;
        self.completion += response.usage.completion;
        self.held = response.usage.prompt + response.usage.completion;
    }
}
