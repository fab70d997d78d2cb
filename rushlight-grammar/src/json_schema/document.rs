//! A schema document: where its resources and anchors are, and what a reference means.
//!
//! References are resolved as RFC 3986 says, against the nearest `$id` (`id` in draft-04); fragments are JSON Pointers
//! (RFC 6901) or anchors. Nothing is ever fetched: a reference that leaves the document is a problem to report.

use foldhash::{HashMap, HashSet};
use serde_json::Value;

use super::keywords::{Holds, holds};

/// The dialect of a schema, as far as it changes what a keyword means.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Dialect {
    Draft4,
    Draft6,
    Draft7,
    Draft2019,
    Draft2020,
}

impl Dialect {
    /// The dialect that a `$schema` names; `None` where it is none of these.
    pub(super) fn of(schema: &str) -> Option<Self> {
        let has = |part: &str| schema.contains(part);
        Some(if has("draft-04") {
            Self::Draft4
        } else if has("draft-06") {
            Self::Draft6
        } else if has("draft-07") {
            Self::Draft7
        } else if has("2019-09") {
            Self::Draft2019
        } else if has("2020-12") {
            Self::Draft2020
        } else {
            return None;
        })
    }
}

/// Where a subschema is: its JSON Pointer, the base of its references, its dialect.
#[derive(Clone, Debug)]
pub(super) struct Place<'a> {
    pub(super) value: &'a Value,
    pub(super) pointer: String,
    pub(super) base: String,
    pub(super) dialect: Dialect,
}

impl<'a> Place<'a> {
    /// The place of `value`, which is this schema's member or item at `path`.
    pub(super) fn child(&self, path: &[&str], value: &'a Value) -> Place<'a> {
        let length: usize = path.iter().map(|step| step.len() + 1).sum();
        let mut pointer = String::with_capacity(self.pointer.len() + length);
        pointer.push_str(&self.pointer);
        for step in path {
            push_step(&mut pointer, step);
        }
        enter(value, pointer, &self.base, self.dialect)
    }
}

/// The index of one document.
#[derive(Debug)]
pub(super) struct Document<'a> {
    root: Place<'a>,
    /// Absolute URI without a fragment to the place of the resource.
    resources: HashMap<String, Place<'a>>,
    /// `uri#name` to the place that carries the anchor.
    anchors: HashMap<String, Place<'a>>,
    /// Names of dynamic anchors, with the places that carry them.
    dynamic: HashMap<String, Vec<String>>,
    counts_evaluated: bool,
    /// Names that more than one schema has, as in `resources` and `anchors`.
    ambiguous: HashSet<String>,
}

impl<'a> Document<'a> {
    pub(super) fn new(root: &'a Value) -> Self {
        let place = enter(root, String::new(), "", Dialect::Draft2020);
        let mut this = Self {
            root: place.clone(),
            resources: HashMap::default(),
            anchors: HashMap::default(),
            dynamic: HashMap::default(),
            ambiguous: HashSet::default(),
            counts_evaluated: any_member(root, |key, _| key.starts_with("unevaluated")),
        };
        this.resources.insert(place.base.clone(), place.clone());
        if holds_names(root) {
            this.index(place);
        }
        this
    }

