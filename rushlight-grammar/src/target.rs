//! The mask engine's grammar under construction: symbols over lexemes.
//!
//! Front ends build here rather than in a textual grammar, so that nothing has to be quoted, and so that a schema's grammar can
//! stand inside another.

use std::collections::HashMap;
use std::sync::Arc;

use llguidance::api::{GenGrammarOptions, GrammarId, GrammarInit, SkipSpec};
use llguidance::derivre::{ExprRef, RegexAst};
use llguidance::earley::lexerspec::{LexemeClass, LexerSpec};
use llguidance::earley::{Grammar, SymIdx, SymbolProps};
use serde_json::Value;

use crate::error::{GrammarError, GrammarErrorKind, GrammarReport, Result};
use crate::expression::normal;
use crate::json_schema::{self, SchemaOptions};
use crate::limits::Limits;
use crate::lower::Guard;

/// Work units that the lexer's expressions of one source may cost.
const EXPRESSION_COST: u64 = 5_000_000;

/// A grammar being built.
pub(crate) struct Target {
    pub(crate) grammar: Grammar,
    pub(crate) lexer: LexerSpec,
    class: LexemeClass,
    root: SymIdx,
    // Whether there is anything to read: the engine does not start without.
    reads: bool,
    symbols: usize,
    empty: Option<SymIdx>,
    exact: HashMap<(usize, usize), SymIdx>,
    at_most: HashMap<(usize, usize), SymIdx>,
}

impl Target {
    /// An empty grammar.
    pub(crate) fn new(limits: &Limits) -> Result<Self> {
        let mut lexer = LexerSpec::new().map_err(engine_error)?;
        let class = lexer
            .setup_lexeme_class_with_skip(SkipSpec::once(RegexAst::NoMatch))
            .map_err(engine_error)?;
        lexer.regex_builder.unicode(true);
        lexer.regex_builder.utf8(true);
        let mut grammar = Grammar::new(None);
        let root = grammar.fresh_symbol_ext(
            "start",
            SymbolProps {
                grammar_id: class,
                is_start: true,
                ..SymbolProps::default()
            },
        );
        Ok(Self {
            grammar,
            lexer,
            class,
            root,
            reads: false,
            symbols: limits.symbols,
            empty: None,
            exact: HashMap::new(),
            at_most: HashMap::new(),
        })
    }

    /// The grammar, starting at `first`.
    pub(crate) fn finish(mut self, first: SymIdx) -> Result<GrammarInit> {
        let root = self.root;
        let first = match self.reads {
            true => first,
            false => self.lexeme(RegexAst::EmptyString)?,
        };
        self.rule(root, vec![first])?;
        Ok(GrammarInit::Internal(self.grammar, self.lexer))
    }

    /// A symbol without rules yet.
    pub(crate) fn symbol(&mut self) -> Result<SymIdx> {
        self.check()?;
        Ok(self.grammar.fresh_symbol_ext(
            "s",
            SymbolProps {
                grammar_id: self.class,
                ..SymbolProps::default()
            },
        ))
    }

    /// One way to derive `symbol`.
    pub(crate) fn rule(&mut self, symbol: SymIdx, ways: Vec<SymIdx>) -> Result<()> {
        self.grammar.add_rule(symbol, ways).map_err(engine_error)
    }

    /// A part of an expression, shared by reference.
    pub(crate) fn expression(&mut self, ast: RegexAst) -> Result<ExprRef> {
        self.check()?;
        let ast = normal(ast);
        self.lexer.regex_builder.mk(&ast).map_err(engine_error)
    }

    /// What the lexer reads as long as it can. The empty text is allowed where the expression matches it.
    pub(crate) fn lexeme(&mut self, ast: RegexAst) -> Result<SymIdx> {
        self.check()?;
        self.reads = true;
        let lexeme = self
            .lexer
            .add_greedy_lexeme(String::new(), normal(ast), false, None, usize::MAX)
            .map_err(engine_error)?;
        let symbol = self.symbol()?;
        self.grammar
            .make_terminal(symbol, lexeme, &self.lexer)
            .map_err(engine_error)?;
        Ok(symbol)
    }

    /// What the lexer reads as short as it can.
    pub(crate) fn lazy_lexeme(&mut self, ast: RegexAst) -> Result<SymIdx> {
        self.check()?;
        self.reads = true;
        let lexeme = self
            .lexer
            .add_rx_and_stop(
                String::new(),
                normal(ast),
                RegexAst::EmptyString,
                true,
                usize::MAX,
                false,
            )
            .map_err(engine_error)?;
        let symbol = self.symbol()?;
        self.grammar
            .make_terminal(symbol, lexeme, &self.lexer)
            .map_err(engine_error)?;
        Ok(symbol)
    }

    /// Any one token of `ids`, inclusive ranges.
    pub(crate) fn token(&mut self, ids: &[(u32, u32)]) -> Result<SymIdx> {
        self.reads = true;
        let ranges: Vec<_> = ids.iter().map(|&(low, high)| low..=high).collect();
        let name = format!("{ids:?}");
        let lexeme = self
            .lexer
            .add_special_token(name, ranges)
            .map_err(engine_error)?;
        let symbol = self.symbol()?;
        self.grammar
            .make_terminal(symbol, lexeme, &self.lexer)
            .map_err(engine_error)?;
        Ok(symbol)
    }

    /// A text.
    pub(crate) fn text(&mut self, text: &str) -> Result<SymIdx> {
        if text.is_empty() {
            return self.empty();
        }
        self.lexeme(RegexAst::Literal(text.to_owned()))
    }

