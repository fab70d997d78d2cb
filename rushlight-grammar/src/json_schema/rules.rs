//! The grammar as a table of rules, before the mask engine sees it.
//!
//! Rules that derive no text are removed here, so that generation never walks into one.

use std::hash::BuildHasher;
use std::sync::LazyLock;

use foldhash::{HashMap, HashSet};
use llguidance::api::{GrammarInit, SkipSpec};
use llguidance::derivre::{ExprRef, JsonQuoteOptions, RegexAst, RegexBuilder};
use llguidance::earley::lexerspec::LexerSpec;
use llguidance::earley::{Grammar, SymIdx, SymbolProps};

use super::number::{Digits, Numbers};
use super::rx::Rx;
use crate::strings::BoundedString;
use crate::{GrammarError, GrammarErrorKind};

/// Symbols that are written out again rather than made a rule.
const INLINE_SYMBOLS: usize = 8;

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
    // By hash, with the newest that has it: two that collide are not shared, which is no more than a loss.
    terminal_ids: HashMap<u64, usize>,
    rule_ids: HashMap<u64, usize>,
    /// Terminals that are known to match some text.
    inhabited: HashSet<usize>,
    hasher: foldhash::fast::RandomState,
}

impl Rules {
    pub(super) fn len(&self) -> usize {
        self.rules.len()
    }

    pub(super) fn terminal(&mut self, terminal: Terminal) -> Symbol {
        let hash = self.hasher.hash_one(&terminal);
        self.shared_terminal(hash, |known| *known == terminal)
            .unwrap_or_else(|| self.new_terminal(hash, terminal))
    }

    fn shared_terminal(&self, hash: u64, equal: impl FnOnce(&Terminal) -> bool) -> Option<Symbol> {
        let id = *self.terminal_ids.get(&hash)?;
        equal(self.terminals.get(id)?).then_some(Symbol::Terminal(id))
    }

    fn new_terminal(&mut self, hash: u64, terminal: Terminal) -> Symbol {
        let id = self.terminals.len();
        self.terminal_ids.insert(hash, id);
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
        let hash = self.hasher.hash_one(text);
        let equal = |known: &Terminal| matches!(known, Terminal::Text(other) if other == text);
        self.shared_terminal(hash, equal)
            .unwrap_or_else(|| self.new_terminal(hash, Terminal::Text(text.to_owned())))
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
        let hash = self.hasher.hash_one(&alternatives);
        if let Some(id) = self.rule_ids.get(&hash)
            && self.rules.get(*id) == Some(&alternatives)
        {
            return Symbol::Rule(*id);
        }
        let id = self.rules.len();
        self.rule_ids.insert(hash, id);
        self.rules.push(alternatives);
        Symbol::Rule(id)
    }

    /// A rule of `symbols`, unless they are short enough to be repeated wherever they follow.
    pub(super) fn sequence(&mut self, symbols: Vec<Symbol>) -> Vec<Symbol> {
        if symbols.len() <= INLINE_SYMBOLS {
            return symbols;
        }
        vec![self.rule(vec![symbols])]
    }

