//! GGUF metadata to the canonical configuration, by table.
//!
//! Keys are `{architecture}.{suffix}`. Every suffix that a file has is in one of the tables below
//! or the file is refused: a key that nobody reads may change what the model computes.

use super::metadata::Metadata;
use crate::config::{Activation, AttentionKind, Config, Rope, RopeFrequencies, RopeScaling};
use crate::error::{AssetError, ErrorKind};
use crate::import::check::{bounded, dimension};
use crate::limits;

/// Whether llama.cpp's converter reorders the architecture's query and key rows.
pub(super) fn interleaves(architecture: &str) -> bool {
    convention(architecture).interleaved_rope
}

/// Reads everything but `tied_head`, which the presence of a tensor decides.
///
/// `divisors` are the contents of `rope_freqs.weight`.
pub(super) fn read(metadata: &Metadata, divisors: Option<Vec<f32>>) -> Result<Config, AssetError> {
    let architecture = metadata
        .text("general.architecture")?
        .ok_or_else(|| {
            metadata.fault(
                "general.architecture",
                ErrorKind::Missing,
                "the file does not say which architecture it holds",
            )
        })?
        .to_owned();
    let keys = Keys {
        metadata,
        architecture: &architecture,
    };
    let convention = convention(&architecture);
    let layers = keys.required("block_count")?;
    let layers = bounded(&keys.name("block_count"), layers, limits::LAYERS)?;
    let hidden_size = keys.dimension("embedding_length")?;
    let intermediate_size = keys.dimension("feed_forward_length")?;
    let heads = keys.dimension("attention.head_count")?;
    let kv_heads = match keys.uniform("attention.head_count_kv")? {
        Some(count) => dimension(&keys.name("attention.head_count_kv"), count)?,
        None => heads,
    };
    let head_dim = keys.head_dim(hidden_size, heads)?;
    let context = keys.required("context_length")?;
    let context = bounded(&keys.name("context_length"), context, limits::CONTEXT)?;
    let eps = "attention.layer_norm_rms_epsilon";
    let norm_eps = keys.float(eps)?.ok_or_else(|| keys.missing(eps))?;
    let attention = keys.attention(layers, convention)?;
    let (rope, sliding_rope) = keys.ropes(head_dim, divisors, convention, &attention)?;
    let config = Config {
        vocab_size: keys.vocab_size()?,
        hidden_size,
        intermediate_size,
        layers,
        heads,
        kv_heads,
        head_dim,
        norm_eps,
        // The converter adds Gemma's 1 to the stored weights.
        norm_offset: 0.0,
        context,
        tied_head: false,
        activation: convention.activation,
        rope,
        sliding_rope,
        attention,
        attention_scale: match keys.float("attention.scale")? {
            Some(scale) => Some(scale),
            None => (convention.attention_scale)(layers, hidden_size, heads),
        },
        rope_frequencies: RopeFrequencies::F32,
        embedding_scale: match keys.float("embedding_scale")? {
            Some(scale) => scale,
            None if convention.scaled_embeddings => root(hidden_size),
            None => 1.0,
        },
        attention_softcap: keys.float("attn_logit_softcapping")?,
        logit_softcap: keys.float("final_logit_softcapping")?,
        architecture: architecture.clone(),
    };
    keys.refuse_unread()?;
    Ok(config)
}

/// What files of one architecture mean without saying so.
struct Convention {
    architecture: &'static str,
    /// Rows of q and k are in llama.cpp's order for rotating neighbours.
    interleaved_rope: bool,
    activation: Activation,
    /// Embeddings are multiplied by √hidden_size.
    scaled_embeddings: bool,
    /// Of each group of this many layers, the last attends to everything and the others slide.
    full_attention_every: Option<u64>,
    /// The rotary base of sliding layers, where it is not that of the others.
    sliding_theta: Option<f32>,
    /// From layers, hidden size and heads; `None` is the usual 1/√head_dim.
    attention_scale: fn(usize, usize, usize) -> Option<f32>,
}

const PLAIN: Convention = Convention {
    architecture: "",
    interleaved_rope: false,
    activation: Activation::Silu,
    scaled_embeddings: false,
    full_attention_every: None,
    sliding_theta: None,
    attention_scale: |_, _, _| None,
};

