//! Guards: what no context-free grammar states, judged as each value closes.
//!
//! A guard follows the text byte by byte with a stack of open containers and knows, for each value, whether it has to be
//! judged: the plan mirrors the grammar's states where the state of a value follows from its place alone, and judges the
//! nearest value around it where it does not. Judging is an independent validator's work (`jsonschema`). Two rules need no
//! validator: names of an object are distinct, and items of a `uniqueItems` array are, as each of them closes.

mod exact;
mod run;
mod seen;

use std::cmp::Reverse;
use std::error::Error;
use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use foldhash::{HashMap, HashSet};
use jsonschema::{Draft, PatternOptions, Registry, Retrieve, Uri, ValidationOptions, Validator};
use llguidance::panic_utils::catch_unwind;
use serde_json::{Map, Value, json};

use super::compiler::{Compiler, StateId};
use super::document::{Dialect, Place, decode_percent, push_step};
use super::emit::Emitter;
use super::pattern::judged;
use super::schema::{NodeId, Origin};
use crate::GrammarErrorKind;
use crate::lower::{Guard, GuardRun};
use run::Run;

/// What the schema's document is called inside the validator.
const DOCUMENT: &str = "rushlight:///schema";

/// One place of the plan.
#[derive(Default)]
struct Spot {
    judge: Option<Arc<Validator>>,
    unique: bool,
    /// Members that have to be there when the object closes.
    required: Vec<String>,
    named: HashMap<String, Option<usize>>,
    /// Of members that are not named.
    other: Option<usize>,
    prefix: Vec<Option<usize>>,
    rest: Option<usize>,
}

/// The plan of one schema.
struct Plan {
    spots: Vec<Spot>,
    root: Option<usize>,
    distinct_names: bool,
    /// The schema has a `multipleOf`.
    divides: bool,
    about: String,
}

/// A schema's guard.
#[derive(Clone)]
pub(super) struct SchemaGuard {
    plan: Arc<Plan>,
}

impl fmt::Debug for SchemaGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SchemaGuard")
            .field("about", &self.plan.about)
            .finish_non_exhaustive()
    }
}

impl<'a> Compiler<'a> {
    /// The guard that `emitted` needs beside its grammar, if any.
    pub(super) fn guard(&mut self, start: StateId, emitted: &Emitter) -> Option<SchemaGuard> {
        let distinct_names = self.guards
            && emitted
                .states
                .values()
                .any(|e| e.objects.iter().any(|o| o.unordered || !o.open.is_empty()));
        let mut judged: HashSet<StateId> = emitted
            .states
            .iter()
            .filter(|(_, e)| e.guarded)
            .map(|(s, _)| *s)
            .collect();
        if self.dynamic_scope && !judged.is_empty() {
            judged = HashSet::from_iter([start]);
        }
        let needed = needed(emitted, &mut judged);
        if needed.is_empty() && !distinct_names {
            return None;
        }
        let mut plan = Plan {
            spots: Vec::new(),
            root: None,
            distinct_names,
            divides: has_key(self.document.root().value, "multipleOf"),
            about: self.about(),
        };
        let mut ordered: Vec<StateId> = needed.into_iter().collect();
        ordered.sort_unstable();
        let ids: HashMap<StateId, usize> =
            ordered.iter().enumerate().map(|(i, s)| (*s, i)).collect();
        let spot = |state: &StateId| ids.get(state).copied();
        let judges = self.judges(
            &ordered
                .iter()
                .copied()
                .filter(|s| judged.contains(s))
                .collect::<Vec<_>>(),
        )?;
        for state in &ordered {
            let mut made = Spot {
                judge: judges.get(state).cloned(),
                ..Spot::default()
            };
            if let Some(e) = emitted.states.get(state) {
                if let [object] = e.objects.as_slice() {
                    for named in &object.named {
                        made.named.insert(named.name.clone(), spot(&named.state));
                    }
                    if object.unordered {
                        made.required = object.required().map(str::to_owned).collect();
                    }
                    if let [class] = object.open.as_slice() {
                        made.other = spot(&class.state);
                    }
                }
                if let [array] = e.arrays.as_slice() {
                    made.unique = array.unique;
                    if array.contains.is_none() {
                        made.prefix = array.prefix.iter().map(&spot).collect();
                        made.rest = spot(&array.rest);
                    }
                }
            }
            plan.spots.push(made);
        }
        plan.root = spot(&start);
        Some(SchemaGuard {
            plan: Arc::new(plan),
        })
    }

