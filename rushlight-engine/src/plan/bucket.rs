//! Passes of fixed shape: a table of compiled functions, each for one context and query length.

use super::unknown_structure;
use crate::error::Result;

const PREFIX: &str = "extend";

/// One compiled function.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bucket {
    /// Positions the function's states hold.
    pub context: usize,
    /// Tokens the function takes; a shorter pass is padded.
    pub query: usize,
}

impl Bucket {
    /// The function's name, `extend_<context>_<query>`.
    pub fn function(&self) -> String {
        format!("{PREFIX}_{}_{}", self.context, self.query)
    }

    fn parse(name: &str) -> Option<Self> {
        let (context, query) = name
            .strip_prefix(PREFIX)?
            .strip_prefix('_')?
            .split_once('_')?;
        let bucket = Self {
            context: context.parse().ok()?,
            query: query.parse().ok()?,
        };
        (bucket.context > 0 && bucket.query > 0).then_some(bucket)
    }
}

/// A pass through a bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BucketStep {
    /// The function to run.
    pub bucket: Bucket,
    /// Real tokens in the pass: from 1 to the bucket's `query`. The rest is padding.
    pub tokens: usize,
}

/// The compiled functions of a chunked static model: at least one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Buckets(Vec<Bucket>);

impl Buckets {
    /// The buckets among a model's function names.
    ///
    /// # Errors
    /// [`UnknownStructure`](crate::ErrorKind::UnknownStructure) where there is none, or an `extend`
    /// function's name does not give a context and a query length above 0.
    pub fn of<S: AsRef<str>>(functions: &[S]) -> Result<Self> {
        let mut buckets = Vec::new();
        let names = functions.iter().map(AsRef::as_ref);
        for name in names.filter(|name| is_extend(name)) {
            let malformed = || {
                let reason = format!("'{name}' is not extend_<context>_<query>");
                unknown_structure(functions, reason)
            };
            buckets.push(Bucket::parse(name).ok_or_else(malformed)?);
        }
        if buckets.is_empty() {
            let reason = "there is no extend_<context>_<query>";
            return Err(unknown_structure(functions, reason));
        }
        buckets.sort_unstable();
        buckets.dedup();
        Ok(Self(buckets))
    }

    /// The buckets, by context and then by query length.
    pub fn as_slice(&self) -> &[Bucket] {
        &self.0
    }

    /// The most tokens one pass takes.
    pub fn max_query(&self) -> usize {
        self.0.iter().map(|bucket| bucket.query).max().unwrap_or(0)
    }

    /// The most positions a sequence can have.
    pub fn max_context(&self) -> usize {
        self.0.last().map_or(0, |bucket| bucket.context)
    }

    /// The pass for the next `tokens` tokens of a sequence that has `position` of them behind it:
    /// the one that takes most of them, and of those the smallest context, then the smallest query.
    /// Padding needs no room in the context. `None` where `tokens` is 0 or the context is full.
    pub fn step(&self, position: usize, tokens: usize) -> Option<BucketStep> {
        let taken = |bucket: &Bucket| {
            let room = bucket.context.saturating_sub(position);
            bucket.query.min(room).min(tokens)
        };
        let most = self.0.iter().map(taken).max().filter(|&most| most > 0)?;
        let bucket = *self.0.iter().find(|bucket| taken(bucket) == most)?;
        Some(BucketStep {
            bucket,
            tokens: most,
        })
    }
}

pub(super) fn is_extend(name: &str) -> bool {
    name.strip_prefix(PREFIX)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('_'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grid() -> Buckets {
        let mut names = vec!["load_embeddings".to_owned()];
        for context in [4096, 256, 512, 1024, 2048] {
            names.extend([64, 8, 16].map(|query| Bucket { context, query }.function()));
        }
        Buckets::of(&names).unwrap()
    }

    #[test]
    fn eng_3_the_smallest_bucket_that_fits() {
        let grid = grid();
        for (position, expected) in [
            (0, Some("extend_256_8")),
            (250, Some("extend_256_8")),
            (256, Some("extend_512_8")),
            (2050, Some("extend_4096_8")),
            (4096, None),
        ] {
            let step = grid.step(position, 1);
            assert_eq!(
                step.map(|s| s.bucket.function()).as_deref(),
                expected,
                "{position}"
            );
        }
        assert_eq!((grid.max_query(), grid.max_context()), (64, 4096));
    }

    #[test]
    fn longer_passes_take_what_fits() {
        let grid = grid();
        let step = |position, tokens| {
            let step = grid.step(position, tokens).unwrap();
            (step.bucket.function(), step.tokens)
        };
        assert_eq!(step(0, 9), ("extend_256_16".to_owned(), 9));
        assert_eq!(step(0, 500), ("extend_256_64".to_owned(), 64));
        // 16 tokens from 250 on need the next context; the last 6 positions take 6.
        assert_eq!(step(250, 16), ("extend_512_16".to_owned(), 16));
        assert_eq!(step(4090, 64), ("extend_4096_8".to_owned(), 6));
        assert_eq!(grid.step(10, 0), None);
    }
}
