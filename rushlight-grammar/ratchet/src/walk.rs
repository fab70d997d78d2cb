//! One case: compile, then walk each instance token by token.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use llguidance::ParserFactory;
use llguidance::api::{GrammarInit, TopLevelGrammar};
use rushlight_engine::constrain::{Accepted, MaskStatus};
use rushlight_grammar::json_schema::{MemberOrder, SchemaOptions};
use rushlight_grammar::{
    CancelToken, CompiledGrammar, Compiler, GrammarErrorKind, GrammarSource, Limits, TokenEntry,
    TokenTable, Vocabulary,
};
use serde_json::{Value, json};
use toktrie::{ApproximateTokEnv, TokEnv, TokRxInfo, TokTrie};

use crate::cases::{Case, Collection};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Engine {
    Ours {
        guards: bool,
    },
    /// The mask engine's own JSON Schema front end.
    Bare,
}

impl fmt::Display for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ours { guards: true } => "rushlight",
            Self::Ours { guards: false } => "rushlight, guards off",
            Self::Bare => "llguidance",
        })
    }
}

/// What happened to an instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Accept,
    Reject,
    Failed,
}

/// What a case comes to; a later one is worse to ship.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Category {
    Pass = 0,
    Refuse = 1,
    RejectValid = 2,
    AcceptInvalid = 3,
    Error = 4,
}

impl fmt::Display for Category {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Pass => "pass",
            Self::Refuse => "refuse",
            Self::RejectValid => "reject-valid",
            Self::AcceptInvalid => "accept-invalid",
            Self::Error => "error",
        })
    }
}

#[derive(Default)]
pub(crate) struct Outcome {
    /// One an instance; empty where the schema was refused.
    pub(crate) verdicts: Vec<Verdict>,
    expected: Vec<bool>,
    pub(crate) note: String,
    /// Tests to judge again, with members in any order.
    reordered: Vec<usize>,
    pub(crate) compile: Option<Duration>,
    pub(crate) first_mask: Option<Duration>,
    pub(crate) steps: Vec<Step>,
}

/// What one token took.
#[derive(Clone, Copy)]
pub(crate) struct Step {
    /// To make the mask before it.
    pub(crate) mask: Duration,
    /// To make the mask and to accept the token.
    pub(crate) whole: Duration,
}

impl Outcome {
    /// The times of one case in µs: compilation, first mask, mean and number of later masks.
    pub(crate) fn times(&self) -> String {
        let us = |t: Option<Duration>| t.unwrap_or_default().as_micros();
        let count = u32::try_from(self.steps.len()).unwrap_or(u32::MAX);
        let mean = self.steps.iter().map(|s| s.whole).sum::<Duration>() / count.max(1);
        format!(
            "[{} {} {}*{count}]",
            us(self.compile),
            us(self.first_mask),
            mean.as_micros()
        )
    }

    /// Records the verdict of test `i`: where it was rejected, or `None`. A verdict that will be given again is not explained.
    fn judge(&mut self, case: &Case, i: usize, verdict: Result<Option<String>, String>) {
        let (Some(test), Some(slot)) = (case.tests.get(i), self.verdicts.get_mut(i)) else {
            return;
        };
        match verdict {
            Ok(at) => {
                let accepted = at.is_none();
                *slot = if accepted {
                    Verdict::Accept
                } else {
                    Verdict::Reject
                };
                if accepted != test.valid && !self.reordered.contains(&i) {
                    let text = test.data.to_string();
                    let shown: String = text.chars().take(1500).collect();
                    self.note.push_str(&format!(
                        "\n  test {i} valid {} at {at:?}: {shown}",
                        test.valid
                    ));
                }
            }
            Err(e) => {
                *slot = Verdict::Failed;
                self.note
                    .push_str(&format!("\n  test {i}: {}", first_line(&e)));
            }
        }
    }

    pub(crate) fn category(&self) -> Category {
        if self.compile.is_none() {
            return Category::Refuse;
        }
        let pairs = || self.verdicts.iter().zip(&self.expected);
        if pairs().any(|(v, _)| *v == Verdict::Failed) {
            Category::Error
        } else if pairs().any(|(v, valid)| *v == Verdict::Accept && !valid) {
            Category::AcceptInvalid
        } else if pairs().any(|(v, valid)| *v == Verdict::Reject && *valid) {
            Category::RejectValid
        } else {
            Category::Pass
        }
    }
}

