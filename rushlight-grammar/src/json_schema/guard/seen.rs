//! What the open containers of a text hold already: names of objects, items of `uniqueItems` arrays.
//!
//! Everything is found by a hash, and a match is confirmed by reading the text again, so that an entry is a few numbers: a
//! text's copy takes a copy of plain memory, and going back takes off the newest entries.

use std::hash::{BuildHasher, Hash, Hasher};

use foldhash::HashMap;
use foldhash::fast::RandomState;
use serde_json::{Number, Value};

use crate::json_schema::number::Decimal;

/// The names and items of one text, in its order.
#[derive(Clone, Default)]
pub(super) struct Seen {
    entries: Vec<Entry>,
    /// The newest entry of each hash.
    newest: HashMap<u64, usize>,
    hasher: RandomState,
}

#[derive(Clone, Copy)]
struct Entry {
    hash: u64,
    /// The entry of the same hash before it.
    before: Option<usize>,
    /// Where its container starts.
    container: usize,
    /// Its text.
    start: usize,
    end: usize,
    /// Bytes of the text with which it was closed.
    since: usize,
}

impl Seen {
    pub(super) fn hash_name(&self, container: usize, name: &str) -> u64 {
        self.hasher.hash_one((container, name))
    }

    /// The same for values that are the same.
    pub(super) fn hash_value(&self, container: usize, value: &Value) -> u64 {
        self.hasher.hash_one((container, self.hash(value)))
    }

    /// Whether `container` holds something of this hash that is the same as `what` by `same`, which reads a piece of text.
    pub(super) fn holds(
        &self,
        container: usize,
        hash: u64,
        text: &[u8],
        same: impl Fn(&[u8]) -> bool,
    ) -> bool {
        let mut next = self.newest.get(&hash).copied();
        while let Some(entry) = next.and_then(|id| self.entries.get(id)) {
            if entry.container == container && text.get(entry.start..entry.end).is_some_and(&same) {
                return true;
            }
            next = entry.before;
        }
        false
    }

    /// Keeps `text[start..end]` of `container`, which is closed once the text has `since` bytes.
    pub(super) fn keep(
        &mut self,
        container: usize,
        hash: u64,
        (start, end): (usize, usize),
        since: usize,
    ) {
        let before = self.newest.insert(hash, self.entries.len());
        self.entries.push(Entry {
            hash,
            before,
            container,
            start,
            end,
            since,
        });
    }

    /// Forgets what was closed behind the first `len` bytes.
    pub(super) fn truncate(&mut self, len: usize) {
        while let Some(entry) = self.entries.pop_if(|entry| entry.since > len) {
            match entry.before {
                Some(before) => self.newest.insert(entry.hash, before),
                None => self.newest.remove(&entry.hash),
            };
        }
    }

    fn hash(&self, value: &Value) -> u64 {
        let mut to = self.hasher.build_hasher();
        match value {
            Value::Null => to.write_u8(0),
            Value::Bool(value) => (1u8, value).hash(&mut to),
            Value::Number(number) => match decimal(number) {
                Some(decimal) => (2u8, decimal).hash(&mut to),
                None => (3u8, number.to_string()).hash(&mut to),
            },
            Value::String(text) => (4u8, text).hash(&mut to),
            Value::Array(items) => {
                to.write_u8(5);
                for item in items {
                    to.write_u64(self.hash(item));
                }
            }
            Value::Object(members) => {
                // A sum, as members have no order.
                let sum = members.iter().fold(0u64, |sum, (name, value)| {
                    sum.wrapping_add(self.hasher.hash_one((name, self.hash(value))))
                });
                (6u8, sum).hash(&mut to);
            }
        }
        to.finish()
    }
}

/// Equality of JSON Schema: numbers by value, members in any order.
pub(super) fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => match (decimal(a), decimal(b)) {
            (Some(a), Some(b)) => a == b,
            _ => a == b,
        },
        (Value::Array(a), Value::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b))
        }
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len()
                && a.iter()
                    .all(|(name, a)| b.get(name).is_some_and(|b| same(a, b)))
        }
        _ => a == b,
    }
}

fn decimal(number: &Number) -> Option<Decimal> {
    Decimal::parse(&number.to_string())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_the_same_has_one_hash() {
        let seen = Seen::default();
        for (a, b) in [
            ("1", "1.0"),
            ("100", "1e2"),
            ("-0", "0"),
            (r#"{"a":1,"b":[2]}"#, r#"{"b":[2.0],"a":1}"#),
        ] {
            let (a, b): (Value, Value) = (
                serde_json::from_str(a).unwrap(),
                serde_json::from_str(b).unwrap(),
            );
            assert!(same(&a, &b), "{a} {b}");
            assert_eq!(seen.hash_value(3, &a), seen.hash_value(3, &b), "{a} {b}");
        }
        let others = [
            json!(null),
            json!(0),
            json!(false),
            json!(""),
            json!([]),
            json!({}),
        ];
        for (at, a) in others.iter().enumerate() {
            for b in &others[..at] {
                assert_ne!(seen.hash_value(0, a), seen.hash_value(0, b), "{a} {b}");
            }
        }
    }

    #[test]
    fn going_back_takes_off_the_newest() {
        let mut seen = Seen::default();
        let text = b"aabb";
        let is = |what: &'static [u8]| move |held: &[u8]| held == what;
        // Two of one hash, as hashes may be.
        seen.keep(0, 7, (0, 1), 1);
        seen.keep(0, 7, (2, 3), 3);
        assert!(seen.holds(0, 7, text, is(b"a")) && seen.holds(0, 7, text, is(b"b")));
        assert!(!seen.holds(1, 7, text, is(b"a")) && !seen.holds(0, 8, text, is(b"a")));
        seen.truncate(2);
        assert!(seen.holds(0, 7, text, is(b"a")) && !seen.holds(0, 7, text, is(b"b")));
        seen.truncate(0);
        assert!(!seen.holds(0, 7, text, is(b"a")));
        assert!(seen.newest.is_empty());
    }
}
