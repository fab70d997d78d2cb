//! GGUF metadata: typed values under dotted keys.

use std::collections::HashMap;

use super::cursor::Cursor;
use crate::error::{AssetError, ErrorKind};
use crate::import::number::narrow;
use crate::limits;

/// One metadata value, in the thirteen types of the specification.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)]
pub enum Value {
    U8(u8),
    I8(i8),
    U16(u16),
    I16(i16),
    U32(u32),
    I32(i32),
    F32(f32),
    Bool(bool),
    String(String),
    Array(Array),
    U64(u64),
    I64(i64),
    F64(f64),
}

/// An array, whose elements have one type. Each has its own vector, so that a file's arrays take
/// about as much memory as they do in the file.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)]
pub enum Array {
    U8(Vec<u8>),
    I8(Vec<i8>),
    U16(Vec<u16>),
    I16(Vec<i16>),
    U32(Vec<u32>),
    I32(Vec<i32>),
    F32(Vec<f32>),
    Bool(Vec<bool>),
    String(Vec<String>),
    Array(Vec<Array>),
    U64(Vec<u64>),
    I64(Vec<i64>),
    F64(Vec<f64>),
}

impl Value {
    fn type_name(&self) -> &'static str {
        match self {
            Value::U8(_) => "u8",
            Value::I8(_) => "i8",
            Value::U16(_) => "u16",
            Value::I16(_) => "i16",
            Value::U32(_) => "u32",
            Value::I32(_) => "i32",
            Value::F32(_) => "f32",
            Value::Bool(_) => "bool",
            Value::String(_) => "string",
            Value::Array(_) => "array",
            Value::U64(_) => "u64",
            Value::I64(_) => "i64",
            Value::F64(_) => "f64",
        }
    }

    fn to_u64(&self) -> Option<u64> {
        match *self {
            Value::U8(v) => Some(v.into()),
            Value::U16(v) => Some(v.into()),
            Value::U32(v) => Some(v.into()),
            Value::U64(v) => Some(v),
            Value::I8(v) => v.try_into().ok(),
            Value::I16(v) => v.try_into().ok(),
            Value::I32(v) => v.try_into().ok(),
            Value::I64(v) => v.try_into().ok(),
            _ => None,
        }
    }

    /// As JSON; long arrays become a string that says how long.
    fn to_json(&self) -> serde_json::Value {
        match self {
            Value::U8(v) => (*v).into(),
            Value::I8(v) => (*v).into(),
            Value::U16(v) => (*v).into(),
            Value::I16(v) => (*v).into(),
            Value::U32(v) => (*v).into(),
            Value::I32(v) => (*v).into(),
            Value::F32(v) => (*v).into(),
            Value::Bool(v) => (*v).into(),
            Value::String(v) => v.clone().into(),
            Value::Array(v) => v.to_json(),
            Value::U64(v) => (*v).into(),
            Value::I64(v) => (*v).into(),
            Value::F64(v) => (*v).into(),
        }
    }
}

impl Array {
    fn to_json(&self) -> serde_json::Value {
        const SHOWN: usize = 16;
        fn show<T: Clone + Into<serde_json::Value>>(
            items: &[T],
            plural: &str,
        ) -> serde_json::Value {
            if items.len() > SHOWN {
                format!("{} {plural}", items.len()).into()
            } else {
                items.to_vec().into()
            }
        }
        match self {
            Array::U8(v) => show(v, "u8"),
            Array::I8(v) => show(v, "i8"),
            Array::U16(v) => show(v, "u16"),
            Array::I16(v) => show(v, "i16"),
            Array::U32(v) => show(v, "u32"),
            Array::I32(v) => show(v, "i32"),
            Array::F32(v) => show(v, "f32"),
            Array::Bool(v) => show(v, "booleans"),
            Array::String(v) => show(v, "strings"),
            Array::U64(v) => show(v, "u64"),
            Array::I64(v) => show(v, "i64"),
            Array::F64(v) => show(v, "f64"),
            Array::Array(v) if v.len() > SHOWN => format!("{} arrays", v.len()).into(),
            Array::Array(v) => v.iter().map(Array::to_json).collect(),
        }
    }
}

