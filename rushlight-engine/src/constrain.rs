//! What a sequence may say next: the contract between the loop and whatever enforces a grammar.
//!
//! A constraint follows one sequence. Before a token is sampled the loop asks for a [mask](Constraint::mask); after it is
//! sampled the loop reports it with [`accept`](Constraint::accept). Three rules hold for every implementation:
//!
//! - Stop ids are legal exactly where the text may end, and nowhere else. Accepting one ends the text.
//! - Control tokens are never content: no mask has the bit of one, unless the grammar names that token.
//! - Ids past the tokenizer's vocabulary, and ids that spell nothing, are never legal, however wide the logits are.
//!
//! Bits are LSB first: token `t` is bit `t % 32` of word `t / 32`.

use std::error::Error;
use std::fmt;

use crate::error::Fault;

/// What a mask means.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MaskStatus {
    /// The text is whole and nothing may follow: stop. The buffer was left as it was.
    Terminated,
    /// Any token may follow: sample freely. The text is not finished. The buffer was left as it was.
    Unconstrained,
    /// Exactly the tokens whose bits are set may follow; at least one is.
    Constrained,
}

/// What became of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Accepted {
    /// The token is part of the text.
    Taken,
    /// The token would leave no valid continuation: it is excluded where it stood, and `tokens` earlier ones are undone.
    ///
    /// The constraint has already gone back. The loop drops the same number of tokens from the sequence (states, text,
    /// penalties) and samples again under a new mask; with 0 it draws again from the logits it has.
    Rewound {
        /// Accepted tokens to undo, counted from the newest; the refused token itself is not among them.
        tokens: usize,
    },
}

/// What a constraint did beside masking, for reports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ConstraintCounts {
    /// Masks given.
    pub masks: u64,
    /// Tokens refused after sampling, because a rule beside the grammar or the token budget excluded them.
    pub excluded: u64,
    /// Choices that the token budget narrowed to what ends in time: above 0, the answer might have gone on otherwise.
    pub curtailed: u64,
    /// Accepted tokens that a refusal undid.
    pub rewound: u64,
    /// Tokens offered as [forced](Constraint::forced).
    pub forced: u64,
    /// Times the tokenizer's own spelling of forced text was not a spelling of that text, so that nothing was forced.
    pub disagreements: u64,
}

/// Why a constraint failed, and whose fault it is; the loop passes it on as a cause.
#[derive(Debug)]
pub struct ConstraintError {
    fault: Fault,
    cause: Box<dyn Error + Send + Sync>,
}

impl ConstraintError {
    /// An error that `cause` says in its own words.
    pub fn new(fault: Fault, cause: impl Into<Box<dyn Error + Send + Sync>>) -> ConstraintError {
        ConstraintError {
            fault,
            cause: cause.into(),
        }
    }

    /// Whose fault it is.
    pub fn fault(&self) -> Fault {
        self.fault
    }

    /// The error as the constraint knows it.
    pub fn cause(&self) -> &(dyn Error + Send + Sync + 'static) {
        &*self.cause
    }

    pub(crate) fn into_cause(self) -> Box<dyn Error + Send + Sync> {
        self.cause
    }
}

impl fmt::Display for ConstraintError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.cause.fmt(f)
    }
}

impl Error for ConstraintError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.cause.source()
    }
}

/// Follows one sequence and says what may come next.
pub trait Constraint: Send {
    /// Ids that a mask covers: the width of the model's logits. A buffer has `vocab().div_ceil(32)` words.
    fn vocab(&self) -> usize;

    /// Writes the tokens that may come next into `mask`: one bit an id, LSB first, `vocab().div_ceil(32)` words.
    ///
    /// # Errors
    /// The buffer has another length; no token continues a text that may not end; the mask would cost more than its
    /// limit; an earlier call failed.
    fn mask(&mut self, mask: &mut [u32]) -> Result<MaskStatus, ConstraintError>;

    /// Takes a sampled or forced token.
    ///
    /// # Errors
    /// The token is not legal here (the constraint stays usable, as it was); no continuation is left after the rewinds
    /// that the constraint may take (it does not).
    fn accept(&mut self, token: u32) -> Result<Accepted, ConstraintError>;

    /// The tokens of the text that must come next, as the tokenizer spells it; empty where there is a choice.
    ///
    /// Nothing changes until they are [accepted](Self::accept). A last token that could straddle into free text is left out,
    /// for the sampler to choose.
    ///
    /// # Errors
    /// An earlier call failed.
    fn forced(&mut self) -> Result<Vec<u32>, ConstraintError>;

