//! How an engine runs a model: which shapes its passes have and how far it runs ahead.
//!
//! The names people know from other runtimes (`sequential`, `pipelined`, `static-shape`) are not
//! engines here but choices on independent axes of one [`Plan`]; there is one generation loop.

mod bucket;
mod kv;
mod prefill;

use std::fmt;
use std::str::FromStr;

pub use bucket::{Bucket, BucketStep, Buckets};
pub use kv::{KvCacheStrategy, KvOptions};
pub use prefill::{PrefillOptions, PrefillPlan, PrefillSplit};

use crate::error::{EngineError, ErrorKind, Result};

/// How an engine runs programs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// Which shapes a pass may have.
    pub shapes: Shapes,
    /// How far the loop runs ahead.
    pub lookahead: Lookahead,
}

/// Which shapes a pass may have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Shapes {
    /// Any number of tokens at any position, through the function `main`.
    Dynamic,
    /// Only those of a table of compiled functions; a pass is padded to one of them.
    Buckets(Buckets),
}

/// How many passes may be under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Lookahead {
    /// Sample, then run the next pass.
    One,
    /// The next pass is under way while this token is decoded and sent.
    Two,
}

impl Plan {
    /// The plan that `variant` names, for a model with these functions.
    ///
    /// # Errors
    /// [`UnknownStructure`](ErrorKind::UnknownStructure) where the functions fit no structure,
    /// [`UnsupportedPlan`](ErrorKind::UnsupportedPlan) where the variant cannot run it.
    pub fn choose<S: AsRef<str>>(variant: EngineVariant, functions: &[S]) -> Result<Self> {
        let structure = Structure::of(functions)?;
        let lookahead = match variant.resolve(structure)? {
            EngineVariant::Pipelined => Lookahead::Two,
            EngineVariant::Auto | EngineVariant::Sequential | EngineVariant::StaticShape => {
                Lookahead::One
            }
        };
        let shapes = match structure {
            Structure::ChunkedStatic { .. } => Shapes::Buckets(Buckets::of(functions)?),
            Structure::Dynamic | Structure::Segmenter => Shapes::Dynamic,
        };
        Ok(Self { shapes, lookahead })
    }
}

/// What a model's functions make of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Structure {
    /// One function, `main`, for passes of any length.
    Dynamic,
    /// A table of functions `extend_<context>_<query>` of fixed shapes, and `load_embeddings`.
    ChunkedStatic {
        /// The most tokens one function takes: the largest `<query>`.
        batch: usize,
    },
    /// `image_encode`, `text_encode` and `detect`: not a language model.
    Segmenter,
}

impl Structure {
    /// The structure that a set of function names makes. A segmenter may ship a `main` beside its
    /// three functions and is still a segmenter.
    ///
    /// # Errors
    /// [`UnknownStructure`](ErrorKind::UnknownStructure) with the names found, where they fit none
    /// or an `extend` function has no well-formed shape in its name.
    pub fn of<S: AsRef<str>>(functions: &[S]) -> Result<Self> {
        let has = |name: &str| functions.iter().any(|function| function.as_ref() == name);
        let extends = functions.iter().any(|f| bucket::is_extend(f.as_ref()));
        if extends && has("load_embeddings") {
            let batch = Buckets::of(functions)?.max_query();
            return Ok(Self::ChunkedStatic { batch });
        }
        if ["image_encode", "text_encode", "detect"]
            .into_iter()
            .all(has)
        {
            return Ok(Self::Segmenter);
        }
        if has("main") {
            return Ok(Self::Dynamic);
        }
        let reason = if extends {
            "there are extend functions, but no load_embeddings"
        } else {
            "a language model has main, or extend_<context>_<query> and load_embeddings"
        };
        Err(unknown_structure(functions, reason))
    }
}

impl fmt::Display for Structure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Dynamic => f.write_str("dynamic"),
            Self::ChunkedStatic { batch } => write!(f, "chunked static (batch {batch})"),
            Self::Segmenter => f.write_str("segmenter"),
        }
    }
}

/// A plan by name.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum EngineVariant {
    /// Whatever fits the model; also spelled `default`.
    #[default]
    Auto,
    /// Dynamic shapes, one pass at a time.
    Sequential,
    /// Dynamic shapes, two passes under way.
    Pipelined,
    /// The shapes of a chunked static model.
    StaticShape,
}

impl EngineVariant {
    /// Every variant.
    pub const ALL: [Self; 4] = [
        Self::Auto,
        Self::Sequential,
        Self::Pipelined,
        Self::StaticShape,
    ];

    /// The variant's name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Sequential => "sequential",
            Self::Pipelined => "pipelined",
            Self::StaticShape => "static-shape",
        }
    }

    /// The variant of an optional name; none is [`Auto`](Self::Auto).
    ///
    /// # Errors
    /// [`UnknownName`](ErrorKind::UnknownName) with the valid names.
    pub fn from_name(name: Option<&str>) -> Result<Self> {
        name.map_or(Ok(Self::Auto), str::parse)
    }

    /// The variant that runs a model of this structure; never [`Auto`](Self::Auto).
    ///
    /// `auto` is `static-shape` for a chunked static model and `sequential` for a dynamic one: a
    /// backend on the host computes on the cores that also sample, so a second pass under way has
    /// nothing to hide behind.
    ///
    /// # Errors
    /// [`UnsupportedPlan`](ErrorKind::UnsupportedPlan) where variant and structure do not go
    /// together.
    pub fn resolve(self, structure: Structure) -> Result<Self> {
        let unsupported = |reason: &str| {
            Err(ErrorKind::UnsupportedPlan {
                variant: self.name(),
                structure: structure.to_string(),
                reason: reason.to_owned(),
            }
            .into())
        };
        match (self, structure) {
            (_, Structure::Segmenter) => unsupported("it is not a language model"),
            (Self::Auto | Self::Sequential, Structure::Dynamic) => Ok(Self::Sequential),
            (Self::Pipelined, Structure::Dynamic) => Ok(Self::Pipelined),
            (Self::Auto | Self::StaticShape, Structure::ChunkedStatic { .. }) => {
                Ok(Self::StaticShape)
            }
            (Self::StaticShape, Structure::Dynamic) => unsupported(
                "it has no extend_<context>_<query> functions; use sequential, pipelined or auto",
            ),
            (Self::Sequential | Self::Pipelined, Structure::ChunkedStatic { .. }) => {
                unsupported("it has no function of dynamic shape; use static-shape or auto")
            }
        }
    }
}

