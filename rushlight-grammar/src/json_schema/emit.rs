//! States to rules: one rule a state, made once, so that recursion in the schema is recursion in the grammar.

use std::rc::Rc;

use foldhash::HashMap;

use super::MemberOrder;
use super::cases::{ArrayShape, Bound, Class, ObjectShape};
use super::compiler::{Compiler, StateId};
use super::logic::{Formula, Kind};
use super::rules::{Rules, Symbol, Terminal};
use super::rx::Rx;
use super::schema::NodeId;
use super::steps::{REMAINDERS, Steps, is_of_numbers};
use crate::GrammarErrorKind;

/// What was emitted for a state, for the guards to follow.
#[derive(Debug, Default)]
pub(super) struct Emitted {
    pub(super) objects: Vec<Rc<ObjectShape>>,
    pub(super) arrays: Vec<Rc<ArrayShape>>,
    /// Its texts are more than its values: a guard has to judge them.
    pub(super) guarded: bool,
}

/// Rules under construction.
#[derive(Debug, Default)]
pub(super) struct Emitter {
    pub(super) rules: Rules,
    pub(super) states: HashMap<StateId, Emitted>,
    ids: HashMap<StateId, usize>,
    todo: Vec<StateId>,
}

impl Emitter {
    /// The rule of `state`; its alternatives are made later.
    fn symbol(&mut self, state: StateId) -> Symbol {
        if let Some(id) = self.ids.get(&state) {
            return Symbol::Rule(*id);
        }
        let id = self.rules.reserve();
        self.ids.insert(state, id);
        self.todo.push(state);
        Symbol::Rule(id)
    }
}

impl<'a> Compiler<'a> {
    /// Emits `start` and everything it reaches; the rule of `start`.
    pub(super) fn emit(&mut self, start: StateId, out: &mut Emitter) -> usize {
        let Symbol::Rule(root) = out.symbol(start) else {
            return 0;
        };
        while let Some(state) = out.todo.pop() {
            if out.rules.len() > self.limits.rules {
                self.problem_at(
                    GrammarErrorKind::Limit,
                    String::new(),
                    "",
                    format!("the schema needs more than {} rules", self.limits.rules),
                );
                break;
            }
            let (alternatives, emitted) = self.alternatives(state, out);
            if let Some(id) = out.ids.get(&state).copied() {
                out.rules.define(id, alternatives);
            }
            out.states.insert(state, emitted);
        }
        root
    }

    fn alternatives(&mut self, state: StateId, out: &mut Emitter) -> (Vec<Vec<Symbol>>, Emitted) {
        let mut alternatives = Vec::new();
        let mut emitted = Emitted::default();
        let mut words = Vec::new();
        for (kind, word) in [
            (Kind::Null, "null"),
            (Kind::True, "true"),
            (Kind::False, "false"),
        ] {
            let formula = self.expand(state, kind);
            if !matches!(formula, Formula::False) {
                emitted.guarded |= self.has_guard(&formula);
                words.push(Rx::Lit(word.to_owned()));
            }
        }
        if !words.is_empty() {
            alternatives.push(vec![out.rules.terminal(Terminal::Raw(Rx::alt(words)))]);
        }
        for kind in [Kind::Number, Kind::String] {
            let base = if kind == Kind::Number {
                self.numbers.any()
            } else {
                Rx::All
            };
            let formula = self.expand(state, kind);
            if self.has_guard(&formula) {
                emitted.guarded = true;
            }
            let rx = self.language(&formula, &base, Bound::Written, &mut true);
            if rx == Rx::None {
                continue;
            }
            if kind == Kind::Number {
                let rx = self.affordable_number(state, rx, &base, &mut emitted);
                alternatives.push(vec![out.rules.terminal(Terminal::Raw(rx))]);
            } else if let Some(rx) = self.affordable(state, rx, &mut emitted) {
                alternatives.push(vec![out.rules.inhabited(Terminal::Quoted(rx))]);
            }
        }
        for case in self.cases(state, Kind::Array) {
            if let Some(mut shape) = self.array_shape(&case) {
                let symbols = self.array(&mut shape, out);
                emitted.guarded |= shape.guarded;
                emitted.arrays.push(Rc::new(shape));
                alternatives.push(symbols);
            }
        }
        for case in self.cases(state, Kind::Object) {
            if let Some(mut shape) = self.object_shape(&case) {
                let symbols = self.object(&mut shape, out);
                emitted.guarded |= shape.guarded;
                emitted.objects.push(Rc::new(shape));
                alternatives.push(symbols);
            }
        }
        (alternatives, emitted)
    }