/// All metadata of one file, in file order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Metadata {
    entries: Vec<Entry>,
    by_key: HashMap<String, usize>,
}

#[derive(Clone, Debug, PartialEq)]
struct Entry {
    key: String,
    value: Value,
    offset: u64,
}

impl Metadata {
    /// The least an entry takes: a key's length, a type and one byte.
    const ENTRY_BYTES: u64 = 8 + 4 + 1;

    pub(super) fn parse(cursor: &mut Cursor<'_>, count: u64) -> Result<Metadata, AssetError> {
        let count = cursor.check_count(
            count,
            "metadata entries",
            limits::METADATA_ENTRIES,
            Self::ENTRY_BYTES,
        )?;
        let mut metadata = Metadata {
            entries: Vec::with_capacity(count),
            by_key: HashMap::with_capacity(count),
        };
        for _ in 0..count {
            let offset = cursor.offset();
            let key = cursor.string(limits::KEY_BYTES)?;
            let value = value(cursor).map_err(|e| e.key(&key))?;
            if metadata.by_key.contains_key(&key) {
                return Err(AssetError::malformed("this key is already taken")
                    .key(&key)
                    .at(offset));
            }
            metadata.by_key.insert(key.clone(), metadata.entries.len());
            metadata.entries.push(Entry { key, value, offset });
        }
        Ok(metadata)
    }

    /// The value under a key.
    pub fn find(&self, key: &str) -> Option<&Value> {
        self.entry(key).map(|entry| &entry.value)
    }

