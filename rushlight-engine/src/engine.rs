//! An engine: a plan over a program, from which sequences and generations are made.

use std::sync::Arc;

use rushlight_ir::backend::{Bounded, Lane, Memory, Program, StateOptions};
use rushlight_ir::graph::Signature;

use crate::error::{EngineError, ErrorKind, Result};
use crate::generate::{Batch, Generation};
use crate::plan::{EngineVariant, KvCacheStrategy, KvOptions, Plan, PrefillOptions, PrefillPlan};
use crate::request::GenerateOptions;
use crate::run::{ROWS, Run, Setting, check_ids};
use crate::sample::SampleVocab;
use crate::sequence::Sequence;
use crate::step::backend_error;

/// How an engine runs a program.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EngineOptions {
    /// Which plan to use.
    pub variant: EngineVariant,
    /// How prompts are cut into passes.
    pub prefill: PrefillOptions,
    /// How sequences take memory.
    pub kv_cache: KvOptions,
    /// Positions a sequence may have; `None` takes the model's own context. A `fixed_size` cache may
    /// make it less.
    pub context: Option<usize>,
}

impl EngineOptions {
    /// Fails on the first option that no model could take, so that none need be loaded to find out.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidOption`] naming the field.
    pub fn check(&self) -> Result<()> {
        PrefillPlan::new(1, &self.prefill)?;
        self.kv_cache.check(self.context.unwrap_or(usize::MAX))
    }

    /// Fails on the first option that a model of this signature cannot take, as [`Engine::new`] would:
    /// a signature is known before weights are read.
    ///
    /// # Errors
    /// [`ErrorKind::UnsupportedPlan`] where the variant cannot run the program's structure;
    /// [`ErrorKind::InvalidOption`] for a context of 0 or beyond the model's, or a KV capacity that
    /// does not fit it.
    pub fn check_for(&self, signature: &Signature) -> Result<()> {
        self.resolve(signature).map(drop)
    }

    /// The plan, and the positions that a sequence may have.
    fn resolve(&self, signature: &Signature) -> Result<(Plan, usize)> {
        let plan = Plan::choose(self.variant, &[signature.function.as_str()])?;
        let context = self.context.unwrap_or(signature.context);
        if context == 0 || context > signature.context {
            return Err(EngineError::invalid_option(
                "context",
                context,
                format!("from 1 to {}, the model's own", signature.context),
            ));
        }
        PrefillPlan::new(1, &self.prefill)?;
        // A bounded cache forgets rather than ends; a fixed one ends.
        let context = match self.kv_cache.strategy {
            KvCacheStrategy::FixedSize => self.kv_cache.max_tokens(context)?,
            KvCacheStrategy::Auto | KvCacheStrategy::Growing | KvCacheStrategy::Chunked => {
                self.kv_cache.check(context)?;
                context
            }
        };
        Ok((plan, context))
    }
}

/// A plan over a program. Any number of sequences can use one engine at a time.
///
/// ```text
/// sequence ──generate(prompt)──► Generation: Iterator<Item = Result<Step>> ──► Outcome
/// ```
pub struct Engine {
    program: Arc<dyn Program>,
    plan: Plan,
    options: EngineOptions,
    vocab: SampleVocab,
    context: usize,
}

impl Engine {
    /// An engine over `program`, sampling from `vocab`.
    ///
    /// # Errors
    /// As [`EngineOptions::check_for`]; [`ErrorKind::LogitsWidth`] where vocabulary and program differ in width.
    pub fn new(
        program: Arc<dyn Program>,
        vocab: SampleVocab,
        options: EngineOptions,
    ) -> Result<Engine> {
        let signature = program.signature();
        if vocab.width() != signature.logits {
            return Err(ErrorKind::LogitsWidth {
                found: vocab.width(),
                expected: signature.logits,
            }
            .into());
        }
        let (plan, context) = options.resolve(signature)?;
        Ok(Engine {
            program,
            plan,
            options,
            vocab,
            context,
        })
    }

    /// Positions a sequence may have, in tokens.
    pub fn context(&self) -> usize {
        self.context
    }

    /// What the engine runs.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// What may be sampled.
    pub fn vocab(&self) -> &SampleVocab {
        &self.vocab
    }

    /// Bytes that the program holds, and that sequences take.
    pub fn memory(&self) -> Memory {
        self.program.memory()
    }