    /// The language of a number, without the steps whose remainders multiply beyond what can be looked through: a guard judges
    /// them then.
    fn affordable_number(
        &mut self,
        state: StateId,
        rx: Rx,
        base: &Rx,
        emitted: &mut Emitted,
    ) -> Rx {
        let parts = match &rx {
            Rx::And(parts) => parts.as_slice(),
            other => std::slice::from_ref(other),
        };
        let mut kept = Vec::new();
        let mut steps = Steps::default();
        for part in parts {
            let mut with = steps.clone();
            with.add(part);
            if with.cost() <= REMAINDERS {
                steps = with;
                kept.push(part.clone());
            }
        }
        if kept.len() == parts.len() {
            return rx;
        }
        // What is left must be numbers still. One language more is as dear as a step.
        if !kept.iter().any(is_of_numbers) {
            kept.push(base.clone());
        }
        let literals = self.literals(state);
        let node = literals.first().map_or(NodeId::TRUE, |(node, _)| *node);
        self.need_guard(
            node,
            "multipleOf",
            "the steps have too many remainders together",
        );
        emitted.guarded = true;
        Rx::and(kept)
    }

    /// The language of a string, without its lengths where the intersection is too large to look through: a guard judges
    /// them then. `None` where no text is left.
    fn affordable(&mut self, state: StateId, rx: Rx, emitted: &mut Emitted) -> Option<Rx> {
        let empty = self.is_empty(&rx);
        let (None, Rx::And(parts)) = (empty, &rx) else {
            return (empty != Some(true)).then_some(rx);
        };
        let rest = Rx::and(
            parts
                .iter()
                .filter(|part| part.as_length().is_none())
                .cloned(),
        );
        if rest == rx {
            return Some(rx);
        }
        let node = self
            .literals(state)
            .first()
            .map_or(NodeId::TRUE, |(node, _)| *node);
        self.need_guard(
            node,
            "maxLength",
            "the lengths multiply the states of a pattern",
        );
        emitted.guarded = true;
        (self.is_empty(&rest) != Some(true)).then_some(rest)
    }

    /// Whether a scalar formula was widened; notes the guard.
    fn has_guard(&mut self, formula: &Formula) -> bool {
        match formula {
            Formula::Guarded(source, reason) => {
                self.need_guard(source.node, source.keyword, reason);
                true
            }
            Formula::All(parts) | Formula::Any(_, parts) => {
                // Every part is asked: asking notes its guard.
                let mut found = false;
                for part in parts {
                    found |= self.has_guard(part);
                }
                found
            }
            _ => false,
        }
    }

    fn array(&mut self, shape: &mut ArrayShape, out: &mut Emitter) -> Vec<Symbol> {
        let (open, close, comma) = (
            out.rules.text("["),
            out.rules.text("]"),
            out.rules.text(","),
        );
        let mut symbols = vec![open];
        let capped = shape.min.max(shape.max.unwrap_or(0));
        if let Some((state, low, high)) = shape.contains {
            let bound = low.max(high.unwrap_or(0));
            if bound <= 16 && capped <= 64 && shape.prefix.len() <= 64 {
                if high.is_some() && self.outside(state).is_none() {
                    self.need_guard(
                        NodeId::TRUE,
                        "maxContains",
                        "the complement of a conjunction",
                    );
                    shape.guarded = true;
                }
                let (items, states) = self.counted_items(shape, (state, low, high), out);
                shape.counted = states;
                symbols.push(items);
                symbols.push(close);
                return symbols;
            }
            self.need_guard(
                NodeId::TRUE,
                "contains",
                "the counts are too large to write out",
            );
            shape.guarded = true;
        }
        // From the last prefix item backwards: `tail` is what may follow after position i, with its comma.
        let len = shape.prefix.len() as u64;
        let rest_max = shape.max.map(|m| m.saturating_sub(len));
        let rest_min = shape.min.saturating_sub(len);
        let mut tail: Option<Symbol> = None;
        if rest_max != Some(0) {
            let item = out.symbol(shape.rest);
            if shape.prefix.is_empty() {
                let item_comma = out.rules.rule(vec![vec![item, comma]]);
                let mut list =
                    out.rules
                        .repeat(item_comma, rest_min.max(1) - 1, rest_max.map(|m| m - 1));
                list.push(item);
                let list = out.rules.rule(vec![list]);
                symbols.push(if rest_min == 0 {
                    out.rules.rule(vec![vec![], vec![list]])
                } else {
                    list
                });
                symbols.push(close);
                return symbols;
            }
            let comma_item = out.rules.rule(vec![vec![comma, item]]);
            let list = out.rules.repeat(comma_item, rest_min, rest_max);
            tail = Some(out.rules.rule(vec![list]));
        }
        for (i, state) in shape.prefix.iter().enumerate().rev() {
            let item = out.symbol(*state);
            let mut here = Vec::new();
            if i > 0 {
                here.push(comma);
            }
            here.push(item);
            here.extend(tail);
            let required = (i as u64) < shape.min;
            tail = Some(if required {
                out.rules.rule(vec![here])
            } else {
                out.rules.rule(vec![vec![], here])
            });
        }
        symbols.extend(tail);
        symbols.push(close);
        symbols
    }

