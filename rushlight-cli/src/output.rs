//! Stdout, which programs may read, and notes on stderr, which people do.

use std::env;
use std::fmt;
use std::io::{self, IsTerminal, Write};

use serde_json::Value;

use crate::failure::Failure;

/// Where results go. A write to a reader that went away ends the program quietly.
#[derive(Debug)]
pub(crate) struct Out {
    json: bool,
    terminal: bool,
    colour: bool,
}

impl Out {
    pub(crate) fn new(json: bool) -> Out {
        let terminal = io::stdout().is_terminal();
        Out {
            json,
            terminal,
            colour: terminal && wants_colour(),
        }
    }

    /// Whether results are JSON.
    pub(crate) fn is_json(&self) -> bool {
        self.json
    }

    /// Whether a person sees what is written.
    pub(crate) fn is_terminal(&self) -> bool {
        self.terminal
    }

    /// Writes text as it is, at once.
    pub(crate) fn text(&self, text: &str) -> Result<(), Failure> {
        let mut out = io::stdout().lock();
        out.write_all(text.as_bytes())
            .and_then(|()| out.flush())
            .map_err(|error| Failure::output(&error))
    }

    /// Writes a line.
    pub(crate) fn line(&self, line: impl fmt::Display) -> Result<(), Failure> {
        writeln!(io::stdout().lock(), "{line}").map_err(|error| Failure::output(&error))
    }

    /// Writes a JSON document: on one line, or indented for a person.
    pub(crate) fn json(&self, value: &Value) -> Result<(), Failure> {
        if self.terminal {
            self.line(format_args!("{value:#}"))
        } else {
            self.line(value)
        }
    }

    /// A label before a value.
    pub(crate) fn label(&self, label: &str) -> String {
        let padded = format!("{label:<13}");
        if self.colour {
            format!("\x1b[1m{padded}\x1b[0m")
        } else {
            padded
        }
    }
}

/// A remark for a person, on stderr: faint on a terminal.
pub(crate) fn note(text: impl fmt::Display) {
    if io::stderr().is_terminal() && wants_colour() {
        eprintln!("\x1b[2m{text}\x1b[0m");
    } else {
        eprintln!("{text}");
    }
}

/// `NO_COLOR` and dumb terminals are respected.
fn wants_colour() -> bool {
    let set = |name| env::var_os(name).filter(|value| !value.is_empty());
    set("NO_COLOR").is_none() && set("TERM").is_none_or(|term| term != "dumb")
}

/// A count with separators of thousands.
pub(crate) fn thousands(count: u64) -> String {
    let digits = count.to_string();
    let mut text = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A count and what is counted, in the singular where it is one.
pub(crate) fn counted(count: usize, what: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{} {what}{plural}", thousands(count as u64))
}

/// A size in decimal units, three digits or so.
pub(crate) fn size(bytes: u64) -> String {
    let mut value = bytes as f64;
    for unit in ["B", "kB", "MB", "GB"] {
        if value < 999.5 {
            return match unit {
                "B" => format!("{bytes} B"),
                _ if value < 9.995 => format!("{value:.2} {unit}"),
                _ if value < 99.95 => format!("{value:.1} {unit}"),
                _ => format!("{value:.0} {unit}"),
            };
        }
        value /= 1000.0;
    }
    format!("{value:.2} TB")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_for_people() {
        assert_eq!(thousands(0), "0");
        assert_eq!(thousands(999), "999");
        assert_eq!(thousands(134_515_008), "134,515,008");
        assert_eq!(counted(1, "turn"), "1 turn");
        assert_eq!(counted(2000, "turn"), "2,000 turns");
        assert_eq!(size(0), "0 B");
        assert_eq!(size(999), "999 B");
        assert_eq!(size(1_000), "1.00 kB");
        assert_eq!(size(94_123_456), "94.1 MB");
        assert_eq!(size(999_600), "1.00 MB");
        assert_eq!(size(188_743_680), "189 MB");
        assert_eq!(size(u64::MAX), "18446744.07 TB");
    }
}
