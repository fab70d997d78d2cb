//! Rotary embeddings out of `config.json`, in the newer and the older spelling.
//!
//! Newer (`rope_parameters`): one object with `rope_type`, `rope_theta` and the scaling's numbers,
//! or one such object for each kind of layer. Older: `rope_theta` and `rope_local_base_freq` beside
//! `rope_scaling`, an object with `rope_type` or, before that, `type`. Formulas and defaults are
//! those of transformers' `modeling_rope_utils`.

use super::fields::{Fields, brief};
use crate::config::{Rope, RopeScaling};
use crate::error::AssetError;
use crate::import::check::bounded;
use crate::limits;

/// What a model's family means where its configuration is silent.
pub(super) struct RopeDefaults {
    pub(super) theta: f32,
    /// The base of sliding layers, for families in which they have their own.
    pub(super) sliding_theta: Option<f32>,
}

/// The rotary embedding of full-attention layers, and that of sliding ones where it differs.
pub(super) fn read(
    config: Fields<'_>,
    defaults: &RopeDefaults,
    head_dim: usize,
    context: usize,
) -> Result<(Rope, Option<Rope>), AssetError> {
    let reader = Reader {
        config,
        head_dim,
        context,
    };
    let Some(parameters) = config.object("rope_parameters")? else {
        return reader.older(defaults);
    };
    let path = config.path("rope_parameters.");
    let fields = Fields::new(parameters, &path);
    let (Some(full), sliding) = (
        fields.object("full_attention")?,
        fields.object("sliding_attention")?,
    ) else {
        if let Some(key) = ["sliding_attention", "chunked_attention"]
            .iter()
            .find(|key| fields.find(key).is_some())
        {
            return Err(fields.unsupported(key, "there is no `full_attention` beside it"));
        }
        // One set of numbers for every layer, in either kind's place.
        let rope = reader.rope(fields, defaults.theta)?;
        let sliding = defaults.sliding_theta.map(|theta| Rope {
            theta,
            dim: rope.dim,
            scaling: RopeScaling::None,
        });
        return Ok((rope, sliding));
    };
    for key in parameters.keys() {
        if !matches!(key.as_str(), "full_attention" | "sliding_attention") {
            return Err(fields.unsupported(key, "rotary parameters of an unknown kind of layer"));
        }
    }
    let full_path = fields.path("full_attention.");
    let full = reader.rope(Fields::new(full, &full_path), defaults.theta)?;
    let sliding = match sliding {
        Some(sliding) => {
            let path = fields.path("sliding_attention.");
            let theta = defaults.sliding_theta.unwrap_or(defaults.theta);
            Some(reader.rope(Fields::new(sliding, &path), theta)?)
        }
        None => None,
    };
    Ok((full, sliding))
}

struct Reader<'a> {
    config: Fields<'a>,
    head_dim: usize,
    context: usize,
}

