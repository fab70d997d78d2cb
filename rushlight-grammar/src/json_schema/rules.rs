//! The grammar as a table of rules, before the mask engine sees it.
//!
//! Rules that derive no text are removed here, so that generation never walks into one.

use foldhash::{HashMap, HashSet};
use llguidance::api::{GrammarInit, SkipSpec};
use llguidance::derivre::{JsonQuoteOptions, RegexAst};
use llguidance::earley::lexerspec::LexerSpec;
use llguidance::earley::{Grammar, SymIdx, SymbolProps};

use super::rx::Rx;
use crate::{GrammarError, GrammarErrorKind};

/// A rule or a terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Symbol {
    Rule(usize),
    Terminal(usize),
}

/// What a terminal matches.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Terminal {
    /// One text, as it is.
    Text(String),
    /// A JSON string whose decoded text is in the language.
    Quoted(Rx),
    /// A text in the language.
    Raw(Rx),
}

/// Whitespace between the tokens of JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Whitespace {
    /// None.
    #[default]
    Compact,
    /// Up to so many spaces, tabs and line ends in one place.
    Bounded(u32),
}

/// Rules, alternatives of a rule, symbols of an alternative.
#[derive(Debug, Default)]
pub(super) struct Rules {
    rules: Vec<Vec<Vec<Symbol>>>,
    terminals: Vec<Terminal>,
    terminal_ids: HashMap<Terminal, usize>,
    /// Terminals that are known to match some text.
    inhabited: HashSet<usize>,
    rule_ids: HashMap<Vec<Vec<Symbol>>, usize>,
}

impl Rules {
    pub(super) fn len(&self) -> usize {
        self.rules.len()
    }

    pub(super) fn terminal(&mut self, terminal: Terminal) -> Symbol {
        if let Some(id) = self.terminal_ids.get(&terminal) {
            return Symbol::Terminal(*id);
        }
        let id = self.terminals.len();
        self.terminal_ids.insert(terminal.clone(), id);
        self.terminals.push(terminal);
        Symbol::Terminal(id)
    }

    /// As [`Rules::terminal`], for one that was not found to be empty.
    pub(super) fn inhabited(&mut self, terminal: Terminal) -> Symbol {
        let symbol = self.terminal(terminal);
        if let Symbol::Terminal(id) = symbol {
            self.inhabited.insert(id);
        }
        symbol
    }

    pub(super) fn text(&mut self, text: &str) -> Symbol {
        self.terminal(Terminal::Text(text.to_owned()))
    }

    /// A rule whose alternatives come later.
    pub(super) fn reserve(&mut self) -> usize {
        self.rules.push(Vec::new());
        self.rules.len() - 1
    }

    pub(super) fn define(&mut self, rule: usize, alternatives: Vec<Vec<Symbol>>) {
        if let Some(slot) = self.rules.get_mut(rule) {
            *slot = alternatives;
        }
    }

    /// A rule of `alternatives`, shared with an equal one.
    pub(super) fn rule(&mut self, alternatives: Vec<Vec<Symbol>>) -> Symbol {
        if let [only] = alternatives.as_slice()
            && let [symbol] = only.as_slice()
        {
            return *symbol;
        }
        if let Some(id) = self.rule_ids.get(&alternatives) {
            return Symbol::Rule(*id);
        }
        let id = self.reserve();
        self.rule_ids.insert(alternatives.clone(), id);
        self.define(id, alternatives);
        Symbol::Rule(id)
    }

    /// Any number of `item`, none included. Left-recursive, which is what an Earley parser handles in linear time.
    fn star(&mut self, item: Symbol) -> Symbol {
        let key = vec![vec![], vec![Symbol::Rule(usize::MAX), item]];
        if let Some(id) = self.rule_ids.get(&key) {
            return Symbol::Rule(*id);
        }
        let id = self.reserve();
        self.rule_ids.insert(key, id);
        self.define(id, vec![vec![], vec![Symbol::Rule(id), item]]);
        Symbol::Rule(id)
    }

    /// `min..=max` of `item`, in a number of rules that is logarithmic in the counts.
    pub(super) fn repeat(&mut self, item: Symbol, min: u64, max: Option<u64>) -> Vec<Symbol> {
        let mut out = self.exactly(item, min);
        match max {
            None => out.push(self.star(item)),
            Some(max) if max > min => out.push(self.at_most(item, max - min)),
            Some(_) => {}
        }
        out
    }

    fn exactly(&mut self, item: Symbol, n: u64) -> Vec<Symbol> {
        if n <= 4 {
            return (0..n).map(|_| item).collect();
        }
        let four = self.rule(vec![vec![item; 4]]);
        let mut out = self.exactly(four, n / 4);
        out.extend((0..n % 4).map(|_| item));
        out
    }

