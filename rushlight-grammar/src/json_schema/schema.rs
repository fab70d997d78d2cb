//! Reading: each schema object becomes a list of rules with their operands checked.
//!
//! A rule knows the keyword that it came from, so that a problem or an explanation can name it. Keywords that only
//! describe (`title`, `default`, `examples`, `$comment`, unknown ones) become no rule, as the specification says.

use std::rc::Rc;

use serde_json::{Map, Value};

use super::compiler::Compiler;
use super::document::{Dialect, Place};
use super::format;
use super::guard::knows_pattern;
use super::keywords::{is_ancient, refers_alone, since};
use super::number::{Compare, Decimal};
use super::operands::{Read, count, decimal, kind_of, needs, small, strings, type_mask};
use super::report::How;
use super::rx::Rx;
use crate::GrammarErrorKind;

/// A schema in the compiler's table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct NodeId(pub(super) u32);

impl NodeId {
    pub(super) const TRUE: NodeId = NodeId(0);
    pub(super) const FALSE: NodeId = NodeId(1);
}

/// Where a node came from.
#[derive(Clone, Debug)]
pub(super) enum Origin<'a> {
    Always(bool),
    Place(Place<'a>),
    /// `{"const": value}`, made while taking a constant apart; the node is the schema that held the constant.
    Constant(Rc<Value>, NodeId),
}

/// JSON types as bits; whole numbers apart from the others.
pub(super) mod types {
    pub(in super::super) const NULL: u8 = 1;
    pub(in super::super) const BOOLEAN: u8 = 2;
    pub(in super::super) const INTEGER: u8 = 4;
    pub(in super::super) const FRACTIONAL: u8 = 8;
    pub(in super::super) const NUMBER: u8 = INTEGER | FRACTIONAL;
    pub(in super::super) const STRING: u8 = 16;
    pub(in super::super) const ARRAY: u8 = 32;
    pub(in super::super) const OBJECT: u8 = 64;
    pub(in super::super) const ALL: u8 = 127;
}

/// One keyword (or a group that is read together) with its operands.
#[derive(Clone, Debug)]
pub(super) struct Rule {
    pub(super) keyword: &'static str,
    pub(super) test: Test,
}

#[derive(Clone, Debug)]
pub(super) enum Test {
    Types(u8),
    Values(Rc<Vec<Value>>),
    All(Vec<NodeId>),
    Any(Vec<NodeId>),
    One(Vec<NodeId>),
    Not(NodeId),
    If(NodeId, NodeId, NodeId),
    Ref(NodeId),
    Compare(Compare, Decimal),
    Multiple(Decimal),
    Text(Rc<Rx>),
    /// Strings that are at least in the first language, and certainly none outside of the second.
    Between(Rc<Rx>, Rc<Rx>),
    Items {
        prefix: Vec<NodeId>,
        rest: Option<NodeId>,
    },
    MinItems(u64),
    MaxItems(u64),
    Unique,
    Contains {
        node: NodeId,
        min: u64,
        max: Option<u64>,
    },
    Properties {
        named: Vec<(String, NodeId)>,
        patterns: Vec<(Rc<Rx>, NodeId)>,
        rest: Option<NodeId>,
    },
    Required(Vec<String>),
    MinProperties(u64),
    MaxProperties(u64),
    Names(NodeId),
    Needs(Vec<(String, Vec<String>)>),
    NeedsSchema(Vec<(String, NodeId)>),
    UnevaluatedProperties(NodeId),
    UnevaluatedItems(NodeId),
    /// Only a guard can judge it: the types that it is about, and why.
    Opaque(u8, String),
}

