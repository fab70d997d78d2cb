//! JSON Schema, compiled to a grammar and, where no grammar can say it, a guard.
//!
//! Dialects: 2020-12, 2019-09, draft-07, draft-06, and draft-04's `definitions`, `id` and Boolean exclusive bounds. Every
//! assertion is enforced or the schema is refused; [`CompiledSchema::explained`] says how each keyword is.
//!
//! The way of a schema: a document index (`document`) resolves references; reading (`schema`) turns each schema into rules;
//! states (`compiler`) are conjunctions of schemas and complements; a state's formula (`logic`) for a JSON type becomes
//! cases (`cases`), and these become rules (`rules`) of a grammar. Strings and numbers are regular languages (`rx`) throughout,
//! closed under complement, so `not`, `oneOf` and `if` over them are exact. What a case cannot say widens it and is left to
//! the guard (`guard`).
//!
//! Two spellings that JSON allows are never generated: an escape where the character itself will do (so that a declared
//! name has one spelling), and a second member of the same name.

mod blame;
mod cases;
mod compiler;
mod containers;
mod document;
mod emit;
mod format;
mod groups;
mod guard;
mod keywords;
mod logic;
mod names;
mod number;
mod operands;
mod pattern;
mod proof;
mod report;
mod rules;
mod rx;
mod schema;
mod steps;
mod text;
mod unevaluated;

use std::sync::Arc;

use llguidance::api::GrammarInit;
use llguidance::earley::lexerspec::LexerSpec;
use llguidance::earley::{Grammar, SymIdx};
use serde_json::Value;

use crate::lower::Guard;
use crate::strings::BoundedString;
use crate::{GrammarErrorKind, GrammarReport};
use compiler::Compiler;
use emit::Emitter;
pub use number::Digits;
pub use report::{Explained, How};
use rules::Rules;
pub use rules::Whitespace;
use schema::NodeId;
pub use text::check_numbers;

/// Options of the schema compiler.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct SchemaOptions {
    /// Whether guards may enforce what the grammar cannot; off, such a schema is refused. Default on.
    pub guards: bool,
    /// Whitespace between tokens. Default none.
    pub whitespace: Whitespace,
    /// Digit caps, so that numbers close.
    pub digits: Digits,
    /// In which order an object's members may be written. Default [`MemberOrder::Declared`].
    pub member_order: MemberOrder,
    /// Limits on the work.
    pub limits: SchemaLimits,
}

impl Default for SchemaOptions {
    fn default() -> Self {
        Self {
            guards: true,
            whitespace: Whitespace::default(),
            digits: Digits::default(),
            member_order: MemberOrder::default(),
            limits: SchemaLimits::default(),
        }
    }
}

/// In which order the members of an object may be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum MemberOrder {
    /// In the order in which the schema's author declared them; undeclared ones come last.
    #[default]
    Declared,
    /// In any order, for judging texts from elsewhere: the order of members is no part of validity. Needs guards, which see
    /// to it that every required member is there.
    Any,
}

/// Limits of the schema compiler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SchemaLimits {
    /// Schemas expanded, each reference to one counted again. Four times as many steps may combine their alternatives. Default
    /// 2,000,000.
    pub expansions: u64,
    /// Schemas applied to one value inside each other (`allOf` in `$ref` in …); twice as many with those that proofs about them
    /// apply. Default 200.
    pub depth: usize,
    /// Alternatives of one value before a guard replaces them. Default 128.
    pub cases: usize,
    /// Levels that a proof of disjointness looks down. Default 4.
    pub proof_depth: u32,
    /// Work units of the mask engine's lexer for all proofs about texts; about 14,000 a millisecond. Default 20,000,000.
    pub proof_work: u64,
    /// Grammar rules. Default 200,000.
    pub rules: usize,
    /// Rules that one object's member counts may take before a guard counts instead. Default 2,000.
    pub counted_rules: u64,
}

impl Default for SchemaLimits {
    fn default() -> Self {
        Self {
            expansions: 2_000_000,
            depth: 200,
            cases: 128,
            proof_depth: 4,
            proof_work: 20_000_000,
            rules: 200_000,
            counted_rules: 2_000,
        }
    }
}

/// A compiled schema.
#[derive(Clone)]
pub struct CompiledSchema {
    /// The grammar in the mask engine's form.
    pub grammar: GrammarInit,
    /// What the grammar cannot say.
    pub guards: Vec<Arc<dyn Guard>>,
    /// How each keyword is enforced, in the order in which they were met; then what was read as no assertion.
    pub explained: Vec<Explained>,
}

