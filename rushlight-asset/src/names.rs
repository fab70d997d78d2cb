//! The canonical tensor names, and every other spelling of them.
//!
//! | canonical | shape, outermost first |
//! |---|---|
//! | `embed.weight` | `[vocab_size, hidden_size]` |
//! | `layers.{i}.attention_norm.weight` | `[hidden_size]` |
//! | `layers.{i}.q.weight` | `[heads · head_dim, hidden_size]` |
//! | `layers.{i}.k.weight`, `layers.{i}.v.weight` | `[kv_heads · head_dim, hidden_size]` |
//! | `layers.{i}.o.weight` | `[hidden_size, heads · head_dim]` |
//! | `layers.{i}.q_norm.weight`, `layers.{i}.k_norm.weight` | `[head_dim]` |
//! | `layers.{i}.post_attention_norm.weight` | `[hidden_size]`, on the attention's output |
//! | `layers.{i}.mlp_norm.weight` | `[hidden_size]` |
//! | `layers.{i}.gate.weight`, `layers.{i}.up.weight` | `[intermediate_size, hidden_size]` |
//! | `layers.{i}.down.weight` | `[hidden_size, intermediate_size]` |
//! | `layers.{i}.post_mlp_norm.weight` | `[hidden_size]`, on the block's output |
//! | `final_norm.weight` | `[hidden_size]` |
//! | `head.weight` | `[vocab_size, hidden_size]`; absent where tied to `embed.weight` |
//!
//! Projections (`q`, `k`, `v`, `o`, `gate`, `up`, `down`) may have a `.bias` of their row count.

use std::borrow::Cow;

use crate::limits;

/// Which spelling a file uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// llama.cpp's names in GGUF files.
    Gguf,
    /// Hugging Face names of models with two norms a layer (Llama and most others).
    HuggingFace,
    /// Hugging Face names of models that also normalise each block's output (Gemma 2 and 3). The
    /// same word, `post_attention_layernorm`, names a different norm there.
    HuggingFaceSandwich,
}

/// The canonical name of a file's tensor, or `None` where the table has no such tensor.
pub fn canonical(dialect: Dialect, name: &str) -> Option<String> {
    let name = match dialect {
        Dialect::Gguf => Cow::Borrowed(name),
        _ => strip_towers(name),
    };
    for row in WHOLE {
        if row.spelled(dialect) == name {
            return Some(row.canonical.to_owned());
        }
    }
    let (layer, rest) = split_layer(name.strip_prefix(layer_prefix(dialect))?)?;
    let (stem, suffix) = rest.rsplit_once('.').filter(|(stem, _)| !stem.is_empty())?;
    let row = PER_LAYER
        .iter()
        .find(|row| row.spelled(dialect) == stem && row.allows(suffix))?;
    Some(format!("layers.{layer}.{}.{suffix}", row.canonical))
}

/// How a dialect spells a canonical name, or `None` where it has no such tensor.
pub fn spelled(dialect: Dialect, canonical: &str) -> Option<String> {
    if let Some(row) = WHOLE.iter().find(|row| row.canonical == canonical) {
        return Some(row.spelled(dialect).to_owned());
    }
    let (layer, rest) = split_layer(canonical.strip_prefix("layers.")?)?;
    let (stem, suffix) = rest.rsplit_once('.')?;
    let row = PER_LAYER
        .iter()
        .find(|row| row.canonical == stem && row.allows(suffix))?;
    let spelling = row.spelled(dialect);
    (!spelling.is_empty()).then(|| format!("{}{layer}.{spelling}.{suffix}", layer_prefix(dialect)))
}

/// Why a tensor that is no weight may be left out, by the file's own name; `None` for all others.
pub fn skipped(dialect: Dialect, name: &str) -> Option<&'static str> {
    match dialect {
        Dialect::Gguf if name == ROPE_FREQS => {
            Some("rotary divisors, carried by the configuration")
        }
        Dialect::Gguf => None,
        _ if name.ends_with(".rotary_emb.inv_freq") => {
            Some("rotary frequencies, computed from the configuration")
        }
        _ => None,
    }
}

/// The tensor of rotary divisors that llama.cpp writes for Llama 3's rope scaling.
pub(crate) const ROPE_FREQS: &str = "rope_freqs.weight";

struct Row {
    canonical: &'static str,
    gguf: &'static str,
    hugging_face: &'static str,
    sandwich: &'static str,
    bias: bool,
}

impl Row {
    /// Empty where the dialect has no such tensor.
    fn spelled(&self, dialect: Dialect) -> &'static str {
        match dialect {
            Dialect::Gguf => self.gguf,
            Dialect::HuggingFace => self.hugging_face,
            Dialect::HuggingFaceSandwich => self.sandwich,
        }
    }

    fn allows(&self, suffix: &str) -> bool {
        suffix == "weight" || (suffix == "bias" && self.bias)
    }
}

const fn whole(canonical: &'static str, gguf: &'static str, hugging_face: &'static str) -> Row {
    Row {
        canonical,
        gguf,
        hugging_face,
        sandwich: hugging_face,
        bias: false,
    }
}

const fn projection(
    canonical: &'static str,
    gguf: &'static str,
    hugging_face: &'static str,
) -> Row {
    Row {
        canonical,
        gguf,
        hugging_face,
        sandwich: hugging_face,
        bias: true,
    }
}

const fn norm(
    canonical: &'static str,
    gguf: &'static str,
    hugging_face: &'static str,
    sandwich: &'static str,
) -> Row {
    Row {
        canonical,
        gguf,
        hugging_face,
        sandwich,
        bias: false,
    }
}

