//! Guards of schemas inside tags: they must learn where their value starts.
//!
//! The text is scanned for the begins of all tags. After one, the content is passed over (a JSON value by its brackets and
//! quotes, anything else up to the tag's end), guarded if it has guards, and the scan goes on behind it.

use std::sync::Arc;

use crate::lower::{Guard, GuardRun, GuardStep};

/// The tags of a structural tag, in document order.
#[derive(Default)]
pub(super) struct Tags {
    tags: Vec<Tag>,
}

struct Tag {
    begin: Vec<u8>,
    ends: Vec<Vec<u8>>,
    content: Content,
}

/// What a tag holds.
pub(super) enum Content {
    /// Other formats: tags in it are looked for.
    Formats,
    /// Free text up to the tag's end: nothing in it is a tag.
    Text,
    /// One JSON value, and the guards that judge it.
    Json(Vec<Arc<dyn Guard>>),
}

impl Tags {
    pub(super) fn add(&mut self, begin: &str, ends: &[String]) -> usize {
        self.tags.push(Tag {
            begin: begin.as_bytes().to_vec(),
            ends: ends.iter().map(|e| e.as_bytes().to_vec()).collect(),
            content: Content::Formats,
        });
        self.tags.len() - 1
    }

    /// Every text that ends a tag, in document order.
    pub(super) fn ends(&self) -> Vec<String> {
        let ends = self.tags.iter().flat_map(|tag| &tag.ends);
        ends.map(|end| String::from_utf8_lossy(end).into_owned())
            .collect()
    }

    pub(super) fn set_content(&mut self, tag: usize, content: Content) {
        if let Some(tag) = self.tags.get_mut(tag) {
            tag.content = content;
        }
    }

    pub(super) fn has_guards(&self) -> bool {
        self.tags
            .iter()
            .any(|tag| matches!(&tag.content, Content::Json(guards) if !guards.is_empty()))
    }
}

/// Judges the schemas of tags.
pub(super) struct TagGuard {
    tags: Arc<Tags>,
}

impl TagGuard {
    pub(super) fn new(tags: Arc<Tags>) -> Self {
        Self { tags }
    }
}

impl Guard for TagGuard {
    fn begin(&self) -> Box<dyn GuardRun> {
        Box::new(Run {
            tags: self.tags.clone(),
            text: Vec::new(),
            state: State::Outside { from: 0 },
            past: Vec::new(),
        })
    }

    fn describe(&self) -> String {
        let all: Vec<String> = self
            .tags
            .tags
            .iter()
            .filter_map(|tag| match &tag.content {
                Content::Json(guards) => {
                    Some(guards.iter().map(|g| g.describe()).collect::<Vec<_>>())
                }
                _ => None,
            })
            .flatten()
            .collect();
        all.join("; ")
    }
}

struct Run {
    tags: Arc<Tags>,
    text: Vec<u8>,
    state: State,
    // States that were left, and how much text there was: a truncation goes back to one.
    past: Vec<(usize, State)>,
}

enum State {
    /// Looking for begins in the text from `from` on.
    Outside { from: usize },
    /// In the free text of a tag.
    Text { tag: usize, from: usize },
    /// In JSON values that start at `start`: one for each tag of this begin.
    Json {
        start: usize,
        depth: usize,
        string: bool,
        escaped: bool,
        runs: Vec<Box<dyn GuardRun>>,
    },
}

impl State {
    fn copy(&self) -> Self {
        match self {
            Self::Outside { from } => Self::Outside { from: *from },
            Self::Text { tag, from } => Self::Text {
                tag: *tag,
                from: *from,
            },
            Self::Json {
                start,
                depth,
                string,
                escaped,
                runs,
            } => Self::Json {
                start: *start,
                depth: *depth,
                string: *string,
                escaped: *escaped,
                runs: runs.iter().map(|run| run.fork()).collect(),
            },
        }
    }
}