    /// Any number of `item`, none included. Left-recursive, which is what an Earley parser handles in linear time.
    fn star(&mut self, item: Symbol) -> Symbol {
        let hash = self.hasher.hash_one(("star", item));
        let alternatives = |id| vec![vec![], vec![Symbol::Rule(id), item]];
        if let Some(id) = self.rule_ids.get(&hash)
            && self.rules.get(*id) == Some(&alternatives(*id))
        {
            return Symbol::Rule(*id);
        }
        let id = self.rules.len();
        self.rule_ids.insert(hash, id);
        self.rules.push(alternatives(id));
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

    /// Removes what derives no text, as far as `work` allows to prove it; false where `start` derives none.
    pub(super) fn prune(&mut self, start: usize, work: &mut u64) -> bool {
        let live: Vec<bool> = self
            .terminals
            .iter()
            .enumerate()
            .map(|(id, t)| match t {
                _ if self.inhabited.contains(&id) => true,
                Terminal::Text(_) => true,
                Terminal::Quoted(rx) | Terminal::Raw(rx) => rx.is_empty(work) != Some(true),
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

    /// The grammar in the mask engine's form, from `start`, and its strings of bounded length.
    pub(super) fn build(
        &self,
        start: usize,
        whitespace: Whitespace,
    ) -> Result<(GrammarInit, Vec<BoundedString>), GrammarError> {
        let mut grammar = Grammar::new(None);
        let common = Common::get()?;
        let mut lexer = common.lexer.clone();
        let patterns = Patterns::new(&common.patterns);
        let (_, strings) =
            self.build_with(start, whitespace, (&mut grammar, &mut lexer), patterns)?;
        Ok((GrammarInit::Internal(grammar, lexer), strings))
    }

    /// Adds the rules to a grammar under construction; the answer derives what rule `start` does. In a grammar that has no
    /// symbol yet it is the start.
    pub(super) fn build_in(
        &self,
        start: usize,
        whitespace: Whitespace,
        grammar: &mut Grammar,
        lexer: &mut LexerSpec,
    ) -> Result<(SymIdx, Vec<BoundedString>), GrammarError> {
        let none = HashMap::default();
        self.build_with(start, whitespace, (grammar, lexer), Patterns::new(&none))
    }

    fn build_with(
        &self,
        start: usize,
        whitespace: Whitespace,
        (grammar, lexer): (&mut Grammar, &mut LexerSpec),
        mut patterns: Patterns<'_>,
    ) -> Result<(SymIdx, Vec<BoundedString>), GrammarError> {
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
        let mut strings = Vec::new();
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
                                    let builder = &mut lexer.regex_builder;
                                    let ast = terminal
                                        .to_ast(&mut |pattern| patterns.parsed(pattern, builder));
                                    let made = builder.mk(&ast).map_err(engine_error)?;
                                    let lexeme = lexer
                                        .add_greedy_lexeme(
                                            String::new(),
                                            // The lexer is copied, the form that it was made from with it.
                                            RegexAst::ExprRef(made),
                                            false,
                                            None,
                                            usize::MAX,
                                        )
                                        .map_err(engine_error)?;
                                    strings.extend(terminal.bounded_string(lexeme.as_usize()));
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
        Ok((root, strings))
    }
}

/// The engine reports in prose (`impl Display` keeps its error type out of ours).
fn engine_error(e: impl std::fmt::Display) -> GrammarError {
    GrammarError::new(GrammarErrorKind::Limit, e.to_string())
}

/// A lexer without lexemes that has parsed the patterns which nearly every schema needs: strings and numbers.
struct Common {
    lexer: LexerSpec,
    patterns: HashMap<String, ExprRef>,
}

impl Common {
    fn get() -> Result<&'static Self, GrammarError> {
        static COMMON: LazyLock<Result<Common, GrammarError>> = LazyLock::new(|| {
            let mut lexer = LexerSpec::new().map_err(engine_error)?;
            lexer.regex_builder.unicode(true);
            lexer.regex_builder.utf8(true);
            let none = HashMap::default();
            let mut patterns = Patterns::new(&none);
            let numbers = Numbers::new(Digits::default());
            for terminal in [
                Terminal::Quoted(Rx::All),
                Terminal::Raw(numbers.any()),
                Terminal::Raw(numbers.integer()),
            ] {
                let builder = &mut lexer.regex_builder;
                let ast = terminal.to_ast(&mut |pattern| patterns.parsed(pattern, builder));
                // What cannot be made here is made, or reported, with the schema that needs it.
                let _ = builder.mk(&ast);
            }
            Ok(Common {
                lexer,
                patterns: patterns.new,
            })
        });
        COMMON.as_ref().map_err(GrammarError::clone)
    }
}

/// Patterns in the form of one builder, which parses each once.
struct Patterns<'a> {
    common: &'a HashMap<String, ExprRef>,
    new: HashMap<String, ExprRef>,
}

impl<'a> Patterns<'a> {
    fn new(common: &'a HashMap<String, ExprRef>) -> Self {
        Self {
            common,
            new: HashMap::default(),
        }
    }

    fn parsed(&mut self, pattern: &str, builder: &mut RegexBuilder) -> RegexAst {
        let known = self.common.get(pattern).or_else(|| self.new.get(pattern));
        if let Some(made) = known {
            return RegexAst::ExprRef(*made);
        }
        let ast = RegexAst::Regex(pattern.to_owned());
        match builder.mk(&ast) {
            Ok(made) => {
                self.new.insert(pattern.to_owned(), made);
                RegexAst::ExprRef(made)
            }
            // The builder reports it with the terminal.
            Err(_) => ast,
        }
    }
}

impl Terminal {
    /// The bounds, where it is a string about which nothing but its length is said.
    fn bounded_string(&self, lexeme: usize) -> Option<BoundedString> {
        let Terminal::Quoted(rx) = self else {
            return None;
        };
        let (min, max) = rx.as_length()?;
        Some(BoundedString {
            lexeme,
            min: usize::try_from(min).ok()?,
            max: usize::try_from(max?).ok()?,
        })
    }

    fn to_ast(&self, parsed: &mut dyn FnMut(&str) -> RegexAst) -> RegexAst {
        match self {
            Terminal::Text(text) => RegexAst::Literal(text.clone()),
            Terminal::Quoted(rx) => quoted(rx, parsed),
            Terminal::Raw(rx) => rx.to_ast_with(parsed),
        }
    }
}

/// The JSON strings of the texts in `rx`.
///
/// Complements are taken outside of the quotes, among whole JSON strings: each string spells one text, so this is the same
/// language, and it has the form (one language without another) for which the mask engine has masks in store.
fn quoted(rx: &Rx, parsed: &mut dyn FnMut(&str) -> RegexAst) -> RegexAst {
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
    let base = quote(Rx::and(within).to_ast_with(parsed));
    if without.is_empty() {
        return base;
    }
    let without = quote(Rx::alt(without).to_ast_with(parsed));
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
        assert!(rules.prune(start, &mut 1_000_000));
        assert_eq!(rules.rules[start], vec![vec![a]]);
        assert!(!Rules::prune(&mut rules, looping, &mut 1_000_000));
    }
}
