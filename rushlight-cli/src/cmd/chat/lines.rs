//! What a person types or a program pipes: one text at a time, of one or several lines.

use std::io::{self, BufRead, IsTerminal};

use rustyline::error::ReadlineError;
use rustyline::history::{History, MemHistory};
use rustyline::{Config, Editor};

use crate::failure::Failure;
use crate::input;
use crate::output::{Out, note};

/// Begins and ends a text of several lines.
const FENCE: &str = "\"\"\"";

/// Where lines come from.
pub(super) enum Lines {
    /// A terminal, with editing and a history that is gone at the end.
    Typed(Box<Editor<(), MemHistory>>),
    /// A pipe or a file.
    Piped {
        /// Bytes read so far.
        read: usize,
    },
}

/// A text to answer, or why it cannot be.
pub(super) enum Text {
    Whole(String),
    /// A line of it is not UTF-8.
    Unreadable(Failure),
}

/// One line, or why there is none.
enum Line {
    Text(String),
    /// A line that is not UTF-8, as far as it is, which tells where the text goes on; and the error.
    Unreadable(String, Failure),
    /// Ctrl-C: what was typed so far is dropped.
    Dropped,
    End,
}

impl Lines {
    /// Lines of stdin, with editing where a person sits on both ends.
    pub(super) fn open(out: &Out) -> Result<Lines, Failure> {
        if !(io::stdin().is_terminal() && out.is_terminal()) || out.is_json() {
            return Ok(Lines::Piped { read: 0 });
        }
        let editor = Editor::with_history(Config::default(), MemHistory::new())
            .map_err(|error| terminal(&error))?;
        Ok(Lines::Typed(Box::new(editor)))
    }

    /// Whether a person types.
    pub(super) fn is_typed(&self) -> bool {
        matches!(self, Lines::Typed(_))
    }

    /// The next text; `None` at the end.
    pub(super) fn next(&mut self) -> Result<Option<Text>, Failure> {
        loop {
            let text = match gather(|more| self.line(more))? {
                Line::Text(text) => text,
                Line::Unreadable(_, failure) => return Ok(Some(Text::Unreadable(failure))),
                Line::Dropped => {
                    note("Ctrl-D ends");
                    continue;
                }
                Line::End => return Ok(None),
            };
            if let Lines::Typed(editor) = self {
                // Only a text too long for the history is refused; it is still sent.
                let _ = editor.history_mut().add(&text);
            }
            return Ok(Some(Text::Whole(text)));
        }
    }

    fn line(&mut self, more: bool) -> Result<Line, Failure> {
        match self {
            Lines::Typed(editor) => match editor.readline(if more { "… " } else { "> " }) {
                Ok(text) => Ok(Line::Text(text)),
                Err(ReadlineError::Interrupted) => Ok(Line::Dropped),
                Err(ReadlineError::Eof) => Ok(Line::End),
                Err(error) => Err(terminal(&error)),
            },
            Lines::Piped { read } => {
                let mut bytes = Vec::new();
                let count = io::stdin()
                    .lock()
                    .read_until(b'\n', &mut bytes)
                    .map_err(|error| Failure::request(format!("cannot read stdin: {error}")))?;
                if count == 0 {
                    return Ok(Line::End);
                }
                let lossy = String::from_utf8_lossy(&bytes).into_owned();
                let text = input::utf8(bytes, "stdin", *read);
                *read += count;
                Ok(match text {
                    Ok(text) => Line::Text(input::without_final_line_break(text)),
                    Err(failure) => {
                        Line::Unreadable(input::without_final_line_break(lossy), failure)
                    }
                })
            }
        }
    }
}

/// Puts lines that belong together into one text. `line` is told whether it goes on with one. A text
/// that the end of input cuts off is what was there; one with an unreadable line is unreadable.
fn gather(mut line: impl FnMut(bool) -> Result<Line, Failure>) -> Result<Line, Failure> {
    let mut unreadable = None;
    let text = gather_readable(|more| {
        Ok(match line(more)? {
            Line::Unreadable(text, failure) => {
                unreadable.get_or_insert(failure);
                Line::Text(text)
            }
            other => other,
        })
    })?;
    Ok(match (text, unreadable) {
        (Line::Text(text), Some(failure)) => Line::Unreadable(text, failure),
        (text, _) => text,
    })
}

fn gather_readable(mut line: impl FnMut(bool) -> Result<Line, Failure>) -> Result<Line, Failure> {
    let first = match line(false)? {
        Line::Text(text) => text,
        other => return Ok(other),
    };
    let fenced = first.strip_prefix(FENCE);
    let mut text = fenced.unwrap_or(&first).to_owned();
    loop {
        let mark = if fenced.is_some() { FENCE } else { "\\" };
        let ends = text.ends_with(mark);
        if ends {
            text.truncate(text.len() - mark.len());
        }
        // A fence is closed by its mark; a line is continued by it.
        if ends == fenced.is_some() {
            return Ok(Line::Text(if ends {
                inner(&text).to_owned()
            } else {
                text
            }));
        }
        match line(true)? {
            Line::Text(next) => {
                text.push('\n');
                text.push_str(&next);
            }
            Line::End => return Ok(Line::Text(text)),
            other => return Ok(other),
        }
    }
}

/// A fenced text without the line breaks of fences that stand on lines of their own.
fn inner(text: &str) -> &str {
    let text = text.strip_prefix('\n').unwrap_or(text);
    text.strip_suffix('\n').unwrap_or(text)
}

fn terminal(error: &ReadlineError) -> Failure {
    Failure::request(format!("cannot read from the terminal: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gathered(lines: &[&str]) -> (Option<String>, usize) {
        let mut given = 0;
        let text = gather(|more| {
            assert_eq!(more, given > 0);
            let line = lines.get(given).map(|line| Line::Text((*line).to_owned()));
            given += 1;
            Ok(line.unwrap_or(Line::End))
        });
        match text.unwrap() {
            Line::Text(text) => (Some(text), given),
            _ => (None, given),
        }
    }

    #[test]
    fn lines_that_belong_together_become_one_text() {
        for (lines, text, taken) in [
            (&["one", "two"][..], "one", 1),
            (&["one\\", "two\\", "three", "four"], "one\ntwo\nthree", 3),
            (
                &["\"\"\"one", "two\\", "", "three\"\"\"", "four"],
                "one\ntwo\\\n\nthree",
                4,
            ),
            (&["\"\"\"one\"\"\"", "two"], "one", 1),
            (&["\"\"\"", "one", "\"\"\""], "one", 3),
            // Cut off by the end.
            (&["one\\"], "one", 2),
            (&["\"\"\"one", "two"], "one\ntwo", 3),
            (&["/usage"], "/usage", 1),
        ] {
            assert_eq!(gathered(lines), (Some(text.to_owned()), taken), "{lines:?}");
        }
        assert_eq!(gathered(&[]), (None, 1));
    }
}