/// What walks texts: the engine's own matcher, or ours.
enum Backend {
    Bare {
        env: TokEnv,
        factory: Box<ParserFactory>,
    },
    Ours {
        declared: Compiler,
        any: Compiler,
        guards: bool,
    },
}

/// A compiled case.
enum Ready {
    Bare(Box<llguidance::Matcher>),
    Ours(Arc<CompiledGrammar>),
}

pub(crate) struct Walker {
    backend: Backend,
    tokenizer: tokenizers::Tokenizer,
    repeat: usize,
}

impl Walker {
    /// Compiles each case `repeat` times, at least once, and keeps the least of the times.
    pub(crate) fn new(path: &Path, engine: Engine, repeat: usize) -> Result<Self, String> {
        let at = |e: &dyn fmt::Display| format!("{}: {e}", path.display());
        let text = std::fs::read_to_string(path).map_err(|e| at(&e))?;
        let value: Value = serde_json::from_str(&text).map_err(|e| at(&e))?;
        let words = llguidance::token_bytes_from_tokenizer_json(&value).map_err(|e| at(&e))?;
        let tokenizer: tokenizers::Tokenizer = text.parse().map_err(|e| at(&e))?;
        let eos = ["<|eot_id|>", "<|end_of_text|>", "</s>", "<|endoftext|>"]
            .iter()
            .find_map(|name| tokenizer.token_to_id(name))
            .unwrap_or(0);
        let backend = match engine {
            Engine::Bare => {
                let size = u32::try_from(words.len()).map_err(|e| at(&e))?;
                let env: TokEnv = Arc::new(ApproximateTokEnv::new(TokTrie::from(
                    &TokRxInfo::new(size, eos),
                    &words,
                )));
                let mut factory = ParserFactory::new_simple(&env).map_err(|e| at(&e))?;
                factory.quiet();
                Backend::Bare {
                    env,
                    factory: Box::new(factory),
                }
            }
            Engine::Ours { guards } => {
                let logits = words.len();
                let entry = |word: Vec<u8>| match word
                    .strip_prefix(&[TokTrie::SPECIAL_TOKEN_MARKER])
                {
                    Some(name) => TokenEntry::Control(String::from_utf8_lossy(name).into_owned()),
                    None => TokenEntry::Text(word),
                };
                let table = TokenTable {
                    identity: path.display().to_string(),
                    tokens: words.into_iter().map(entry).collect(),
                    stop_ids: vec![eos],
                    logits,
                    encode: None,
                };
                let vocabulary = Vocabulary::new(table).map_err(|e| at(&e))?;
                let compiler = |order| {
                    let mut limits = Limits::default();
                    limits.cache_bytes = 0;
                    // Categories must not depend on what else the machine does.
                    limits.compile_time = Duration::from_secs(300);
                    let mut options = SchemaOptions::default();
                    options.guards = guards;
                    options.member_order = order;
                    Compiler::new(vocabulary.clone(), limits, options)
                };
                Backend::Ours {
                    declared: compiler(MemberOrder::Declared),
                    any: compiler(MemberOrder::Any),
                    guards,
                }
            }
        };
        Ok(Self {
            backend,
            tokenizer,
            repeat: repeat.max(1),
        })
    }

    /// Compiles and walks a case in the declared order of members, with its times.
    pub(crate) fn walk(&self, case: &Case, collection: Collection) -> Outcome {
        let mut outcome = Outcome::default();
        let done = catch_unwind(AssertUnwindSafe(|| {
            self.walk_inner(case, collection, &mut outcome)
        }));
        if done.is_err() {
            panicked(&mut outcome);
        }
        outcome
    }