impl Reader<'_> {
    fn older(&self, defaults: &RopeDefaults) -> Result<(Rope, Option<Rope>), AssetError> {
        let theta = self.config.float("rope_theta")?.unwrap_or(defaults.theta);
        let full = match self.config.object("rope_scaling")? {
            Some(scaling) => {
                let path = self.config.path("rope_scaling.");
                self.rope(Fields::new(scaling, &path), theta)?
            }
            None => Rope {
                theta,
                dim: self.dim(None)?,
                scaling: RopeScaling::None,
            },
        };
        let sliding = match self.config.float("rope_local_base_freq")? {
            Some(theta) => Some(theta),
            None => defaults.sliding_theta,
        };
        let sliding = sliding.map(|theta| Rope {
            theta,
            dim: full.dim,
            scaling: RopeScaling::None,
        });
        Ok((full, sliding))
    }

    /// One object of rotary parameters.
    fn rope(&self, fields: Fields<'_>, default_theta: f32) -> Result<Rope, AssetError> {
        let theta = match fields.float("rope_theta")? {
            Some(theta) => theta,
            None => default_theta,
        };
        let dim = self.dim(fields.float("partial_rotary_factor")?)?;
        let kind = fields
            .any_text(&["rope_type", "type"])?
            .unwrap_or("default");
        let scaling = match kind {
            "default" => RopeScaling::None,
            "linear" => RopeScaling::Linear {
                factor: self.required(fields, "factor")?,
            },
            "llama3" => RopeScaling::Llama3 {
                factor: self.required(fields, "factor")?,
                low_freq_factor: self.required(fields, "low_freq_factor")?,
                high_freq_factor: self.required(fields, "high_freq_factor")?,
                original_context: self.original_context(fields)?,
            },
            "yarn" => self.yarn(fields)?,
            other => {
                return Err(fields.unsupported(
                    "rope_type",
                    format!(
                        "rotary scaling `{}` is not supported; default, linear, llama3 and yarn \
                         are",
                        other
                    ),
                ));
            }
        };
        Ok(Rope {
            theta,
            dim,
            scaling,
        })
    }

    fn yarn(&self, fields: Fields<'_>) -> Result<RopeScaling, AssetError> {
        for name in ["mscale", "mscale_all_dim"] {
            if let Some(value) = fields.find(name) {
                return Err(fields.unsupported(name, format!("{} is not supported", brief(value))));
            }
        }
        if fields.boolean("truncate")? == Some(false) {
            return Err(fields.unsupported(
                "truncate",
                "correction bounds that are not whole numbers are not supported",
            ));
        }
        let original_context = self.original_context(fields)?;
        let factor = self.required(fields, "factor")?;
        let attention_factor = match fields.float("attention_factor")? {
            Some(factor) => Some(factor),
            // At or below 1 the formula is not used.
            None if factor <= 1.0 => Some(1.0),
            None => None,
        };
        // As in transformers, 0 means the default.
        let positive = |name: &str| -> Result<Option<f32>, AssetError> {
            Ok(fields.float(name)?.filter(|&value| value != 0.0))
        };
        Ok(RopeScaling::Yarn {
            factor,
            original_context,
            beta_fast: positive("beta_fast")?.unwrap_or(32.0),
            beta_slow: positive("beta_slow")?.unwrap_or(1.0),
            attention_factor,
        })
    }

    fn required(&self, fields: Fields<'_>, name: &str) -> Result<f32, AssetError> {
        fields.float(name)?.ok_or_else(|| fields.missing(name))
    }

    fn original_context(&self, fields: Fields<'_>) -> Result<usize, AssetError> {
        const NAME: &str = "original_max_position_embeddings";
        match fields.uint(NAME)? {
            Some(value) => bounded(&fields.path(NAME), value, limits::CONTEXT),
            None => match self.config.uint(NAME)? {
                Some(value) => bounded(&self.config.path(NAME), value, limits::CONTEXT),
                None => Ok(self.context),
            },
        }
    }

    /// Rotating elements of a head.
    fn dim(&self, partial: Option<f32>) -> Result<usize, AssetError> {
        let partial = match partial {
            Some(partial) => Some(partial),
            None => self.config.float("partial_rotary_factor")?,
        };
        let Some(partial) = partial.filter(|&partial| partial != 1.0) else {
            return Ok(self.head_dim);
        };
        // Published factors (0.25, 0.5, 0.75) times a power of two: always whole. Counting up to
        // the product avoids a cast.
        let wanted = f64::from(partial) * f64::from(u32::try_from(self.head_dim).unwrap_or(0));
        (1..=self.head_dim)
            .take_while(|&dim| u32::try_from(dim).is_ok_and(|dim| f64::from(dim) <= wanted))
            .last()
            .filter(|_| partial < 1.0)
            .ok_or_else(|| {
                self.config.unsupported(
                    "partial_rotary_factor",
                    format!("{partial} of a head's {} elements", self.head_dim),
                )
            })
    }
}