    /// A sequence without history, with the memory that the strategy takes at once.
    ///
    /// # Errors
    /// Memory that cannot be had.
    pub fn sequence(&self) -> Result<Sequence> {
        let kv = &self.options.kv_cache;
        let bounded = match kv.strategy {
            KvCacheStrategy::Chunked => Some(Bounded {
                sinks: kv.sinks(),
                window: kv.max_tokens(self.context)? - kv.sinks(),
            }),
            KvCacheStrategy::Auto | KvCacheStrategy::Growing | KvCacheStrategy::FixedSize => None,
        };
        let options = StateOptions {
            reserve: kv.initial_tokens(self.context)?.unwrap_or(0),
            bounded,
        };
        let states = self.program.states(&options).map_err(backend_error)?;
        Ok(Sequence::new(states))
    }

    /// Reads `prompt` and answers it. What the sequence's history and the prompt begin with alike is
    /// not read again. Nothing is run before the first step is asked for.
    ///
    /// # Errors
    /// [`ErrorKind::EmptyPrompt`], [`ErrorKind::ContextOverflow`], [`ErrorKind::TokenOutOfRange`], or
    /// the option that is out of its range; the sequence is then as it was.
    pub fn generate<'a>(
        &'a self,
        sequence: &'a mut Sequence,
        prompt: &[u32],
        options: GenerateOptions,
    ) -> Result<Generation<'a>> {
        let run = self.begin(sequence, prompt, options)?;
        Ok(Generation::new(&self.program, &self.plan, sequence, run))
    }

    /// Answers several prompts side by side, each on its own sequence.
    ///
    /// # Errors
    /// Those of [`generate`](Engine::generate), for the first request that has one.
    pub fn generate_batch<'a>(
        &'a self,
        requests: impl IntoIterator<Item = (&'a mut Sequence, Vec<u32>, GenerateOptions)>,
    ) -> Result<Batch<'a>> {
        let members = requests.into_iter().map(|(sequence, prompt, options)| {
            let run = self.begin(sequence, &prompt, options)?;
            Ok((run, sequence))
        });
        Ok(Batch::new(&*self.program, members.collect::<Result<_>>()?))
    }

    /// Appends `tokens` to the sequence and shows the logits after each of the last `rows` of them:
    /// `visit(i, logits)` with `i` an index into `tokens` and `logits` `[width]`.
    ///
    /// # Errors
    /// As [`generate`](Engine::generate); an error of `visit` ends it.
    pub fn score(
        &self,
        sequence: &mut Sequence,
        tokens: &[u32],
        rows: usize,
        mut visit: impl FnMut(usize, &[f32]) -> Result<()>,
    ) -> Result<()> {
        if tokens.is_empty() {
            return Err(ErrorKind::EmptyPrompt.into());
        }
        check_ids("the tokens", tokens, &self.vocab)?;
        // The last token of an answer was sampled and not run: it comes first.
        let pending = sequence.unheld().to_vec();
        let length = sequence.len() + tokens.len();
        if length > self.context {
            return Err(ErrorKind::ContextOverflow {
                prompt: length,
                context: self.context,
            }
            .into());
        }
        let all = [&pending[..], tokens].concat();
        let first_row = all.len() - rows.min(tokens.len());
        let mut at = 0;
        while at < all.len() {
            let end = if at < first_row {
                first_row.min(at + self.options.prefill.chunk)
            } else {
                all.len().min(at + ROWS)
            };
            let wanted = if at < first_row { 0 } else { end - at };
            let mut lane = [Lane {
                states: &mut **sequence.states()?,
                tokens: &all[at..end],
                logits: wanted,
            }];
            let logits = self.program.submit(&mut lane).map_err(backend_error)?;
            sequence.extend(&all[at.max(pending.len()).min(end)..end]);
            for row in 0..wanted {
                visit(at + row - pending.len(), &logits.row(row))?;
            }
            at = end;
        }
        Ok(())
    }

    fn begin(&self, sequence: &Sequence, prompt: &[u32], options: GenerateOptions) -> Result<Run> {
        let setting = Setting {
            vocab: &self.vocab,
            prefill: &self.options.prefill,
            context: self.context,
        };
        Run::begin(sequence, prompt, options, &setting)
    }
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine")
            .field("function", &self.program.signature().function)
            .field("plan", &self.plan)
            .field("context", &self.context)
            .finish_non_exhaustive()
    }
}