impl Run {
    /// Moves on after `byte` was added to the text.
    fn moved(&self, byte: u8) -> Option<State> {
        let here = self.text.len();
        match &self.state {
            State::Outside { from } => {
                let fresh = self.text.get(*from..)?;
                let (_, tag) = self
                    .tags
                    .tags
                    .iter()
                    .enumerate()
                    .filter(|(_, tag)| !tag.begin.is_empty() && fresh.ends_with(&tag.begin))
                    .max_by_key(|(_, tag)| tag.begin.len())?;
                let number = self.tags.tags.iter().position(|t| std::ptr::eq(t, tag))?;
                Some(match &tag.content {
                    Content::Formats => State::Outside { from: here },
                    Content::Text => State::Text {
                        tag: number,
                        from: here,
                    },
                    Content::Json(guards) => State::Json {
                        start: here,
                        depth: 0,
                        string: false,
                        escaped: false,
                        runs: guards.iter().map(|g| g.begin()).collect(),
                    },
                })
            }
            State::Text { tag, from } => {
                let fresh = self.text.get(*from..)?;
                let tag = self.tags.tags.get(*tag)?;
                tag.ends
                    .iter()
                    .any(|end| fresh.ends_with(end))
                    .then_some(State::Outside { from: here })
            }
            State::Json {
                start,
                depth,
                string,
                escaped,
                runs,
            } => {
                let (mut depth, mut string, mut escaped) = (*depth, *string, *escaped);
                let mut done = false;
                if string {
                    match byte {
                        _ if escaped => escaped = false,
                        b'\\' => escaped = true,
                        b'"' => {
                            string = false;
                            done = depth == 0;
                        }
                        _ => return None,
                    }
                } else {
                    match byte {
                        b'"' => string = true,
                        b'{' | b'[' => depth += 1,
                        b'}' | b']' => {
                            depth = depth.saturating_sub(1);
                            done = depth == 0;
                        }
                        // A bare scalar is over where something else comes.
                        b'0'..=b'9' | b'-' | b'+' | b'.' | b'a'..=b'z' | b'E' => return None,
                        b' ' | b'\t' | b'\n' | b'\r' | b',' | b':'
                            if depth > 0 || here == start + 1 =>
                        {
                            return None;
                        }
                        _ if depth > 0 => return None,
                        _ => {
                            return Some(State::Outside { from: here - 1 });
                        }
                    }
                }
                if done {
                    return Some(State::Outside { from: here });
                }
                Some(State::Json {
                    start: *start,
                    depth,
                    string,
                    escaped,
                    runs: runs.iter().map(|run| run.fork()).collect(),
                })
            }
        }
    }
}

impl GuardRun for Run {
    fn push(&mut self, byte: u8) -> GuardStep {
        if let State::Json {
            start,
            depth,
            string,
            runs,
            ..
        } = &mut self.state
        {
            let over = *depth == 0 && !*string && *start < self.text.len() && is_after_scalar(byte);
            let inside = self.text.len() - *start;
            let mut refused = None;
            for run in runs.iter_mut() {
                let step = if over { run.finish() } else { run.push(byte) };
                if let GuardStep::Reject { value_start } = step {
                    refused = Some(*start + value_start);
                    break;
                }
            }
            if let Some(value_start) = refused {
                for run in runs {
                    run.truncate(inside);
                }
                return GuardStep::Reject { value_start };
            }
        }
        self.text.push(byte);
        if let Some(next) = self.moved(byte) {
            let before = std::mem::replace(&mut self.state, next);
            self.past.push((self.text.len() - 1, before));
        }
        GuardStep::Accept
    }

    fn finish(&self) -> GuardStep {
        if let State::Json { start, runs, .. } = &self.state {
            for run in runs {
                if let GuardStep::Reject { value_start } = run.finish() {
                    return GuardStep::Reject {
                        value_start: start + value_start,
                    };
                }
            }
        }
        GuardStep::Accept
    }

    fn open_from(&self) -> Option<usize> {
        let State::Json { start, runs, .. } = &self.state else {
            return None;
        };
        let open = runs.iter().filter_map(|run| run.open_from()).min();
        // Before its first byte a value is open from where it will start.
        open.or((self.text.len() == *start).then_some(0))
            .map(|from| start + from)
    }

    fn truncate(&mut self, len: usize) {
        while let Some((at, _)) = self.past.last() {
            if *at < len {
                break;
            }
            if let Some((_, state)) = self.past.pop() {
                self.state = state;
            }
        }
        self.text.truncate(len);
        if let State::Json { start, runs, .. } = &mut self.state {
            for run in runs {
                run.truncate(len.saturating_sub(*start));
            }
        }
    }

    fn fork(&self) -> Box<dyn GuardRun> {
        Box::new(Self {
            tags: self.tags.clone(),
            text: self.text.clone(),
            state: self.state.copy(),
            past: self
                .past
                .iter()
                .map(|(at, state)| (*at, state.copy()))
                .collect(),
        })
    }
}

fn is_after_scalar(byte: u8) -> bool {
    !matches!(byte, b'0'..=b'9' | b'-' | b'+' | b'.' | b'a'..=b'z' | b'E')
}