impl<'a> Compiler<'a> {
    /// The rules of the schema at `place`, in the author's order.
    pub(super) fn read(&mut self, id: NodeId, place: &Place<'a>) -> Rc<Vec<Rule>> {
        let Value::Object(map) = place.value else {
            self.problem(
                id,
                "",
                format!(
                    "a schema is an object or a boolean, not {}",
                    kind_of(place.value)
                ),
            );
            return Rc::new(Vec::new());
        };
        let mut rules = Vec::new();
        if let Some(dialect) = map.get("$schema") {
            self.dialect(id, dialect);
        }
        let alone = refers_alone(place, map);
        for (key, value) in map {
            if alone && key != "$ref" {
                continue;
            }
            match self.rule((id, place), map, key, value) {
                Ok(Some(rule)) => rules.push(rule),
                Ok(None) => {}
                Err((keyword, reason)) => self.problem(id, keyword, reason),
            }
        }
        for rule in &rules {
            self.note_read(id, rule.keyword, How::Grammar, "");
        }
        // What is left to evaluate is only known once the rest is.
        rules.sort_by_key(|rule| {
            matches!(
                rule.test,
                Test::UnevaluatedItems(_) | Test::UnevaluatedProperties(_)
            )
        });
        Rc::new(rules)
    }

    fn rule(
        &mut self,
        (id, place): (NodeId, &Place<'a>),
        map: &'a Map<String, Value>,
        key: &str,
        value: &'a Value,
    ) -> Read<Option<Rule>> {
        let made = |keyword, test| Ok(Some(Rule { keyword, test }));
        let new = place.dialect >= Dialect::Draft2019;
        if place.dialect < since(key) {
            return Ok(None);
        }
        match key {
            "type" => {
                let mut mask = type_mask(value).map_err(|e| ("type", e))?;
                if map.get("nullable") == Some(&Value::Bool(true)) {
                    mask |= types::NULL;
                }
                made("type", Test::Types(mask))
            }
            "enum" => match value {
                // OpenAPI 3.0.3 has `nullable` widen the type alone: `null` has to be listed.
                Value::Array(values) => made("enum", Test::Values(Rc::new(values.clone()))),
                _ => Err(("enum", "must be an array".to_owned())),
            },
            "const" => made("const", Test::Values(Rc::new(vec![value.clone()]))),
            "allOf" => made("allOf", Test::All(self.children(place, "allOf", value)?)),
            "anyOf" => made("anyOf", Test::Any(self.children(place, "anyOf", value)?)),
            "oneOf" => made("oneOf", Test::One(self.children(place, "oneOf", value)?)),
            "not" => made("not", Test::Not(self.child(place, &["not"], value))),
            "if" => {
                let part = |this: &mut Self, key: &str| match map.get(key) {
                    Some(value) => this.child(place, &[key], value),
                    None => NodeId::TRUE,
                };
                let (then, otherwise) = (part(self, "then"), part(self, "else"));
                let silent = then == NodeId::TRUE && otherwise == NodeId::TRUE;
                if silent && !self.document.counts_evaluated() && !map.contains_key("then") {
                    return Ok(None);
                }
                made(
                    "if",
                    Test::If(self.child(place, &["if"], value), then, otherwise),
                )
            }
            "$ref" => made("$ref", Test::Ref(self.reference(place, "$ref", value)?)),
            // 2020-12 has the other one in its place.
            "$recursiveRef" if place.dialect > Dialect::Draft2019 => Ok(None),
            "$recursiveRef" | "$dynamicRef" => self.dynamic(place, key, value).map(Some),
            "minimum" | "maximum" | "exclusiveMinimum" | "exclusiveMaximum" => {
                self.bound(id, map, key, value)
            }
            "multipleOf" => match decimal(value) {
                Some(step) if step.text() != "0" && !step.text().starts_with('-') => {
                    let test = if self.numbers.multiple(&step).is_some() {
                        Test::Multiple(step)
                    } else {
                        Test::Opaque(
                            types::NUMBER,
                            "its multiples have too many remainders".to_owned(),
                        )
                    };
                    made("multipleOf", test)
                }
                _ => Err(("multipleOf", "must be a number above 0".to_owned())),
            },
            "minLength" => {
                let min = small(count("minLength", value)?, "minLength")?;
                made("minLength", Test::Text(Rc::new(Rx::length(min, None))))
            }
            "maxLength" => {
                // A length that no answer reaches is no restriction.
                let max = u32::try_from(count("maxLength", value)?).unwrap_or(u32::MAX - 1);
                made("maxLength", Test::Text(Rc::new(Rx::length(0, Some(max)))))
            }
            "pattern" => {
                let Value::String(pattern) = value else {
                    return Err(("pattern", "must be a string".to_owned()));
                };
                let test = match self.pattern(pattern) {
                    Ok(rx) => Test::Text(rx),
                    Err(reason) => {
                        Test::Opaque(types::STRING, guarded(pattern, "pattern", reason)?)
                    }
                };
                made("pattern", test)
            }
            "format" => match value {
                Value::String(name) if name == "regex" => made(
                    "format",
                    Test::Opaque(
                        types::STRING,
                        "well-formed patterns are not a regular language".to_owned(),
                    ),
                ),
                Value::String(name) => match format::language(name) {
                    Some(narrow) => {
                        let narrow = Rc::new(narrow);
                        let Some(wide) = format::wider(name) else {
                            return made("format", Test::Text(narrow));
                        };
                        self.note_read(
                            id,
                            "format",
                            How::Grammar,
                            "some of its texts are left out",
                        );
                        made("format", Test::Between(narrow, Rc::new(wide)))
                    }
                    None => {
                        self.note_read(id, "format", How::Annotation, "no format has this name");
                        Ok(None)
                    }
                },
                _ => Err(("format", "must be a string".to_owned())),
            },
            "items" | "additionalItems" | "prefixItems" => self.items((id, place), map, key),
            "minItems" => made("minItems", Test::MinItems(count("minItems", value)?)),
            "maxItems" => made("maxItems", Test::MaxItems(count("maxItems", value)?)),
            "uniqueItems" => match value {
                Value::Bool(true) => made("uniqueItems", Test::Unique),
                Value::Bool(false) => Ok(None),
                _ => Err(("uniqueItems", "must be a boolean".to_owned())),
            },
            "contains" => {
                let bound = |key: &'static str| map.get(key).map(|v| count(key, v)).transpose();
                let (min, max) = if new {
                    (bound("minContains")?.unwrap_or(1), bound("maxContains")?)
                } else {
                    (1, None)
                };
                let node = self.child(place, &["contains"], value);
                made("contains", Test::Contains { node, min, max })
            }
            "properties" | "patternProperties" | "additionalProperties" => {
                self.properties((id, place), map, key)
            }
            "required" => made("required", Test::Required(strings("required", value)?)),
            "minProperties" => made(
                "minProperties",
                Test::MinProperties(count("minProperties", value)?),
            ),
            "maxProperties" => made(
                "maxProperties",
                Test::MaxProperties(count("maxProperties", value)?),
            ),
            "propertyNames" => made(
                "propertyNames",
                Test::Names(self.child(place, &["propertyNames"], value)),
            ),
            "dependentRequired" => made(
                "dependentRequired",
                Test::Needs(needs("dependentRequired", value)?),
            ),
            "dependentSchemas" => {
                let Value::Object(members) = value else {
                    return Err(("dependentSchemas", "must be an object".to_owned()));
                };
                let list = members.iter().map(|(name, v)| {
                    (
                        name.clone(),
                        self.child(place, &["dependentSchemas", name], v),
                    )
                });
                made("dependentSchemas", Test::NeedsSchema(list.collect()))
            }
            "dependencies" => self.dependencies(place, value).map(Some),
            "unevaluatedProperties" => {
                let node = self.child(place, &["unevaluatedProperties"], value);
                made("unevaluatedProperties", Test::UnevaluatedProperties(node))
            }
            "unevaluatedItems" => {
                let node = self.child(place, &["unevaluatedItems"], value);
                made("unevaluatedItems", Test::UnevaluatedItems(node))
            }
            "nullable" => {
                if !value.is_boolean() {
                    return Err(("nullable", "must be a boolean".to_owned()));
                }
                self.note_read(id, "nullable", How::Rewriting, "");
                Ok(None)
            }
            _ => Ok(None),
        }
    }

    /// Checks the dialect that the schema `id` names.
    fn dialect(&mut self, id: NodeId, named: &Value) {
        let Value::String(uri) = named else {
            self.problem(id, "$schema", "must be a string".to_owned());
            return;
        };
        match Dialect::of(uri) {
            Some(_) => {}
            None if is_ancient(uri) => {
                let pointer = self.pointer(id);
                self.problem_at(
                    GrammarErrorKind::Unsupported,
                    pointer,
                    "$schema",
                    "drafts before draft-04 are not supported".to_owned(),
                );
            }
            None => self.note_read(
                id,
                "$schema",
                How::Annotation,
                "no dialect has this name: it is read as what is around it, or as 2020-12",
            ),
        }
    }

    pub(super) fn child(&mut self, place: &Place<'a>, path: &[&str], value: &'a Value) -> NodeId {
        self.node_at(place.child(path, value))
    }

    fn children(
        &mut self,
        place: &Place<'a>,
        keyword: &'static str,
        value: &'a Value,
    ) -> Read<Vec<NodeId>> {
        match value {
            Value::Array(items) if !items.is_empty() => Ok(items
                .iter()
                .enumerate()
                .map(|(i, item)| self.child(place, &[keyword, &i.to_string()], item))
                .collect()),
            _ => Err((
                keyword,
                "must be an array of at least one schema".to_owned(),
            )),
        }
    }

    fn reference(
        &mut self,
        place: &Place<'a>,
        keyword: &'static str,
        value: &Value,
    ) -> Read<NodeId> {
        let Value::String(reference) = value else {
            return Err((keyword, "must be a string".to_owned()));
        };
        match self.document.resolve(place, reference) {
            Ok(target) => Ok(self.node_at(target)),
            Err(reason) => Err((
                keyword,
                format!("'{reference}' cannot be resolved: {reason}"),
            )),
        }
    }

    /// A dynamic reference is a plain one where its anchor exists at most once, so that no scope can change its target.
    fn dynamic(&mut self, place: &Place<'a>, key: &str, value: &Value) -> Read<Rule> {
        let keyword = if key == "$dynamicRef" {
            "$dynamicRef"
        } else {
            "$recursiveRef"
        };
        let name = value
            .as_str()
            .and_then(|r| r.rsplit_once('#'))
            .map_or("", |(_, name)| name);
        if keyword == "$dynamicRef" && self.document.is_static(name) {
            let node = self.reference(place, keyword, value)?;
            return Ok(Rule {
                keyword,
                test: Test::Ref(node),
            });
        }
        self.dynamic_scope = true;
        Ok(Rule {
            keyword,
            test: Test::Opaque(
                types::ALL,
                "the target depends on the dynamic scope".to_owned(),
            ),
        })
    }

    fn bound(
        &mut self,
        id: NodeId,
        map: &Map<String, Value>,
        key: &str,
        value: &Value,
    ) -> Read<Option<Rule>> {
        let (keyword, inclusive, exclusive, flag) = match key {
            "minimum" => (
                "minimum",
                Compare::AtLeast,
                Compare::More,
                "exclusiveMinimum",
            ),
            "maximum" => (
                "maximum",
                Compare::AtMost,
                Compare::Less,
                "exclusiveMaximum",
            ),
            "exclusiveMinimum" => ("exclusiveMinimum", Compare::More, Compare::More, ""),
            _ => ("exclusiveMaximum", Compare::Less, Compare::Less, ""),
        };
        // In draft-04 the exclusive keywords are flags beside the bound, which reads them.
        if flag.is_empty() && value.is_boolean() {
            let bound = match key {
                "exclusiveMinimum" => "minimum",
                _ => "maximum",
            };
            if value == &Value::Bool(true) && map.contains_key(bound) {
                self.note_read(id, keyword, How::Grammar, "");
            }
            return Ok(None);
        }
        let compare = if map.get(flag) == Some(&Value::Bool(true)) {
            exclusive
        } else {
            inclusive
        };
        if !value.is_number() {
            return Err((keyword, format!("must be a number, not {}", kind_of(value))));
        }
        let Some(bound) = decimal(value) else {
            return Err((keyword, "must be a number of at most 400 digits".to_owned()));
        };
        if let Some(reason) = self.numbers.shortened(&bound) {
            self.left_out(id, keyword, &reason);
        }
        Ok(Some(Rule {
            keyword,
            test: Test::Compare(compare, bound),
        }))
    }
}

/// `reason`, for which a guard must judge by `pattern`, if it can.
pub(super) fn guarded(pattern: &str, keyword: &'static str, reason: String) -> Read<String> {
    match knows_pattern(pattern) {
        true => Ok(reason),
        false => Err((
            keyword,
            format!("neither the grammar nor a guard knows this pattern: {reason}"),
        )),
    }
}
