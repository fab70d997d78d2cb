//! Guards: what no context-free grammar states, judged as each value closes.
//!
//! A guard follows the text byte by byte with a stack of open containers and knows, for each value, whether it has to be
//! judged: the plan mirrors the grammar's states where the state of a value follows from its place alone, and judges the
//! nearest value around it where it does not. Judging is an independent validator's work (`jsonschema`). Two rules need no
//! validator: names of an object are distinct, and items of a `uniqueItems` array are, as each of them closes.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::Arc;

use jsonschema::{Draft, Registry, Validator};
use serde_json::{Map, Value, json};

use super::compiler::{Compiler, StateId};
use super::document::Dialect;
use super::emit::Emitter;
use super::schema::{NodeId, Origin};
use crate::GrammarErrorKind;
use crate::lower::{Guard, GuardRun, GuardStep};

/// What the schema's document is called inside the validator.
const DOCUMENT: &str = "urn:rushlight:schema";
/// Bytes between two saved positions of a run.
const SAVE_EVERY: usize = 256;

/// One place of the plan.
#[derive(Default)]
struct Spot {
    judge: Option<Arc<Validator>>,
    unique: bool,
    /// Members that have to be there when the object closes.
    required: Vec<String>,
    named: HashMap<String, usize>,
    other: Option<usize>,
    prefix: Vec<Option<usize>>,
    rest: Option<usize>,
}

/// The plan of one schema.
struct Plan {
    spots: Vec<Spot>,
    root: Option<usize>,
    distinct_names: bool,
    about: String,
}

/// A schema's guard.
#[derive(Clone)]
pub(super) struct SchemaGuard {
    plan: Arc<Plan>,
}

impl fmt::Debug for SchemaGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SchemaGuard").field("about", &self.plan.about).finish_non_exhaustive()
    }
}

