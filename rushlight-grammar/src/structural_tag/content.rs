//! The JSON values of a structural tag: what judges each, and what their first and next bytes may be.

use std::sync::Arc;

use serde_json::Value;

use crate::lower::Guard;

/// References that are followed in search of a type.
const REFERENCES: usize = 8;
/// Values of an enumeration that are compared with each other.
const VALUES: usize = 500;

const TYPES: [&str; 6] = ["object", "array", "string", "number", "boolean", "null"];

/// One schema, and where it stands.
pub(super) struct Content {
    pub(super) pointer: String,
    pub(super) guards: Vec<Arc<dyn Guard>>,
    /// The same for contents that the same guards judge; none where nothing has to be judged.
    pub(super) class: Option<usize>,
    /// What a value may begin with.
    pub(super) first: Vec<u8>,
    /// What a whole number may go on with.
    pub(super) number: Vec<u8>,
    schema: Value,
}

/// Adds the content of `schema`; the answer is its number.
pub(super) fn add(
    contents: &mut Vec<Content>,
    schema: &Value,
    pointer: &str,
    guards: Vec<Arc<dyn Guard>>,
) -> usize {
    let here = contents.len();
    let class = (!guards.is_empty()).then(|| {
        let same = |c: &Content| c.class.is_some() && c.schema == *schema;
        contents.iter().position(same).unwrap_or(here)
    });
    let (first, number) = bytes_of(schema, schema, REFERENCES);
    contents.push(Content {
        pointer: pointer.to_owned(),
        guards,
        class,
        first,
        number,
        schema: schema.clone(),
    });
    here
}

/// What values of `schema` may begin with, and what may carry a whole number on. It errs on the side of more.
fn bytes_of(schema: &Value, root: &Value, references: usize) -> (Vec<u8>, Vec<u8>) {
    if let Some(target) = schema.get("$ref") {
        // What stands beside a reference is ignored in older drafts, and another base leads elsewhere.
        let target = target.as_str().and_then(|target| target.strip_prefix('#'));
        return match target.and_then(|target| root.pointer(target)) {
            Some(target) if references > 0 && !has_base(target) && !has_base(root) => {
                bytes_of(target, root, references - 1)
            }
            _ => of_types(&TYPES),
        };
    }
    // Draft 4 has no `const`.
    let constant = schema.get("const").filter(|_| !is_draft_4(root));
    let values = match (constant, schema.get("enum")) {
        (Some(value), _) => Some(vec![value]),
        (None, Some(Value::Array(values))) if values.len() <= VALUES => {
            Some(values.iter().collect())
        }
        _ => None,
    };
    if let Some(values) = values {
        let texts: Vec<String> = values.iter().map(|value| value.to_string()).collect();
        let first = texts.iter().filter_map(|text| text.bytes().next());
        let numbers = || {
            values
                .iter()
                .zip(&texts)
                .filter(|(value, _)| value.is_number())
        };
        let mut number = Vec::new();
        for (_, text) in numbers() {
            let longer = numbers().filter_map(|(_, other)| other.strip_prefix(text.as_str()));
            number.extend(longer.filter_map(|rest| rest.bytes().next()));
        }
        return (first.collect(), number);
    }
    match schema.get("type") {
        Some(Value::String(one)) => of_types(&[one]),
        Some(Value::Array(several)) => {
            let types: Vec<&str> = several.iter().filter_map(Value::as_str).collect();
            of_types(&types)
        }
        _ => of_types(&TYPES),
    }
}

fn has_base(schema: &Value) -> bool {
    schema.get("$id").is_some() || schema.get("id").is_some()
}

fn is_draft_4(root: &Value) -> bool {
    let dialect = root.get("$schema").and_then(Value::as_str);
    dialect.is_some_and(|dialect| dialect.contains("draft-04"))
}

fn of_types(types: &[&str]) -> (Vec<u8>, Vec<u8>) {
    let (mut first, mut number) = (Vec::new(), Vec::new());
    for &name in types {
        let (begin, more): (&[u8], &[u8]) = match name {
            "object" => (b"{", b""),
            "array" => (b"[", b""),
            "string" => (b"\"", b""),
            "boolean" => (b"tf", b""),
            "null" => (b"n", b""),
            "integer" => (b"-0123456789", b"0123456789"),
            _ => (b"-0123456789", b"0123456789.eE"),
        };
        first.extend_from_slice(begin);
        number.extend_from_slice(more);
    }
    (first, number)
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
