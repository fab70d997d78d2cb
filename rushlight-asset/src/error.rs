//! The one error of this crate: what kind of fault, where, and what was underneath.

use std::error::Error;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// What kind of fault an [`AssetError`] reports.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// The operating system refused or failed: permissions, disk, not a regular file.
    Io,
    /// No file, directory or store entry of that name.
    NotFound,
    /// The path holds something, but no checkpoint.
    NotACheckpoint,
    /// The path names one asset of a bundle (`.aimodel`, `.rlmodel`, …), not a checkpoint.
    PointedAtAsset,
    /// The bytes break the rules of their own format.
    Malformed,
    /// A count or length is beyond what this crate accepts; see [`crate::limits`].
    Limit,
    /// Well-formed, but asking for something that is not honoured.
    Unsupported,
    /// A part, key or tensor that should be there is not.
    Missing,
    /// Two parts of one checkpoint disagree.
    Mismatch,
    /// A file changed while it was open.
    Damaged,
    /// The caller's argument is out of range or ill-formed.
    Usage,
}

/// What inside a file an [`AssetError`] is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Item {
    /// A tensor, under the file's own name.
    Tensor(String),
    /// A metadata key or configuration field.
    Key(String),
}

/// Why a checkpoint could not be opened or read.
///
/// Displays as `FILE: tensor `NAME` at byte N: what is wrong and what would help`, leaving out the
/// parts that do not apply. The cause, where there is one, is its [`source`](Error::source).
pub struct AssetError(Box<Inner>);

struct Inner {
    kind: ErrorKind,
    file: Option<PathBuf>,
    item: Option<Item>,
    offset: Option<u64>,
    message: String,
    source: Option<Box<dyn Error + Send + Sync>>,
}

impl AssetError {
    /// Messages quote names from files, so control characters are escaped here once for all.
    pub(crate) fn new(kind: ErrorKind, message: impl Into<String>) -> AssetError {
        AssetError(Box::new(Inner {
            kind,
            file: None,
            item: None,
            offset: None,
            message: escaped(message.into()),
            source: None,
        }))
    }

    pub(crate) fn malformed(message: impl Into<String>) -> AssetError {
        AssetError::new(ErrorKind::Malformed, message)
    }

    pub(crate) fn unsupported(message: impl Into<String>) -> AssetError {
        AssetError::new(ErrorKind::Unsupported, message)
    }

    /// An operating system error while doing `what` with `file`.
    pub(crate) fn io(file: &Path, what: &str, source: io::Error) -> AssetError {
        let kind = match source.kind() {
            io::ErrorKind::NotFound => ErrorKind::NotFound,
            _ => ErrorKind::Io,
        };
        AssetError::new(kind, format!("cannot {what}: {source}"))
            .in_file(file)
            .because(source)
    }

    /// Names the file, unless an inner part already did.
    pub(crate) fn in_file(mut self, file: &Path) -> AssetError {
        self.0.file.get_or_insert_with(|| file.to_path_buf());
        self
    }

    pub(crate) fn tensor(mut self, name: &str) -> AssetError {
        self.0
            .item
            .get_or_insert_with(|| Item::Tensor(name.to_owned()));
        self
    }

    pub(crate) fn key(mut self, key: &str) -> AssetError {
        self.0.item.get_or_insert_with(|| Item::Key(key.to_owned()));
        self
    }

    pub(crate) fn at(mut self, offset: u64) -> AssetError {
        self.0.offset.get_or_insert(offset);
        self
    }

    pub(crate) fn because(mut self, source: impl Error + Send + Sync + 'static) -> AssetError {
        self.0.source = Some(Box::new(source));
        self
    }

    /// Like [`AssetError::because`] for a cause that quotes the file: only its words are kept,
    /// escaped as the message is.
    pub(crate) fn quoting(mut self, source: &dyn Error) -> AssetError {
        self.0.source = Some(Box::new(Words(escaped(source.to_string()))));
        self
    }

    /// What kind of fault this is.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// The file at fault.
    pub fn file(&self) -> Option<&Path> {
        self.0.file.as_deref()
    }

    /// The tensor or key at fault.
    pub fn item(&self) -> Option<&Item> {
        self.0.item.as_ref()
    }

    /// Where in the file, in bytes from its start.
    pub fn offset(&self) -> Option<u64> {
        self.0.offset
    }

    /// The sentence alone, without the place.
    pub fn message(&self) -> &str {
        &self.0.message
    }
}

impl fmt::Display for AssetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let inner = &self.0;
        if let Some(file) = &inner.file {
            write!(f, "{}: ", file.display())?;
        }
        match &inner.item {
            Some(Item::Tensor(name)) => write!(f, "tensor `{}`", Printable(name))?,
            Some(Item::Key(key)) => write!(f, "`{}`", Printable(key))?,
            None => {}
        }
        match (inner.offset, &inner.item) {
            (Some(offset), Some(_)) => write!(f, " at byte {offset}: ")?,
            (Some(offset), None) => write!(f, "at byte {offset}: ")?,
            (None, Some(_)) => f.write_str(": ")?,
            (None, None) => {}
        }
        f.write_str(&inner.message)
    }
}

impl fmt::Debug for AssetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {self}", self.0.kind)
    }
}

impl Error for AssetError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.0
            .source
            .as_deref()
            .map(|source| source as &(dyn Error + 'static))
    }
}

fn escaped(text: String) -> String {
    if !text.contains(char::is_control) {
        return text;
    }
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_control() {
            safe.extend(c.escape_default());
        } else {
            safe.push(c);
        }
    }
    safe
}

/// The words of a cause.
#[derive(Debug)]
struct Words(String);

impl fmt::Display for Words {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Error for Words {}

/// A name from a file, safe to print: control characters escaped, the tail of a long one cut, so
/// that a hostile name can neither move a terminal's cursor nor fill its screen.
pub(crate) struct Printable<'a>(pub(crate) &'a str);

impl fmt::Display for Printable<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN: usize = 120;
        let mut chars = self.0.chars();
        for c in chars.by_ref().take(SHOWN) {
            if c.is_control() {
                write!(f, "{}", c.escape_default())?;
            } else {
                write!(f, "{c}")?;
            }
        }
        if chars.next().is_some() {
            f.write_str("…")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_place_comes_before_the_sentence() {
        let error = AssetError::malformed("its rows overlap")
            .tensor("blk.0.attn_q.weight")
            .at(96)
            .in_file(Path::new("m.gguf"));
        assert_eq!(
            error.to_string(),
            "m.gguf: tensor `blk.0.attn_q.weight` at byte 96: its rows overlap"
        );
        let error = AssetError::unsupported("not read").key("llama.x");
        assert_eq!(error.to_string(), "`llama.x`: not read");
    }

    #[test]
    fn names_from_files_are_printed_without_control_characters() {
        let error = AssetError::malformed("bad").key("a\u{1b}[2Jb\n");
        assert_eq!(error.to_string(), "`a\\u{1b}[2Jb\\n`: bad");
        let error = AssetError::malformed("not `\u{1b}[2J`").quoting(&Words("a\rb".into()));
        assert_eq!(error.to_string(), "not `\\u{1b}[2J`");
        assert_eq!(error.source().unwrap().to_string(), "a\\rb");
        let long = "x".repeat(500);
        assert!(AssetError::malformed("bad").key(&long).to_string().len() < 140);
    }

    #[test]
    fn the_innermost_place_wins() {
        let error = AssetError::malformed("bad").at(3).at(9).key("a").key("b");
        assert_eq!(error.offset(), Some(3));
        assert_eq!(error.item(), Some(&Item::Key("a".into())));
    }
}
