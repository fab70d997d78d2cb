//! Typed reads from a JSON object, each of which names the field when it fails.
//!
//! A field that is `null` counts as absent, as it does for transformers.

use serde_json::{Map, Value};

use crate::error::{AssetError, ErrorKind};
use crate::import::number::narrow;

/// One object of a JSON file, under the path that leads to it (`text_config.`, or nothing).
#[derive(Clone, Copy)]
pub(super) struct Fields<'a> {
    object: &'a Map<String, Value>,
    prefix: &'a str,
}

impl<'a> Fields<'a> {
    pub(super) fn new(object: &'a Map<String, Value>, prefix: &'a str) -> Fields<'a> {
        Fields { object, prefix }
    }

    pub(super) fn find(&self, name: &str) -> Option<&'a Value> {
        self.object.get(name).filter(|value| !value.is_null())
    }

    /// Whether the field is there, be it as `null`.
    pub(super) fn mentions(&self, name: &str) -> bool {
        self.object.contains_key(name)
    }

    /// The field's full path, for messages.
    pub(super) fn path(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }

    pub(super) fn object(&self, name: &str) -> Result<Option<&'a Map<String, Value>>, AssetError> {
        self.read(name, "an object", Value::as_object)
    }

    pub(super) fn array(&self, name: &str) -> Result<Option<&'a Vec<Value>>, AssetError> {
        self.read(name, "an array", Value::as_array)
    }

    pub(super) fn text(&self, name: &str) -> Result<Option<&'a str>, AssetError> {
        self.read(name, "a string", Value::as_str)
    }

    pub(super) fn boolean(&self, name: &str) -> Result<Option<bool>, AssetError> {
        self.read(name, "true or false", Value::as_bool)
    }

    pub(super) fn uint(&self, name: &str) -> Result<Option<u64>, AssetError> {
        self.read(name, "a non-negative integer", whole)
    }

    pub(super) fn float(&self, name: &str) -> Result<Option<f32>, AssetError> {
        self.read(name, "a number", |value| narrow(value.as_f64()?))
    }

    /// The first of several spellings that is there.
    pub(super) fn any_text(&self, names: &[&str]) -> Result<Option<&'a str>, AssetError> {
        for name in names {
            if let Some(text) = self.text(name)? {
                return Ok(Some(text));
            }
        }
        Ok(None)
    }

    pub(super) fn missing(&self, name: &str) -> AssetError {
        self.fault(
            name,
            ErrorKind::Missing,
            "the configuration lacks this field",
        )
    }

    pub(super) fn unsupported(&self, name: &str, message: impl Into<String>) -> AssetError {
        self.fault(name, ErrorKind::Unsupported, message)
    }

    pub(super) fn fault(
        &self,
        name: &str,
        kind: ErrorKind,
        message: impl Into<String>,
    ) -> AssetError {
        AssetError::new(kind, message).key(&self.path(name))
    }

    fn read<T>(
        &self,
        name: &str,
        wanted: &str,
        convert: impl FnOnce(&'a Value) -> Option<T>,
    ) -> Result<Option<T>, AssetError> {
        let Some(value) = self.find(name) else {
            return Ok(None);
        };
        convert(value).map(Some).ok_or_else(|| {
            self.fault(
                name,
                ErrorKind::Malformed,
                format!("should be {wanted}, is {}", brief(value)),
            )
        })
    }
}

/// A non-negative integer, also where a writer put `4096.0`.
pub(super) fn whole(value: &Value) -> Option<u64> {
    if let Some(value) = value.as_u64() {
        return Some(value);
    }
    let float = value.as_f64()?;
    // Up to 2^53 floats are exact, and their decimal text is the integer's.
    let exact = float.fract() == 0.0 && (0.0..9_007_199_254_740_992.0).contains(&float);
    exact.then(|| format!("{float:.0}").parse().ok()).flatten()
}

/// A value for a message: long ones cut.
pub(super) fn brief(value: &Value) -> String {
    let text = value.to_string();
    let mut shown: String = text.chars().take(60).collect();
    if shown.len() < text.len() {
        shown.push('…');
    }
    shown
}
