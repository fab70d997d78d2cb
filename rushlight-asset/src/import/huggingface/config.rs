//! `config.json` to the canonical configuration, by table.

use serde_json::{Map, Value};

use super::fields::{Fields, brief};
use super::neutral::{Neutral, refuse_others};
use super::rope::{self, RopeDefaults};
use crate::config::{Activation, AttentionKind, Config, RopeFrequencies};
use crate::error::{AssetError, ErrorKind};
use crate::import::check::{bounded, dimension};
use crate::import::number::narrow;
use crate::limits;
use crate::names::Dialect;

/// A configuration, and how the files beside it are to be read.
pub(super) struct Imported {
    /// Complete but for `tied_head` where [`Imported::ties_head`] is `None`.
    pub(super) config: Config,
    pub(super) dialect: Dialect,
    /// `tie_word_embeddings`, where it or the family says so.
    pub(super) ties_head: Option<bool>,
}

/// Reads a whole `config.json`.
pub(super) fn read(object: &Map<String, Value>) -> Result<Imported, AssetError> {
    let outer = Fields::new(object, "");
    // Multimodal models keep their text tower's fields in an object of their own.
    let fields = match outer.object("text_config")? {
        Some(inner) => Fields::new(inner, "text_config."),
        None => outer,
    };
    let model_type = match fields.text("model_type")? {
        Some(model_type) => model_type,
        None => outer
            .text("model_type")?
            .ok_or_else(|| outer.missing("model_type"))?,
    };
    let family = family(model_type);
    for fields in [outer, fields] {
        refuse_others(fields, UNHONOURED, "what the model computes")?;
    }
    let reader = Reader { fields, family };
    let config = reader.config(model_type)?;
    let ties_head = match fields.boolean("tie_word_embeddings")? {
        Some(ties) => Some(ties),
        None => outer.boolean("tie_word_embeddings")?,
    };
    Ok(Imported {
        config,
        dialect: family.dialect,
        ties_head: ties_head.or(family.ties_head),
    })
}

/// What models of one family mean where their configuration is silent: the defaults of
/// transformers' configuration classes, as far as published files lean on them.
struct Family {
    model_types: &'static [&'static str],
    /// The canonical architecture; empty for `model_type` itself.
    architecture: &'static str,
    dialect: Dialect,
    norm_offset: f32,
    scaled_embeddings: bool,
    activation: &'static str,
    heads: Option<u64>,
    kv_heads: Option<u64>,
    head_dim: Option<u64>,
    vocab_size: Option<u64>,
    context: Option<u64>,
    sliding_window: Option<u64>,
    /// Of each group of this many layers, the last attends to everything and the others slide.
    full_attention_every: Option<u64>,
    query_pre_attn_scalar: Option<f32>,
    ties_head: Option<bool>,
    rope: RopeDefaults,
}

const PLAIN: Family = Family {
    model_types: &[],
    architecture: "",
    dialect: Dialect::HuggingFace,
    norm_offset: 0.0,
    scaled_embeddings: false,
    activation: "silu",
    heads: None,
    kv_heads: None,
    head_dim: None,
    vocab_size: None,
    context: None,
    sliding_window: None,
    full_attention_every: None,
    query_pre_attn_scalar: None,
    ties_head: None,
    rope: RopeDefaults {
        theta: 10_000.0,
        sliding_theta: None,
    },
};

const FAMILIES: &[Family] = &[
    Family {
        model_types: &["llama"],
        architecture: "llama",
        context: Some(2_048),
        ties_head: Some(false),
        ..PLAIN
    },
    Family {
        model_types: &["gemma3_text", "gemma3"],
        architecture: "gemma3",
        dialect: Dialect::HuggingFaceSandwich,
        norm_offset: 1.0,
        scaled_embeddings: true,
        activation: "gelu_pytorch_tanh",
        heads: Some(8),
        kv_heads: Some(4),
        head_dim: Some(256),
        vocab_size: Some(262_208),
        context: Some(131_072),
        sliding_window: Some(4_096),
        full_attention_every: Some(6),
        query_pre_attn_scalar: Some(256.0),
        ties_head: Some(true),
        rope: RopeDefaults {
            theta: 1_000_000.0,
            sliding_theta: Some(10_000.0),
        },
    },
];

fn family(model_type: &str) -> &'static Family {
    FAMILIES
        .iter()
        .find(|family| family.model_types.contains(&model_type))
        .unwrap_or(&PLAIN)
}

