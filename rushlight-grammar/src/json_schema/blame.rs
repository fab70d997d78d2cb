//! Why a schema leaves no value, told at the innermost schema that shows it.

use serde_json::Value;

use super::compiler::Compiler;
use super::schema::{NodeId, Origin};
use crate::GrammarErrorKind;

/// Schemas inside each other that are looked into.
const DEPTH: usize = 100;

/// What is wrong with a schema that no value satisfies.
enum Fault {
    /// A schema that has to be satisfied too is at fault.
    Inside(NodeId),
    /// A member of this name has to be there and may not be.
    Member(String),
    /// The schema as a whole.
    Whole,
}

impl Compiler<'_> {
    /// Reports that no value is left of the schema `node` at `pointer`.
    pub(super) fn blame(&mut self, node: NodeId, pointer: String) {
        let (mut node, mut pointer) = (node, pointer);
        let mut fault = Fault::Whole;
        for _ in 0..DEPTH {
            fault = self.fault_of(node);
            match fault {
                // `false` is no place of its own.
                Fault::Inside(NodeId::FALSE) => break,
                Fault::Inside(inner) => {
                    node = inner;
                    pointer = self.pointer(inner);
                }
                _ => break,
            }
        }
        if let Fault::Member(name) = fault {
            let reason =
                format!("the member \"{name}\" has to be there, and no member of that name may be");
            self.problem_at(GrammarErrorKind::Unsatisfiable, pointer, "required", reason);
            return;
        }
        // Perhaps there are values, and what is never written took them away.
        if let Some((id, keyword, reason)) = self.left_out.take() {
            let place = self.pointer(id);
            let inside = place.strip_prefix(pointer.as_str());
            if inside == Some("") {
                let reason = format!("no value is left to write: {reason}");
                self.problem_at(GrammarErrorKind::Unsupported, pointer, keyword, reason);
                return;
            }
            if inside.is_some_and(|rest| rest.starts_with('/')) {
                let reason = format!(
                    "no value is left to write, perhaps on account of '{place}', keyword '{keyword}': {reason}"
                );
                self.problem_at(GrammarErrorKind::Unsupported, pointer, "", reason);
                return;
            }
        }
        let reason = "no value satisfies the schema".to_owned();
        self.problem_at(GrammarErrorKind::Unsatisfiable, pointer, "", reason);
    }

    fn fault_of(&mut self, node: NodeId) -> Fault {
        let place = match self.nodes.get(node.0 as usize).map(|node| &node.origin) {
            Some(Origin::Place(place)) => place.clone(),
            _ => return Fault::Whole,
        };
        let Value::Object(map) = place.value else {
            return Fault::Whole;
        };
        // Before 2019-09 nothing counts beside a reference.
        if map.contains_key("$ref") {
            return Fault::Whole;
        }
        let list = |keyword| map.get(keyword).and_then(Value::as_array);
        let is_only = |name| map.get("type").and_then(Value::as_str) == Some(name);
        let mut inner = Vec::new();
        for (i, part) in list("allOf").into_iter().flatten().enumerate() {
            inner.push(self.child(&place, &["allOf", &i.to_string()], part));
        }
        if is_only("object") {
            let members = map.get("properties").and_then(Value::as_object);
            let closed = map.get("additionalProperties") == Some(&Value::Bool(false))
                && !map.contains_key("patternProperties");
            let required = list("required").into_iter().flatten();
            for name in required.filter_map(Value::as_str) {
                match members.and_then(|members| members.get(name)) {
                    Some(Value::Bool(false)) => return Fault::Member(name.to_owned()),
                    Some(member) => inner.push(self.child(&place, &["properties", name], member)),
                    None if closed => return Fault::Member(name.to_owned()),
                    None => {}
                }
            }
        }
        let before = list("prefixItems").map_or(0, |items| items.len() as u64);
        if is_only("array")
            && map.get("minItems").and_then(Value::as_u64) > Some(before)
            && let Some(items @ Value::Object(_)) = map.get("items")
        {
            inner.push(self.child(&place, &["items"], items));
        }
        let depth = self.limits.proof_depth;
        let at_fault = inner.into_iter().find(|&inner| {
            let state = self.state([(inner, true)]);
            self.state_is_empty(state, depth)
        });
        at_fault.map_or(Fault::Whole, Fault::Inside)
    }
}
