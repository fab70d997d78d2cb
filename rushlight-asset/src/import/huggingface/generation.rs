//! `generation_config.json`: how a model's makers would have it sampled and stopped.

use serde_json::{Map, Value};

use super::fields::{Fields, brief, whole};
use super::neutral::{Neutral, refuse_others};
use crate::checkpoint::GenerationDefaults;
use crate::error::{AssetError, ErrorKind};

/// Reads a `generation_config.json`, of which every field is honoured, neutral or refused.
///
/// The fields are those of transformers' `GenerationConfig`.
pub(super) fn read(
    object: &Map<String, Value>,
    vocab_size: usize,
) -> Result<GenerationDefaults, AssetError> {
    let fields = Fields::new(object, "");
    let known = |name: &str| {
        HONOURED.contains(&name)
            || INERT.contains(&name)
            || UNHONOURED.iter().any(|(unhonoured, _)| *unhonoured == name)
    };
    if let Some((name, _)) = object
        .iter()
        .find(|(name, value)| !value.is_null() && !known(name))
    {
        return Err(fields.unsupported(
            name,
            "this field is not known, and what it changes would be lost",
        ));
    }
    read_from_model(object, vocab_size)
}

/// Reads what a `config.json` says of generation, as older checkpoints do. Its other fields are the
/// model's.
pub(super) fn read_from_model(
    object: &Map<String, Value>,
    vocab_size: usize,
) -> Result<GenerationDefaults, AssetError> {
    let fields = Fields::new(object, "");
    refuse_others(fields, UNHONOURED, "how answers are made")?;
    defaults(fields, vocab_size)
}

/// Fields that [`defaults`] reads.
const HONOURED: &[&str] = &[
    "do_sample",
    "eos_token_id",
    "min_p",
    "repetition_penalty",
    "stop",
    "stop_strings",
    "temperature",
    "top_k",
    "top_p",
];

/// Fields that say nothing of which token comes next: provenance, ids that generation does not read,
/// how far `generate` runs unasked (a request says that here), how it keeps its cache, what else it
/// returns, how it speculates, and the settings of beam search, whose switch is among the [`UNHONOURED`].
const INERT: &[&str] = &[
    "_commit_hash",
    "_from_model_config",
    "_name_or_path",
    "assistant_confidence_threshold",
    "assistant_early_exit",
    "assistant_lookbehind",
    "bos_token_id",
    "cache_config",
    "cache_implementation",
    "chat_format",
    "compile_config",
    "decoder_start_token_id",
    "disable_compile",
    "early_stopping",
    "is_assistant",
    "length_penalty",
    "low_memory",
    "max_length",
    "max_matching_ngram_size",
    "max_new_tokens",
    "max_time",
    "max_window_size",
    "num_assistant_tokens",
    "num_assistant_tokens_schedule",
    "output_attentions",
    "output_hidden_states",
    "output_logits",
    "output_scores",
    "pad_token_id",
    "prefill_chunk_size",
    "prompt_lookup_num_tokens",
    "remove_invalid_values",
    "renormalize_logits",
    "return_dict_in_generate",
    "return_legacy_cache",
    "target_lookbehind",
    "transformers_version",
    "trust_remote_code",
    "use_cache",
];

/// Fields that change which token comes next, with the values that do not.
const UNHONOURED: &[(&str, Neutral)] = &[
    ("bad_words_ids", Neutral::Empty),
    ("begin_suppress_tokens", Neutral::Empty),
    ("constraints", Neutral::Empty),
    ("diversity_penalty", Neutral::Number(0.0)),
    ("dola_layers", Neutral::Never),
    ("encoder_no_repeat_ngram_size", Neutral::Number(0.0)),
    ("encoder_repetition_penalty", Neutral::Number(1.0)),
    ("epsilon_cutoff", Neutral::Number(0.0)),
    ("eta_cutoff", Neutral::Number(0.0)),
    ("exponential_decay_length_penalty", Neutral::Never),
    ("force_words_ids", Neutral::Empty),
    ("forced_bos_token_id", Neutral::Never),
    ("forced_decoder_ids", Neutral::Empty),
    ("forced_eos_token_id", Neutral::Never),
    ("frequency_penalty", Neutral::Number(0.0)),
    ("generation_kwargs", Neutral::Empty),
    ("guidance_scale", Neutral::Number(1.0)),
    ("min_length", Neutral::Number(0.0)),
    ("min_new_tokens", Neutral::Number(0.0)),
    ("no_repeat_ngram_size", Neutral::Number(0.0)),
    ("num_beam_groups", Neutral::Number(1.0)),
    ("num_beams", Neutral::Number(1.0)),
    ("num_return_sequences", Neutral::Number(1.0)),
    ("penalty_alpha", Neutral::Number(0.0)),
    ("presence_penalty", Neutral::Number(0.0)),
    ("sequence_bias", Neutral::Empty),
    ("suppress_tokens", Neutral::Empty),
    ("token_healing", Neutral::False),
    ("top_h", Neutral::Never),
    ("typical_p", Neutral::Number(1.0)),
    ("watermarking_config", Neutral::Never),
];

fn defaults(fields: Fields<'_>, vocab_size: usize) -> Result<GenerationDefaults, AssetError> {
    let mut stop_strings = Vec::new();
    for name in ["stop_strings", "stop"] {
        for text in one_or_many(fields, name, "a string or an array of strings", |value| {
            value.as_str().map(str::to_owned)
        })? {
            if !stop_strings.contains(&text) {
                stop_strings.push(text);
            }
        }
    }
    let mut eos_token_ids = Vec::new();
    for id in one_or_many(
        fields,
        "eos_token_id",
        "a token id or an array of them",
        |value| whole(value)?.try_into().ok(),
    )? {
        if usize::try_from(id).is_ok_and(|id| id >= vocab_size) {
            let message = format!("token {id} of a vocabulary of {vocab_size}");
            return Err(fields.fault("eos_token_id", ErrorKind::Mismatch, message));
        }
        if !eos_token_ids.contains(&id) {
            eos_token_ids.push(id);
        }
    }
    let top_k = match fields.uint("top_k")? {
        Some(k) => Some(u32::try_from(k).map_err(|_| {
            fields.fault(
                "top_k",
                ErrorKind::Limit,
                format!("{k} does not fit 32 bits"),
            )
        })?),
        None => None,
    };
    Ok(GenerationDefaults {
        eos_token_ids,
        stop_strings,
        do_sample: fields.boolean("do_sample")?,
        temperature: fields.float("temperature")?,
        top_k,
        top_p: fields.float("top_p")?,
        min_p: fields.float("min_p")?,
        repetition_penalty: fields.float("repetition_penalty")?,
    })
}

fn one_or_many<T>(
    fields: Fields<'_>,
    name: &str,
    wanted: &str,
    convert: impl Fn(&Value) -> Option<T>,
) -> Result<Vec<T>, AssetError> {
    let items: Option<Vec<T>> = match fields.find(name) {
        None => return Ok(Vec::new()),
        Some(Value::Array(items)) => items.iter().map(convert).collect(),
        Some(item) => convert(item).map(|item| vec![item]),
    };
    items.ok_or_else(|| {
        let found = fields.find(name).map(brief).unwrap_or_default();
        fields.fault(
            name,
            ErrorKind::Malformed,
            format!("should be {wanted}, is {found}"),
        )
    })
}
