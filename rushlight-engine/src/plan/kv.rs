//! How many positions of KV memory a sequence takes, and when.

use std::fmt;
use std::str::FromStr;

use crate::error::{EngineError, Result};

/// Positions that `growing` takes first.
const GROWING_START: usize = 256;
/// Positions that `chunked` holds unless told otherwise.
const CHUNKED_CAPACITY: usize = 4096;
/// First positions that `chunked` never drops unless told otherwise. Attention settles on the first
/// few tokens whatever they say (Xiao et al., *Efficient Streaming Language Models with Attention
/// Sinks*, 2023).
const CHUNKED_SINKS: usize = 4;

/// How pages of KV memory are taken.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum KvCacheStrategy {
    /// As pages are needed, up to the context.
    #[default]
    Auto,
    /// A first run of pages, then more as needed, up to the context.
    Growing,
    /// Everything at once, and never more.
    FixedSize,
    /// A bounded number of positions: the first few and a window of the last ones.
    Chunked,
}

impl KvCacheStrategy {
    /// Every strategy.
    pub const ALL: [Self; 4] = [Self::Auto, Self::Growing, Self::FixedSize, Self::Chunked];

    /// The strategy's name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Growing => "growing",
            Self::FixedSize => "fixed_size",
            Self::Chunked => "chunked",
        }
    }
}

impl fmt::Display for KvCacheStrategy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for KvCacheStrategy {
    type Err = EngineError;

    fn from_str(name: &str) -> Result<Self> {
        Self::ALL
            .into_iter()
            .find(|strategy| strategy.name() == name)
            .ok_or_else(|| {
                let valid = Self::ALL.map(Self::name);
                EngineError::unknown_name("kv_cache_strategy", name, valid)
            })
    }
}

/// A strategy and its sizes, in positions (tokens).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct KvOptions {
    /// How pages are taken.
    pub strategy: KvCacheStrategy,
    /// Positions taken at the start; for `fixed_size` also the most there will be. Above 0, at
    /// most the context. Not for `chunked`, whose size is its capacity.
    pub initial_capacity: Option<usize>,
    /// `chunked` only: the most positions held at once, sinks included. Above the sinks, at most
    /// the context. Default 4,096 or the context, whichever is less.
    pub capacity: Option<usize>,
    /// `chunked` only: first positions that are never dropped. Default 4.
    pub sinks: Option<usize>,
}

impl KvOptions {
    /// Fails with the name of the first field outside its range for a model whose context holds
    /// `context` positions; `usize::MAX` where that is not known yet.
    ///
    /// # Errors
    /// [`InvalidOption`](crate::ErrorKind::InvalidOption).
    pub fn check(&self, context: usize) -> Result<()> {
        if context == 0 {
            return Err(EngineError::invalid_option("context", 0, "at least 1"));
        }
        check_size("kv_cache_initial_capacity", self.initial_capacity, context)?;
        check_size("kv_cache_capacity", self.capacity, context)?;
        let chunked = self.strategy == KvCacheStrategy::Chunked;
        for (field, value, allowed, expected) in [
            (
                "kv_cache_initial_capacity",
                self.initial_capacity,
                !chunked,
                "left out with chunked, which takes its capacity",
            ),
            (
                "kv_cache_capacity",
                self.capacity,
                chunked,
                "left out unless kv_cache_strategy is chunked",
            ),
            (
                "kv_cache_sinks",
                self.sinks,
                chunked,
                "left out unless kv_cache_strategy is chunked",
            ),
        ] {
            if let Some(value) = value.filter(|_| !allowed) {
                return Err(EngineError::invalid_option(field, value, expected));
            }
        }
        let capacity = self.chunked_capacity(context);
        if chunked && self.sinks() >= capacity {
            let expected = format!("below the capacity, {capacity}");
            return Err(EngineError::invalid_option(
                "kv_cache_sinks",
                self.sinks(),
                expected,
            ));
        }
        Ok(())
    }

    /// Positions to take at the start; `None` where pages are taken as they are needed.
    ///
    /// # Errors
    /// As [`check`](Self::check).
    pub fn initial_tokens(&self, context: usize) -> Result<Option<usize>> {
        self.check(context)?;
        Ok(match self.strategy {
            KvCacheStrategy::Auto => self.initial_capacity,
            KvCacheStrategy::Growing => {
                let start = self.initial_capacity.unwrap_or(GROWING_START);
                Some(start.min(context))
            }
            KvCacheStrategy::FixedSize => Some(self.initial_capacity.unwrap_or(context)),
            KvCacheStrategy::Chunked => Some(self.chunked_capacity(context)),
        })
    }

