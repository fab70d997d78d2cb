//! The JSON values of a structural tag: what judges each, and what their first and next bytes may be.

use std::sync::Arc;

use serde_json::Value;

use crate::lower::Guard;

/// References that are followed in search of a type.
const REFERENCES: usize = 8;
/// Values of an enumeration that are compared with each other.
const VALUES: usize = 500;
/// Characters of a number in an enumeration that is looked at.
const DIGITS: usize = 300;

const TYPES: [&str; 6] = ["object", "array", "string", "number", "boolean", "null"];

/// One schema, and where it stands.
pub(super) struct Content {
    pub(super) pointer: String,
    pub(super) guards: Vec<Arc<dyn Guard>>,
    /// The same for contents that the same guards judge; none where nothing has to be judged.
    pub(super) class: Option<usize>,
    /// What a value may begin with.
    pub(super) first: Vec<u8>,
    /// What a whole number, or what of a number looks like one, may go on with.
    pub(super) number: Vec<u8>,
    /// Whether a whole number may go on with what makes it none, and cannot end then.
    pub(super) breaks: bool,
    schema: Value,
}

/// Adds the content of a schema, given with its document; the answer is its number.
pub(super) fn add(
    contents: &mut Vec<Content>,
    (schema, document): (&Value, &Value),
    pointer: &str,
    guards: Vec<Arc<dyn Guard>>,
) -> usize {
    let here = contents.len();
    let class = (!guards.is_empty()).then(|| {
        let same = |c: &Content| c.class.is_some() && c.schema == *schema;
        contents.iter().position(same).unwrap_or(here)
    });
    let Bytes {
        first,
        number,
        breaks,
    } = bytes_of(schema, document, REFERENCES);
    contents.push(Content {
        pointer: pointer.to_owned(),
        guards,
        class,
        first,
        number,
        breaks,
        schema: schema.clone(),
    });
    here
}

/// What values may begin with, and what a number may go on with.
#[derive(Default)]
struct Bytes {
    first: Vec<u8>,
    number: Vec<u8>,
    breaks: bool,
}

/// The bytes of the values of `schema`, a part of `root`. It errs on the side of more.
fn bytes_of(schema: &Value, root: &Value, references: usize) -> Bytes {
    let mut bytes = match schema.get("$ref") {
        // What stands beside a reference is ignored in older drafts, and can only take values away in newer ones.
        Some(target) => match target.as_str().and_then(|target| named(target, root)) {
            Some(target) if references > 0 && (std::ptr::eq(schema, root) || is_plain(schema)) => {
                bytes_of(target, root, references - 1)
            }
            _ => of_types(&TYPES),
        },
        None => bytes_of_values(schema, root),
    };
    if schema.get("nullable") == Some(&Value::Bool(true)) {
        bytes.first.push(b'n');
    }
    bytes
}

/// The schema that the reference `target` names in `root`, where nothing on the way there changes what references and keywords mean.
fn named<'a>(target: &str, root: &'a Value) -> Option<&'a Value> {
    let pointer = target.strip_prefix('#')?;
    if pointer.contains('%') || has_base(root) {
        return None;
    }
    for (at, _) in pointer.match_indices('/').skip(1) {
        if !is_plain(root.pointer(pointer.get(..at)?)?) {
            return None;
        }
    }
    let found = root.pointer(pointer)?;
    (std::ptr::eq(found, root) || is_plain(found)).then_some(found)
}

fn bytes_of_values(schema: &Value, root: &Value) -> Bytes {
    let known = std::ptr::eq(schema, root) || is_plain(schema);
    // Draft 4 has no `const`.
    let constant = schema.get("const").filter(|_| known && !is_draft_4(root));
    match (constant, schema.get("enum")) {
        (Some(value), _) => return of_values(&[value]),
        (None, Some(Value::Array(values))) if values.len() <= VALUES => {
            return of_values(&Vec::from_iter(values));
        }
        _ => {}
    }
    let mut bytes = match schema.get("type") {
        Some(Value::String(one)) => of_types(&[one]),
        Some(Value::Array(several)) => {
            let types: Vec<&str> = several.iter().filter_map(Value::as_str).collect();
            of_types(&types)
        }
        _ => of_types(&TYPES),
    };
    // Of whole numbers, only ranges are known to hold every number on the way from one of theirs to a longer one.
    let known = |key: &String| {
        matches!(
            key.as_str(),
            "type"
                | "minimum"
                | "maximum"
                | "exclusiveMinimum"
                | "exclusiveMaximum"
                | "title"
                | "description"
                | "default"
                | "$schema"
        )
    };
    if !schema.as_object().is_some_and(|map| map.keys().all(known)) {
        bytes.breaks = !bytes.number.is_empty();
    }
    bytes
}