    /// Items while counting how many are in one state, a rule for each position and count; and the states of the items.
    fn counted_items(
        &mut self,
        shape: &ArrayShape,
        (state, low, high): (StateId, u64, Option<u64>),
        out: &mut Emitter,
    ) -> (Symbol, Vec<StateId>) {
        let mut states = Vec::new();
        // At least one, so that the first item, which no comma precedes, has a position of its own.
        let positions = (shape.prefix.len() as u64)
            .max(shape.min)
            .max(shape.max.unwrap_or(0))
            .max(1);
        let counts = high.unwrap_or(low);
        let others = self.outside(state);
        let comma = out.rules.text(",");
        let mut ids = HashMap::default();
        for position in 0..=positions {
            for count in 0..=counts {
                ids.insert((position, count), out.rules.reserve());
            }
        }
        for position in 0..=positions {
            for count in 0..=counts {
                let mut alternatives = Vec::new();
                if count >= low && position >= shape.min {
                    alternatives.push(Vec::new());
                }
                if shape.max.is_none_or(|max| position < max) {
                    let at = usize::try_from(position)
                        .ok()
                        .and_then(|i| shape.prefix.get(i).copied());
                    let base = at.unwrap_or(shape.rest);
                    // The last position stands for all that follow, where there is no maximum.
                    let next = (position + 1).min(positions);
                    let mut step = |this: &mut Self, item: StateId, count: u64| {
                        let item = this.meet(&[base, item]);
                        if let (false, Some(next)) =
                            (item == StateId::NEVER, ids.get(&(next, count)))
                        {
                            let mut symbols = Vec::new();
                            if position > 0 {
                                symbols.push(comma);
                            }
                            symbols.push(out.symbol(item));
                            if !states.contains(&item) {
                                states.push(item);
                            }
                            symbols.push(Symbol::Rule(*next));
                            alternatives.push(symbols);
                        }
                    };
                    if count < counts {
                        step(self, state, count + 1);
                    } else if high.is_none() {
                        step(self, StateId::ANY, count);
                    }
                    if count < counts || high.is_some() {
                        step(self, others.unwrap_or(StateId::ANY), count);
                    }
                }
                if let Some(id) = ids.get(&(position, count)) {
                    out.rules.define(*id, alternatives);
                }
            }
        }
        let first = Symbol::Rule(ids.get(&(0, 0)).copied().unwrap_or_default());
        (first, states)
    }

    fn object(&mut self, shape: &mut ObjectShape, out: &mut Emitter) -> Vec<Symbol> {
        let (open, close, colon) = (
            out.rules.text("{"),
            out.rules.text("}"),
            out.rules.text(":"),
        );
        let mut items = Vec::new();
        for named in &shape.named {
            let name = serde_json::Value::String(named.name.clone()).to_string();
            let key = out.rules.text(&name);
            let value = out.symbol(named.state);
            items.push((vec![key, colon, value], named.required));
        }
        let mut extra = Vec::new();
        for Class { names, state } in &shape.open {
            let key = out.rules.inhabited(Terminal::Quoted(names.clone()));
            let value = out.symbol(*state);
            extra.push(vec![key, colon, value]);
        }
        let extra = (!extra.is_empty()).then(|| out.rules.rule(extra));
        let required = items.iter().filter(|(_, r)| *r).count() as u64;
        if self.member_order == MemberOrder::Any
            && !items.is_empty()
            && items.len() + usize::from(extra.is_some()) > 1
        {
            self.need_guard(
                NodeId::TRUE,
                "properties",
                "members may be written in any order",
            );
            shape.unordered = true;
            let any = items
                .iter()
                .map(|(item, _)| item.clone())
                .chain(extra.map(|e| vec![e]))
                .collect();
            let any = out.rules.rule(any);
            let body =
                self.plain_members(&[], Some(any), (shape.min.max(required), shape.max), out);
            return enclosed(open, body, close);
        }
        let optional = items.len() as u64 - required;
        let min = shape.min.saturating_sub(required);
        let max = shape.max.map(|m| m.saturating_sub(required));
        let top = min.max(max.unwrap_or(0));
        let counted =
            optional > 0 && (min > 0 || max.is_some_and(|m| extra.is_some() || m < optional));
        let body = if !counted {
            self.plain_members(&items, extra, (min, max), out)
        } else if (optional + 1).saturating_mul(top.saturating_add(1)) <= self.limits.counted_rules
        {
            vec![self.counted_members(&items, extra, (min, max), out)]
        } else {
            self.need_guard(
                NodeId::TRUE,
                "minProperties",
                "the counts are too large to write out",
            );
            shape.guarded = true;
            self.plain_members(&items, extra, (0, None), out)
        };
        enclosed(open, body, close)
    }