    fn at_most(&mut self, item: Symbol, n: u64) -> Symbol {
        if n <= 4 {
            let alternatives = (0..=n).map(|k| (0..k).map(|_| item).collect()).collect();
            return self.rule(alternatives);
        }
        // Fewer than n/4 fours and up to three more, or exactly n/4 fours and up to n%4 more.
        let four = self.rule(vec![vec![item; 4]]);
        let fours = self.at_most(four, n / 4 - 1);
        let three = self.at_most(item, 3);
        let mut full = self.exactly(four, n / 4);
        if !n.is_multiple_of(4) {
            full.push(self.at_most(item, n % 4));
        }
        self.rule(vec![vec![fours, three], full])
    }

    /// Removes what derives no text; false where `start` derives none.
    pub(super) fn prune(&mut self, start: usize) -> bool {
        let live: Vec<bool> = self
            .terminals
            .iter()
            .enumerate()
            .map(|(id, t)| match t {
                _ if self.inhabited.contains(&id) => true,
                Terminal::Text(_) => true,
                Terminal::Quoted(rx) | Terminal::Raw(rx) => rx.is_empty() != Some(true),
            })
            .collect();
        let mut productive = vec![false; self.rules.len()];
        // Which alternatives wait for a rule, and how many rules each still waits for.
        let mut waiting: Vec<Vec<(usize, usize)>> = vec![Vec::new(); self.rules.len()];
        let mut left: Vec<Vec<usize>> = Vec::with_capacity(self.rules.len());
        let mut todo = Vec::new();
        for (r, alternatives) in self.rules.iter().enumerate() {
            let mut counts = Vec::with_capacity(alternatives.len());
            for (a, symbols) in alternatives.iter().enumerate() {
                let dead = symbols
                    .iter()
                    .any(|s| matches!(s, Symbol::Terminal(t) if live.get(*t) != Some(&true)));
                let mut count = if dead { usize::MAX } else { 0 };
                if !dead {
                    for symbol in symbols {
                        if let Symbol::Rule(q) = symbol
                            && let Some(list) = waiting.get_mut(*q)
                        {
                            list.push((r, a));
                            count += 1;
                        }
                    }
                }
                if count == 0 {
                    todo.push(r);
                }
                counts.push(count);
            }
            left.push(counts);
        }
        while let Some(r) = todo.pop() {
            if std::mem::replace(&mut productive[r], true) {
                continue;
            }
            for (q, a) in std::mem::take(&mut waiting[r]) {
                if let Some(count) = left.get_mut(q).and_then(|l| l.get_mut(a)) {
                    *count -= 1;
                    if *count == 0 {
                        todo.push(q);
                    }
                }
            }
        }
        for alternatives in &mut self.rules {
            alternatives.retain(|symbols| {
                symbols.iter().all(|s| match s {
                    Symbol::Rule(r) => productive.get(*r) == Some(&true),
                    Symbol::Terminal(t) => live.get(*t) == Some(&true),
                })
            });
        }
        productive.get(start) == Some(&true)
    }

    /// The grammar in the mask engine's form, from `start`.
    pub(super) fn build(
        &self,
        start: usize,
        whitespace: Whitespace,
    ) -> Result<GrammarInit, GrammarError> {
        let mut lexer = LexerSpec::new().map_err(engine_error)?;
        let mut grammar = Grammar::new(None);
        self.build_in(start, whitespace, &mut grammar, &mut lexer)?;
        Ok(GrammarInit::Internal(grammar, lexer))
    }

    /// Adds the rules to a grammar under construction; the answer derives what rule `start` does. In a grammar that has no
    /// symbol yet it is the start.
    pub(super) fn build_in(
        &self,
        start: usize,
        whitespace: Whitespace,
        grammar: &mut Grammar,
        lexer: &mut LexerSpec,
    ) -> Result<SymIdx, GrammarError> {
        let skip = match whitespace {
            Whitespace::Compact | Whitespace::Bounded(0) => RegexAst::NoMatch,
            Whitespace::Bounded(n) => RegexAst::Regex(format!("[ \\t\\r\\n]{{1,{n}}}")),
        };
        let class = lexer
            .setup_lexeme_class_with_skip(SkipSpec::once(skip))
            .map_err(engine_error)?;
        lexer.regex_builder.unicode(true);
        lexer.regex_builder.utf8(true);
        let props = || SymbolProps {
            grammar_id: class,
            ..SymbolProps::default()
        };
        let root = grammar.fresh_symbol_ext(
            "start",
            SymbolProps {
                is_start: true,
                ..props()
            },
        );
        let mut rules: Vec<Option<SymIdx>> = vec![None; self.rules.len()];
        let mut terminals: Vec<Option<SymIdx>> = vec![None; self.terminals.len()];
        // Depth first from the start, so that nothing unreachable is made.
        let mut todo = vec![start];
        if let Some(slot) = rules.get_mut(start) {
            *slot = Some(grammar.fresh_symbol_ext("r", props()));
        }
        while let Some(r) = todo.pop() {
            let Some(lhs) = rules.get(r).copied().flatten() else {
                continue;
            };
            for symbols in self.rules.get(r).into_iter().flatten() {
                let mut rhs = Vec::with_capacity(symbols.len());
                for symbol in symbols {
                    match *symbol {
                        Symbol::Rule(q) => {
                            if let Some(slot) = rules.get_mut(q) {
                                let id = *slot.get_or_insert_with(|| {
                                    todo.push(q);
                                    grammar.fresh_symbol_ext("r", props())
                                });
                                rhs.push(id);
                            }
                        }
                        Symbol::Terminal(t) => {
                            let known = terminals.get(t).copied().flatten();
                            let id = match (known, self.terminals.get(t)) {
                                (Some(id), _) => id,
                                (None, Some(terminal)) => {
                                    let ast = terminal.to_ast();
                                    let lexeme = lexer
                                        .add_greedy_lexeme(
                                            String::new(),
                                            ast,
                                            false,
                                            None,
                                            usize::MAX,
                                        )
                                        .map_err(engine_error)?;
                                    let id = grammar.fresh_symbol_ext("t", props());
                                    grammar
                                        .make_terminal(id, lexeme, lexer)
                                        .map_err(engine_error)?;
                                    if let Some(slot) = terminals.get_mut(t) {
                                        *slot = Some(id);
                                    }
                                    id
                                }
                                (None, None) => continue,
                            };
                            rhs.push(id);
                        }
                    }
                }
                grammar.add_rule(lhs, rhs).map_err(engine_error)?;
            }
        }
        if let Some(first) = rules.get(start).copied().flatten() {
            grammar.add_rule(root, vec![first]).map_err(engine_error)?;
        }
        Ok(root)
    }
}