impl<'a> Compiler<'a> {
    /// The guard that `emitted` needs beside its grammar, if any.
    pub(super) fn guard(&mut self, start: StateId, emitted: &Emitter) -> Option<SchemaGuard> {
        let distinct_names = self.guards
            && emitted.states.values().any(|e| e.objects.iter().any(|o| o.unordered || !o.open.is_empty()));
        let mut judged: HashSet<StateId> =
            emitted.states.iter().filter(|(_, e)| e.guarded).map(|(s, _)| *s).collect();
        if self.dynamic_scope && !judged.is_empty() {
            judged = HashSet::from([start]);
        }
        let needed = needed(emitted, &mut judged);
        if needed.is_empty() && !distinct_names {
            return None;
        }
        let mut plan = Plan {
            spots: Vec::new(),
            root: None,
            distinct_names,
            about: self.about(),
        };
        let mut ordered: Vec<StateId> = needed.into_iter().collect();
        ordered.sort_unstable();
        let ids: HashMap<StateId, usize> = ordered.iter().enumerate().map(|(i, s)| (*s, i)).collect();
        let spot = |state: &StateId| ids.get(state).copied();
        let judges = self.judges(&ordered.iter().copied().filter(|s| judged.contains(s)).collect::<Vec<_>>())?;
        for state in &ordered {
            let mut made = Spot {
                judge: judges.get(state).cloned(),
                ..Spot::default()
            };
            if let Some(e) = emitted.states.get(state) {
                if let [object] = e.objects.as_slice() {
                    for named in &object.named {
                        if let Some(id) = spot(&named.state) {
                            made.named.insert(named.name.clone(), id);
                        }
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
        Some(SchemaGuard { plan: Arc::new(plan) })
    }

    fn about(&self) -> String {
        let guarded = self.explained().into_iter().filter(|e| e.how == super::How::Guard);
        let list: Vec<String> = guarded.map(|e| format!("{} at '{}'", e.keyword, e.pointer)).collect();
        if list.is_empty() {
            "distinct member names".to_owned()
        } else {
            list.join(", ")
        }
    }

    /// A validator for each of `states`; `None` where one could not be built, which is reported.
    fn judges(&mut self, states: &[StateId]) -> Option<HashMap<StateId, Arc<Validator>>> {
        let mut out = HashMap::new();
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
        honour_nullable(&mut document);
        if let Value::Object(map) = &mut document {
            // The dialect is given; a `$schema` that the validator does not know must not stop it.
            map.shift_remove("$schema");
        }
        let fail = |this: &mut Self, reason: String| {
            this.problem_at(GrammarErrorKind::Unsupported, String::new(), "", format!("the validator behind guards refuses it: {reason}"));
        };
        let registry = Registry::new().draft(draft).add(DOCUMENT, document).and_then(|r| r.prepare());
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
                    let schema = self.schema_of(*node);
                    if *positive { schema } else { json!({"not": schema}) }
                })
                .collect();
            // The way to a dynamic reference starts at the document.
            let parts = if self.dynamic_scope { vec![json!({"$ref": DOCUMENT})] } else { parts };
            let built = super::format::register(jsonschema::options())
                .with_draft(draft)
                .should_validate_formats(true)
                .with_registry(&registry)
                .build(&json!({"allOf": parts}));
            match built {
                Ok(validator) => {
                    out.insert(*state, Arc::new(validator));
                }
                Err(e) => {
                    let text: String = e.to_string().chars().take(300).collect();
                    fail(self, text);
                    return None;
                }
            }
        }
        Some(out)
    }

    fn schema_of(&self, node: NodeId) -> Value {
        match self.nodes.get(node.0 as usize).map(|n| &n.origin) {
            Some(Origin::Place(place)) => match place.value {
                // The array form of `dependencies`.
                Value::Array(names) => json!({"required": names}),
                Value::String(name) => json!({"required": [name]}),
                _ => json!({"$ref": format!("{DOCUMENT}#{}", encode_fragment(&place.pointer))}),
            },
            Some(Origin::Constant(value, _)) => json!({"enum": [**value]}),
            Some(Origin::Always(always)) => if *always { json!({}) } else { json!({"not": {}}) },
            None => json!({}),
        }
    }
}

/// Adds `null` where the OpenAPI flag asks for it, as the grammar does.
fn honour_nullable(value: &mut Value) {
    match value {
        Value::Object(map) => {
            if map.get("nullable") == Some(&Value::Bool(true)) && map.contains_key("type") {
                add_null(map);
            }
            map.values_mut().for_each(honour_nullable);
        }
        Value::Array(items) => items.iter_mut().for_each(honour_nullable),
        _ => {}
    }
}

fn add_null(map: &mut Map<String, Value>) {
    match map.get_mut("type") {
        Some(Value::Array(names)) if !names.contains(&json!("null")) => names.push(json!("null")),
        Some(one @ Value::String(_)) if *one != "null" => {
            *one = json!([one.take(), "null"]);
        }
        _ => {}
    }
    if let Some(Value::Array(values)) = map.get_mut("enum")
        && !values.contains(&Value::Null)
    {
        values.push(Value::Null);
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
                unclear |= (named || open || required) && e.objects.len() > 1 || open && object.open.len() > 1;
            }
            for array in &e.arrays {
                let items = array.prefix.iter().chain([&array.rest]).any(|s| needed.contains(s));
                found |= items || array.unique;
                unclear |= (items || array.unique) && e.arrays.len() > 1 || items && array.contains.is_some();
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
        Box::new(Run {
            plan: self.plan.clone(),
            text: Vec::new(),
            at: Position::default(),
            saved: Vec::new(),
            gone_back: None,
        })
    }

    fn describe(&self) -> String {
        self.plan.about.clone()
    }
}

#[derive(Clone)]
struct Run {
    plan: Arc<Plan>,
    text: Vec<u8>,
    at: Position,
    /// Positions before every so many bytes, to go back to.
    saved: Vec<(usize, Position)>,
    /// The newest position gone back to: trying one token after another goes back to the same.
    gone_back: Option<(usize, Position)>,
}

/// Where the text stands.
#[derive(Clone, Default)]
struct Position {
    open: Vec<Open>,
    /// Inside a string: where its quote stands, and whether a backslash is pending.
    string: Option<(usize, bool)>,
    /// Inside a number or a word: where it starts.
    scalar: Option<usize>,
}

/// An open container.
#[derive(Clone)]
struct Open {
    object: bool,
    start: usize,
    spot: Option<usize>,
    /// The member name before the colon, then the spot of its value.
    awaiting_name: bool,
    value_spot: Option<usize>,
    names: Names,
    index: usize,
    /// Where its last value ended, or just behind its bracket.
    done: usize,
    items: Items,
}

/// Member names, shared between saved positions until one of them grows.
type Names = Arc<Vec<String>>;
/// Items of a `uniqueItems` array, shared likewise.
type Items = Arc<Vec<Value>>;

impl Run {
    fn spot(&self, id: Option<usize>) -> Option<&Spot> {
        id.and_then(|id| self.plan.spots.get(id))
    }

