//! Operands of keywords, read and checked.

use serde_json::Value;

use super::number::Decimal;
use super::schema::types;

/// What was read, or the keyword whose operand is wrong, and why.
pub(super) type Read<T> = Result<T, (&'static str, String)>;

pub(super) fn decimal(value: &Value) -> Option<Decimal> {
    match value {
        Value::Number(number) => Decimal::parse(&number.to_string()),
        _ => None,
    }
}

pub(super) fn type_mask(value: &Value) -> Result<u8, String> {
    let one = |name: &Value| match name.as_str() {
        Some("null") => Ok(types::NULL),
        Some("boolean") => Ok(types::BOOLEAN),
        Some("integer") => Ok(types::INTEGER),
        Some("number") => Ok(types::NUMBER),
        Some("string") => Ok(types::STRING),
        Some("array") => Ok(types::ARRAY),
        Some("object") => Ok(types::OBJECT),
        _ => Err(format!("{name} is not a type")),
    };
    match value {
        Value::Array(names) => names.iter().try_fold(0, |mask, name| Ok(mask | one(name)?)),
        name => one(name),
    }
}

pub(super) fn count(keyword: &'static str, value: &Value) -> Read<u64> {
    let whole = decimal(value).filter(Decimal::is_integer).map(|d| d.text());
    whole
        .filter(|text| !text.starts_with('-'))
        // No answer is as long as the largest number, so larger ones mean the same.
        .map(|text| text.parse().unwrap_or(u64::MAX))
        .ok_or_else(|| (keyword, "must be a whole number of at least 0".to_owned()))
}

pub(super) fn small(count: u64, keyword: &'static str) -> Read<u32> {
    u32::try_from(count)
        .ok()
        .filter(|n| *n <= 1_000_000)
        .ok_or_else(|| {
            (
                keyword,
                "is more than a text may hold (1,000,000)".to_owned(),
            )
        })
}

pub(super) fn strings(keyword: &'static str, value: &Value) -> Read<Vec<String>> {
    let list = value.as_array().map(|items| {
        items
            .iter()
            .map(|item| item.as_str().map(str::to_owned))
            .collect::<Option<Vec<_>>>()
    });
    match list {
        Some(Some(names)) => Ok(names),
        _ => Err((keyword, "must be an array of strings".to_owned())),
    }
}

pub(super) fn needs(keyword: &'static str, value: &Value) -> Read<Vec<(String, Vec<String>)>> {
    let Value::Object(members) = value else {
        return Err((keyword, "must be an object".to_owned()));
    };
    members
        .iter()
        .map(|(name, value)| Ok((name.clone(), strings(keyword, value)?)))
        .collect()
}

pub(super) fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}