impl std::fmt::Debug for CompiledSchema {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CompiledSchema")
            .field("guards", &self.guards.len())
            .field("explained", &self.explained)
            .finish_non_exhaustive()
    }
}

/// Compiles `schema`.
///
/// # Errors
/// One report of every problem: [`GrammarErrorKind::Invalid`] for operands of the wrong type and references that name
/// nothing, [`GrammarErrorKind::Unsupported`] for what only a guard could enforce while guards are off,
/// [`GrammarErrorKind::Unsatisfiable`] where no value is valid, [`GrammarErrorKind::Limit`].
pub fn compile_schema(
    schema: &Value,
    options: &SchemaOptions,
) -> Result<CompiledSchema, GrammarReport> {
    let mut compiler = Compiler::new(schema, options);
    let compiled = compile_rules(&mut compiler)?;
    let mut explained = compiler.explained();
    explained.extend(compiler.ignored());
    Ok(CompiledSchema {
        grammar: compiled.rules.build(compiled.start, options.whitespace)?.0,
        guards: compiled.guards,
        explained,
    })
}

/// What a schema lowers to.
pub(crate) struct SchemaGrammar {
    pub(crate) grammar: GrammarInit,
    pub(crate) guards: Vec<Arc<dyn Guard>>,
    pub(crate) strings: Vec<BoundedString>,
}

/// As [`compile_schema`], without the explanation.
///
/// # Errors
/// Those of [`compile_schema`].
pub(crate) fn compile_grammar(
    schema: &Value,
    options: &SchemaOptions,
) -> Result<SchemaGrammar, GrammarReport> {
    let compiled = compile_rules(&mut Compiler::new(schema, options))?;
    let (grammar, strings) = compiled.rules.build(compiled.start, options.whitespace)?;
    Ok(SchemaGrammar {
        grammar,
        guards: compiled.guards,
        strings,
    })
}

/// Compiles the schema at `path` of document `schema` into a grammar under construction; the symbol derives its values. There is
/// no other schema on the path than its ends.
///
/// # Errors
/// Those of [`compile_schema`]; their pointers are those of the document.
pub(crate) fn compile_schema_in(
    schema: &Value,
    path: &[&str],
    options: &SchemaOptions,
    grammar: &mut Grammar,
    lexer: &mut LexerSpec,
) -> Result<(SymIdx, Vec<Arc<dyn Guard>>), GrammarReport> {
    let compiled = compile_part(&mut Compiler::new(schema, options), path)?;
    let (symbol, _) =
        compiled
            .rules
            .build_in(compiled.start, options.whitespace, grammar, lexer)?;
    Ok((symbol, compiled.guards))
}

struct CompiledRules {
    rules: Rules,
    start: usize,
    guards: Vec<Arc<dyn Guard>>,
}

fn compile_rules(compiler: &mut Compiler<'_>) -> Result<CompiledRules, GrammarReport> {
    compile_part(compiler, &[])
}

fn compile_part(
    compiler: &mut Compiler<'_>,
    path: &[&str],
) -> Result<CompiledRules, GrammarReport> {
    let mut root = compiler.document.root().clone();
    if !path.is_empty() {
        static NOTHING: Value = Value::Bool(false);
        let part = path
            .iter()
            .try_fold(root.value, |value, key| value.get(*key));
        root = root.child(path, part.unwrap_or(&NOTHING));
    }
    let pointer = root.pointer.clone();
    let node = if root.value == &Value::Bool(false) {
        NodeId::FALSE
    } else {
        compiler.node_at(root)
    };
    let start = compiler.state([(node, true)]);
    let mut emitter = Emitter::default();
    let first = compiler.emit(start, &mut emitter);
    // What no value reaches has problems to report too.
    compiler.read_all();
    if let Some(report) = report::report(&compiler.problems) {
        return Err(report);
    }
    let guard = compiler.guard(start, &emitter);
    let inhabited = emitter.rules.prune(first, &mut compiler.proof_work);
    if compiler.proof_work == 0 {
        let most = compiler.limits.proof_work;
        compiler.problem_at(
            GrammarErrorKind::Limit,
            pointer.clone(),
            "",
            format!("proofs about its texts take more than {most} units of work"),
        );
    }
    if !inhabited {
        compiler.blame(node, pointer);
    }
    if let Some(report) = report::report(&compiler.problems) {
        return Err(report);
    }
    let guards = guard
        .into_iter()
        .map(|g| Arc::new(g) as Arc<dyn Guard>)
        .collect();
    Ok(CompiledRules {
        rules: emitter.rules,
        start: first,
        guards,
    })
}

#[cfg(test)]
mod tests;
