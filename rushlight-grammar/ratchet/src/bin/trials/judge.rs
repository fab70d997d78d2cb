//! Whether an answer is what its source asked for, by other means than the compiler's.

use std::collections::HashSet;
use std::fmt;

use serde::de::{self, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::Value;

use super::Failure;

/// One source's judge.
pub(crate) enum Judge {
    /// A schema, by the `jsonschema` crate with formats asserted; names may not stand twice.
    Schema(Value, Box<jsonschema::Validator>),
    /// Any JSON object.
    Object,
    /// A pattern for the whole text.
    Pattern(regex::Regex),
    /// One of these.
    Choice(Vec<String>),
    /// A rule.
    Rule(fn(&str) -> bool),
}

impl Judge {
    pub(crate) fn schema_of(schema: &Value) -> Result<Judge, Failure> {
        let validator = jsonschema::options()
            .should_validate_formats(true)
            .build(schema)
            .map_err(|error| error.to_string())?;
        Ok(Judge::Schema(schema.clone(), Box::new(validator)))
    }

    pub(crate) fn pattern(pattern: &str) -> Result<Judge, Failure> {
        Ok(Judge::Pattern(regex::Regex::new(&format!(
            "^(?:{pattern})$"
        ))?))
    }

    /// The schema, where there is one.
    pub(crate) fn schema(&self) -> Option<&Value> {
        match self {
            Judge::Schema(schema, _) => Some(schema),
            _ => None,
        }
    }

    pub(crate) fn judge(&self, text: &str) -> Result<(), String> {
        let good = match self {
            Judge::Schema(_, validator) => {
                let value: Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
                unique_names(text)?;
                return validator
                    .validate(&value)
                    .map_err(|error| error.to_string());
            }
            Judge::Object => {
                let value: Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
                unique_names(text)?;
                value.is_object()
            }
            Judge::Pattern(pattern) => pattern.is_match(text),
            Judge::Choice(texts) => texts.iter().any(|choice| choice == text),
            Judge::Rule(rule) => rule(text),
        };
        if good {
            Ok(())
        } else {
            Err("not what the source says".to_owned())
        }
    }
}

/// Fails where an object of `text` has a name twice.
fn unique_names(text: &str) -> Result<(), String> {
    let mut json = serde_json::Deserializer::from_str(text);
    json.deserialize_any(Names)
        .map_err(|error| error.to_string())
}

struct Names;

impl<'de> de::DeserializeSeed<'de> for Names {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<(), D::Error> {
        json.deserialize_any(Names)
    }
}

impl<'de> Visitor<'de> for Names {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        while items.next_element_seed(Names)?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<(), A::Error> {
        let mut names = HashSet::new();
        while let Some(name) = members.next_key::<String>()? {
            members.next_value_seed(Names)?;
            if !names.insert(name.clone()) {
                return Err(de::Error::custom(format!("{name:?} stands twice")));
            }
        }
        Ok(())
    }
}
