//! `generation_config.json`: how a model's makers would have it sampled and stopped.

use serde_json::{Map, Value};

use super::fields::{Fields, brief, whole};
use crate::checkpoint::GenerationDefaults;
use crate::error::{AssetError, ErrorKind};

/// Reads the defaults. Also serves for `config.json`, which older checkpoints use instead.
pub(super) fn read(object: &Map<String, Value>) -> Result<GenerationDefaults, AssetError> {
    let fields = Fields::new(object, "");
    let mut stop_strings = Vec::new();
    for name in ["stop_strings", "stop"] {
        for text in one_or_many(fields, name, "a string or an array of strings", |value| {
            value.as_str().map(str::to_owned)
        })? {
            if !stop_strings.contains(&text) {
                stop_strings.push(text);
            }
        }
    }
    let mut eos_token_ids = Vec::new();
    for id in one_or_many(
        fields,
        "eos_token_id",
        "a token id or an array of them",
        |value| whole(value)?.try_into().ok(),
    )? {
        if !eos_token_ids.contains(&id) {
            eos_token_ids.push(id);
        }
    }
    let top_k = match fields.uint("top_k")? {
        Some(k) => Some(u32::try_from(k).map_err(|_| {
            fields.fault(
                "top_k",
                ErrorKind::Limit,
                format!("{k} does not fit 32 bits"),
            )
        })?),
        None => None,
    };
    Ok(GenerationDefaults {
        eos_token_ids,
        stop_strings,
        do_sample: fields.boolean("do_sample")?,
        temperature: fields.float("temperature")?,
        top_k,
        top_p: fields.float("top_p")?,
        min_p: fields.float("min_p")?,
        repetition_penalty: fields.float("repetition_penalty")?,
    })
}

fn one_or_many<T>(
    fields: Fields<'_>,
    name: &str,
    wanted: &str,
    convert: impl Fn(&Value) -> Option<T>,
) -> Result<Vec<T>, AssetError> {
    let items: Option<Vec<T>> = match fields.find(name) {
        None => return Ok(Vec::new()),
        Some(Value::Array(items)) => items.iter().map(convert).collect(),
        Some(item) => convert(item).map(|item| vec![item]),
    };
    items.ok_or_else(|| {
        let found = fields.find(name).map(brief).unwrap_or_default();
        fields.fault(
            name,
            ErrorKind::Malformed,
            format!("should be {wanted}, is {found}"),
        )
    })
}