/// The engine reports in prose (`impl Display` keeps its error type out of ours).
fn engine_error(e: impl std::fmt::Display) -> GrammarError {
    GrammarError::new(GrammarErrorKind::Limit, e.to_string())
}

impl Terminal {
    fn to_ast(&self) -> RegexAst {
        match self {
            Terminal::Text(text) => RegexAst::Literal(text.clone()),
            Terminal::Quoted(rx) => quoted(rx),
            Terminal::Raw(rx) => rx.to_ast(),
        }
    }
}

/// The JSON strings of the texts in `rx`.
///
/// Complements are taken outside of the quotes, among whole JSON strings: each string spells one text, so this is the same
/// language, and it has the form (one language without another) for which the mask engine has masks in store.
fn quoted(rx: &Rx) -> RegexAst {
    let quote = |ast| RegexAst::JsonQuote(Box::new(ast), JsonQuoteOptions::regular());
    let parts = match rx {
        Rx::And(parts) => parts.as_slice(),
        one => std::slice::from_ref(one),
    };
    let mut without = Vec::new();
    let mut within = Vec::new();
    for part in parts {
        match part {
            Rx::Not(inner) => without.push(Rx::clone(inner)),
            other => within.push(other.clone()),
        }
    }
    let base = quote(Rx::and(within).to_ast());
    if without.is_empty() {
        return base;
    }
    let without = quote(Rx::alt(without).to_ast());
    RegexAst::And(vec![base, RegexAst::Not(Box::new(without))])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Counts the lengths that a rule derives, up to a cap, over one terminal.
    fn lengths(rules: &Rules, symbol: Symbol, cap: u64) -> std::collections::BTreeSet<u64> {
        match symbol {
            Symbol::Terminal(_) => [1].into(),
            Symbol::Rule(r) => {
                let mut out = std::collections::BTreeSet::new();
                for symbols in &rules.rules[r] {
                    let mut sums: std::collections::BTreeSet<u64> = [0].into();
                    for s in symbols {
                        let part = lengths(rules, *s, cap);
                        sums = sums
                            .iter()
                            .flat_map(|a| part.iter().map(move |b| a + b))
                            .filter(|n| *n <= cap)
                            .collect();
                    }
                    out.extend(sums);
                }
                out
            }
        }
    }

    #[test]
    fn repetitions_are_exact_and_logarithmic() {
        for (min, max) in [(0, 0), (0, 1), (2, 3), (0, 13), (5, 29), (17, 17), (3, 70)] {
            let mut rules = Rules::default();
            let item = rules.text("x");
            let symbols = rules.repeat(item, min, Some(max));
            let whole = rules.reserve();
            rules.define(whole, vec![symbols]);
            let got: Vec<u64> = lengths(&rules, Symbol::Rule(whole), 200)
                .into_iter()
                .collect();
            assert_eq!(got, (min..=max).collect::<Vec<_>>(), "{min}..={max}");
        }
        let mut rules = Rules::default();
        let item = rules.text("x");
        rules.repeat(item, 0, Some(1_000_000_000));
        assert!(rules.len() < 400, "{}", rules.len());
    }

    #[test]
    fn pruning_removes_what_derives_nothing() {
        let mut rules = Rules::default();
        let a = rules.text("a");
        let dead = rules.terminal(Terminal::Raw(Rx::None));
        let looping = rules.reserve();
        rules.define(looping, vec![vec![a, Symbol::Rule(looping)]]);
        let start = rules.reserve();
        rules.define(
            start,
            vec![vec![dead], vec![Symbol::Rule(looping)], vec![a]],
        );
        assert!(rules.prune(start));
        assert_eq!(rules.rules[start], vec![vec![a]]);
        assert!(!Rules::prune(&mut rules, looping));
    }
}