    pub(super) fn root(&self) -> &Place<'a> {
        &self.root
    }

    /// Whether some schema asks for what others left unevaluated.
    pub(super) fn counts_evaluated(&self) -> bool {
        self.counts_evaluated
    }

    fn index(&mut self, start: Place<'a>) {
        let mut todo = vec![start];
        // What an unknown keyword holds may be no schema: its names count where no schema has them.
        let mut doubtful = Vec::new();
        while let Some(place) = todo.pop() {
            self.index_one(&place, true);
            push_children(&place, &mut todo, &mut doubtful);
        }
        while let Some(place) = doubtful.pop() {
            self.index_one(&place, false);
            let mut inner = Vec::new();
            push_children(&place, &mut inner, &mut doubtful);
            doubtful.extend(inner);
        }
    }

    /// Records the names of the schema at `place`. One that another has too is `certain` to be ambiguous, or gives way.
    fn index_one(&mut self, place: &Place<'a>, certain: bool) {
        let Value::Object(map) = place.value else {
            return;
        };
        let mut names = Vec::new();
        match identifier(place.value, place.dialect) {
            Some(id) if id.starts_with('#') => names.extend(id.strip_prefix('#')),
            Some(_) if !ignores_identifier(place.value, place.dialect) => {
                let known = self.resources.get(&place.base);
                if known.is_some_and(|known| !std::ptr::eq(known.value, place.value)) && certain {
                    self.ambiguous.insert(place.base.clone());
                }
                self.resources
                    .entry(place.base.clone())
                    .or_insert_with(|| place.clone());
            }
            _ => {}
        }
        let anchor = |key: &str| map.get(key).and_then(Value::as_str);
        names.extend(anchor("$anchor"));
        if let Some(name) = anchor("$dynamicAnchor") {
            names.push(name);
            self.dynamic
                .entry(name.to_owned())
                .or_default()
                .push(place.pointer.clone());
        }
        for name in names.into_iter().filter(|name| !name.is_empty()) {
            let uri = format!("{}#{name}", place.base);
            let known = self.anchors.get(&uri);
            if known.is_some_and(|known| !std::ptr::eq(known.value, place.value)) && certain {
                self.ambiguous.insert(uri.clone());
            }
            self.anchors.entry(uri).or_insert_with(|| place.clone());
        }
    }

    /// The place that `reference`, written in a schema at `from`, names.
    pub(super) fn resolve(&self, from: &Place<'a>, reference: &str) -> Result<Place<'a>, String> {
        let absolute = join(&from.base, reference);
        let (uri, fragment) = absolute.split_once('#').unwrap_or((&absolute, ""));
        let fragment = decode_percent(fragment).ok_or("the fragment is not UTF-8")?;
        let twice = |name: &str| match self.ambiguous.contains(name) {
            true => Err(format!("two schemas have the name '{name}'")),
            false => Ok(()),
        };
        twice(uri)?;
        let resource = match self.resources.get(uri) {
            Some(place) => place,
            // The root answers to the empty URI even where it has an id.
            None if uri.is_empty() => &self.root,
            None => {
                return Err(format!(
                    "'{uri}' is not in this document, and nothing is fetched"
                ));
            }
        };
        if fragment.is_empty() {
            return Ok(resource.clone());
        }
        if !fragment.starts_with('/') {
            twice(&format!("{uri}#{fragment}"))?;
            return self
                .anchors
                .get(&format!("{uri}#{fragment}"))
                .cloned()
                .ok_or_else(|| format!("no anchor '{fragment}'"));
        }
        let mut place = resource.clone();
        for step in fragment.split('/').skip(1) {
            let key = step.replace("~1", "/").replace("~0", "~");
            let value = match place.value {
                Value::Object(map) => map.get(&key),
                Value::Array(items) => key.parse::<usize>().ok().and_then(|i| items.get(i)),
                _ => None,
            };
            let value = value.ok_or_else(|| format!("nothing is at '{fragment}'"))?;
            place = place.child(&[&key], value);
        }
        Ok(place)
    }

    /// Whether a dynamic reference to `name` can only mean one place.
    pub(super) fn is_static(&self, name: &str) -> bool {
        self.dynamic
            .get(name)
            .is_none_or(|places| places.len() <= 1)
    }
}

/// Whether a schema in `root`, beside the whole, may have a name of its own: most documents have none, and need no index.
fn holds_names(root: &Value) -> bool {
    let names = |key: &str, value: &Value| match (key, value) {
        ("$anchor" | "$dynamicAnchor", Value::String(_)) => true,
        ("$id" | "id", Value::String(id)) => id.starts_with('#'),
        _ => false,
    };
    any_member(root, |key, value| names(key, value))
        || children(root).any(|child| {
            any_member(child, |key, value| {
                matches!(key, "$id" | "id") && value.is_string()
            })
        })
}

