//! Keywords that are read together: the schemas of items, and those of members.

use serde_json::{Map, Value};

use super::compiler::Compiler;
use super::document::Place;
use super::keywords::since;
use super::operands::{Read, strings};
use super::report::How;
use super::schema::{NodeId, Rule, Test, guarded, types};

impl<'a> Compiler<'a> {
    /// `items` in its two meanings: one schema for all, or (before 2020-12) one for each position.
    pub(super) fn items(
        &mut self,
        (id, place): (NodeId, &Place<'a>),
        map: &'a Map<String, Value>,
        key: &str,
    ) -> Read<Option<Rule>> {
        let old = matches!(map.get("items"), Some(Value::Array(_)));
        let (prefix_key, rest_key) = if old {
            ("items", "additionalItems")
        } else {
            ("prefixItems", "items")
        };
        let known = place.dialect >= since(prefix_key);
        let prefix_value = map.get(prefix_key).filter(|_| known);
        let rest_value = map.get(rest_key);
        // The pair is one rule, read where its first member stands.
        let first = map
            .keys()
            .find(|k| known && *k == prefix_key || *k == rest_key);
        if first.map(String::as_str) != Some(key) {
            return Ok(None);
        }
        let prefix = match prefix_value {
            Some(Value::Array(items)) => items
                .iter()
                .enumerate()
                .map(|(i, item)| self.child(place, &[prefix_key, &i.to_string()], item))
                .collect(),
            None => Vec::new(),
            Some(_) => return Err(("prefixItems", "must be an array".to_owned())),
        };
        let rest = rest_value.map(|value| self.child(place, &[rest_key], value));
        for other in [prefix_key, rest_key] {
            if place.dialect >= since(other) && map.contains_key(other) {
                self.note_read(id, other, How::Grammar, "");
            }
        }
        let keyword = match key {
            "prefixItems" => "prefixItems",
            "additionalItems" => "additionalItems",
            _ => "items",
        };
        Ok(Some(Rule {
            keyword,
            test: Test::Items { prefix, rest },
        }))
    }

    /// The three keywords that divide an object's members among schemas, read together where the first of them stands.
    pub(super) fn properties(
        &mut self,
        (id, place): (NodeId, &Place<'a>),
        map: &'a Map<String, Value>,
        key: &str,
    ) -> Read<Option<Rule>> {
        const GROUP: [&str; 3] = ["properties", "patternProperties", "additionalProperties"];
        // Property order is the order of `properties`, wherever the other two stand.
        let first = if map.contains_key("properties") {
            Some("properties")
        } else {
            map.keys().map(String::as_str).find(|k| GROUP.contains(k))
        };
        if first != Some(key) {
            return Ok(None);
        }
        let members = |keyword: &'static str| match map.get(keyword) {
            Some(Value::Object(members)) => Ok(Some(members)),
            None => Ok(None),
            Some(_) => Err((keyword, "must be an object".to_owned())),
        };
        let mut named = Vec::new();
        for (name, value) in members("properties")?.into_iter().flatten() {
            named.push((
                name.clone(),
                self.child(place, &["properties", name], value),
            ));
        }
        let mut patterns = Vec::new();
        let mut judged = None;
        for (pattern, value) in members("patternProperties")?.into_iter().flatten() {
            let node = self.child(place, &["patternProperties", pattern], value);
            match self.pattern(pattern) {
                Ok(rx) => patterns.push((rx, node)),
                Err(reason) => judged = Some(guarded(pattern, "patternProperties", reason)?),
            }
        }
        let rest = map
            .get("additionalProperties")
            .map(|value| self.child(place, &["additionalProperties"], value));
        let keyword = GROUP
            .iter()
            .find(|k| **k == key)
            .copied()
            .unwrap_or("properties");
        for other in GROUP {
            if map.contains_key(other) {
                self.note_read(id, other, How::Grammar, "");
            }
        }
        if let Some(reason) = judged {
            for other in GROUP {
                if map.contains_key(other) {
                    self.note_read(id, other, How::Guard, &reason);
                }
            }
            return Ok(Some(Rule {
                keyword: "patternProperties",
                test: Test::Opaque(types::OBJECT, reason),
            }));
        }
        Ok(Some(Rule {
            keyword,
            test: Test::Properties {
                named,
                patterns,
                rest,
            },
        }))
    }

    pub(super) fn dependencies(&mut self, place: &Place<'a>, value: &'a Value) -> Read<Rule> {
        let Value::Object(members) = value else {
            return Err(("dependencies", "must be an object".to_owned()));
        };
        let mut schemas = Vec::new();
        for (name, value) in members {
            let node = match value {
                Value::Array(_) | Value::String(_) => self.required_node(place, name, value)?,
                _ => self.child(place, &["dependencies", name], value),
            };
            schemas.push((name.clone(), node));
        }
        Ok(Rule {
            keyword: "dependencies",
            test: Test::NeedsSchema(schemas),
        })
    }

    fn required_node(&mut self, place: &Place<'a>, name: &str, value: &'a Value) -> Read<NodeId> {
        let names = match value {
            Value::String(one) => vec![one.clone()],
            _ => strings("dependencies", value)?,
        };
        let at = place.child(&["dependencies", name], value);
        Ok(self.made_node(
            at,
            vec![Rule {
                keyword: "dependencies",
                test: Test::Required(names),
            }],
        ))
    }
}
