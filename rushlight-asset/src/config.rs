//! The canonical configuration: what every importer writes and every architecture reads.
//!
//! Field names are ours; importers translate GGUF metadata keys and Hugging Face `config.json`
//! keys into them by table, so that no architecture ever sees where a model came from.

use serde::Serialize;

/// A model's hyperparameters in the canonical vocabulary.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Config {
    /// The architecture's canonical name (`llama`, `gemma3`), the key of the IR's registry. Not
    /// checked here: the registry refuses what it does not know, naming what it does.
    pub architecture: String,
    /// Rows of the embedding table and of the head.
    pub vocab_size: usize,
    /// Width of the residual stream.
    pub hidden_size: usize,
    /// Width inside the feed-forward block.
    pub intermediate_size: usize,
    /// Decoder layers.
    pub layers: usize,
    /// Query heads a layer.
    pub heads: usize,
    /// Key/value heads a layer; divides `heads`.
    pub kv_heads: usize,
    /// Elements of one head.
    pub head_dim: usize,
    /// The ε of every RMS norm.
    pub norm_eps: f32,
    /// Added to every norm weight before it multiplies: 1 where a file stores `w` and means
    /// `1 + w` (Gemma in safetensors), else 0.
    pub norm_offset: f32,
    /// Positions the model was made for, in tokens.
    pub context: usize,
    /// Whether the head shares the embedding table.
    pub tied_head: bool,
    /// The feed-forward gate's activation.
    pub activation: Activation,
    /// Rotary embedding of full-attention layers.
    pub rope: Rope,
    /// Rotary embedding of sliding-window layers, where it differs.
    pub sliding_rope: Option<Rope>,
    /// How precisely the rotary frequencies are held.
    pub rope_frequencies: RopeFrequencies,
    /// Which positions each layer sees; one entry a layer.
    pub attention: Vec<AttentionKind>,
    /// Multiplies `q·k`; `None` means `1 / sqrt(head_dim)`.
    pub attention_scale: Option<f32>,
    /// Multiplies embeddings as they enter the residual stream.
    pub embedding_scale: f32,
    /// Bounds attention scores to `±cap` by `cap · tanh(score / cap)`.
    pub attention_softcap: Option<f32>,
    /// Bounds logits in the same way.
    pub logit_softcap: Option<f32>,
}

/// The activation of a gated feed-forward block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Activation {
    /// `x · sigmoid(x)`.
    Silu,
    /// GELU by its tanh approximation.
    GeluTanh,
}

/// Which earlier positions a layer attends to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum AttentionKind {
    /// Every position up to its own.
    Full,
    /// The last `window` positions, its own included.
    Sliding {
        /// Positions seen, in tokens.
        window: usize,
    },
}

/// How precisely rotary frequencies are held.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RopeFrequencies {
    /// As they are computed: what importers choose, since no file says otherwise.
    #[default]
    F32,
    /// Rounded to bf16, as in a PyTorch module that was cast whole, buffers included: what a model
    /// computed while it was trained or saved in that way.
    Bf16,
}

/// A rotary position embedding: rotates halves (`x[i]`, `x[i + dim/2]`) of each head.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Rope {
    /// The base θ; frequency `i` of a head is `θ^(-2i/dim)`.
    pub theta: f32,
    /// Elements of each head that rotate (`head_dim` unless a model rotates fewer).
    pub dim: usize,
    /// How frequencies change to reach beyond the trained context.
    pub scaling: RopeScaling,
}

/// Changes of the rotary frequencies.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum RopeScaling {
    /// Frequencies as they are.
    None,
    /// Positions divided by `factor`.
    Linear {
        /// Ratio of the reached to the trained context.
        factor: f32,
    },
    /// Llama 3's rule: low frequencies divided by `factor`, high ones kept, a ramp between.
    Llama3 {
        /// Divides low frequencies.
        factor: f32,
        /// Wavelengths above `original_context / low_freq_factor` are low frequencies.
        low_freq_factor: f32,
        /// Wavelengths below `original_context / high_freq_factor` are high frequencies.
        high_freq_factor: f32,
        /// Context before scaling, in tokens.
        original_context: usize,
    },
    /// YaRN (arXiv 2309.00071): interpolation by frequency, and an attention factor.
    Yarn {
        /// Ratio of the reached to the trained context.
        factor: f32,
        /// Context before scaling, in tokens.
        original_context: usize,
        /// Rotations at and above which a frequency is kept (32 in the paper).
        beta_fast: f32,
        /// Rotations at and below which a frequency is interpolated (1 in the paper).
        beta_slow: f32,
        /// Multiplies sine and cosine; `None` means `0.1 · ln(factor) + 1`.
        attention_factor: Option<f32>,
    },
    /// Each frequency divided by its own factor, as a file's `rope_freqs` tensor gives them.
    Factors {
        /// `dim / 2` divisors.
        factors: Vec<f32>,
    },
}