    /// Keys and values, in file order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &Value)> {
        self.entries.iter().map(|e| (e.key.as_str(), &e.value))
    }

    /// Every entry as JSON, arrays of more than 16 elements as a string that says how many.
    pub fn to_json(&self) -> Vec<(String, serde_json::Value)> {
        self.iter()
            .map(|(key, value)| (key.to_owned(), value.to_json()))
            .collect()
    }

    /// A non-negative integer of any width.
    pub(crate) fn uint(&self, key: &str) -> Result<Option<u64>, AssetError> {
        self.read(key, "a non-negative integer", Value::to_u64)
    }

    /// A non-negative integer that may be given once for each layer, if all layers agree.
    pub(crate) fn uniform_uint(&self, key: &str) -> Result<Option<u64>, AssetError> {
        let values = match self.find(key) {
            Some(Value::Array(_)) => self.uints(key)?.unwrap_or_default(),
            _ => return self.uint(key),
        };
        match values.split_first() {
            Some((first, rest)) if rest.iter().all(|v| v == first) => Ok(Some(*first)),
            Some(_) => Err(self.fault(
                key,
                ErrorKind::Unsupported,
                "layers that differ in this are not supported",
            )),
            None => Err(self.fault(key, ErrorKind::Malformed, "an empty array")),
        }
    }

    pub(crate) fn token_id(&self, key: &str) -> Result<Option<u32>, AssetError> {
        // Some writers put -1 (or its unsigned twin) for "none".
        if let Some(Value::I32(-1) | Value::I64(-1) | Value::U32(u32::MAX)) = self.find(key) {
            return Ok(None);
        }
        self.read(key, "a token id", |v| v.to_u64()?.try_into().ok())
    }

    /// A finite float; 64-bit ones are rounded.
    pub(crate) fn float(&self, key: &str) -> Result<Option<f32>, AssetError> {
        self.read(key, "a finite float", |v| match *v {
            Value::F32(v) => Some(v).filter(|v| v.is_finite()),
            Value::F64(v) => narrow(v),
            _ => None,
        })
    }

    pub(crate) fn boolean(&self, key: &str) -> Result<Option<bool>, AssetError> {
        self.read(key, "a boolean", |v| match *v {
            Value::Bool(v) => Some(v),
            _ => None,
        })
    }

    pub(crate) fn text(&self, key: &str) -> Result<Option<&str>, AssetError> {
        self.read(key, "a string", |v| match v {
            Value::String(v) => Some(v.as_str()),
            _ => None,
        })
    }

    pub(crate) fn texts(&self, key: &str) -> Result<Option<&[String]>, AssetError> {
        self.read(key, "an array of strings", |v| match v {
            Value::Array(Array::String(v)) => Some(v.as_slice()),
            _ => None,
        })
    }

    pub(crate) fn floats(&self, key: &str) -> Result<Option<&[f32]>, AssetError> {
        self.read(key, "an array of f32", |v| match v {
            Value::Array(Array::F32(v)) => Some(v.as_slice()),
            _ => None,
        })
    }

    pub(crate) fn booleans(&self, key: &str) -> Result<Option<&[bool]>, AssetError> {
        self.read(key, "an array of booleans", |v| match v {
            Value::Array(Array::Bool(v)) => Some(v.as_slice()),
            _ => None,
        })
    }

    pub(crate) fn uints(&self, key: &str) -> Result<Option<Vec<u64>>, AssetError> {
        fn all<T: Copy + TryInto<u64>>(values: &[T]) -> Option<Vec<u64>> {
            values.iter().map(|&v| v.try_into().ok()).collect()
        }
        self.read(key, "an array of non-negative integers", |v| match v {
            Value::Array(Array::U8(v)) => all(v),
            Value::Array(Array::I8(v)) => all(v),
            Value::Array(Array::U16(v)) => all(v),
            Value::Array(Array::I16(v)) => all(v),
            Value::Array(Array::U32(v)) => all(v),
            Value::Array(Array::I32(v)) => all(v),
            Value::Array(Array::U64(v)) => all(v),
            Value::Array(Array::I64(v)) => all(v),
            _ => None,
        })
    }

    pub(crate) fn ints(&self, key: &str) -> Result<Option<Vec<i32>>, AssetError> {
        fn all<T: Copy + TryInto<i32>>(values: &[T]) -> Option<Vec<i32>> {
            values.iter().map(|&v| v.try_into().ok()).collect()
        }
        self.read(key, "an array of 32-bit integers", |v| match v {
            Value::Array(Array::I32(v)) => Some(v.clone()),
            Value::Array(Array::U32(v)) => all(v),
            Value::Array(Array::I64(v)) => all(v),
            Value::Array(Array::U64(v)) => all(v),
            Value::Array(Array::U8(v)) => all(v),
            Value::Array(Array::I8(v)) => all(v),
            Value::Array(Array::U16(v)) => all(v),
            Value::Array(Array::I16(v)) => all(v),
            _ => None,
        })
    }

    pub(crate) fn bytes(&self, key: &str) -> Result<Option<Vec<u8>>, AssetError> {
        self.read(key, "an array of bytes", |v| match v {
            Value::Array(Array::U8(v)) => Some(v.clone()),
            Value::Array(Array::I8(v)) => Some(v.iter().map(|v| v.cast_unsigned()).collect()),
            _ => None,
        })
    }

    /// An error about a key, at its place if it has one.
    pub(crate) fn fault(
        &self,
        key: &str,
        kind: ErrorKind,
        message: impl Into<String>,
    ) -> AssetError {
        let error = AssetError::new(kind, message).key(key);
        match self.entry(key) {
            Some(entry) => error.at(entry.offset),
            None => error,
        }
    }

    fn entry(&self, key: &str) -> Option<&Entry> {
        self.by_key.get(key).and_then(|&i| self.entries.get(i))
    }

    fn read<'a, T>(
        &'a self,
        key: &str,
        wanted: &str,
        convert: impl FnOnce(&'a Value) -> Option<T>,
    ) -> Result<Option<T>, AssetError> {
        let Some(entry) = self.entry(key) else {
            return Ok(None);
        };
        convert(&entry.value).map(Some).ok_or_else(|| {
            let found = match &entry.value {
                Value::String(_) | Value::Array(_) => entry.value.type_name().to_owned(),
                scalar => format!("{} {}", scalar.type_name(), scalar.to_json()),
            };
            self.fault(
                key,
                ErrorKind::Malformed,
                format!("should be {wanted}, is {found}"),
            )
        })
    }
}