    fn about(&self) -> String {
        let guarded = self
            .explained()
            .into_iter()
            .filter(|e| e.how == super::How::Guard);
        let list: Vec<String> = guarded
            .map(|e| format!("{} at '{}'", e.keyword, e.pointer))
            .collect();
        if list.is_empty() {
            "distinct member names".to_owned()
        } else {
            list.join(", ")
        }
    }

    /// A validator for each of `states`; `None` where one could not be built, which is reported.
    fn judges(&mut self, states: &[StateId]) -> Option<HashMap<StateId, Arc<Validator>>> {
        let mut out = HashMap::default();
        if states.is_empty() {
            return Some(out);
        }
        let root = self.document.root().clone();
        let draft = match root.dialect {
            Dialect::Draft4 => Draft::Draft4,
            Dialect::Draft6 => Draft::Draft6,
            Dialect::Draft7 => Draft::Draft7,
            Dialect::Draft2019 => Draft::Draft201909,
            Dialect::Draft2020 => Draft::Draft202012,
        };
        let mut document = root.value.clone();
        self.honour_nullable(&mut document);
        let rewritten = self.write_patterns(&mut document);
        if let Value::Object(map) = &mut document {
            // The dialect is given; a `$schema` that the validator does not know must not stop it.
            map.shift_remove("$schema");
        }
        let fail = |this: &mut Self, reason: String| {
            this.problem_at(
                GrammarErrorKind::Unsupported,
                String::new(),
                "",
                format!("the validator behind guards refuses it: {reason}"),
            );
        };
        let registry = Registry::new()
            .draft(draft)
            .retriever(Elsewhere)
            .add(DOCUMENT, document)
            .and_then(|r| r.prepare());
        let registry = match registry {
            Ok(registry) => registry,
            Err(e) => {
                fail(self, e.to_string());
                return None;
            }
        };
        for state in states {
            let parts: Vec<Value> = self
                .literals(*state)
                .iter()
                .map(|(node, positive)| {
                    let schema = self.schema_of(*node, &rewritten);
                    if *positive {
                        schema
                    } else {
                        json!({"not": schema})
                    }
                })
                .collect();
            // The way to a dynamic reference starts at the document.
            let parts = if self.dynamic_scope {
                vec![json!({"$ref": DOCUMENT})]
            } else {
                parts
            };
            let build = AssertUnwindSafe(|| {
                Ok(super::format::register(options())
                    .with_draft(draft)
                    .should_validate_formats(true)
                    .with_registry(&registry)
                    .build(&json!({"allOf": parts}))
                    .map_err(|e| e.to_string()))
            });
            // It panics over some references into the scopes of others.
            let built = catch_unwind(build).unwrap_or_else(|panic| Err(panic.to_string()));
            match built {
                Ok(validator) => {
                    out.insert(*state, Arc::new(validator));
                }
                Err(reason) => {
                    let first = reason.lines().next().unwrap_or("");
                    fail(self, first.chars().take(300).collect());
                    return None;
                }
            }
        }
        Some(out)
    }

    /// Adds `null` to the types where the OpenAPI flag asks for it: in the schemas that the grammar was made from, and not in values, which
    /// may look like one.
    fn honour_nullable(&self, document: &mut Value) {
        for node in &self.nodes {
            if let Origin::Place(place) = &node.origin
                && let Some(Value::Object(map)) = document.pointer_mut(&place.pointer)
                && map.get("nullable") == Some(&Value::Bool(true))
                && map.contains_key("type")
            {
                add_null(map);
            }
        }
    }