const WHOLE: &[Row] = &[
    whole(
        "embed.weight",
        "token_embd.weight",
        "model.embed_tokens.weight",
    ),
    whole(
        "final_norm.weight",
        "output_norm.weight",
        "model.norm.weight",
    ),
    whole("head.weight", "output.weight", "lm_head.weight"),
];

#[rustfmt::skip]
const PER_LAYER: &[Row] = &[
    norm("attention_norm", "attn_norm", "input_layernorm", "input_layernorm"),
    projection("q", "attn_q", "self_attn.q_proj"),
    projection("k", "attn_k", "self_attn.k_proj"),
    projection("v", "attn_v", "self_attn.v_proj"),
    projection("o", "attn_output", "self_attn.o_proj"),
    norm("q_norm", "attn_q_norm", "self_attn.q_norm", "self_attn.q_norm"),
    norm("k_norm", "attn_k_norm", "self_attn.k_norm", "self_attn.k_norm"),
    norm("post_attention_norm", "post_attention_norm", "", "post_attention_layernorm"),
    norm("mlp_norm", "ffn_norm", "post_attention_layernorm", "pre_feedforward_layernorm"),
    projection("gate", "ffn_gate", "mlp.gate_proj"),
    projection("up", "ffn_up", "mlp.up_proj"),
    projection("down", "ffn_down", "mlp.down_proj"),
    norm("post_mlp_norm", "post_ffw_norm", "", "post_feedforward_layernorm"),
];

fn layer_prefix(dialect: Dialect) -> &'static str {
    match dialect {
        Dialect::Gguf => "blk.",
        _ => "model.layers.",
    }
}

/// Brings the text tower's names in multimodal checkpoints to those of a text-only one:
/// `language_model.model.norm.weight` and `model.language_model.norm.weight` are both
/// `model.norm.weight`.
fn strip_towers(name: &str) -> Cow<'_, str> {
    if let Some(inner) = name.strip_prefix("model.language_model.") {
        return Cow::Owned(format!("model.{inner}"));
    }
    match name.strip_prefix("language_model.") {
        Some(inner) if inner.starts_with("model.") || inner.starts_with("lm_head.") => {
            Cow::Borrowed(inner)
        }
        _ => Cow::Borrowed(name),
    }
}

/// `"12.rest"` as `(12, "rest")`; refuses signs, leading zeros and absurd layers, so that no two
/// spellings mean one layer.
fn split_layer(text: &str) -> Option<(u64, &str)> {
    let (digits, rest) = text.split_once('.')?;
    let plain = !digits.is_empty()
        && digits.bytes().all(|b| b.is_ascii_digit())
        && (digits == "0" || !digits.starts_with('0'));
    let layer = if plain {
        digits.parse().ok()?
    } else {
        return None;
    };
    (layer < limits::LAYERS).then_some((layer, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIALECTS: [Dialect; 3] = [
        Dialect::Gguf,
        Dialect::HuggingFace,
        Dialect::HuggingFaceSandwich,
    ];

    #[test]
    fn every_row_goes_both_ways_in_every_dialect() {
        let mut names: Vec<String> = WHOLE.iter().map(|row| row.canonical.to_owned()).collect();
        for row in PER_LAYER {
            names.push(format!("layers.17.{}.weight", row.canonical));
            if row.bias {
                names.push(format!("layers.0.{}.bias", row.canonical));
            }
        }
        for dialect in DIALECTS {
            let mut found = 0;
            for name in &names {
                if let Some(spelling) = spelled(dialect, name) {
                    assert_eq!(canonical(dialect, &spelling).as_deref(), Some(&**name));
                    found += 1;
                }
            }
            let output_norms = if dialect == Dialect::HuggingFace {
                2
            } else {
                0
            };
            assert_eq!(found, names.len() - output_norms, "{dialect:?}");
        }
    }

    #[test]
    fn one_word_names_two_norms() {
        let name = "model.layers.3.post_attention_layernorm.weight";
        assert_eq!(
            canonical(Dialect::HuggingFace, name).as_deref(),
            Some("layers.3.mlp_norm.weight")
        );
        assert_eq!(
            canonical(Dialect::HuggingFaceSandwich, name).as_deref(),
            Some("layers.3.post_attention_norm.weight")
        );
    }

    #[test]
    fn multimodal_prefixes_are_stripped() {
        for name in [
            "language_model.model.layers.0.self_attn.q_proj.weight",
            "model.language_model.layers.0.self_attn.q_proj.weight",
        ] {
            assert_eq!(
                canonical(Dialect::HuggingFaceSandwich, name).as_deref(),
                Some("layers.0.q.weight")
            );
        }
        assert_eq!(
            canonical(Dialect::HuggingFace, "language_model.lm_head.weight").as_deref(),
            Some("head.weight")
        );
    }

    #[test]
    fn what_the_table_lacks_has_no_name() {
        for name in [
            "",
            "blk.0.attn_norm.bias",
            "blk.00.attn_q.weight",
            "blk.+1.attn_q.weight",
            "blk.99999999999999999999.attn_q.weight",
            "blk.0..weight",
            "blk.0.ffn_gate_exps.weight",
            "layers.0.q.weight",
        ] {
            assert_eq!(canonical(Dialect::Gguf, name), None, "{name}");
        }
        assert_eq!(
            canonical(Dialect::HuggingFace, "model.layers.0..weight"),
            None,
            "the empty spelling of an absent norm matches nothing"
        );
    }
}