fn value(cursor: &mut Cursor<'_>) -> Result<Value, AssetError> {
    let offset = cursor.offset();
    Ok(match cursor.u32()? {
        0 => Value::U8(cursor.u8()?),
        1 => Value::I8(cursor.i8()?),
        2 => Value::U16(cursor.u16()?),
        3 => Value::I16(cursor.i16()?),
        4 => Value::U32(cursor.u32()?),
        5 => Value::I32(cursor.i32()?),
        6 => Value::F32(cursor.f32()?),
        7 => Value::Bool(cursor.bool()?),
        8 => Value::String(cursor.string(limits::STRING_BYTES)?),
        9 => Value::Array(array(cursor, 0)?),
        10 => Value::U64(cursor.u64()?),
        11 => Value::I64(cursor.i64()?),
        12 => Value::F64(cursor.f64()?),
        other => return Err(unknown_type(other).at(offset)),
    })
}

fn array(cursor: &mut Cursor<'_>, depth: usize) -> Result<Array, AssetError> {
    let offset = cursor.offset();
    if depth >= limits::ARRAY_DEPTH {
        return Err(AssetError::new(
            ErrorKind::Limit,
            format!("arrays nest deeper than {}", limits::ARRAY_DEPTH),
        )
        .at(offset));
    }
    let element = cursor.u32()?;
    let least = match element {
        0 | 1 | 7 => 1,
        2 | 3 => 2,
        4..=6 => 4,
        8 | 10..=12 => 8,
        9 => 12,
        other => return Err(unknown_type(other).at(offset)),
    };
    let count = cursor.count("array elements", limits::ARRAY_ELEMENTS, least)?;
    Ok(match element {
        0 => Array::U8(repeat(cursor, count, Cursor::u8)?),
        1 => Array::I8(repeat(cursor, count, Cursor::i8)?),
        2 => Array::U16(repeat(cursor, count, Cursor::u16)?),
        3 => Array::I16(repeat(cursor, count, Cursor::i16)?),
        4 => Array::U32(repeat(cursor, count, Cursor::u32)?),
        5 => Array::I32(repeat(cursor, count, Cursor::i32)?),
        6 => Array::F32(repeat(cursor, count, Cursor::f32)?),
        7 => Array::Bool(repeat(cursor, count, Cursor::bool)?),
        8 => Array::String(repeat(cursor, count, |c| c.string(limits::STRING_BYTES))?),
        9 => Array::Array(repeat(cursor, count, |c| array(c, depth + 1))?),
        10 => Array::U64(repeat(cursor, count, Cursor::u64)?),
        11 => Array::I64(repeat(cursor, count, Cursor::i64)?),
        12 => Array::F64(repeat(cursor, count, Cursor::f64)?),
        other => return Err(unknown_type(other).at(offset)),
    })
}

fn repeat<'a, T>(
    cursor: &mut Cursor<'a>,
    count: usize,
    mut one: impl FnMut(&mut Cursor<'a>) -> Result<T, AssetError>,
) -> Result<Vec<T>, AssetError> {
    let mut items = Vec::with_capacity(count);
    for _ in 0..count {
        items.push(one(cursor)?);
    }
    Ok(items)
}

fn unknown_type(id: u32) -> AssetError {
    AssetError::malformed(format!(
        "metadata type {id} is unknown; the types are 0 to 12"
    ))
}
