//! The conversation so far, as data.

use serde::{Deserialize, Serialize};

use crate::error::{SessionError, SessionErrorKind};

/// The version that [`Transcript::to_json`] writes.
const VERSION: u32 = 1;

/// The entries of a conversation, oldest first.
///
/// ```
/// use rushlight_session::{Entry, Transcript};
///
/// let json = r#"{"version": 1, "entries": [
///     {"kind": "instructions", "segments": [{"kind": "text", "text": "Be brief."}]},
///     {"kind": "prompt", "segments": [{"kind": "text", "text": "Hi"}]},
///     {"kind": "response", "segments": [{"kind": "text", "text": "Hello."}]}
/// ]}"#;
/// let transcript = Transcript::from_json(json)?;
/// assert_eq!(transcript.entries().len(), 3);
/// assert_eq!(transcript.instructions().as_deref(), Some("Be brief."));
/// assert_eq!(Transcript::from_json(&transcript.to_json())?, transcript);
/// # Ok::<(), rushlight_session::SessionError>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Transcript {
    entries: Vec<Entry>,
}

/// One entry of a transcript.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
#[non_exhaustive]
pub enum Entry {
    /// What the model is told before anything is asked; first, and at most once.
    Instructions {
        /// Content in order.
        segments: Vec<Segment>,
    },
    /// What was asked.
    Prompt {
        /// Content in order.
        segments: Vec<Segment>,
    },
    /// What the model answered.
    Response {
        /// Content in order.
        segments: Vec<Segment>,
    },
}

/// A piece of an entry's content.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
#[non_exhaustive]
pub enum Segment {
    /// Text.
    Text {
        /// The text, which is data: nothing in it can become a control token.
        text: String,
    },
}

impl Segment {
    /// A segment of text.
    pub fn text(text: impl Into<String>) -> Segment {
        Segment::Text { text: text.into() }
    }
}

impl Entry {
    /// Instructions of one text.
    pub fn instructions(text: impl Into<String>) -> Entry {
        Entry::Instructions {
            segments: vec![Segment::text(text)],
        }
    }

    /// A prompt of one text.
    pub fn prompt(text: impl Into<String>) -> Entry {
        Entry::Prompt {
            segments: vec![Segment::text(text)],
        }
    }

    /// A response of one text.
    pub fn response(text: impl Into<String>) -> Entry {
        Entry::Response {
            segments: vec![Segment::text(text)],
        }
    }

    /// The content in order.
    pub fn segments(&self) -> &[Segment] {
        match self {
            Entry::Instructions { segments }
            | Entry::Prompt { segments }
            | Entry::Response { segments } => segments,
        }
    }

    /// The text segments, joined by a line feed.
    pub fn text(&self) -> String {
        let texts: Vec<&str> = self
            .segments()
            .iter()
            .map(|Segment::Text { text }| text.as_str())
            .collect();
        texts.join("\n")
    }
}

impl Transcript {
    /// A transcript without entries.
    pub fn new() -> Transcript {
        Transcript::default()
    }

    /// A transcript of these entries.
    ///
    /// # Errors
    /// [`SessionErrorKind::Transcript`] where instructions stand anywhere but first.
    pub fn from_entries(entries: Vec<Entry>) -> Result<Transcript, SessionError> {
        let late = |(_, entry): &(usize, &Entry)| matches!(entry, Entry::Instructions { .. });
        if let Some((at, _)) = entries.iter().enumerate().skip(1).find(late) {
            return Err(SessionError::new(
                SessionErrorKind::Transcript,
                format!("entry {at} of the transcript is instructions; they can only stand first"),
            ));
        }
        Ok(Transcript { entries })
    }

    /// Reads what [`to_json`](Transcript::to_json) writes.
    ///
    /// # Errors
    /// [`SessionErrorKind::Transcript`] for another version, an unknown kind or field (nothing is
    /// skipped), or instructions anywhere but first. The source gives line and column.
    pub fn from_json(json: &str) -> Result<Transcript, SessionError> {
        let broken = |error: serde_json::Error| {
            let message = format!("the transcript cannot be read: {error}");
            SessionError::new(SessionErrorKind::Transcript, message).with_source(error)
        };
        // The version comes first: another version's fields are not ours to judge.
        let Version { version } = serde_json::from_str(json).map_err(broken)?;
        if version != VERSION {
            return Err(SessionError::new(
                SessionErrorKind::Transcript,
                format!(
                    "the transcript has version {version}; this rushlight reads version {VERSION}"
                ),
            ));
        }
        let file: File = serde_json::from_str(json).map_err(broken)?;
        Transcript::from_entries(file.entries)
    }

    /// The transcript as a JSON document of several lines.
    pub fn to_json(&self) -> String {
        let file = FileRef {
            version: VERSION,
            entries: &self.entries,
        };
        serde_json::to_string_pretty(&file).expect("strings and integers always serialise")
    }

    /// The entries, oldest first.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The text of the instructions.
    pub fn instructions(&self) -> Option<String> {
        self.entries
            .first()
            .filter(|entry| matches!(entry, Entry::Instructions { .. }))
            .map(Entry::text)
    }

    /// The transcript with one more entry.
    ///
    /// # Errors
    /// As [`from_entries`](Transcript::from_entries).
    pub fn with(&self, entry: Entry) -> Result<Transcript, SessionError> {
        let mut entries = self.entries.clone();
        entries.push(entry);
        Transcript::from_entries(entries)
    }

    pub(crate) fn push(&mut self, entry: Entry) {
        debug_assert!(self.entries.is_empty() || !matches!(entry, Entry::Instructions { .. }));
        self.entries.push(entry);
    }

    /// Takes away every entry but the instructions.
    pub(crate) fn clear_turns(&mut self) {
        self.entries
            .retain(|entry| matches!(entry, Entry::Instructions { .. }));
    }

    pub(crate) fn set_instructions(&mut self, text: Option<String>) {
        self.entries
            .retain(|entry| !matches!(entry, Entry::Instructions { .. }));
        if let Some(text) = text {
            self.entries.insert(0, Entry::instructions(text));
        }
    }
}

#[derive(Deserialize)]
struct Version {
    version: u32,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(rename = "version")]
    _version: u32,
    entries: Vec<Entry>,
}

#[derive(Serialize)]
struct FileRef<'a> {
    version: u32,
    entries: &'a [Entry],
}