const CONVENTIONS: &[Convention] = &[
    Convention {
        architecture: "llama",
        interleaved_rope: true,
        ..PLAIN
    },
    Convention {
        architecture: "gemma3",
        activation: Activation::GeluTanh,
        scaled_embeddings: true,
        full_attention_every: Some(6),
        sliding_theta: Some(10_000.0),
        // The 27B model alone, known by its 62 layers, scales by hidden_size / heads; the files
        // do not record it.
        attention_scale: |layers, hidden, heads| {
            (layers == 62).then(|| 1.0 / root(hidden / heads.max(1)))
        },
        ..PLAIN
    },
];

fn convention(architecture: &str) -> &'static Convention {
    CONVENTIONS
        .iter()
        .find(|convention| convention.architecture == architecture)
        .unwrap_or(&PLAIN)
}

/// √n rounded to f32, for counts far below 2^53.
fn root(n: usize) -> f32 {
    let n = u32::try_from(n).unwrap_or(u32::MAX);
    crate::import::number::narrow(f64::from(n).sqrt()).unwrap_or(f32::MAX)
}

/// Suffixes that [`read`] honours.
const READ: &[&str] = &[
    "block_count",
    "embedding_length",
    "feed_forward_length",
    "context_length",
    "vocab_size",
    "attention.head_count",
    "attention.head_count_kv",
    "attention.key_length",
    "attention.value_length",
    "attention.layer_norm_rms_epsilon",
    "attention.scale",
    "attention.sliding_window",
    "attention.sliding_window_pattern",
    "attn_logit_softcapping",
    "final_logit_softcapping",
    "embedding_scale",
    "rope.dimension_count",
    "rope.freq_base",
    "rope.freq_base_swa",
    "rope.local.freq_base",
    "rope.scale_linear",
    "rope.scaling.type",
    "rope.scaling.factor",
    "rope.scaling.original_context_length",
    "rope.scaling.attn_factor",
    "rope.scaling.yarn_attn_factor",
    "rope.scaling.yarn_beta_fast",
    "rope.scaling.yarn_beta_slow",
];

/// Suffixes that say nothing about the mathematics.
const INERT: &[&str] = &["rope.scaling.finetuned", "tensor_data_layout", "file_type"];

/// Suffixes whose usual value changes nothing and whose others are not supported.
const NEUTRAL: &[(&str, Neutral)] = &[
    ("attention.causal", Neutral::True),
    ("attention.clamp_kqv", Neutral::Zero),
    ("attention.max_alibi_bias", Neutral::Zero),
    ("expert_count", Neutral::Zero),
    ("expert_used_count", Neutral::Zero),
    ("logit_scale", Neutral::One),
    ("pooling_type", Neutral::Zero),
    ("residual_scale", Neutral::One),
    ("rope.scaling.yarn_log_multiplier", Neutral::Zero),
    ("rope.scaling.yarn_ext_factor", Neutral::One),
    ("use_parallel_residual", Neutral::False),
];

#[derive(Clone, Copy)]
enum Neutral {
    Zero,
    One,
    True,
    False,
}

impl Neutral {
    fn is(self, value: &super::metadata::Value) -> bool {
        use super::metadata::Value;
        let number = match value {
            Value::Bool(b) => return *b == matches!(self, Neutral::True),
            Value::F32(v) => f64::from(*v),
            Value::F64(v) => *v,
            Value::U8(v) => f64::from(*v),
            Value::U16(v) => f64::from(*v),
            Value::U32(v) => f64::from(*v),
            Value::I32(v) => f64::from(*v),
            _ => return false,
        };
        match self {
            Neutral::Zero => number == 0.0,
            Neutral::One => number == 1.0,
            Neutral::True | Neutral::False => false,
        }
    }
}

/// The metadata of one architecture, by key suffix.
struct Keys<'a> {
    metadata: &'a Metadata,
    architecture: &'a str,
}