    /// Judges again what the declared order rejected: the order of members is no part of validity, and collections do not keep
    /// the schema's. Apart from [`walk`](Self::walk), whose times it would disturb.
    pub(crate) fn reorder(&self, case: &Case, collection: Collection, outcome: &mut Outcome) {
        let tests = std::mem::take(&mut outcome.reordered);
        if tests.is_empty() {
            return;
        }
        let done = catch_unwind(AssertUnwindSafe(|| {
            let mut made = self.start(&schema(case, collection), MemberOrder::Any);
            for i in tests {
                let verdict = match (&mut made, case.tests.get(i)) {
                    (Ok((ready, ..)), Some(test)) => {
                        self.instance(ready, &test.data.to_string(), &mut Vec::new())
                    }
                    (Err(e), _) => Err(format!("in any order: {e}")),
                    (_, None) => continue,
                };
                outcome.judge(case, i, verdict);
            }
        }));
        if done.is_err() {
            panicked(outcome);
        }
    }

    fn walk_inner(&self, case: &Case, collection: Collection, outcome: &mut Outcome) {
        let schema = schema(case, collection);
        let mut ready = None;
        for _ in 0..self.repeat {
            match self.start(&schema, MemberOrder::Declared) {
                Ok((made, compile, first)) => {
                    outcome.compile =
                        Some(outcome.compile.map_or(compile, |least| least.min(compile)));
                    outcome.first_mask =
                        Some(outcome.first_mask.map_or(first, |least| least.min(first)));
                    ready = Some(made);
                }
                Err(e) => {
                    outcome.note = e;
                    return;
                }
            }
        }
        let Some(mut ready) = ready else { return };
        let guards = matches!(&self.backend, Backend::Ours { guards: true, .. });
        for (i, test) in case.tests.iter().enumerate() {
            let verdict = self.instance(&mut ready, &test.data.to_string(), &mut outcome.steps);
            outcome.expected.push(test.valid);
            outcome.verdicts.push(Verdict::Failed);
            if guards && matches!(verdict, Ok(Some(_))) {
                outcome.reordered.push(i);
            }
            outcome.judge(case, i, verdict);
        }
    }

    /// The compiled `schema` with its first mask made: the time to compile it, and the time to that mask.
    fn start(
        &self,
        schema: &Value,
        order: MemberOrder,
    ) -> Result<(Ready, Duration, Duration), String> {
        let start = Instant::now();
        match &self.backend {
            Backend::Bare { env, factory } => {
                let mut schema = schema.clone();
                if let Value::Object(map) = &mut schema {
                    map.insert(
                        "x-guidance".to_owned(),
                        json!({"whitespace_flexible": false}),
                    );
                }
                let (grammar, lexer) =
                    GrammarInit::Serialized(TopLevelGrammar::from_json_schema(schema))
                        .to_internal(Some(env.clone()), factory.limits().clone())
                        .map_err(|e| first_line(&e))?;
                let compile = start.elapsed();
                let init = GrammarInit::Internal(grammar, lexer);
                let mut matcher =
                    llguidance::Matcher::new(factory.create_parser_from_init_default(init));
                matcher.compute_mask().map_err(|e| first_line(&e))?;
                Ok((Ready::Bare(Box::new(matcher)), compile, start.elapsed()))
            }
            Backend::Ours { declared, any, .. } => {
                let compiler = if order == MemberOrder::Any {
                    any
                } else {
                    declared
                };
                let source = GrammarSource::JsonSchema(schema.clone());
                let grammar = compiler
                    .compile(&source, &CancelToken::new())
                    .map_err(|e| e.to_string())?;
                let compile = start.elapsed();
                let mut mask = vec![0; compiler.vocabulary().logits().div_ceil(32)];
                grammar
                    .matcher()
                    .mask(&mut mask)
                    .map_err(|e| first_line(&e))?;
                Ok((Ready::Ours(grammar), compile, start.elapsed()))
            }
        }
    }