    /// The empty text.
    pub(crate) fn empty(&mut self) -> Result<SymIdx> {
        if let Some(empty) = self.empty {
            return Ok(empty);
        }
        let empty = self.symbol()?;
        self.rule(empty, Vec::new())?;
        self.empty = Some(empty);
        Ok(empty)
    }

    /// The values of the JSON Schema at `path` of a document, and the guards that judge them from their first byte on.
    pub(crate) fn schema(
        &mut self,
        schema: &Value,
        path: &[&str],
        options: &SchemaOptions,
    ) -> Result<(SymIdx, Vec<Arc<dyn Guard>>), GrammarReport> {
        let (grammar, lexer) = (&mut self.grammar, &mut self.lexer);
        let (first, guards) =
            json_schema::compile_schema_in(schema, path, options, grammar, lexer)?;
        self.reads = true;
        // Whitespace is skipped by class: the schema's may have made one of its own, which its symbols keep.
        self.class = self
            .lexer
            .setup_lexeme_class_with_skip(SkipSpec::once(RegexAst::NoMatch))
            .map_err(engine_error)?;
        let link = self.symbol()?;
        let here = GenGrammarOptions {
            grammar: GrammarId::Name(format!("schema {}", link.as_usize())),
            temperature: None,
        };
        self.grammar
            .make_gen_grammar(link, here)
            .and_then(|()| self.grammar.link_gen_grammar(link, first))
            .map_err(engine_error)?;
        Ok((link, guards))
    }

    /// All of `parts`, in order.
    pub(crate) fn seq(&mut self, parts: Vec<SymIdx>) -> Result<SymIdx> {
        match parts.as_slice() {
            [] => self.empty(),
            [one] => Ok(*one),
            _ => {
                let symbol = self.symbol()?;
                self.rule(symbol, parts)?;
                Ok(symbol)
            }
        }
    }

    /// Any one of `ways`.
    pub(crate) fn alt(&mut self, ways: &[SymIdx]) -> Result<SymIdx> {
        if let [one] = ways {
            return Ok(*one);
        }
        let symbol = self.symbol()?;
        for &way in ways {
            self.rule(symbol, vec![way])?;
        }
        Ok(symbol)
    }

    /// `part`, `min` to `max` times: symbols grow with the logarithm of the counts.
    pub(crate) fn repeat(
        &mut self,
        part: SymIdx,
        min: usize,
        max: Option<usize>,
    ) -> Result<SymIdx> {
        let first = self.exactly(part, min)?;
        let rest = match max {
            Some(max) => self.at_most(part, max.saturating_sub(min))?,
            None => {
                let star = self.symbol()?;
                self.rule(star, Vec::new())?;
                self.rule(star, vec![star, part])?;
                star
            }
        };
        match (min, max) {
            (0, _) => Ok(rest),
            (min, Some(max)) if max <= min => Ok(first),
            _ => self.seq(vec![first, rest]),
        }
    }

    fn exactly(&mut self, part: SymIdx, count: usize) -> Result<SymIdx> {
        match count {
            0 => return self.empty(),
            1 => return Ok(part),
            _ => {}
        }
        let key = (part.as_usize(), count);
        if let Some(&known) = self.exact.get(&key) {
            return Ok(known);
        }
        let half = self.exactly(part, count / 2)?;
        let mut parts = vec![half, half];
        if count % 2 == 1 {
            parts.push(part);
        }
        let symbol = self.seq(parts)?;
        self.exact.insert(key, symbol);
        Ok(symbol)
    }

    /// Every count has one derivation: its largest power of two first.
    fn at_most(&mut self, part: SymIdx, count: usize) -> Result<SymIdx> {
        if count == 0 {
            return self.empty();
        }
        let key = (part.as_usize(), count);
        if let Some(&known) = self.at_most.get(&key) {
            return Ok(known);
        }
        let power = 1usize << count.ilog2();
        let block = self.exactly(part, power)?;
        let more = self.at_most(part, count - power)?;
        let fewer = self.at_most(part, power - 1)?;
        let symbol = self.symbol()?;
        self.rule(symbol, vec![fewer])?;
        self.rule(symbol, vec![block, more])?;
        self.at_most.insert(key, symbol);
        Ok(symbol)
    }

    fn check(&self) -> Result<()> {
        if self.grammar.num_symbols() > self.symbols {
            return Err(GrammarError::new(
                GrammarErrorKind::Limit,
                format!("the grammar has more than {} symbols", self.symbols),
            ));
        }
        if self.lexer.cost() > EXPRESSION_COST {
            return Err(GrammarError::new(
                GrammarErrorKind::Limit,
                "the grammar's expressions are too large",
            ));
        }
        Ok(())
    }
}

/// One character of inclusive ranges; nothing where there are none.
pub(crate) fn class(ranges: &[(char, char)]) -> RegexAst {
    use std::fmt::Write;

    if ranges.is_empty() {
        return RegexAst::NoMatch;
    }
    if let [(low, high)] = ranges
        && low == high
    {
        return RegexAst::Literal(low.to_string());
    }
    let mut out = String::from("[");
    for &(low, high) in ranges {
        // Writing to a string cannot fail.
        let _ = write!(out, "\\x{{{:x}}}", u32::from(low));
        if low != high {
            let _ = write!(out, "-\\x{{{:x}}}", u32::from(high));
        }
    }
    out.push(']');
    RegexAst::Regex(out)
}

/// The engine reports in prose.
fn engine_error(e: impl std::fmt::Display) -> GrammarError {
    let text = e.to_string();
    let first = text.lines().next().unwrap_or_default().to_owned();
    GrammarError::new(crate::compile::kind_of(&text), first)
}
