//! Fields that are understood and not honoured: one value of each asks for nothing, and any other is refused.

use super::fields::{Fields, brief};
use crate::error::AssetError;
use serde_json::Value;

/// The value of a field that changes nothing. `null` and absence are neutral for every field.
#[derive(Clone, Copy)]
pub(super) enum Neutral {
    Number(f64),
    True,
    False,
    /// An array or object of nothing.
    Empty,
    /// No value but absence.
    Never,
}

impl Neutral {
    fn is(self, value: &Value) -> bool {
        match self {
            Neutral::Number(number) => value.as_f64() == Some(number),
            Neutral::True => value.as_bool() == Some(true),
            Neutral::False => value.as_bool() == Some(false),
            Neutral::Empty => match value {
                Value::Array(items) => items.is_empty(),
                Value::Object(fields) => fields.is_empty(),
                _ => false,
            },
            Neutral::Never => false,
        }
    }
}

/// Refuses the first field of the table whose value is not neutral; `changes` says what it would change.
pub(super) fn refuse_others(
    fields: Fields<'_>,
    table: &[(&str, Neutral)],
    changes: &str,
) -> Result<(), AssetError> {
    for &(name, neutral) in table {
        if let Some(value) = fields.find(name)
            && !neutral.is(value)
        {
            return Err(fields.unsupported(
                name,
                format!("{} changes {changes} and is not supported", brief(value)),
            ));
        }
    }
    Ok(())
}