    /// The spot of a value that starts here.
    fn next_spot(&self) -> Option<usize> {
        match self.at.open.last() {
            None => self.plan.root,
            Some(open) if open.object => open.value_spot,
            Some(open) => {
                let spot = self.spot(open.spot)?;
                spot.prefix.get(open.index).copied().unwrap_or(spot.rest)
            }
        }
    }

    /// Judges the value `text[start..end]`, which has just closed.
    fn judge(&self, start: usize, end: usize, spot: Option<usize>) -> bool {
        let judge = self.spot(spot).and_then(|s| s.judge.as_ref());
        let unique = self.at.open.last().is_some_and(|o| !o.object && self.spot(o.spot).is_some_and(|s| s.unique));
        if judge.is_none() && !unique {
            return true;
        }
        let Some(value) = self.text.get(start..end).and_then(|t| serde_json::from_slice::<Value>(t).ok()) else {
            // Nested deeper than can be judged.
            return false;
        };
        if judge.is_some_and(|judge| !judge.is_valid(&value)) {
            return false;
        }
        !(unique && self.at.open.last().is_some_and(|o| o.items.iter().any(|other| same(other, &value))))
    }

    /// Records that a value closed; `text[start..end]` is it.
    fn closed(&mut self, start: usize, end: usize) {
        let unique = self
            .at
            .open
            .last()
            .is_some_and(|o| !o.object && self.spot(o.spot).is_some_and(|s| s.unique));
        let value = if unique {
            self.text.get(start..end).and_then(|t| serde_json::from_slice::<Value>(t).ok())
        } else {
            None
        };
        if let Some(open) = self.at.open.last_mut() {
            open.done = end;
            if let Some(value) = value {
                Arc::make_mut(&mut open.items).push(value);
            }
        }
    }

    /// One byte; `judging` is off while replaying text that was accepted before.
    fn step(&mut self, byte: u8, judging: bool) -> GuardStep {
        let here = self.text.len();
        if let Some((start, escaped)) = self.at.string {
            if escaped || byte == b'\\' {
                self.at.string = Some((start, !escaped));
            } else if byte == b'"' {
                return self.end_string(start, here, judging);
            }
            self.text.push(byte);
            return GuardStep::Accept;
        }
        if let Some(start) = self.at.scalar
            && matches!(byte, b',' | b'}' | b']' | b' ' | b'\n' | b'\r' | b'\t')
        {
            if judging && !self.judge(start, here, self.next_spot()) {
                return GuardStep::Reject { value_start: start };
            }
            self.closed(start, here);
            self.at.scalar = None;
        }
        match byte {
            b'"' => self.at.string = Some((here, false)),
            b'{' | b'[' => {
                let spot = self.next_spot();
                self.at.open.push(Open {
                    object: byte == b'{',
                    start: here,
                    spot,
                    awaiting_name: byte == b'{',
                    value_spot: None,
                    names: Arc::default(),
                    index: 0,
                    done: here + 1,
                    items: Arc::default(),
                });
            }
            b'}' | b']' => {
                let Some(open) = self.at.open.pop() else {
                    self.text.push(byte);
                    return GuardStep::Accept;
                };
                self.text.push(byte);
                let whole = || {
                    let required = self.spot(open.spot).map_or(&[][..], |s| s.required.as_slice());
                    required.iter().all(|name| open.names.contains(name))
                };
                if judging && !(whole() && self.judge(open.start, here + 1, open.spot)) {
                    self.text.pop();
                    let value_start = open.start;
                    self.at.open.push(open);
                    return GuardStep::Reject { value_start };
                }
                self.closed(open.start, here + 1);
                return GuardStep::Accept;
            }
            b',' => {
                if let Some(open) = self.at.open.last_mut() {
                    open.awaiting_name = open.object;
                    open.index += 1;
                }
            }
            b':' | b' ' | b'\n' | b'\r' | b'\t' => {}
            _ => {
                self.at.scalar.get_or_insert(here);
            }
        }
        self.text.push(byte);
        GuardStep::Accept
    }