    /// Members in order, where the counts leave every choice open. `min` and `max` count members beside the required ones.
    fn plain_members(
        &mut self,
        items: &[(Vec<Symbol>, bool)],
        extra: Option<Symbol>,
        (min, max): (u64, Option<u64>),
        out: &mut Emitter,
    ) -> Vec<Symbol> {
        let comma = out.rules.text(",");
        // `first`: nothing was written yet. `after`: something was.
        let (mut first, mut after) = match extra {
            Some(extra) if max != Some(0) => {
                let with_comma = out.rules.rule(vec![vec![comma, extra]]);
                let after = out.rules.repeat(with_comma, min, max);
                let item_comma = out.rules.rule(vec![vec![extra, comma]]);
                let mut list = out
                    .rules
                    .repeat(item_comma, min.max(1) - 1, max.map(|m| m - 1));
                list.push(extra);
                if min == 0 {
                    list = vec![out.rules.rule(vec![vec![], list])];
                }
                (list, after)
            }
            _ => (Vec::new(), Vec::new()),
        };
        for (item, required) in items.iter().rev() {
            let mut with = item.clone();
            with.extend_from_slice(&after);
            if *required {
                after.splice(0..0, std::iter::once(comma).chain(item.iter().copied()));
                first = with;
            } else {
                let mut comma_item = vec![comma];
                comma_item.extend_from_slice(item);
                after.insert(0, out.rules.rule(vec![vec![], comma_item]));
                first = vec![out.rules.rule(vec![with, first])];
            }
            // What both ways share is written once, unless it is short.
            after = out.rules.sequence(after);
        }
        first
    }

    /// Members in order while counting the optional ones: a rule for each position and count.
    fn counted_members(
        &mut self,
        items: &[(Vec<Symbol>, bool)],
        extra: Option<Symbol>,
        (min, max): (u64, Option<u64>),
        out: &mut Emitter,
    ) -> Symbol {
        let comma = out.rules.text(",");
        let counts = max.unwrap_or(min);
        // Indexed by [written yet][count]; from the end backwards.
        let mut next: [Vec<Symbol>; 2] = [Vec::new(), Vec::new()];
        for (written, row) in next.iter_mut().enumerate() {
            for count in 0..=counts {
                let low = min.saturating_sub(count);
                let high = max.map(|m| m - count);
                let tail = match extra {
                    Some(extra) if high != Some(0) => {
                        let with_comma = out.rules.rule(vec![vec![comma, extra]]);
                        if written == 1 {
                            let list = out.rules.repeat(with_comma, low, high);
                            out.rules.rule(vec![list])
                        } else {
                            let mut list = vec![extra];
                            list.extend(out.rules.repeat(
                                with_comma,
                                low.max(1) - 1,
                                high.map(|h| h - 1),
                            ));
                            let list = out.rules.rule(vec![list]);
                            if low == 0 {
                                out.rules.rule(vec![vec![], vec![list]])
                            } else {
                                list
                            }
                        }
                    }
                    _ if low == 0 => out.rules.rule(vec![vec![]]),
                    _ => out.rules.rule(vec![]),
                };
                row.push(tail);
            }
        }
        for (item, required) in items.iter().rev() {
            let item = out.rules.rule(vec![item.clone()]);
            let mut here: [Vec<Symbol>; 2] = [Vec::new(), Vec::new()];
            for written in 0..2 {
                for count in 0..=counts {
                    let mut alternatives = Vec::new();
                    let mut with = if written == 1 {
                        vec![comma, item]
                    } else {
                        vec![item]
                    };
                    let after = if *required { count } else { count + 1 };
                    // Without a maximum the last count means "enough".
                    let after = if max.is_none() {
                        after.min(counts)
                    } else {
                        after
                    };
                    let index = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
                    if let Some(symbol) = next[1].get(index(after)) {
                        with.push(*symbol);
                        alternatives.push(with);
                    }
                    if !*required && let Some(symbol) = next[written].get(index(count)) {
                        alternatives.push(vec![*symbol]);
                    }
                    here[written].push(out.rules.rule(alternatives));
                }
            }
            next = here;
        }
        next[0].first().copied().unwrap_or(Symbol::Rule(0))
    }
}

fn enclosed(open: Symbol, body: Vec<Symbol>, close: Symbol) -> Vec<Symbol> {
    let mut symbols = vec![open];
    symbols.extend(body);
    symbols.push(close);
    symbols
}
