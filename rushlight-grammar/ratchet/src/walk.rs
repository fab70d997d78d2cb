//! One case: compile, then walk each instance token by token.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use llguidance::api::{GrammarInit, TopLevelGrammar};
use llguidance::{Matcher, ParserFactory};
use rushlight_grammar::json_schema::{SchemaOptions, compile_schema};
use rushlight_grammar::lower::{Guard, GuardStep};
use serde_json::{Value, json};
use toktrie::{ApproximateTokEnv, TokEnv, TokRxInfo, TokTrie};

use crate::cases::{Case, Collection};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Engine {
    Ours { guards: bool },
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
    pub(crate) compile: Option<Duration>,
    pub(crate) first_mask: Option<Duration>,
    pub(crate) masks: Vec<Duration>,
}

impl Outcome {
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

pub(crate) struct Walker {
    engine: Engine,
    tokenizer: tokenizers::Tokenizer,
    env: TokEnv,
    factory: ParserFactory,
}

impl Walker {
    pub(crate) fn new(path: &Path, engine: Engine) -> Result<Self, String> {
        let at = |e: &dyn fmt::Display| format!("{}: {e}", path.display());
        let text = std::fs::read_to_string(path).map_err(|e| at(&e))?;
        let value: Value = serde_json::from_str(&text).map_err(|e| at(&e))?;
        let words = llguidance::token_bytes_from_tokenizer_json(&value).map_err(|e| at(&e))?;
        let tokenizer: tokenizers::Tokenizer = text.parse().map_err(|e| at(&e))?;
        let size = u32::try_from(words.len()).map_err(|e| at(&e))?;
        let eos = ["<|eot_id|>", "<|end_of_text|>", "</s>", "<|endoftext|>"]
            .iter()
            .find_map(|name| tokenizer.token_to_id(name))
            .unwrap_or(0);
        let env: TokEnv = Arc::new(ApproximateTokEnv::new(TokTrie::from(&TokRxInfo::new(size, eos), &words)));
        let mut factory = ParserFactory::new_simple(&env).map_err(|e| at(&e))?;
        factory.quiet();
        Ok(Self {
            engine,
            tokenizer,
            env,
            factory,
        })
    }

    pub(crate) fn walk(&self, case: &Case, collection: Collection) -> Outcome {
        let mut outcome = Outcome::default();
        let done = catch_unwind(AssertUnwindSafe(|| self.walk_inner(case, collection, &mut outcome)));
        if done.is_err() {
            outcome.note = "panic".to_owned();
            outcome.compile = Some(Duration::ZERO);
            outcome.verdicts.push(Verdict::Failed);
            outcome.expected = vec![true];
        }
        outcome
    }

    fn walk_inner(&self, case: &Case, collection: Collection, outcome: &mut Outcome) {
        let start = Instant::now();
        let compiled = self.compile(case, collection);
        let (grammar, guards) = match compiled {
            Ok(compiled) => compiled,
            Err(e) => {
                outcome.note = e;
                return;
            }
        };
        let compile = start.elapsed();
        let mut matcher = Matcher::new(self.factory.create_parser_from_init_default(grammar));
        if let Err(e) = matcher.compute_mask() {
            outcome.note = e.to_string().lines().next().unwrap_or_default().to_owned();
            return;
        }
        outcome.first_mask = Some(start.elapsed());
        outcome.compile = Some(compile);
        for (i, test) in case.tests.iter().enumerate() {
            let text = test.data.to_string();
            let verdict = self.instance(&mut matcher, &guards, &text, &mut outcome.masks);
            outcome.expected.push(test.valid);
            match verdict {
                Ok(at) => {
                    let accepted = at.is_none();
                    outcome.verdicts.push(if accepted { Verdict::Accept } else { Verdict::Reject });
                    if accepted != test.valid {
                        let shown: String = text.chars().take(1500).collect();
                        outcome.note.push_str(&format!("\n  test {i} valid {} at {at:?}: {shown}", test.valid));
                    }
                }
                Err(e) => {
                    outcome.verdicts.push(Verdict::Failed);
                    outcome.note.push_str(&format!("\n  test {i}: {}", e.lines().next().unwrap_or_default()));
                }
            }
        }
    }

    fn compile(&self, case: &Case, collection: Collection) -> Result<(GrammarInit, Vec<Arc<dyn Guard>>), String> {
        let mut schema = case.schema.clone();
        // A schema of the suite belongs to the dialect of its directory, which it mostly states itself.
        if let (Collection::Suite, Value::Object(map)) = (collection, &mut schema) {
            let dialect = match case.id.starts_with("draft7/") {
                true => "http://json-schema.org/draft-07/schema#",
                false => "https://json-schema.org/draft/2020-12/schema",
            };
            map.entry("$schema").or_insert_with(|| json!(dialect));
        }
        match self.engine {
            Engine::Bare => {
                if let Value::Object(map) = &mut schema {
                    map.insert("x-guidance".to_owned(), json!({"whitespace_flexible": false}));
                }
                let grammar = GrammarInit::Serialized(TopLevelGrammar::from_json_schema(schema));
                let (grammar, lexer) = grammar
                    .to_internal(Some(self.env.clone()), self.factory.limits().clone())
                    .map_err(|e| e.to_string())?;
                Ok((GrammarInit::Internal(grammar, lexer), Vec::new()))
            }
            Engine::Ours { guards } => {
                let mut options = SchemaOptions::default();
                options.guards = guards;
                let compiled = compile_schema(&schema, &options).map_err(|e| e.to_string())?;
                Ok((compiled.grammar, compiled.guards))
            }
        }
    }

    /// Where `text` is rejected, as the text up to there; `None` where it is accepted.
    fn instance(
        &self,
        matcher: &mut Matcher,
        guards: &[Arc<dyn Guard>],
        text: &str,
        masks: &mut Vec<Duration>,
    ) -> Result<Option<String>, String> {
        matcher.reset().map_err(|e| e.to_string())?;
        let encoding = self.tokenizer.encode_fast(text, false).map_err(|e| e.to_string())?;
        let mut runs: Vec<_> = guards.iter().map(|g| g.begin()).collect();
        let mut done = 0;
        let shown = |done: usize| Some(text.get(done.saturating_sub(60)..done).unwrap_or("…").to_owned());
        for token in encoding.get_ids() {
            if matcher.is_stopped() {
                return Ok(shown(done));
            }
            let start = Instant::now();
            let mask = matcher.compute_mask().map_err(|e| e.to_string())?;
            masks.push(start.elapsed());
            if !mask.is_allowed(*token) {
                return Ok(shown(done));
            }
            for byte in self.env.tok_trie().token(*token) {
                for run in &mut runs {
                    if run.push(*byte) != GuardStep::Accept {
                        return Ok(shown(done));
                    }
                }
                done += 1;
            }
            matcher.consume_token(*token).map_err(|e| e.to_string())?;
        }
        let ends = matcher.is_stopped() || matcher.is_accepting().map_err(|e| e.to_string())?;
        let agreed = runs.iter().all(|run| run.finish() == GuardStep::Accept);
        Ok(if ends && agreed { None } else { shown(done).map(|s| format!("{s}<end>")) })
    }
}