/// Fields whose usual value changes nothing and whose others are not supported. `null` and
/// absence are usual for all of them.
const UNHONOURED: &[(&str, Neutral)] = &[
    ("add_cross_attention", Neutral::False),
    ("alibi", Neutral::False),
    ("attention_chunk_size", Neutral::Never),
    ("clip_qkv", Neutral::Never),
    ("cross_attention_layers", Neutral::Never),
    ("hidden_size_per_layer_input", Neutral::Number(0.0)),
    ("is_causal", Neutral::True),
    ("is_encoder_decoder", Neutral::False),
    ("kv_lora_rank", Neutral::Never),
    ("logit_scale", Neutral::Number(1.0)),
    ("logits_scaling", Neutral::Number(1.0)),
    ("n_routed_experts", Neutral::Number(0.0)),
    ("no_rope_layer_interval", Neutral::Number(0.0)),
    ("no_rope_layers", Neutral::Never),
    ("num_experts", Neutral::Number(0.0)),
    ("num_kv_shared_layers", Neutral::Number(0.0)),
    ("num_local_experts", Neutral::Number(0.0)),
    ("pretraining_tp", Neutral::Number(1.0)),
    ("quantization", Neutral::Never),
    ("quantization_config", Neutral::Never),
    ("residual_multiplier", Neutral::Number(1.0)),
    ("rope_interleaved", Neutral::False),
    ("rope_traditional", Neutral::False),
    ("use_bidirectional_attention", Neutral::False),
    ("use_parallel_residual", Neutral::False),
];

struct Reader<'a> {
    fields: Fields<'a>,
    family: &'static Family,
}

