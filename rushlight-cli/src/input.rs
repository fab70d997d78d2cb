//! Text from files and stdin, which must be UTF-8.

use std::fs;
use std::io::{self, IsTerminal, Read};
use std::path::Path;

use crate::failure::Failure;
use crate::output::note;

/// The text of a file.
pub(crate) fn file(path: &Path) -> Result<String, Failure> {
    let bytes = fs::read(path).map_err(|error| Failure::file(path, "read", &error))?;
    utf8(bytes, &path.display().to_string(), 0)
}

/// All of stdin; `what` it is asked for is told to a person who is to type it.
pub(crate) fn stdin(what: &str) -> Result<String, Failure> {
    if io::stdin().is_terminal() {
        note(format_args!(
            "reading {what} from the terminal; end it with Ctrl-D"
        ));
    }
    let mut bytes = Vec::new();
    io::stdin()
        .lock()
        .read_to_end(&mut bytes)
        .map_err(|error| Failure::request(format!("cannot read stdin: {error}")))?;
    utf8(bytes, "stdin", 0)
}

/// Bytes as text; `before` bytes of `source` came before them.
pub(crate) fn utf8(bytes: Vec<u8>, source: &str, before: usize) -> Result<String, Failure> {
    String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        let byte = error.as_bytes().get(at).copied().unwrap_or_default();
        Failure::request(format!(
            "{source}: not UTF-8 at byte {} (0x{byte:02x})",
            before + at
        ))
    })
}

/// The text without one line break at its end, which editors and `echo` put there.
pub(crate) fn without_final_line_break(mut text: String) -> String {
    if text.ends_with('\n') {
        text.pop();
        if text.ends_with('\r') {
            text.pop();
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_text_is_told_with_its_byte() {
        let error = utf8(b"caf\xe9!".to_vec(), "stdin", 10).unwrap_err();
        assert_eq!(error.text(), "error: stdin: not UTF-8 at byte 13 (0xe9)");
        // A character that is cut off.
        let error = utf8(b"a\xe2\x82".to_vec(), "stdin", 0).unwrap_err();
        assert_eq!(error.text(), "error: stdin: not UTF-8 at byte 1 (0xe2)");
    }

    #[test]
    fn one_line_break_is_taken_off() {
        let strip = |text: &str| without_final_line_break(text.to_owned());
        assert_eq!(strip("a\n"), "a");
        assert_eq!(strip("a\r\n"), "a");
        assert_eq!(strip("a\n\n"), "a\n");
        assert_eq!(strip("a"), "a");
        assert_eq!(strip("\n"), "");
    }
}
