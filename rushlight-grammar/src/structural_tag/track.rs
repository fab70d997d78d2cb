//! Where a text stands among the parts of a structural tag, and the proof that this is always known where a guard needs it.
//!
//! A text is followed along the automaton of its parts as the set of all nodes that it may be at. A guarded value may begin only
//! where its first byte leaves nothing else that the text could be; a structural tag of which that is not so is refused.

use std::collections::HashSet;
use std::sync::Arc;

use super::automaton::{Automaton, Node, Set};
use super::content::Content;
use super::shape::Part;
use crate::error::{GrammarError, GrammarErrorKind, Result};

/// Nodes that the proof walks.
const STEPS: usize = 3_000_000;

pub(super) struct Track {
    automaton: Automaton,
    pub(super) contents: Vec<Content>,
    start: Set,
    // Whether white space may stand around a value.
    blank: bool,
}

/// A place in the text.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) enum Stand {
    Text(Arc<Set>),
    /// A value may begin here: one of `contents`, after which comes `after`. It does with every byte that a value begins with,
    /// and with any other byte the text goes on in `others`.
    Value {
        contents: Arc<Vec<usize>>,
        after: Arc<Set>,
        others: Arc<Set>,
    },
}

impl Track {
    /// # Errors
    /// [`GrammarErrorKind::Unsupported`] where a guard could not tell where its value begins, [`GrammarErrorKind::Limit`].
    pub(super) fn new(whole: &Part, contents: Vec<Content>, blank: bool) -> Result<Self> {
        let mut automaton = Automaton::default();
        let end = automaton.node(Node::End);
        let start = end.and_then(|end| automaton.add(whole, end, blank));
        let Some(start) = start else {
            return Err(too_large());
        };
        let track = Self {
            start: automaton.closure([start]),
            automaton,
            contents,
            blank,
        };
        track.prove()?;
        Ok(track)
    }

    pub(super) fn start(&self) -> Stand {
        self.arrive(self.start.clone()).0
    }

    /// The place after `byte`, where it begins no value; `None` where no text goes on so.
    pub(super) fn step(&self, stand: &Stand, byte: u8) -> Option<Stand> {
        let (Stand::Text(set) | Stand::Value { others: set, .. }) = stand;
        let next = self.automaton.step(set, byte);
        (!next.is_empty()).then(|| self.arrive(next).0)
    }

    /// The place after a value.
    pub(super) fn after(&self, after: &Set) -> Stand {
        self.arrive(after.clone()).0
    }

    /// Whether `byte` begins a value of `contents`.
    pub(super) fn begins(&self, contents: &[usize], byte: u8) -> bool {
        let blank = self.blank && matches!(byte, b' ' | b'\t' | b'\n' | b'\r');
        blank || self.contents_of(contents).any(|c| c.first.contains(&byte))
    }

    /// Whether `byte` after a whole number is what comes `after` it, and does not go on with the number.
    pub(super) fn follows(&self, contents: &[usize], after: &Set, byte: u8) -> bool {
        let begins = |&id: &usize| match self.automaton.nodes.get(id) {
            Some(Node::Json { content, .. }) => self.begins(&[*content], byte),
            _ => false,
        };
        !self.contents_of(contents).any(|c| c.number.contains(&byte))
            && (after.iter().any(begins) || !self.automaton.step(after, byte).is_empty())
    }

    pub(super) fn contents_of<'a>(
        &'a self,
        contents: &'a [usize],
    ) -> impl Iterator<Item = &'a Content> {
        contents.iter().filter_map(|&n| self.contents.get(n))
    }

    /// The place of a text that may be at any node of `set`, and a guarded content that may begin there without being told from
    /// something else.
    fn arrive(&self, set: Set) -> (Stand, Option<&Content>) {
        let mut others = Vec::with_capacity(set.len());
        let (mut contents, mut nexts, mut looses) = (Vec::new(), Vec::new(), Vec::new());
        for id in set {
            match self.automaton.nodes.get(id) {
                Some(Node::Json {
                    content,
                    next,
                    loose,
                }) => {
                    contents.push(*content);
                    nexts.push(*next);
                    looses.push(*loose);
                }
                _ => others.push(id),
            }
        }
        if contents.is_empty() {
            return (Stand::Text(Arc::new(others)), None);
        }
        contents.sort_unstable();
        contents.dedup();
        let classes: Vec<_> = self.contents_of(&contents).map(|c| c.class).collect();
        let told = classes.windows(2).all(|pair| pair.first() == pair.last())
            && (0..=255).all(|byte| {
                !self.begins(&contents, byte) || self.automaton.step(&others, byte).is_empty()
            });
        if told {
            let after = Arc::new(self.automaton.closure(nexts));
            let stand = Stand::Value {
                contents: Arc::new(contents),
                after,
                others: Arc::new(others),
            };
            return (stand, None);
        }
        let guarded = contents.iter().filter_map(|&n| self.contents.get(n));
        let guarded = guarded.into_iter().find(|c| c.class.is_some());
        let set = self.automaton.closure(others.into_iter().chain(looses));
        (Stand::Text(Arc::new(set)), guarded)
    }

    /// Looks at every place that a text can come to.
    fn prove(&self) -> Result<()> {
        let mut proof = Proof {
            track: self,
            places: Vec::new(),
            known: HashSet::new(),
        };
        proof.come(self.start.clone(), None)?;
        let (mut at, mut steps) = (0, 0);
        while let Some((stand, _)) = proof.places.get(at) {
            let stand = stand.clone();
            let (Stand::Text(set) | Stand::Value { others: set, .. }) = &stand;
            for byte in self.automaton.bytes_of(set) {
                steps += set.len();
                if steps > STEPS {
                    return Err(too_large());
                }
                proof.come(self.automaton.step(set, byte), Some((at, Some(byte))))?;
            }
            if let Stand::Value { after, .. } = &stand {
                proof.come(after.to_vec(), Some((at, None)))?;
            }
            at += 1;
        }
        Ok(())
    }
}

/// How a place is come to: from which, and with which byte; none is a value.
type Way = Option<(usize, Option<u8>)>;

struct Proof<'a> {
    track: &'a Track,
    places: Vec<(Stand, Way)>,
    known: HashSet<Stand>,
}

impl Proof<'_> {
    fn come(&mut self, set: Set, way: Way) -> Result<()> {
        if set.is_empty() {
            return Ok(());
        }
        let (stand, guarded) = self.track.arrive(set);
        if let Some(content) = guarded {
            let reason = format!(
                "the schema needs a guard, and after the text {:?} its value cannot be told from other text that may stand there",
                self.text(way)
            );
            return Err(GrammarError::json(
                GrammarErrorKind::Unsupported,
                content.pointer.clone(),
                "",
                reason,
            ));
        }
        if self.known.insert(stand.clone()) {
            self.places.push((stand, way));
        }
        Ok(())
    }

    /// A text that leads there; values are written as an ellipsis.
    fn text(&self, mut way: Way) -> String {
        let mut bytes = Vec::new();
        while let Some((from, byte)) = way {
            match byte {
                Some(byte) => bytes.push(byte),
                None => bytes.extend("…".bytes().rev()),
            }
            way = self.places.get(from).and_then(|(_, way)| *way);
        }
        bytes.reverse();
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

fn too_large() -> GrammarError {
    let reason = "the structural tag is too large for its schemas' guards to be followed";
    GrammarError::new(GrammarErrorKind::Limit, reason)
}