    /// Where `text` is rejected, as the text up to there; `None` where it is accepted.
    fn instance(
        &self,
        ready: &mut Ready,
        text: &str,
        steps: &mut Vec<Step>,
    ) -> Result<Option<String>, String> {
        let encoding = self
            .tokenizer
            .encode(text, false)
            .map_err(|e| e.to_string())?;
        let bounds = encoding.get_offsets();
        let shown = |at: usize| {
            let done = bounds.get(at).map_or(text.len(), |(start, _)| *start);
            let from = (0..=done.saturating_sub(60))
                .rev()
                .find(|i| text.is_char_boundary(*i))
                .unwrap_or(0);
            Some(text.get(from..done).unwrap_or("…").to_owned())
        };
        let ids = encoding.get_ids();
        let (at, ends) = match ready {
            Ready::Bare(matcher) => walk_bare(matcher, ids, steps)?,
            Ready::Ours(grammar) => walk_ours(grammar, ids, steps)?,
        };
        Ok(match at {
            Some(at) => shown(at),
            None if ends => None,
            None => shown(ids.len()).map(|s| format!("{s}<end>")),
        })
    }
}

/// The index of the token that is rejected, if one is, and whether the text may end after the last.
fn walk_bare(
    matcher: &mut llguidance::Matcher,
    ids: &[u32],
    steps: &mut Vec<Step>,
) -> Result<(Option<usize>, bool), String> {
    matcher.reset().map_err(|e| e.to_string())?;
    for (i, id) in ids.iter().enumerate() {
        if matcher.is_stopped() {
            return Ok((Some(i), false));
        }
        let start = Instant::now();
        let made = matcher.compute_mask().map_err(|e| e.to_string())?;
        let mask = start.elapsed();
        if !made.is_allowed(*id) {
            steps.push(Step { mask, whole: mask });
            return Ok((Some(i), false));
        }
        matcher.consume_token(*id).map_err(|e| e.to_string())?;
        let whole = start.elapsed();
        steps.push(Step { mask, whole });
    }
    let ends = matcher.is_stopped() || matcher.is_accepting().map_err(|e| e.to_string())?;
    Ok((None, ends))
}

fn walk_ours(
    grammar: &Arc<CompiledGrammar>,
    ids: &[u32],
    steps: &mut Vec<Step>,
) -> Result<(Option<usize>, bool), String> {
    let mut matcher = grammar.matcher();
    let mut words = vec![0; grammar.vocabulary().logits().div_ceil(32)];
    for (i, id) in ids.iter().enumerate() {
        let start = Instant::now();
        let status = matcher.mask(&mut words).map_err(|e| e.to_string())?;
        let mask = start.elapsed();
        let at = usize::try_from(*id).map_err(|e| e.to_string())?;
        let allowed = words
            .get(at / 32)
            .is_some_and(|word| word >> (at % 32) & 1 == 1);
        if status == MaskStatus::Terminated || !allowed {
            steps.push(Step { mask, whole: mask });
            return Ok((Some(i), false));
        }
        let accepted = matcher.accept(*id);
        let whole = start.elapsed();
        steps.push(Step { mask, whole });
        match accepted {
            Ok(Accepted::Taken) => {}
            Ok(Accepted::Rewound { .. }) => return Ok((Some(i), false)),
            // Nothing else may follow either.
            Err(e)
                if e.kind() == GrammarErrorKind::GuardExhausted
                    || e.kind() == GrammarErrorKind::DeadEnd =>
            {
                return Ok((Some(i), false));
            }
            Err(e) => return Err(e.to_string()),
        }
    }
    Ok((None, matcher.may_end().map_err(|e| e.to_string())?))
}

/// A schema of the suite belongs to the dialect of its directory, which it mostly states itself.
fn schema(case: &Case, collection: Collection) -> Value {
    let mut schema = case.schema.clone();
    if let (Collection::Suite, Value::Object(map)) = (collection, &mut schema) {
        let dialect = match case.id.starts_with("draft7/") {
            true => "http://json-schema.org/draft-07/schema#",
            false => "https://json-schema.org/draft/2020-12/schema",
        };
        map.entry("$schema").or_insert_with(|| json!(dialect));
    }
    schema
}

fn panicked(outcome: &mut Outcome) {
    outcome.note = "panic".to_owned();
    outcome.compile = Some(Duration::ZERO);
    outcome.verdicts = vec![Verdict::Failed];
    outcome.expected = vec![true];
}

fn first_line(e: &dyn fmt::Display) -> String {
    e.to_string().lines().next().unwrap_or_default().to_owned()
}