    /// The most positions held at once.
    ///
    /// # Errors
    /// As [`check`](Self::check).
    pub fn max_tokens(&self, context: usize) -> Result<usize> {
        self.check(context)?;
        Ok(match self.strategy {
            KvCacheStrategy::Auto | KvCacheStrategy::Growing => context,
            KvCacheStrategy::FixedSize => self.initial_capacity.unwrap_or(context),
            KvCacheStrategy::Chunked => self.chunked_capacity(context),
        })
    }

    /// First positions that `chunked` never drops.
    pub fn sinks(&self) -> usize {
        self.sinks.unwrap_or(CHUNKED_SINKS)
    }

    fn chunked_capacity(&self, context: usize) -> usize {
        self.capacity.unwrap_or(CHUNKED_CAPACITY.min(context))
    }
}

fn check_size(field: &'static str, size: Option<usize>, context: usize) -> Result<()> {
    match size {
        Some(size) if size == 0 || size > context => {
            let expected = match context {
                // No model has said yet.
                usize::MAX => "at least 1".to_owned(),
                context => format!("from 1 to the context, {context}"),
            };
            Err(EngineError::invalid_option(field, size, expected))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use KvCacheStrategy::{Auto, Chunked, FixedSize, Growing};

    fn with(strategy: KvCacheStrategy, initial_capacity: Option<usize>) -> KvOptions {
        KvOptions {
            strategy,
            initial_capacity,
            ..KvOptions::default()
        }
    }

    #[test]
    fn bnd_12_initial_size_by_strategy() {
        for (strategy, explicit, expected) in [
            (FixedSize, None, Some(8192)),
            (Growing, None, Some(256)),
            (Auto, None, None),
            (Growing, Some(1024), Some(1024)),
            (Auto, Some(512), Some(512)),
        ] {
            let found = with(strategy, explicit).initial_tokens(8192).unwrap();
            assert_eq!(found, expected, "{strategy} {explicit:?}");
        }
        assert_eq!(with(Growing, None).initial_tokens(100).unwrap(), Some(100));
        assert_eq!(
            with(Chunked, None).initial_tokens(8192).unwrap(),
            Some(4096)
        );
    }

    #[test]
    fn cache_6_capacities_that_hold_nothing_are_errors() {
        let chunked = |capacity, sinks| KvOptions {
            strategy: Chunked,
            capacity: Some(capacity),
            sinks: Some(sinks),
            ..KvOptions::default()
        };
        assert!(chunked(0, 0).check(8192).is_err());
        assert!(chunked(8, 8).check(8192).is_err());
        assert_eq!(chunked(8, 7).max_tokens(8192).unwrap(), 8);
        assert!(chunked(8193, 4).check(8192).is_err());
        for strategy in [Auto, Growing, FixedSize] {
            assert!(with(strategy, Some(0)).check(8192).is_err());
            assert!(with(strategy, Some(8193)).check(8192).is_err());
        }
    }

    #[test]
    fn sizes_that_a_strategy_would_ignore_are_errors() {
        for (options, field) in [
            (with(Chunked, Some(64)), "kv_cache_initial_capacity"),
            (
                KvOptions {
                    capacity: Some(64),
                    ..with(Growing, None)
                },
                "kv_cache_capacity",
            ),
            (
                KvOptions {
                    sinks: Some(2),
                    ..with(FixedSize, None)
                },
                "kv_cache_sinks",
            ),
        ] {
            let e = options.check(8192).unwrap_err();
            assert!(e.to_string().starts_with(field), "{e}");
        }
    }

    #[test]
    fn names_parse_and_unknown_ones_list_the_valid() {
        for strategy in KvCacheStrategy::ALL {
            assert_eq!(
                strategy.name().parse::<KvCacheStrategy>().unwrap(),
                strategy
            );
        }
        let e = "paged".parse::<KvCacheStrategy>().unwrap_err();
        assert_eq!(
            e.to_string(),
            "unknown kv_cache_strategy 'paged'; valid: auto, growing, fixed_size, chunked"
        );
    }
}
