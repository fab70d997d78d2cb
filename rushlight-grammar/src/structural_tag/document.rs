//! Reading a document's members, with the place in every error.

use serde_json::{Map, Value};

use crate::error::{GrammarError, GrammarErrorKind, Place, Result};

/// A document's format, and where it stands.
pub(super) struct Format {
    pub(super) value: Value,
    pub(super) pointer: String,
    // Whether it was written in the older form: its places are then those of the newer.
    pub(super) old: bool,
}

/// The error with its place in a document of the older form.
pub(super) fn in_old_form(error: GrammarError) -> GrammarError {
    let Some(Place::Json { pointer, keyword }) = error.place() else {
        return error;
    };
    let pointer = match pointer.strip_prefix("/tags") {
        Some(rest) => format!(
            "/structures{}",
            rest.replacen("/content/json_schema", "/schema", 1)
        ),
        None => pointer.clone(),
    };
    let keyword = match keyword.as_deref() {
        Some("tags") if pointer.is_empty() => Some("structures".to_owned()),
        _ => keyword.clone(),
    };
    error.with_place(Place::Json { pointer, keyword })
}

/// The format of a document, whichever form it is written in.
pub(super) fn format_of(value: &Value) -> Result<Format> {
    let at = At {
        pointer: String::new(),
        depth: 0,
    };
    let object = at.object(value)?;
    match object.get("type").map(Value::as_str) {
        None | Some(Some("structural_tag")) => {}
        _ => {
            return Err(at.error(
                GrammarErrorKind::Invalid,
                "type",
                "must be \"structural_tag\"",
            ));
        }
    }
    if let Some(structures) = object.get("structures") {
        at.only(object, &["type", "structures", "triggers"])?;
        let mut tags = Vec::new();
        let list = at.under("structures").list(structures)?;
        for (n, structure) in list.iter().enumerate() {
            let at = at.under("structures").under(&n.to_string());
            let structure = at.object(structure)?;
            at.only(structure, &["begin", "schema", "end"])?;
            tags.push(serde_json::json!({
                "begin": at.member(structure, "begin")?,
                "content": {"type": "json_schema", "json_schema": at.member(structure, "schema")?},
                "end": at.member(structure, "end")?,
            }));
        }
        let triggers = at.member(object, "triggers")?;
        return Ok(Format {
            value: serde_json::json!({"type": "triggered_tags", "triggers": triggers, "tags": tags}),
            pointer: String::new(),
            old: true,
        });
    }
    at.only(object, &["type", "format"])?;
    match object.get("format") {
        Some(format) => Ok(Format {
            value: format.clone(),
            pointer: "/format".into(),
            old: false,
        }),
        None => Err(at.error(GrammarErrorKind::Invalid, "format", "is missing")),
    }
}

/// A place in the document.
#[derive(Clone)]
pub(super) struct At {
    pub(super) pointer: String,
    pub(super) depth: usize,
}

impl At {
    pub(super) fn under(&self, name: &str) -> Self {
        let name = name.replace('~', "~0").replace('/', "~1");
        Self {
            pointer: format!("{}/{name}", self.pointer),
            depth: self.depth + 1,
        }
    }

    pub(super) fn error(
        &self,
        kind: GrammarErrorKind,
        keyword: &str,
        reason: impl Into<String>,
    ) -> GrammarError {
        GrammarError::json(kind, self.pointer.clone(), keyword, reason)
    }

    pub(super) fn object<'v>(&self, value: &'v Value) -> Result<&'v Map<String, Value>> {
        value
            .as_object()
            .ok_or_else(|| self.error(GrammarErrorKind::Invalid, "", "must be an object"))
    }

    pub(super) fn list<'v>(&self, value: &'v Value) -> Result<&'v [Value]> {
        match value {
            Value::Array(list) => Ok(list),
            _ => Err(self.error(GrammarErrorKind::Invalid, "", "must be a list")),
        }
    }

    pub(super) fn member<'v>(
        &self,
        object: &'v Map<String, Value>,
        name: &str,
    ) -> Result<&'v Value> {
        object
            .get(name)
            .ok_or_else(|| self.error(GrammarErrorKind::Invalid, name, "is missing"))
    }

    pub(super) fn text<'v>(&self, object: &'v Map<String, Value>, name: &str) -> Result<&'v str> {
        self.member(object, name)?
            .as_str()
            .ok_or_else(|| self.error(GrammarErrorKind::Invalid, name, "must be a string"))
    }

    pub(super) fn texts(&self, object: &Map<String, Value>, name: &str) -> Result<Vec<String>> {
        let texts = self.member(object, name)?.as_array().and_then(|list| {
            list.iter()
                .map(|text| text.as_str().map(str::to_owned))
                .collect::<Option<Vec<_>>>()
        });
        texts
            .ok_or_else(|| self.error(GrammarErrorKind::Invalid, name, "must be a list of strings"))
    }

    pub(super) fn texts_or_none(
        &self,
        object: &Map<String, Value>,
        name: &str,
    ) -> Result<Vec<String>> {
        match object.get(name) {
            None | Some(Value::Null) => Ok(Vec::new()),
            Some(_) => self.texts(object, name),
        }
    }

    /// The strings that a free text may not hold.
    pub(super) fn excludes(&self, object: &Map<String, Value>) -> Result<Vec<String>> {
        let excludes = self.texts_or_none(object, "excludes")?;
        if let Some(empty) = excludes.iter().position(String::is_empty) {
            let at = self.under("excludes").under(&empty.to_string());
            let reason = "is the empty string, which every text holds";
            return Err(at.error(GrammarErrorKind::Unsatisfiable, "", reason));
        }
        Ok(excludes)
    }

    /// Refuses a free text that its stops could never end, as they hold what may not come up in it.
    pub(super) fn can_stop(
        &self,
        stops: &[String],
        banned: &[String],
        keyword: &str,
    ) -> Result<()> {
        for stop in stops {
            if let Some(text) = banned.iter().find(|text| stop.contains(text.as_str())) {
                let reason = format!(
                    "free text up to {stop:?} could never end: {text:?} may not come up in it"
                );
                return Err(self.error(GrammarErrorKind::Unsatisfiable, keyword, reason));
            }
        }
        Ok(())
    }

    pub(super) fn flag(&self, object: &Map<String, Value>, name: &str) -> Result<bool> {
        match object.get(name) {
            None => Ok(false),
            Some(Value::Bool(flag)) => Ok(*flag),
            Some(_) => Err(self.error(GrammarErrorKind::Invalid, name, "must be true or false")),
        }
    }

    /// Refuses members that nothing here reads: they could mean a promise.
    pub(super) fn only(&self, object: &Map<String, Value>, names: &[&str]) -> Result<()> {
        match object.keys().find(|key| !names.contains(&key.as_str())) {
            Some(key) => Err(self.error(
                GrammarErrorKind::Unsupported,
                key,
                format!("is not supported here; known: {}", names.join(", ")),
            )),
            None => Ok(()),
        }
    }
}
