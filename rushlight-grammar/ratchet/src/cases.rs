//! The two collections of cases.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;

use flate2::read::GzDecoder;
use serde_json::Value;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Collection {
    MaskBench,
    Suite,
}

pub(crate) struct Case {
    pub(crate) id: String,
    pub(crate) split: String,
    pub(crate) optional: bool,
    pub(crate) schema: Value,
    pub(crate) tests: Vec<Test>,
}

pub(crate) struct Test {
    pub(crate) valid: bool,
    pub(crate) data: Value,
}

/// Reads every case of a gzipped file of JSON lines.
pub(crate) fn load(path: &Path, collection: Collection) -> Result<Vec<Case>, String> {
    let file = File::open(path).map_err(|e| format!("{}: {e}", path.display()))?;
    let mut out = Vec::new();
    for (i, line) in BufReader::new(GzDecoder::new(file)).lines().enumerate() {
        let at = |e: &dyn std::fmt::Display| format!("{}:{}: {e}", path.display(), i + 1);
        let line = line.map_err(|e| at(&e))?;
        let value: Value = serde_json::from_str(&line).map_err(|e| at(&e))?;
        out.push(case(value, collection).ok_or_else(|| at(&"not a case"))?);
    }
    Ok(out)
}

fn case(mut value: Value, collection: Collection) -> Option<Case> {
    let text = |value: &Value, key: &str| value.get(key).and_then(Value::as_str).map(str::to_owned);
    let (id, split) = match collection {
        Collection::MaskBench => {
            let id = text(&value, "id")?;
            let split = match id.split_once("---") {
                Some((split, _)) => split.to_owned(),
                None => id.split('_').next()?.to_owned(),
            };
            (id, split)
        }
        Collection::Suite => {
            let file = text(&value, "file")?;
            (format!("{file}/{}", text(&value, "description")?), file)
        }
    };
    let tests = value.get_mut("tests")?.as_array_mut()?;
    let tests = tests
        .iter_mut()
        .map(|test| {
            Some(Test {
                valid: test.get("valid")?.as_bool()?,
                data: test.get_mut("data")?.take(),
            })
        })
        .collect::<Option<Vec<_>>>()?;
    Some(Case {
        id,
        split,
        optional: value
            .get("optional")
            .and_then(Value::as_bool)
            .unwrap_or(false),
        schema: value.get_mut("schema")?.take(),
        tests,
    })
}