    /// Undoes the newest `tokens` accepted tokens.
    ///
    /// # Errors
    /// Fewer tokens were accepted; an earlier call failed.
    fn rollback(&mut self, tokens: usize) -> Result<(), ConstraintError>;

    /// An independent constraint in the same state.
    ///
    /// # Errors
    /// An earlier call failed.
    fn fork(&self) -> Result<Box<dyn Constraint>, ConstraintError>;

    /// Whether the text may end here; true after it has ended.
    ///
    /// # Errors
    /// An earlier call failed.
    fn may_end(&mut self) -> Result<bool, ConstraintError>;

    /// Tokens accepted and not undone, stop ids included.
    fn accepted(&self) -> usize;

    /// How many of the [accepted](Self::accepted) tokens no refusal will undo. It never falls but by a
    /// [rollback](Self::rollback). The loop shows no more than these, so that nothing shown is taken back.
    fn firm(&self) -> usize;

    /// Says that at most `tokens` more tokens will be sampled, so that the text should be whole by then. Where no way to the end
    /// is found that fits, the text goes on and the limit cuts it.
    ///
    /// # Errors
    /// The shortest text that the constraint accepts needs more tokens.
    fn budget(&mut self, tokens: usize) -> Result<(), ConstraintError>;

    /// What it did so far.
    fn counts(&self) -> ConstraintCounts;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(reason: &str) -> ConstraintError {
        ConstraintError::new(Fault::Request, reason)
    }

    /// Allows the given tokens in turn, then terminates: the smallest thing that the trait describes.
    #[derive(Clone)]
    struct Script {
        tokens: Vec<u32>,
        at: usize,
    }

    impl Constraint for Script {
        fn vocab(&self) -> usize {
            40
        }

        fn mask(&mut self, mask: &mut [u32]) -> Result<MaskStatus, ConstraintError> {
            let Some(&token) = self.tokens.get(self.at) else {
                return Ok(MaskStatus::Terminated);
            };
            mask.fill(0);
            mask[token as usize / 32] |= 1 << (token % 32);
            Ok(MaskStatus::Constrained)
        }

        fn accept(&mut self, token: u32) -> Result<Accepted, ConstraintError> {
            if self.tokens.get(self.at) != Some(&token) {
                return Err(request("illegal"));
            }
            self.at += 1;
            Ok(Accepted::Taken)
        }

        fn forced(&mut self) -> Result<Vec<u32>, ConstraintError> {
            Ok(self.tokens[self.at..].to_vec())
        }

        fn rollback(&mut self, tokens: usize) -> Result<(), ConstraintError> {
            self.at = self
                .at
                .checked_sub(tokens)
                .ok_or_else(|| request("too many"))?;
            Ok(())
        }

        fn fork(&self) -> Result<Box<dyn Constraint>, ConstraintError> {
            Ok(Box::new(self.clone()))
        }

        fn may_end(&mut self) -> Result<bool, ConstraintError> {
            Ok(self.at == self.tokens.len())
        }

        fn accepted(&self) -> usize {
            self.at
        }

        fn firm(&self) -> usize {
            self.at
        }

        fn budget(&mut self, tokens: usize) -> Result<(), ConstraintError> {
            if tokens < self.tokens.len() - self.at {
                return Err(request("too few"));
            }
            Ok(())
        }

        fn counts(&self) -> ConstraintCounts {
            ConstraintCounts::default()
        }
    }

    #[test]
    fn a_constraint_is_an_object_that_forks_and_rolls_back() {
        let mut script: Box<dyn Constraint> = Box::new(Script {
            tokens: vec![33, 2],
            at: 0,
        });
        let mut mask = vec![0; script.vocab().div_ceil(32)];
        assert_eq!(script.mask(&mut mask).unwrap(), MaskStatus::Constrained);
        assert_eq!(mask, [0, 2]);
        let mut fork = script.fork().unwrap();
        script.accept(33).unwrap();
        script.accept(2).unwrap();
        assert_eq!(script.mask(&mut mask).unwrap(), MaskStatus::Terminated);
        script.rollback(2).unwrap();
        assert_eq!(script.accepted(), fork.accepted());
        assert_eq!(script.forced().unwrap(), fork.forced().unwrap());
        assert!(script.budget(1).is_err());
    }
}