/// Whether `holds` is true of a member of `root` or of anything in it.
fn any_member(root: &Value, holds: impl Fn(&str, &Value) -> bool) -> bool {
    let mut todo = vec![root];
    while let Some(value) = todo.pop() {
        if let Value::Object(map) = value
            && map.iter().any(|(key, member)| holds(key, member))
        {
            return true;
        }
        todo.extend(children(value));
    }
    false
}

/// The objects and arrays directly in `value`.
fn children(value: &Value) -> impl Iterator<Item = &Value> {
    let members = value.as_object().into_iter().flat_map(|map| map.values());
    let items = value.as_array().into_iter().flatten();
    members.chain(items).filter(|child| is_container(child))
}

/// Adds the places of the schemas in the schema, or list of schemas, at `place`.
fn push_children<'a>(place: &Place<'a>, todo: &mut Vec<Place<'a>>, doubtful: &mut Vec<Place<'a>>) {
    for (i, item) in place.value.as_array().into_iter().flatten().enumerate() {
        if is_container(item) {
            todo.push(place.child(&[&i.to_string()], item));
        }
    }
    let members = place.value.as_object().into_iter().flatten();
    for (key, value) in members.filter(|(_, value)| is_container(value)) {
        match holds(key) {
            Holds::Instances => {}
            Holds::Schemas => todo.push(place.child(&[key], value)),
            Holds::Anything => doubtful.push(place.child(&[key], value)),
            Holds::NamedSchemas => {
                let named = value.as_object().into_iter().flatten();
                for (name, schema) in named.filter(|(_, schema)| is_container(schema)) {
                    todo.push(place.child(&[key, name], schema));
                }
            }
        }
    }
}

fn is_container(value: &Value) -> bool {
    value.is_object() || value.is_array()
}

/// The identifier of a schema, where it has one.
fn identifier(value: &Value, dialect: Dialect) -> Option<&str> {
    match (value.get("$id"), value.get("id")) {
        (Some(Value::String(id)), _) => Some(id),
        (None, Some(Value::String(id))) if dialect == Dialect::Draft4 => Some(id),
        _ => None,
    }
}

/// Beside `$ref`, an identifier is ignored up to draft-07.
fn ignores_identifier(value: &Value, dialect: Dialect) -> bool {
    dialect <= Dialect::Draft7 && value.get("$ref").is_some_and(Value::is_string)
}

fn enter<'a>(value: &'a Value, pointer: String, base: &str, dialect: Dialect) -> Place<'a> {
    let dialect = value
        .get("$schema")
        .and_then(Value::as_str)
        .and_then(Dialect::of)
        .unwrap_or(dialect);
    let base = match identifier(value, dialect) {
        Some(id) if !ignores_identifier(value, dialect) && !id.starts_with('#') => {
            let joined = join(base, id);
            joined.split('#').next().unwrap_or_default().to_owned()
        }
        _ => base.to_owned(),
    };
    Place {
        value,
        pointer,
        base,
        dialect,
    }
}

/// Appends one reference token to a JSON Pointer (RFC 6901).
pub(super) fn push_step(pointer: &mut String, step: &str) {
    pointer.push('/');
    for part in step.split_inclusive(['~', '/']) {
        let (plain, escape) = match part.as_bytes().last() {
            Some(b'~') => (&part[..part.len() - 1], "~0"),
            Some(b'/') => (&part[..part.len() - 1], "~1"),
            _ => (part, ""),
        };
        pointer.push_str(plain);
        pointer.push_str(escape);
    }
}

pub(super) fn decode_percent(text: &str) -> Option<String> {
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(b) = bytes.next() {
        if b != b'%' {
            out.push(b);
            continue;
        }
        let high = char::from(bytes.next()?).to_digit(16)?;
        let low = char::from(bytes.next()?).to_digit(16)?;
        out.push(u8::try_from(high * 16 + low).ok()?);
    }
    String::from_utf8(out).ok()
}