impl Keys<'_> {
    fn name(&self, suffix: &str) -> String {
        format!("{}.{suffix}", self.architecture)
    }

    fn required(&self, suffix: &str) -> Result<u64, AssetError> {
        self.uniform(suffix)?.ok_or_else(|| self.missing(suffix))
    }

    fn uniform(&self, suffix: &str) -> Result<Option<u64>, AssetError> {
        self.metadata.uniform_uint(&self.name(suffix))
    }

    fn dimension(&self, suffix: &str) -> Result<usize, AssetError> {
        dimension(&self.name(suffix), self.required(suffix)?)
    }

    fn float(&self, suffix: &str) -> Result<Option<f32>, AssetError> {
        self.metadata.float(&self.name(suffix))
    }

    fn missing(&self, suffix: &str) -> AssetError {
        AssetError::new(
            ErrorKind::Missing,
            format!(
                "the file lacks this key, which a `{}` model needs{}",
                self.architecture,
                self.stranger()
            ),
        )
        .key(&self.name(suffix))
    }

    /// Said of architectures without a row, whose trouble is rather that nobody knows them.
    fn stranger(&self) -> String {
        if convention(self.architecture).architecture == self.architecture {
            return String::new();
        }
        let known: Vec<&str> = CONVENTIONS.iter().map(|c| c.architecture).collect();
        format!(
            "; architecture `{}` is not among those whose files are known here: {}",
            self.architecture,
            known.join(", ")
        )
    }

    fn vocab_size(&self) -> Result<usize, AssetError> {
        let name = self.name("vocab_size");
        if let Some(size) = self.metadata.uint(&name)? {
            return dimension(&name, size);
        }
        let tokens = self.metadata.texts("tokenizer.ggml.tokens")?;
        match tokens.map(|tokens| u64::try_from(tokens.len())) {
            Some(Ok(count)) => dimension("tokenizer.ggml.tokens", count),
            _ => Err(self.missing("vocab_size")),
        }
    }

    fn head_dim(&self, hidden_size: usize, heads: usize) -> Result<usize, AssetError> {
        let key = "attention.key_length";
        let head_dim = match self.uniform(key)? {
            Some(length) => dimension(&self.name(key), length)?,
            None if hidden_size.is_multiple_of(heads) => hidden_size / heads,
            None => return Err(self.missing(key)),
        };
        let key = "attention.value_length";
        if let Some(length) = self.uniform(key)?
            && usize::try_from(length) != Ok(head_dim)
        {
            return Err(self.metadata.fault(
                &self.name(key),
                ErrorKind::Unsupported,
                format!("values of {length} elements beside keys of {head_dim}"),
            ));
        }
        Ok(head_dim)
    }

    fn attention(
        &self,
        layers: usize,
        convention: &Convention,
    ) -> Result<Vec<AttentionKind>, AssetError> {
        let window_key = self.name("attention.sliding_window");
        let pattern_key = self.name("attention.sliding_window_pattern");
        let window = match self.metadata.uint(&window_key)? {
            None | Some(0) => return Ok(vec![AttentionKind::Full; layers]),
            Some(window) => bounded(&window_key, window, limits::CONTEXT)?,
        };
        let sliding = AttentionKind::Sliding { window };
        let kind = |slides: bool| if slides { sliding } else { AttentionKind::Full };
        if let Some(super::metadata::Value::Array(_)) = self.metadata.find(&pattern_key) {
            // One entry a layer; true slides.
            let slides = self.metadata.booleans(&pattern_key)?.unwrap_or_default();
            if slides.len() != layers {
                return Err(self.metadata.fault(
                    &pattern_key,
                    ErrorKind::Mismatch,
                    format!("{} entries for {layers} layers", slides.len()),
                ));
            }
            return Ok(slides.iter().map(|&slides| kind(slides)).collect());
        }
        let every = match self.metadata.uint(&pattern_key)? {
            Some(every) => Some(bounded(&pattern_key, every, limits::LAYERS)?),
            None => convention
                .full_attention_every
                .map(|every| bounded(&pattern_key, every, limits::LAYERS))
                .transpose()?,
        };
        Ok((1..=layers)
            .map(|layer| kind(every.is_none_or(|every| !layer.is_multiple_of(every))))
            .collect())
    }

    fn ropes(
        &self,
        head_dim: usize,
        divisors: Option<Vec<f32>>,
        convention: &Convention,
        attention: &[AttentionKind],
    ) -> Result<(Rope, Option<Rope>), AssetError> {
        let dim = match self.uniform("rope.dimension_count")? {
            Some(dim) => dimension(&self.name("rope.dimension_count"), dim)?,
            None => head_dim,
        };
        let theta = self.float("rope.freq_base")?.unwrap_or(10_000.0);
        let scaling = match (self.scaling()?, divisors) {
            (scaling, None) => scaling,
            (RopeScaling::None, Some(factors)) => RopeScaling::Factors { factors },
            (_, Some(_)) => {
                return Err(self.metadata.fault(
                    &self.name("rope.scaling.type"),
                    ErrorKind::Unsupported,
                    "rotary scaling beside the divisors of `rope_freqs.weight`",
                ));
            }
        };
        let slides = |kind: &AttentionKind| matches!(kind, AttentionKind::Sliding { .. });
        let sliding_theta = match self.float("rope.freq_base_swa")? {
            Some(theta) => Some(theta),
            None => self.float("rope.local.freq_base")?,
        };
        let sliding_theta = sliding_theta.or(convention.sliding_theta);
        let sliding = sliding_theta
            .filter(|_| attention.iter().any(slides))
            .map(|theta| Rope {
                theta,
                dim,
                // Windows never outgrow the trained context, so their frequencies stay.
                scaling: RopeScaling::None,
            });
        Ok((
            Rope {
                theta,
                dim,
                scaling,
            },
            sliding,
        ))
    }

    fn scaling(&self) -> Result<RopeScaling, AssetError> {
        let kind_key = self.name("rope.scaling.type");
        let kind = self.metadata.text(&kind_key)?;
        let factor = match self.float("rope.scaling.factor")? {
            Some(factor) => Some(factor),
            None => self.float("rope.scale_linear")?,
        };
        // llama.cpp writes 0 for "no factor".
        let factor = factor.filter(|&factor| factor != 0.0);
        match kind {
            Some("none") => Ok(RopeScaling::None),
            // A factor without a type is from files older than the types, which were linear.
            Some("linear") | None => Ok(match factor {
                None | Some(1.0) => RopeScaling::None,
                Some(factor) => RopeScaling::Linear { factor },
            }),
            Some("yarn") => {
                let factor = factor.ok_or_else(|| self.missing("rope.scaling.factor"))?;
                self.yarn(factor)
            }
            Some(other) => Err(self.metadata.fault(
                &kind_key,
                ErrorKind::Unsupported,
                format!(
                    "rotary scaling `{}` is not supported; none, linear and yarn are",
                    other
                ),
            )),
        }
    }

    fn yarn(&self, factor: f32) -> Result<RopeScaling, AssetError> {
        let key = "rope.scaling.original_context_length";
        let original = self.required(key)?;
        let attention = match self.float("rope.scaling.attn_factor")? {
            Some(attention) => Some(attention),
            None => self.float("rope.scaling.yarn_attn_factor")?,
        };
        // llama.cpp multiplies its factor onto YaRN's own 0.1 · ln(factor) + 1.
        let attention_factor = match attention {
            Some(1.0) | None if factor > 1.0 => None,
            attention => Some(attention.unwrap_or(1.0) * (0.1 * factor.max(1.0).ln() + 1.0)),
        };
        Ok(RopeScaling::Yarn {
            factor,
            original_context: bounded(&self.name(key), original, limits::CONTEXT)?,
            beta_fast: self.float("rope.scaling.yarn_beta_fast")?.unwrap_or(32.0),
            beta_slow: self.float("rope.scaling.yarn_beta_slow")?.unwrap_or(1.0),
            attention_factor,
        })
    }

    /// Refuses keys of this architecture that are not honoured.
    fn refuse_unread(&self) -> Result<(), AssetError> {
        for (key, value) in self.metadata.iter() {
            let suffix = key
                .strip_prefix(self.architecture)
                .and_then(|rest| rest.strip_prefix('.'));
            let Some(suffix) = suffix else {
                continue;
            };
            if READ.contains(&suffix) || INERT.contains(&suffix) {
                continue;
            }
            let neutral = NEUTRAL.iter().find(|(name, _)| *name == suffix);
            let message = match neutral {
                Some((_, neutral)) if neutral.is(value) => continue,
                Some(_) => "this value changes what the model computes and is not supported",
                None => "this key is not known, and what it changes would be lost",
            };
            return Err(self.metadata.fault(
                key,
                ErrorKind::Unsupported,
                format!("{message}{}", self.stranger()),
            ));
        }
        Ok(())
    }
}