/// The bytes of `values` as the grammar writes them: a whole number as its digits or as it stands, any other with zeros after it.
fn of_values(values: &[&Value]) -> Bytes {
    let mut bytes = Bytes::default();
    // Texts of numbers, and whether zeros may follow.
    let mut numbers: Vec<(String, bool)> = Vec::new();
    for value in values {
        let text = value.to_string();
        if !value.is_number() {
            bytes.first.extend(text.bytes().next());
            continue;
        }
        let decimal = |b: u8| b.is_ascii_digit() || matches!(b, b'-' | b'.');
        if text.len() > DIGITS || !text.bytes().all(decimal) {
            let any = of_types(&["number"]);
            bytes.first.extend(any.first);
            bytes.number.extend(any.number);
            bytes.breaks = true;
            continue;
        }
        match text.split_once('.') {
            Some((whole, fraction)) if fraction.bytes().all(|b| b == b'0') => {
                let whole = if whole == "-0" { "0" } else { whole };
                numbers.extend([(whole.to_owned(), false), (text, false)]);
            }
            Some(_) => numbers.push((text.trim_end_matches('0').to_owned(), true)),
            None if text == "-0" => numbers.push(("0".to_owned(), false)),
            None => numbers.push((text, false)),
        }
    }
    bytes
        .first
        .extend(numbers.iter().filter_map(|(text, _)| text.bytes().next()));
    for (text, zeros) in &numbers {
        if *zeros {
            bytes.number.push(b'0');
        }
        // Its beginnings look whole too.
        let pairs = text.as_bytes().windows(2);
        let nexts = pairs.filter_map(|pair| match pair {
            [last, next] if last.is_ascii_digit() => Some(*next),
            _ => None,
        });
        bytes.number.extend(nexts);
        let longer = |other: &str| other.len() > text.len() && other.starts_with(text.as_str());
        bytes.breaks |= numbers.iter().any(|(other, _)| longer(other));
    }
    bytes
}

/// Whether `schema` leaves base and dialect as they are around it.
fn is_plain(schema: &Value) -> bool {
    !has_base(schema) && schema.get("$schema").is_none()
}

fn has_base(schema: &Value) -> bool {
    let is_text = |name: &str| schema.get(name).is_some_and(Value::is_string);
    is_text("$id") || is_text("id")
}

pub(super) fn is_draft_4(root: &Value) -> bool {
    let dialect = root.get("$schema").and_then(Value::as_str);
    dialect.is_some_and(|dialect| dialect.contains("draft-04"))
}

fn of_types(types: &[&str]) -> Bytes {
    let mut bytes = Bytes::default();
    for &name in types {
        let (begin, more, breaks): (&[u8], &[u8], bool) = match name {
            "object" => (b"{", b"", false),
            "array" => (b"[", b"", false),
            "string" => (b"\"", b"", false),
            "boolean" => (b"tf", b"", false),
            "null" => (b"n", b"", false),
            "integer" => (b"-0123456789", b"0123456789", false),
            _ => (b"-0123456789", b"0123456789.eE", true),
        };
        bytes.breaks |= breaks;
        bytes.first.extend_from_slice(begin);
        bytes.number.extend_from_slice(more);
    }
    bytes
}

/// How far a JSON value is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scan {
    /// Before its first byte.
    Before,
    /// In brackets, and there perhaps in a string.
    Inside {
        depth: usize,
        string: bool,
        escaped: bool,
    },
    /// In a word of which so many bytes are left.
    Word(u8),
    Number(Number),
}

/// How far a number is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Number {
    Minus,
    Zero,
    Digits,
    Dot,
    Decimals,
    Exponent,
    Sign,
    Power,
}

/// What a byte is to a value.
pub(super) enum Read {
    More(Scan),
    /// The byte is the value's last.
    Last,
    /// The value ended before the byte.
    Over,
}

impl Scan {
    /// Reads `byte`; `follows` says whether what comes after the value, and not the value itself, takes it.
    pub(super) fn read(self, byte: u8, follows: impl Fn() -> bool) -> Read {
        match self {
            Self::Before => Read::More(match byte {
                b' ' | b'\t' | b'\n' | b'\r' => Self::Before,
                b'{' | b'[' => Self::inside(1, false),
                b'"' => Self::inside(0, true),
                b't' | b'n' => Self::Word(3),
                b'f' => Self::Word(4),
                b'-' => Self::Number(Number::Minus),
                b'0' => Self::Number(Number::Zero),
                _ => Self::Number(Number::Digits),
            }),
            Self::Word(left) if left <= 1 => Read::Last,
            Self::Word(left) => Read::More(Self::Word(left - 1)),
            Self::Number(number) => match number.next(byte) {
                Some(_) if number.is_whole() && follows() => Read::Over,
                Some(next) => Read::More(Self::Number(next)),
                None => Read::Over,
            },
            Self::Inside {
                depth,
                string: true,
                escaped,
            } => match byte {
                _ if escaped => Read::More(Self::inside(depth, true)),
                b'\\' => Read::More(Self::Inside {
                    depth,
                    string: true,
                    escaped: true,
                }),
                b'"' if depth == 0 => Read::Last,
                b'"' => Read::More(Self::inside(depth, false)),
                _ => Read::More(self),
            },
            Self::Inside { depth, .. } => match byte {
                b'"' => Read::More(Self::inside(depth, true)),
                b'{' | b'[' => Read::More(Self::inside(depth + 1, false)),
                b'}' | b']' if depth <= 1 => Read::Last,
                b'}' | b']' => Read::More(Self::inside(depth - 1, false)),
                _ => Read::More(self),
            },
        }
    }

    fn inside(depth: usize, string: bool) -> Self {
        Self::Inside {
            depth,
            string,
            escaped: false,
        }
    }
}

impl Number {
    fn next(self, byte: u8) -> Option<Self> {
        use Number::{Decimals, Digits, Dot, Exponent, Minus, Power, Sign, Zero};
        match (self, byte) {
            (Minus, b'0') => Some(Zero),
            (Minus | Digits, b'0'..=b'9') => Some(Digits),
            (Zero | Digits, b'.') => Some(Dot),
            (Dot | Decimals, b'0'..=b'9') => Some(Decimals),
            (Zero | Digits | Decimals, b'e' | b'E') => Some(Exponent),
            (Exponent, b'+' | b'-') => Some(Sign),
            (Exponent | Sign | Power, b'0'..=b'9') => Some(Power),
            _ => None,
        }
    }

    fn is_whole(self) -> bool {
        use Number::{Decimals, Digits, Power, Zero};
        matches!(self, Zero | Digits | Decimals | Power)
    }
}