    /// Writes the patterns in the dialect of the validator.
    fn write_patterns(&self, document: &mut Value) -> Rewritten {
        let places = self.nodes.iter().filter_map(|node| match &node.origin {
            Origin::Place(place) => Some(place),
            _ => None,
        });
        let mut places: Vec<&Place<'_>> = places.collect();
        // What is inside first: the pointers are those from before.
        places.sort_by_key(|place| Reverse(place.pointer.len()));
        let mut done = Rewritten::default();
        for place in &places {
            let pointer = place.pointer.as_str();
            let Some(Value::Object(map)) = document.pointer_mut(pointer) else {
                continue;
            };
            if let Some(Value::String(pattern)) = map.get_mut("pattern")
                && let Some(written) = judged(pattern)
            {
                *pattern = written;
            }
            let Some(Value::Object(members)) = map.get_mut("patternProperties") else {
                continue;
            };
            let names: Vec<String> = members.keys().cloned().collect();
            for name in names {
                let Some(mut written) = judged(&name) else {
                    continue;
                };
                if written == name {
                    continue;
                }
                // Another member may be written so.
                while members.contains_key(&written) {
                    written.push_str("(?:)");
                }
                let member = members.shift_remove(&name).unwrap_or_default();
                let mut from = format!("{pointer}/patternProperties");
                push_step(&mut from, &name);
                let mut to = String::new();
                push_step(&mut to, &written);
                done.renamed.insert(from, to);
                members.insert(written, member);
            }
        }
        if done.renamed.is_empty() {
            return done;
        }
        // References through them.
        for place in places {
            let Some(Value::Object(map)) = document.pointer_mut(&done.moved(&place.pointer)) else {
                continue;
            };
            for key in ["$ref", "$dynamicRef"] {
                if let Some(Value::String(reference)) = map.get_mut(key)
                    && goes_by_pointer(reference)
                    && let Ok(target) = self.document.resolve(place, reference)
                {
                    let now = done.moved(&target.pointer);
                    if now != target.pointer {
                        *reference = format!("{DOCUMENT}#{}", encode_fragment(&now));
                    }
                }
            }
        }
        done
    }

    fn schema_of(&self, node: NodeId, rewritten: &Rewritten) -> Value {
        match self.nodes.get(node.0 as usize).map(|n| &n.origin) {
            Some(Origin::Place(place)) => match place.value {
                // The array form of `dependencies`.
                Value::Array(names) => json!({"required": names}),
                Value::String(name) => json!({"required": [name]}),
                _ => {
                    let pointer = rewritten.moved(&place.pointer);
                    json!({"$ref": format!("{DOCUMENT}#{}", encode_fragment(&pointer))})
                }
            },
            Some(Origin::Constant(value, _)) => json!({"enum": [**value]}),
            Some(Origin::Always(always)) => {
                if *always {
                    json!({})
                } else {
                    json!({"not": {}})
                }
            }
            None => json!({}),
        }
    }
}

/// Documents but the schema's: no schema that is judged asks for one, others are looked at all the same.
struct Elsewhere;

impl Retrieve for Elsewhere {
    fn retrieve(&self, _: &Uri<String>) -> Result<Value, Box<dyn Error + Send + Sync>> {
        // Nothing may pass by it.
        Ok(Value::Bool(false))
    }
}

fn goes_by_pointer(reference: &str) -> bool {
    let fragment = reference
        .split_once('#')
        .and_then(|(_, f)| decode_percent(f));
    fragment.is_some_and(|fragment| fragment.starts_with('/'))
}

/// Whether `key` is anywhere in `value`.
fn has_key(value: &Value, key: &str) -> bool {
    match value {
        Value::Object(map) => map.contains_key(key) || map.values().any(|v| has_key(v, key)),
        Value::Array(items) => items.iter().any(|item| has_key(item, key)),
        _ => false,
    }
}