impl Reader<'_> {
    fn config(&self, model_type: &str) -> Result<Config, AssetError> {
        let fields = self.fields;
        let family = self.family;
        let layers = bounded(
            &fields.path("num_hidden_layers"),
            self.required("num_hidden_layers", None)?,
            limits::LAYERS,
        )?;
        let hidden_size = self.dimension("hidden_size", None)?;
        let heads = self.dimension("num_attention_heads", family.heads)?;
        let kv_heads = match (fields.uint("num_key_value_heads")?, family.kv_heads) {
            (Some(count), _) | (None, Some(count)) => {
                dimension(&fields.path("num_key_value_heads"), count)?
            }
            (None, None) => heads,
        };
        let head_dim = match (fields.uint("head_dim")?, family.head_dim) {
            (Some(dim), _) | (None, Some(dim)) => dimension(&fields.path("head_dim"), dim)?,
            (None, None) if hidden_size.is_multiple_of(heads) => hidden_size / heads,
            (None, None) => return Err(fields.missing("head_dim")),
        };
        let context = bounded(
            &fields.path("max_position_embeddings"),
            self.required("max_position_embeddings", family.context)?,
            limits::CONTEXT,
        )?;
        let attention = self.attention(layers)?;
        let (rope, sliding_rope) = rope::read(fields, &family.rope, head_dim, context)?;
        let slides = |kind: &AttentionKind| matches!(kind, AttentionKind::Sliding { .. });
        Ok(Config {
            architecture: match family.architecture {
                "" => model_type.to_owned(),
                name => name.to_owned(),
            },
            vocab_size: self.dimension("vocab_size", family.vocab_size)?,
            hidden_size,
            intermediate_size: self.dimension("intermediate_size", None)?,
            layers,
            heads,
            kv_heads,
            head_dim,
            norm_eps: fields.float("rms_norm_eps")?.unwrap_or(1e-6),
            norm_offset: family.norm_offset,
            context,
            tied_head: false,
            activation: self.activation()?,
            rope,
            sliding_rope: sliding_rope.filter(|_| attention.iter().any(slides)),
            attention_scale: self.attention_scale(head_dim)?,
            attention,
            rope_frequencies: RopeFrequencies::F32,
            embedding_scale: self.embedding_scale(hidden_size)?,
            attention_softcap: fields.float("attn_logit_softcapping")?,
            logit_softcap: fields.float("final_logit_softcapping")?,
        })
    }

    fn required(&self, name: &str, default: Option<u64>) -> Result<u64, AssetError> {
        self.fields
            .uint(name)?
            .or(default)
            .ok_or_else(|| self.fields.missing(name))
    }

    fn dimension(&self, name: &str, default: Option<u64>) -> Result<usize, AssetError> {
        dimension(&self.fields.path(name), self.required(name, default)?)
    }

    fn activation(&self) -> Result<Activation, AssetError> {
        let name = self
            .fields
            .any_text(&["hidden_activation", "hidden_act"])?
            .unwrap_or(self.family.activation);
        match name {
            "silu" | "swish" => Ok(Activation::Silu),
            "gelu_pytorch_tanh" | "gelu_new" => Ok(Activation::GeluTanh),
            other => Err(self.fields.unsupported(
                "hidden_act",
                format!(
                    "activation `{}` is not supported; silu and gelu_pytorch_tanh are",
                    other
                ),
            )),
        }
    }

    fn attention(&self, layers: usize) -> Result<Vec<AttentionKind>, AssetError> {
        let fields = self.fields;
        let window = match fields.uint("sliding_window")? {
            Some(window) => Some(window),
            // `null` is a statement, absence is not.
            None if fields.mentions("sliding_window") => None,
            None => self.family.sliding_window,
        };
        let window = window
            .filter(|&window| window > 0)
            .map(|window| bounded(&fields.path("sliding_window"), window, limits::CONTEXT))
            .transpose()?;
        if let Some(kinds) = fields.array("layer_types")? {
            return self.listed(kinds, layers, window);
        }
        // Qwen 2's switch outranks its window.
        let slides = fields.boolean("use_sliding_window")?.unwrap_or(true);
        let Some(window) = window.filter(|_| slides) else {
            return Ok(vec![AttentionKind::Full; layers]);
        };
        let pattern = ["sliding_window_pattern", "_sliding_window_pattern"];
        let mut every = self.family.full_attention_every;
        for name in pattern {
            if let Some(stated) = fields.uint(name)? {
                every = Some(bounded(&fields.path(name), stated, limits::LAYERS).map(|_| stated)?);
            }
        }
        // Qwen 2's rule: the first so many layers see everything.
        let first = fields.uint("max_window_layers")?.unwrap_or(0);
        Ok((0_u64..)
            .take(layers)
            .map(|layer| {
                let full = every.is_some_and(|every| (layer + 1).is_multiple_of(every));
                if full || layer < first {
                    AttentionKind::Full
                } else {
                    AttentionKind::Sliding { window }
                }
            })
            .collect())
    }

    fn listed(
        &self,
        kinds: &[Value],
        layers: usize,
        window: Option<usize>,
    ) -> Result<Vec<AttentionKind>, AssetError> {
        let fields = self.fields;
        if kinds.len() != layers {
            return Err(fields.fault(
                "layer_types",
                ErrorKind::Mismatch,
                format!("{} entries for {layers} layers", kinds.len()),
            ));
        }
        kinds
            .iter()
            .map(|kind| match kind.as_str() {
                Some("full_attention") => Ok(AttentionKind::Full),
                Some("sliding_attention") => match window {
                    Some(window) => Ok(AttentionKind::Sliding { window }),
                    None => Err(fields.missing("sliding_window")),
                },
                _ => Err(fields.unsupported(
                    "layer_types",
                    format!(
                        "layers of type {} are not supported; full_attention and \
                         sliding_attention are",
                        brief(kind)
                    ),
                )),
            })
            .collect()
    }

    fn attention_scale(&self, head_dim: usize) -> Result<Option<f32>, AssetError> {
        if let Some(scale) = self.fields.float("attention_multiplier")? {
            return Ok(Some(scale));
        }
        let scalar = match self.fields.float("query_pre_attn_scalar")? {
            Some(scalar) => Some(scalar),
            None => self.family.query_pre_attn_scalar,
        };
        let Some(scalar) = scalar else {
            return Ok(None);
        };
        let plain = u32::try_from(head_dim).map(f64::from) == Ok(f64::from(scalar));
        if plain {
            return Ok(None);
        }
        narrow(f64::from(scalar).sqrt().recip())
            .map(Some)
            .ok_or_else(|| {
                self.fields.fault(
                    "query_pre_attn_scalar",
                    ErrorKind::Malformed,
                    format!("{scalar} is not positive"),
                )
            })
    }

    fn embedding_scale(&self, hidden_size: usize) -> Result<f32, AssetError> {
        if let Some(scale) = self.fields.float("embedding_multiplier")? {
            return Ok(scale);
        }
        if !self.family.scaled_embeddings {
            return Ok(1.0);
        }
        let width = u32::try_from(hidden_size).map(f64::from).unwrap_or(0.0);
        Ok(narrow(width.sqrt()).unwrap_or(1.0))
    }
}
