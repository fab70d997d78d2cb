//! The compiler's tables: schemas that were read, and states, which are conjunctions of schemas and complements.
//!
//! A state stands for the values that satisfy every schema of a list and none of another. States are interned, so a
//! recursive schema, alone or intersected with others, has finitely many, and each becomes one rule of the grammar.

use std::rc::Rc;

use foldhash::HashMap;
use serde_json::Value;

use super::document::{Document, Place};
use super::keywords;
use super::logic::Kind;
use super::number::Numbers;
use super::pattern;
use super::report::{Explained, How, Problem};
use super::rx::Rx;
use super::schema::{NodeId, Origin, Rule, Test};
use super::{MemberOrder, SchemaLimits, SchemaOptions};
use crate::GrammarErrorKind;

/// A state in the compiler's table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct StateId(pub(super) u32);

impl StateId {
    /// Every value.
    pub(super) const ANY: StateId = StateId(0);
    /// No value.
    pub(super) const NEVER: StateId = StateId(1);
}

/// A schema, or its complement.
pub(super) type Literal = (NodeId, bool);

pub(super) struct Node<'a> {
    pub(super) origin: Origin<'a>,
    pub(super) rules: Option<Rc<Vec<Rule>>>,
}

pub(super) struct Compiler<'a> {
    pub(super) document: Document<'a>,
    pub(super) numbers: Numbers,
    pub(super) limits: SchemaLimits,
    pub(super) guards: bool,
    pub(super) member_order: MemberOrder,
    /// A reference was met whose target depends on the way to it, so that only the whole value can be judged.
    pub(super) dynamic_scope: bool,
    pub(super) nodes: Vec<Node<'a>>,
    /// By the address of the schema in the document.
    by_place: HashMap<*const Value, NodeId>,
    constants: HashMap<(NodeId, String), NodeId>,
    pub(super) states: Vec<Rc<Vec<Literal>>>,
    state_ids: HashMap<Rc<Vec<Literal>>, StateId>,
    patterns: HashMap<String, Result<Rc<Rx>, String>>,
    pub(super) problems: Vec<Problem>,
    notes: Vec<(NodeId, &'static str, How, String)>,
    note_ids: HashMap<(NodeId, &'static str), usize>,
    /// Schemas being expanded at the present instance location, to see references that consume nothing.
    pub(super) visiting: Vec<NodeId>,
    /// How many of them there are, those of the proofs around it included.
    pub(super) nesting: usize,
    /// Proofs of disjointness inside each other.
    pub(super) proofs: u32,
    /// Emptiness verdicts with the depth to which they were looked into.
    pub(super) empty: HashMap<StateId, (u32, bool)>,
    /// Pairs of alternatives and whether they are proven disjoint; false while the proof is under way.
    pub(super) disjoint: HashMap<(NodeId, NodeId, Kind), bool>,
    /// Proofs under way: they look at combinations that are never emitted, so they write no notes.
    mute: u32,
    /// What the grammar writes less of than is valid, to blame where nothing is left.
    pub(super) left_out: Option<(NodeId, &'static str, String)>,
    /// Work units left: each expansion of a schema costs one.
    pub(super) budget: u64,
    /// The same for combining cases: each step with each case costs one.
    pub(super) case_work: u64,
    /// A number of the document has more digits than are written, so that what is written says less than what is valid.
    pub(super) long_numbers: bool,
    /// Verdicts about languages and texts that took work.
    pub(super) emptiness: HashMap<Rx, Option<bool>>,
    pub(super) matched: HashMap<Rx, HashMap<String, Option<bool>>>,
    /// Work units left for proofs about texts.
    pub(super) proof_work: u64,
}

impl<'a> Compiler<'a> {
    pub(super) fn new(root: &'a Value, options: &SchemaOptions) -> Self {
        let mut this = Self {
            document: Document::new(root),
            numbers: Numbers::new(options.digits),
            limits: options.limits,
            guards: options.guards,
            member_order: options.member_order,
            dynamic_scope: false,
            nodes: Vec::new(),
            by_place: HashMap::default(),
            constants: HashMap::default(),
            states: Vec::new(),
            state_ids: HashMap::default(),
            patterns: HashMap::default(),
            problems: Vec::new(),
            notes: Vec::new(),
            note_ids: HashMap::default(),
            visiting: Vec::new(),
            nesting: 0,
            proofs: 0,
            empty: HashMap::default(),
            disjoint: HashMap::default(),
            mute: 0,
            left_out: None,
            budget: options.limits.expansions,
            case_work: options.limits.expansions.saturating_mul(CASE_WORK),
            emptiness: HashMap::default(),
            matched: HashMap::default(),
            proof_work: options.limits.proof_work,
            long_numbers: Numbers::new(options.digits).has_long(root),
        };
        for always in [true, false] {
            this.nodes.push(Node {
                origin: Origin::Always(always),
                rules: Some(Rc::new(Vec::new())),
            });
        }
        for list in [Vec::new(), vec![(NodeId::FALSE, true)]] {
            let id = StateId(index(this.states.len()));
            let list = Rc::new(list);
            this.states.push(list.clone());
            this.state_ids.insert(list, id);
        }
        this
    }

    /// The node of the schema at `place`.
    pub(super) fn node_at(&mut self, place: Place<'a>) -> NodeId {
        match place.value {
            Value::Bool(true) => return NodeId::TRUE,
            Value::Bool(false) => return NodeId::FALSE,
            Value::Object(map) if map.is_empty() => return NodeId::TRUE,
            _ => {}
        }
        if let Some(id) = self.by_place.get(&std::ptr::from_ref(place.value)) {
            return *id;
        }
        let id = NodeId(index(self.nodes.len()));
        self.by_place.insert(place.value, id);
        self.nodes.push(Node {
            origin: Origin::Place(place),
            rules: None,
        });
        id
    }

    /// A node of `rules` that stand for the schema at `place`, which is written in another form there.
    pub(super) fn made_node(&mut self, place: Place<'a>, rules: Vec<Rule>) -> NodeId {
        if let Some(id) = self.by_place.get(&std::ptr::from_ref(place.value)) {
            return *id;
        }
        let id = NodeId(index(self.nodes.len()));
        self.by_place.insert(place.value, id);
        self.nodes.push(Node {
            origin: Origin::Place(place),
            rules: Some(Rc::new(rules)),
        });
        id
    }

    /// A node for one constant, on behalf of the schema `holder`.
    pub(super) fn constant(&mut self, value: &Value, holder: NodeId) -> NodeId {
        let id = NodeId(index(self.nodes.len()));
        let key = (holder, value.to_string());
        if let Some(known) = self.constants.get(&key) {
            return *known;
        }
        self.constants.insert(key, id);
        self.nodes.push(Node {
            origin: Origin::Constant(Rc::new(value.clone()), holder),
            rules: Some(Rc::new(vec![Rule {
                keyword: "const",
                test: Test::Values(Rc::new(vec![value.clone()])),
            }])),
        });
        id
    }

    pub(super) fn rules(&mut self, id: NodeId) -> Rc<Vec<Rule>> {
        let Some(node) = self.nodes.get(id.0 as usize) else {
            return Rc::new(Vec::new());
        };
        if let Some(rules) = &node.rules {
            return rules.clone();
        }
        let rules = match node.origin.clone() {
            Origin::Place(place) => self.read(id, &place),
            _ => Rc::new(Vec::new()),
        };
        if let Some(node) = self.nodes.get_mut(id.0 as usize) {
            node.rules = Some(rules.clone());
        }
        rules
    }

    /// Reads every schema that one which was read holds or refers to.
    pub(super) fn read_all(&mut self) {
        let mut at = 0;
        while at < self.nodes.len() {
            self.rules(NodeId(index(at)));
            at += 1;
        }
    }

    /// The pointer of the schema that `id` is, or is made from.
    pub(super) fn pointer(&self, id: NodeId) -> String {
        match self.nodes.get(id.0 as usize).map(|n| &n.origin) {
            Some(Origin::Place(place)) => place.pointer.clone(),
            Some(Origin::Constant(_, holder)) => self.pointer(*holder),
            _ => String::new(),
        }
    }

    /// The state of all `literals`, in order, without repetition.
    pub(super) fn state(&mut self, literals: impl IntoIterator<Item = Literal>) -> StateId {
        let mut list: Vec<Literal> = Vec::new();
        for (node, positive) in literals {
            match (node, positive) {
                (NodeId::TRUE, true) | (NodeId::FALSE, false) => continue,
                (NodeId::FALSE, true) | (NodeId::TRUE, false) => return StateId::NEVER,
                _ => {}
            }
            let literal = (self.target(node), positive);
            match literal {
                (NodeId::TRUE, true) | (NodeId::FALSE, false) => continue,
                (NodeId::FALSE, true) | (NodeId::TRUE, false) => return StateId::NEVER,
                _ => {}
            }
            if list.contains(&(literal.0, !positive)) {
                return StateId::NEVER;
            }
            if !list.contains(&literal) {
                list.push(literal);
            }
        }
        if let Some(id) = self.state_ids.get(&list) {
            return *id;
        }
        let id = StateId(index(self.states.len()));
        let list = Rc::new(list);
        self.states.push(list.clone());
        self.state_ids.insert(list, id);
        id
    }

    pub(super) fn literals(&self, state: StateId) -> Rc<Vec<Literal>> {
        self.states
            .get(state.0 as usize)
            .cloned()
            .unwrap_or_default()
    }

    /// The values that are in every one of `states`.
    pub(super) fn meet(&mut self, states: &[StateId]) -> StateId {
        match states {
            [] => return StateId::ANY,
            [one] => return *one,
            _ => {}
        }
        let mut all = Vec::new();
        for state in states {
            all.extend(self.literals(*state).iter().copied());
        }
        self.state(all)
    }

    /// The values outside of `state`, where that is one state.
    pub(super) fn outside(&mut self, state: StateId) -> Option<StateId> {
        match self.literals(state).as_slice() {
            [] => Some(StateId::NEVER),
            [(node, positive)] => Some(self.state([(*node, !positive)])),
            _ => None,
        }
    }

    /// The end of a chain of bare references, so that a schema and a reference to it are one literal.
    fn target(&mut self, mut node: NodeId) -> NodeId {
        for _ in 0..64 {
            match self.rules(node).as_slice() {
                [
                    Rule {
                        test: Test::Ref(next),
                        ..
                    },
                ] if *next != node => node = *next,
                _ => return node,
            }
        }
        node
    }

    pub(super) fn pattern(&mut self, text: &str) -> Result<Rc<Rx>, String> {
        if let Some(known) = self.patterns.get(text) {
            return known.clone();
        }
        let made = pattern::search(text)
            .map(Rc::new)
            .map_err(|reason| format!("/{text}/: {reason}"));
        self.patterns.insert(text.to_owned(), made.clone());
        made
    }

    /// Reports a problem of `keyword` in the schema `id`, once.
    pub(super) fn problem(&mut self, id: NodeId, keyword: &'static str, reason: String) {
        let pointer = self.pointer(id);
        self.problem_at(GrammarErrorKind::Invalid, pointer, keyword, reason);
    }

    pub(super) fn problem_at(
        &mut self,
        kind: GrammarErrorKind,
        pointer: String,
        keyword: &'static str,
        reason: String,
    ) {
        let problem = Problem {
            kind,
            pointer,
            keyword,
            reason,
        };
        if !self.problems.contains(&problem) {
            self.problems.push(problem);
        }
    }

    /// Records how `keyword` of the schema `id` is enforced; a later, weaker means replaces an earlier one.
    pub(super) fn note(&mut self, id: NodeId, keyword: &'static str, how: How) {
        self.note_reason(id, keyword, how, "");
    }

    /// As [`Compiler::note`], while a schema is read: that happens once, whatever asked for it.
    pub(super) fn note_read(&mut self, id: NodeId, keyword: &'static str, how: How, reason: &str) {
        let mute = std::mem::take(&mut self.mute);
        self.note_reason(id, keyword, how, reason);
        self.mute = mute;
    }

    /// Notes that a guard enforces it, and why; a guard that is needed but switched off is a problem.
    pub(super) fn need_guard(&mut self, id: NodeId, keyword: &'static str, reason: &str) {
        if self.mute > 0 {
            return;
        }
        if !self.guards {
            let pointer = self.pointer(id);
            self.problem_at(
                GrammarErrorKind::Unsupported,
                pointer,
                keyword,
                format!("only a guard can enforce it, and guards are off: {reason}"),
            );
            return;
        }
        self.note_reason(id, keyword, How::Guard, reason);
    }

    /// Records that valid values are left out on account of `keyword` of the schema `id`.
    pub(super) fn left_out(&mut self, id: NodeId, keyword: &'static str, reason: &str) {
        if self.mute == 0 && self.left_out.is_none() {
            self.left_out = Some((id, keyword, reason.to_owned()));
        }
    }

    /// Starts a proof: no notes until it is over.
    pub(super) fn mute(&mut self) {
        self.mute += 1;
    }

    pub(super) fn unmute(&mut self) {
        self.mute = self.mute.saturating_sub(1);
    }

    pub(super) fn note_reason(
        &mut self,
        id: NodeId,
        keyword: &'static str,
        how: How,
        reason: &str,
    ) {
        if self.mute > 0 {
            return;
        }
        let at = *self.note_ids.entry((id, keyword)).or_insert_with(|| {
            self.notes.push((id, keyword, how, reason.to_owned()));
            self.notes.len() - 1
        });
        if let Some(note) = self.notes.get_mut(at)
            && how > note.2
        {
            note.2 = how;
            note.3 = reason.to_owned();
        }
    }

    pub(super) fn explained(&self) -> Vec<Explained> {
        let mut out: Vec<Explained> = Vec::new();
        let mut known: HashMap<(String, &str), usize> = HashMap::default();
        for (id, keyword, how, reason) in &self.notes {
            // A schema and the constants that were made of it are one place.
            let pointer = self.pointer(*id);
            let at = *known.entry((pointer, keyword)).or_insert(out.len());
            match out.get_mut(at) {
                Some(note) if *how > note.how => {
                    note.how = *how;
                    note.reason.clone_from(reason);
                }
                Some(_) => {}
                None => out.push(Explained {
                    pointer: self.pointer(*id),
                    keyword: (*keyword).to_owned(),
                    how: *how,
                    reason: reason.clone(),
                }),
            }
        }
        out
    }

    /// The members of schemas that were read as no assertion although their author may think them one.
    pub(super) fn ignored(&self) -> Vec<Explained> {
        let mut out = Vec::new();
        for (id, node) in (0..).map(NodeId).zip(&self.nodes) {
            let Origin::Place(place) = &node.origin else {
                continue;
            };
            let candidates = keywords::unasserting(place).into_iter();
            out.extend(
                candidates
                    .filter(|(key, _)| !self.note_ids.contains_key(&(id, *key)))
                    .map(|(key, reason)| Explained {
                        pointer: self.pointer(id),
                        keyword: key.to_owned(),
                        how: How::Annotation,
                        reason: reason.to_owned(),
                    }),
            );
        }
        out
    }
}

/// Steps of combining cases that an expansion may take.
const CASE_WORK: u64 = 4;

/// A table index; the tables are bounded by the expansion budget, far below `u32::MAX`.
fn index(len: usize) -> u32 {
    u32::try_from(len).unwrap_or(u32::MAX)
}
