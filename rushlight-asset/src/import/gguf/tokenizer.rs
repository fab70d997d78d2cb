//! `tokenizer.*` metadata, checked for lengths and ranges but not interpreted.

use super::metadata::{Metadata, Value};
use crate::checkpoint::GenerationDefaults;
use crate::error::{AssetError, ErrorKind};
use crate::tokenizer::GgufTokenizer;

const MODEL: &str = "tokenizer.ggml.model";
const TOKENS: &str = "tokenizer.ggml.tokens";

/// The tokenizer, or `None` where the file has none.
pub(super) fn read(metadata: &Metadata) -> Result<Option<GgufTokenizer>, AssetError> {
    let Some(model) = metadata.text(MODEL)? else {
        return Ok(None);
    };
    // The older of two markers for "this file has no vocabulary".
    if matches!(model, "none" | "no_vocab") {
        return Ok(None);
    }
    let tokens = metadata
        .texts(TOKENS)?
        .ok_or_else(|| metadata.fault(TOKENS, ErrorKind::Missing, "a tokenizer without tokens"))?
        .to_vec();
    let id = |suffix: &str| token_id(metadata, suffix, tokens.len());
    let flag = |suffix: &str| metadata.boolean(&format!("tokenizer.ggml.{suffix}"));
    let text = |key: &str| Ok(metadata.text(key)?.map(str::to_owned));
    Ok(Some(GgufTokenizer {
        model: model.to_owned(),
        pre: text("tokenizer.ggml.pre")?,
        scores: each(metadata, "scores", tokens.len(), |key| {
            Ok(metadata.floats(key)?.map(<[f32]>::to_vec))
        })?,
        token_types: each(metadata, "token_type", tokens.len(), |key| {
            metadata.ints(key)
        })?,
        merges: metadata
            .texts("tokenizer.ggml.merges")?
            .unwrap_or_default()
            .to_vec(),
        bos: id("bos_token_id")?,
        eos: id("eos_token_id")?,
        eot: id("eot_token_id")?,
        eom: id("eom_token_id")?,
        unk: id("unknown_token_id")?,
        pad: id("padding_token_id")?,
        // The specification and older writers spell this one differently.
        sep: match id("separator_token_id")? {
            None => id("seperator_token_id")?,
            sep => sep,
        },
        add_bos: flag("add_bos_token")?,
        add_eos: flag("add_eos_token")?,
        add_space_prefix: flag("add_space_prefix")?,
        remove_extra_whitespaces: flag("remove_extra_whitespaces")?,
        precompiled_charsmap: metadata.bytes("tokenizer.ggml.precompiled_charsmap")?,
        chat_template: text("tokenizer.chat_template")?,
        named_chat_templates: named_templates(metadata)?,
        tokens,
    }))
}

/// Stop ids and sampling defaults: the tokenizer's end ids, and `general.sampling.*`.
pub(super) fn generation(
    metadata: &Metadata,
    tokenizer: Option<&GgufTokenizer>,
) -> Result<GenerationDefaults, AssetError> {
    let mut eos_token_ids = Vec::new();
    if let Some(tokenizer) = tokenizer {
        for id in [tokenizer.eos, tokenizer.eot, tokenizer.eom] {
            if let Some(id) = id
                && !eos_token_ids.contains(&id)
            {
                eos_token_ids.push(id);
            }
        }
    }
    refuse_unhonoured(metadata)?;
    let float = |suffix: &str| metadata.float(&format!("general.sampling.{suffix}"));
    let top_k_key = "general.sampling.top_k";
    let top_k = match metadata.uint(top_k_key)? {
        Some(k) => Some(u32::try_from(k).map_err(|_| {
            metadata.fault(
                top_k_key,
                ErrorKind::Limit,
                format!("{k} does not fit 32 bits"),
            )
        })?),
        None => None,
    };
    Ok(GenerationDefaults {
        eos_token_ids,
        stop_strings: Vec::new(),
        do_sample: None,
        temperature: float("temp")?,
        top_k,
        top_p: float("top_p")?,
        min_p: float("min_p")?,
        repetition_penalty: float("penalty_repeat")?,
    })
}

/// Refuses keys of `general.sampling` (llama.cpp's, in the terms of its samplers) that would change
/// which token comes next and are not honoured.
fn refuse_unhonoured(metadata: &Metadata) -> Result<(), AssetError> {
    const PREFIX: &str = "general.sampling.";
    let penalty = metadata.float("general.sampling.penalty_repeat")?;
    for (key, value) in metadata.iter() {
        let Some(suffix) = key.strip_prefix(PREFIX) else {
            continue;
        };
        let neutral = match suffix {
            "temp" | "top_k" | "top_p" | "min_p" | "penalty_repeat" => true,
            // Without mirostat and xtc their settings set nothing.
            "mirostat_tau" | "mirostat_eta" | "xtc_threshold" => true,
            "mirostat" => metadata.uint(key)? == Some(0),
            "xtc_probability" => metadata.float(key)? == Some(0.0),
            // −1 is the whole history, as here; without a penalty no window of it matters.
            "penalty_last_n" => {
                penalty.is_none_or(|penalty| penalty == 1.0) || *value == Value::I32(-1)
            }
            _ => false,
        };
        if !neutral {
            return Err(metadata.fault(
                key,
                ErrorKind::Unsupported,
                "this changes how answers are made and is not supported",
            ));
        }
    }
    Ok(())
}

fn token_id(metadata: &Metadata, suffix: &str, tokens: usize) -> Result<Option<u32>, AssetError> {
    let key = format!("tokenizer.ggml.{suffix}");
    let id = metadata.token_id(&key)?;
    match id {
        Some(id) if usize::try_from(id).is_ok_and(|id| id >= tokens) => Err(metadata.fault(
            &key,
            ErrorKind::Mismatch,
            format!("token {id} of a vocabulary of {tokens}"),
        )),
        id => Ok(id),
    }
}

/// An array of one entry a token.
fn each<T>(
    metadata: &Metadata,
    suffix: &str,
    tokens: usize,
    read: impl FnOnce(&str) -> Result<Option<Vec<T>>, AssetError>,
) -> Result<Option<Vec<T>>, AssetError> {
    let key = format!("tokenizer.ggml.{suffix}");
    match read(&key)? {
        Some(values) if values.len() != tokens => Err(metadata.fault(
            &key,
            ErrorKind::Mismatch,
            format!("{} entries for {tokens} tokens", values.len()),
        )),
        values => Ok(values),
    }
}

fn named_templates(metadata: &Metadata) -> Result<Vec<(String, String)>, AssetError> {
    const PREFIX: &str = "tokenizer.chat_template.";
    let mut templates = Vec::new();
    for (key, _) in metadata.iter() {
        if let Some(name) = key.strip_prefix(PREFIX)
            && let Some(template) = metadata.text(key)?
        {
            templates.push((name.to_owned(), template.to_owned()));
        }
    }
    Ok(templates)
}