impl fmt::Display for EngineVariant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for EngineVariant {
    type Err = EngineError;

    fn from_str(name: &str) -> Result<Self> {
        if name == "default" {
            return Ok(Self::Auto);
        }
        Self::ALL
            .into_iter()
            .find(|variant| variant.name() == name)
            .ok_or_else(|| {
                let valid = Self::ALL.map(Self::name).into_iter().chain(["default"]);
                EngineError::unknown_name("engine variant", name, valid)
            })
    }
}

fn unknown_structure<S: AsRef<str>>(functions: &[S], reason: impl Into<String>) -> EngineError {
    ErrorKind::UnknownStructure {
        functions: functions.iter().map(|f| f.as_ref().to_owned()).collect(),
        reason: reason.into(),
    }
    .into()
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHUNKED: Structure = Structure::ChunkedStatic { batch: 64 };

    #[test]
    fn eng_1_every_variant_and_structure_has_a_stated_result() {
        use EngineVariant::{Auto, Pipelined, Sequential, StaticShape};
        for (variant, structure, expected) in [
            (StaticShape, Structure::Dynamic, None),
            (Pipelined, CHUNKED, None),
            (Sequential, CHUNKED, None),
            (Sequential, Structure::Dynamic, Some(Sequential)),
            (Pipelined, Structure::Dynamic, Some(Pipelined)),
            (StaticShape, CHUNKED, Some(StaticShape)),
            (Auto, Structure::Dynamic, Some(Sequential)),
            (Auto, CHUNKED, Some(StaticShape)),
            // Where the reference's automatic choice ends the process.
            (Auto, Structure::Segmenter, None),
            (Sequential, Structure::Segmenter, None),
            (Pipelined, Structure::Segmenter, None),
            (StaticShape, Structure::Segmenter, None),
        ] {
            match variant.resolve(structure) {
                Ok(found) => assert_eq!(Some(found), expected, "{variant} x {structure}"),
                Err(e) => {
                    assert_eq!(expected, None, "{variant} x {structure}");
                    assert!(matches!(e.kind(), ErrorKind::UnsupportedPlan { .. }));
                    assert!(e.to_string().contains(variant.name()));
                }
            }
        }
        for name in [None, Some("auto"), Some("default")] {
            assert_eq!(EngineVariant::from_name(name).unwrap(), Auto);
        }
        for variant in EngineVariant::ALL {
            assert_eq!(variant.name().parse::<EngineVariant>().unwrap(), variant);
        }
        let e = EngineVariant::from_name(Some("turbo")).unwrap_err();
        assert_eq!(
            e.to_string(),
            "unknown engine variant 'turbo'; valid: auto, sequential, pipelined, static-shape, default"
        );
    }

    #[test]
    fn eng_2_functions_make_the_structure() {
        assert_eq!(
            Structure::of(&["extend_512_64", "load_embeddings"]).unwrap(),
            CHUNKED
        );
        let several = ["extend_256_8", "extend_256_64", "load_embeddings", "main"];
        assert_eq!(Structure::of(&several).unwrap(), CHUNKED);
        let trio = ["image_encode", "text_encode", "detect"];
        assert_eq!(Structure::of(&trio).unwrap(), Structure::Segmenter);
        let thin_main = ["main", "image_encode", "text_encode", "detect"];
        assert_eq!(Structure::of(&thin_main).unwrap(), Structure::Segmenter);
        assert_eq!(Structure::of(&["main"]).unwrap(), Structure::Dynamic);
    }

    #[test]
    fn functions_of_no_structure_are_an_error_that_lists_them() {
        for functions in [
            &["encode", "decode"] as &[&str],
            &["extend_512_64"],
            &["extend_512", "load_embeddings"],
            &["extend_512_x", "load_embeddings"],
            &["extend_0_64", "load_embeddings"],
            &[],
        ] {
            let e = Structure::of(functions).unwrap_err();
            assert!(
                matches!(e.kind(), ErrorKind::UnknownStructure { .. }),
                "{e}"
            );
            assert!(functions.iter().all(|f| e.to_string().contains(f)), "{e}");
        }
    }

    #[test]
    fn a_plan_is_chosen_by_name_and_functions() {
        let plan = Plan::choose(EngineVariant::Pipelined, &["main"]).unwrap();
        assert_eq!(plan.shapes, Shapes::Dynamic);
        assert_eq!(plan.lookahead, Lookahead::Two);
        let functions = ["load_embeddings", "extend_256_8"];
        let plan = Plan::choose(EngineVariant::Auto, &functions).unwrap();
        assert_eq!(plan.lookahead, Lookahead::One);
        assert!(matches!(plan.shapes, Shapes::Buckets(b) if b.max_query() == 8));
        assert!(Plan::choose(EngineVariant::Sequential, &functions).is_err());
    }
}