/// What became of the patterns of the validator's document.
#[derive(Default)]
struct Rewritten {
    /// The last steps of members of `patternProperties`, which have other names now, by the pointers from before.
    renamed: HashMap<String, String>,
}

impl Rewritten {
    /// What `pointer` is now.
    fn moved(&self, pointer: &str) -> String {
        let mut out = String::with_capacity(pointer.len());
        let ends = pointer.match_indices('/').map(|(at, _)| at).skip(1);
        let mut start = 0;
        for end in ends.chain([pointer.len()]) {
            let step = pointer.get(start..end).unwrap_or_default();
            let known = self.renamed.get(pointer.get(..end).unwrap_or_default());
            out.push_str(known.map_or(step, String::as_str));
            start = end;
        }
        out
    }
}

/// Whether the validator can judge by `pattern`.
pub(super) fn knows_pattern(pattern: &str) -> bool {
    let Some(written) = judged(pattern) else {
        return false;
    };
    let build = AssertUnwindSafe(|| Ok(options().build(&json!({"pattern": written})).is_ok()));
    catch_unwind(build).unwrap_or(false)
}

/// A match that goes back more often is given up, and the value refused: patterns that look back may take exponential time.
const BACKTRACKS: usize = 20_000;

fn options<'a>() -> ValidationOptions<'a> {
    let patterns = PatternOptions::fancy_regex().backtrack_limit(BACKTRACKS);
    jsonschema::options().with_pattern_options(patterns)
}

fn add_null(map: &mut Map<String, Value>) {
    match map.get_mut("type") {
        Some(Value::Array(names)) if !names.contains(&json!("null")) => names.push(json!("null")),
        Some(one @ Value::String(_)) if *one != "null" => {
            *one = json!([one.take(), "null"]);
        }
        _ => {}
    }
}

/// A JSON Pointer as a URI fragment.
fn encode_fragment(pointer: &str) -> String {
    let mut out = String::with_capacity(pointer.len());
    for b in pointer.bytes() {
        if b.is_ascii_alphanumeric() || b"/-._~!$&'()*+,;=:@".contains(&b) {
            out.push(char::from(b));
        } else {
            out.push_str(&format!("%{b:02X}"));
        }
    }
    out
}

/// The states that a guard has to know: those judged, and those on the way to one. A state whose place below does not
/// follow from the text alone is added to `judged` instead.
fn needed(emitted: &Emitter, judged: &mut HashSet<StateId>) -> HashSet<StateId> {
    let mut needed: HashSet<StateId> = judged.clone();
    loop {
        let mut changed = false;
        for (state, e) in &emitted.states {
            let mut found = false;
            let mut unclear = false;
            for object in &e.objects {
                let named = object.named.iter().any(|n| needed.contains(&n.state));
                let open = object.open.iter().any(|c| needed.contains(&c.state));
                let required = object.unordered && object.required().next().is_some();
                found |= named || open || required;
                unclear |= (named || open || required) && e.objects.len() > 1
                    || open && object.open.len() > 1;
            }
            for array in &e.arrays {
                let items = array
                    .prefix
                    .iter()
                    .chain([&array.rest])
                    .chain(&array.counted)
                    .any(|s| needed.contains(s));
                found |= items || array.unique;
                unclear |= (items || array.unique) && e.arrays.len() > 1
                    || items && array.contains.is_some();
            }
            if unclear && judged.insert(*state) {
                changed = true;
            }
            if (found || unclear) && needed.insert(*state) {
                changed = true;
            }
        }
        if !changed {
            return needed;
        }
    }
}

impl Guard for SchemaGuard {
    fn begin(&self) -> Box<dyn GuardRun> {
        Box::new(Run::new(self.plan.clone()))
    }

    fn describe(&self) -> String {
        self.plan.about.clone()
    }
}
