//! A matcher as the generation loop sees it.

use rushlight_engine::constrain::{
    Accepted, Constraint, ConstraintCounts, ConstraintError, MaskStatus,
};

use super::Matcher;

impl Constraint for Matcher {
    fn vocab(&self) -> usize {
        self.vocabulary().logits()
    }

    fn mask(&mut self, mask: &mut [u32]) -> Result<MaskStatus, ConstraintError> {
        Ok(Matcher::mask(self, mask)?)
    }

    fn accept(&mut self, token: u32) -> Result<Accepted, ConstraintError> {
        Ok(Matcher::accept(self, token)?)
    }

    fn forced(&mut self) -> Result<Vec<u32>, ConstraintError> {
        Ok(Matcher::forced(self)?)
    }

    fn rollback(&mut self, tokens: usize) -> Result<(), ConstraintError> {
        Ok(Matcher::rollback(self, tokens)?)
    }

    fn fork(&self) -> Result<Box<dyn Constraint>, ConstraintError> {
        Ok(Box::new(Matcher::fork(self)?))
    }

    fn may_end(&mut self) -> Result<bool, ConstraintError> {
        Ok(Matcher::may_end(self)?)
    }

    fn accepted(&self) -> usize {
        self.tokens.len()
    }

    fn firm(&self) -> usize {
        Matcher::firm(self)
    }

    fn budget(&mut self, tokens: usize) -> Result<(), ConstraintError> {
        Ok(Matcher::budget(self, tokens)?)
    }

    fn counts(&self) -> ConstraintCounts {
        Matcher::counts(self)
    }
}