/// RFC 3986 section 5.2, for the references that schemas use.
fn join(base: &str, reference: &str) -> String {
    let scheme_end = |s: &str| {
        let end = s.find([':', '/', '?', '#'])?;
        (s.as_bytes().get(end) == Some(&b':') && end > 0).then_some(end)
    };
    if scheme_end(reference).is_some() {
        return reference.to_owned();
    }
    let base = base.split('#').next().unwrap_or_default();
    if reference.is_empty() || reference.starts_with('#') {
        return format!("{base}{reference}");
    }
    let after_scheme = scheme_end(base).map_or(0, |end| end + 1);
    let (scheme, rest) = base.split_at(after_scheme);
    if let Some(authority) = reference.strip_prefix("//") {
        return format!("{scheme}//{authority}");
    }
    let path_start = match rest.strip_prefix("//") {
        Some(after) => 2 + after.find('/').unwrap_or(after.len()),
        None => 0,
    };
    let (authority, path) = rest.split_at(path_start);
    let (relative, suffix) = match reference.find(['?', '#']) {
        Some(at) => reference.split_at(at),
        None => (reference, ""),
    };
    let merged = if relative.starts_with('/') {
        relative.to_owned()
    } else {
        let path = path.split('?').next().unwrap_or_default();
        match path.rfind('/') {
            Some(at) => format!("{}/{relative}", path.get(..at).unwrap_or_default()),
            None if authority.is_empty() => relative.to_owned(),
            None => format!("/{relative}"),
        }
    };
    let mut out: Vec<&str> = Vec::new();
    let absolute = merged.starts_with('/');
    let steps: Vec<&str> = merged.trim_start_matches('/').split('/').collect();
    for (i, step) in steps.iter().enumerate() {
        match *step {
            "." => {}
            ".." => {
                out.pop();
            }
            other => {
                out.push(other);
                continue;
            }
        }
        if i + 1 == steps.len() {
            out.push("");
        }
    }
    let lead = if absolute { "/" } else { "" };
    format!("{scheme}{authority}{lead}{}{suffix}", out.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn references_join_as_uris() {
        let base = "http://a/b/c/d";
        for (reference, want) in [
            ("g", "http://a/b/c/g"),
            ("./g", "http://a/b/c/g"),
            ("../g", "http://a/b/g"),
            ("/g#x", "http://a/g#x"),
            ("//h/g", "http://h/g"),
            ("#f", "http://a/b/c/d#f"),
            ("", "http://a/b/c/d"),
            ("urn:x:y", "urn:x:y"),
        ] {
            assert_eq!(join(base, reference), want);
        }
        assert_eq!(join("", "item.json"), "item.json");
        assert_eq!(join("http://a", "b"), "http://a/b");
    }

    #[test]
    fn pointers_anchors_and_ids_resolve() {
        let schema = json!({
            "$id": "http://x/root.json",
            "$defs": {
                "a/b~c%": {"type": "null"},
                "n": {"$id": "nested.json", "$anchor": "here", "$defs": {"k": {"const": 1}}},
            },
            "enum": [{"$id": "not-a-schema"}],
        });
        let document = Document::new(&schema);
        let root = document.root().clone();
        let get = |r: &str| document.resolve(&root, r).map(|p| p.pointer);
        assert_eq!(get("#/$defs/a~1b~0c%25").unwrap(), "/$defs/a~1b~0c%");
        assert_eq!(get("nested.json").unwrap(), "/$defs/n");
        assert_eq!(get("http://x/nested.json#here").unwrap(), "/$defs/n");
        assert_eq!(get("nested.json#/$defs/k").unwrap(), "/$defs/n/$defs/k");
        assert!(get("#here").is_err());
        assert!(get("not-a-schema").is_err());
        assert!(get("#/nope").unwrap_err().contains("/nope"));
        assert!(
            get("http://elsewhere/")
                .unwrap_err()
                .contains("nothing is fetched")
        );
    }
}