    /// The closing quote, at `here`, of the string that starts at `start`.
    fn end_string(&mut self, start: usize, here: usize, judging: bool) -> GuardStep {
        self.text.push(b'"');
        let naming = self.at.open.last().is_some_and(|o| o.awaiting_name);
        if !naming {
            if judging && !self.judge(start, here + 1, self.next_spot()) {
                self.text.pop();
                return GuardStep::Reject { value_start: start };
            }
            self.at.string = None;
            self.closed(start, here + 1);
            return GuardStep::Accept;
        }
        let name: Option<String> =
            self.text.get(start..=here).and_then(|text| serde_json::from_slice(text).ok());
        let Some(name) = name else {
            self.at.string = None;
            return GuardStep::Accept;
        };
        if self.plan.distinct_names && self.at.open.last().is_some_and(|o| o.names.contains(&name)) {
            self.text.pop();
            return GuardStep::Reject { value_start: start };
        }
        let value_spot = self
            .at
            .open
            .last()
            .and_then(|o| self.spot(o.spot))
            .and_then(|spot| spot.named.get(&name).copied().or(spot.other));
        self.at.string = None;
        if let Some(open) = self.at.open.last_mut() {
            open.awaiting_name = false;
            open.value_spot = value_spot;
            if self.plan.distinct_names {
                Arc::make_mut(&mut open.names).push(name);
            }
        }
        GuardStep::Accept
    }
}

impl GuardRun for Run {
    fn push(&mut self, byte: u8) -> GuardStep {
        if self.text.len().is_multiple_of(SAVE_EVERY) {
            self.saved.truncate(self.text.len() / SAVE_EVERY);
            self.saved.push((self.text.len(), self.at.clone()));
        }
        // A refused byte may have closed a scalar before it was refused.
        let before = (byte == b'}' || byte == b']').then(|| self.at.clone());
        let step = self.step(byte, true);
        if let (GuardStep::Reject { .. }, Some(before)) = (step, before) {
            self.at = before;
        }
        step
    }

    fn finish(&self) -> GuardStep {
        match self.at.scalar {
            Some(start) if self.at.open.is_empty() && !self.judge(start, self.text.len(), self.plan.root) => {
                GuardStep::Reject { value_start: start }
            }
            _ => GuardStep::Accept,
        }
    }

    fn open_from(&self) -> Option<usize> {
        let Some(innermost) = self.at.open.last() else {
            return self.at.string.map(|(start, _)| start).or(self.at.scalar);
        };
        // A container that is judged as a whole may be undone as a whole; one whose values are compared, from the last of them
        // on; and a member's name may be a second one of its kind.
        let judged = |open: &&Open| self.spot(open.spot).is_some_and(|spot| spot.judge.is_some() || !spot.required.is_empty());
        let compared = |open: &&Open| self.spot(open.spot).is_some_and(|spot| spot.unique);
        let whole = self.at.open.iter().find(judged).map(|open| open.start);
        let apart = self.at.open.iter().find(compared).map(|open| open.done);
        [whole, apart].into_iter().flatten().min().or(Some(innermost.done))
    }

    fn truncate(&mut self, len: usize) {
        if len >= self.text.len() {
            return;
        }
        while self.saved.last().is_some_and(|(at, _)| *at > len) {
            self.saved.pop();
        }
        if let Some((to, at)) = &self.gone_back
            && *to == len
        {
            self.at = at.clone();
            self.text.truncate(len);
            return;
        }
        let (from, at) = self.saved.last().cloned().unwrap_or_default();
        let replay = self.text.get(from..len).map(<[u8]>::to_vec).unwrap_or_default();
        self.text.truncate(from);
        self.at = at;
        for byte in replay {
            self.step(byte, false);
        }
        self.gone_back = Some((len, self.at.clone()));
    }

    fn fork(&self) -> Box<dyn GuardRun> {
        Box::new(self.clone())
    }
}

/// Equality of JSON Schema: numbers by value, members in any order.
fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => {
            let decimal = |n: &serde_json::Number| super::number::Decimal::parse(&n.to_string());
            match (decimal(a), decimal(b)) {
                (Some(a), Some(b)) => a == b,
                _ => a == b,
            }
        }
        (Value::Array(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b)),
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len() && a.iter().all(|(name, a)| b.get(name).is_some_and(|b| same(a, b)))
        }
        _ => a == b,
    }
}
