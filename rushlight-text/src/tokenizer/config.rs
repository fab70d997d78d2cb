//! `tokenizer_config.json`: special tokens, policies, chat templates.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Map, Value};

use crate::error::{Result, TextError};
use crate::template::TemplateSource;

/// What a `tokenizer_config.json` says about text. Keys that only concern Python classes are not kept.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TokenizerConfig {
    /// Special tokens by role (`bos_token`, `eos_token`, `boi_token`, …), in the file's order.
    pub special: Vec<(String, String)>,
    /// Further tokens that the file declares special.
    pub additional_special: Vec<String>,
    /// Extra turn ends: tokens whose key says so (`eot_token`, `end_of_turn`, `im_end`, `endoftext`, …).
    pub turn_ends: Vec<String>,
    /// Tokens the file adds, with their ids.
    pub added: BTreeMap<u32, DeclaredToken>,
    /// Whether BOS begins a prompt.
    pub add_bos: Option<bool>,
    /// Whether EOS ends an encoded text.
    pub add_eos: Option<bool>,
    /// The chat template, or several by name.
    pub chat_template: Option<TemplateSource>,
}

/// A token as `added_tokens_decoder` declares it.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct DeclaredToken {
    /// Its spelling.
    pub content: String,
    /// Marked special.
    #[serde(default)]
    pub special: bool,
    /// Takes the white space before it.
    #[serde(default)]
    pub lstrip: bool,
    /// Takes the white space after it.
    #[serde(default)]
    pub rstrip: bool,
    /// Only matches as a whole word.
    #[serde(default)]
    pub single_word: bool,
}

impl TokenizerConfig {
    /// Reads the JSON of a `tokenizer_config.json`.
    pub fn from_json(json: &str) -> Result<Self> {
        let mut config = Self::default();
        for (key, value) in object(json, "tokenizer_config.json")? {
            config.take(&key, value)?;
        }
        Ok(config)
    }

    /// Adds what a `special_tokens_map.json` (special tokens by role, and `additional_special_tokens`) has and this
    /// lacks.
    pub(crate) fn complete(&mut self, special_tokens_map: &str) -> Result<()> {
        let none_declared = self.additional_special.is_empty();
        for (key, value) in object(special_tokens_map, "special_tokens_map.json")? {
            if key == "additional_special_tokens" {
                if none_declared {
                    self.additional_special.extend(spellings(&value));
                }
            } else if self.special_token(&key).is_none() {
                self.special(&key, &value);
            }
        }
        Ok(())
    }

    /// The spelling of the special token with this role.
    pub fn special_token(&self, role: &str) -> Option<&str> {
        self.special
            .iter()
            .find(|(key, _)| key == role)
            .map(|(_, spelling)| spelling.as_str())
    }

    fn take(&mut self, key: &str, value: Value) -> Result<()> {
        match key {
            "add_bos_token" => self.add_bos = flag(key, &value)?,
            "add_eos_token" => self.add_eos = flag(key, &value)?,
            "chat_template" => self.chat_template = TemplateSource::from_json(value)?,
            "added_tokens_decoder" => self.added = declared_tokens(value)?,
            "additional_special_tokens" => {
                self.additional_special.extend(spellings(&value));
            }
            "extra_special_tokens" => match value {
                Value::Object(named) => {
                    for (role, token) in named {
                        self.special(&role, &token);
                    }
                }
                list => self.additional_special.extend(spellings(&list)),
            },
            _ if key.ends_with("_token") || is_turn_end_key(key) => self.special(key, &value),
            _ => {}
        }
        Ok(())
    }

    fn special(&mut self, role: &str, token: &Value) {
        let Some(spelling) = spelling_of(token) else {
            return;
        };
        if is_turn_end_key(role) {
            self.turn_ends.push(spelling.clone());
        }
        match self.special.iter_mut().find(|(key, _)| key == role) {
            Some((_, old)) => *old = spelling,
            None => self.special.push((role.to_owned(), spelling)),
        }
    }
}

fn object(json: &str, name: &str) -> Result<Map<String, Value>> {
    serde_json::from_str(json).map_err(|error| {
        let place = (error.line(), error.column());
        TextError::malformed(format!("not the JSON object of a {name}"))
            .at(name, Some(place))
            .caused_by(error)
    })
}

fn flag(key: &str, value: &Value) -> Result<Option<bool>> {
    match value {
        Value::Null => Ok(None),
        Value::Bool(flag) => Ok(Some(*flag)),
        other => Err(TextError::malformed(format!(
            "{key} must be true or false, not {other}"
        ))),
    }
}

/// Keys under which configurations name a token that ends a turn besides `eos_token`.
fn is_turn_end_key(key: &str) -> bool {
    matches!(
        key.strip_suffix("_token").unwrap_or(key),
        "eot"
            | "eom"
            | "end_of_turn"
            | "im_end"
            | "endoftext"
            | "end_of_text"
            | "eot_id"
            | "eom_id"
    )
}

/// A token is a string, or an object with its spelling under `content`.
fn spelling_of(token: &Value) -> Option<String> {
    token
        .as_str()
        .or_else(|| token.get("content")?.as_str())
        .map(str::to_owned)
}

fn spellings(list: &Value) -> Vec<String> {
    list.as_array()
        .into_iter()
        .flatten()
        .filter_map(spelling_of)
        .collect()
}

fn declared_tokens(value: Value) -> Result<BTreeMap<u32, DeclaredToken>> {
    let Value::Object(object) = value else {
        return Err(TextError::malformed(
            "added_tokens_decoder must be an object",
        ));
    };
    object
        .into_iter()
        .map(|(id, token)| {
            let number = id.parse::<u32>().map_err(|error| {
                TextError::malformed(format!("added_tokens_decoder: {id:?} is not an id"))
                    .caused_by(error)
            })?;
            let token = serde_json::from_value(token).map_err(|error| {
                TextError::malformed(format!("added_tokens_decoder: token {id} is not a token"))
                    .caused_by(error)
            })?;
            Ok((number, token))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_tokens_in_both_forms() {
        let config = TokenizerConfig::from_json(
            r#"{"bos_token": {"__type": "AddedToken", "content": "<s>"}, "eos_token": "</s>", "unk_token": null,
                "eot_token": "<eot>", "end_of_turn": "<end_of_turn>", "add_bos_token": true,
                "extra_special_tokens": {"boi_token": "<img>"},
                "additional_special_tokens": ["<a>", {"content": "<b>"}],
                "added_tokens_decoder": {"7": {"content": "<x>", "special": true}}, "model_max_length": 1e30}"#,
        )
        .unwrap();
        assert_eq!(config.special_token("bos_token"), Some("<s>"));
        assert_eq!(config.special_token("eos_token"), Some("</s>"));
        assert_eq!(config.special_token("unk_token"), None);
        assert_eq!(config.special_token("boi_token"), Some("<img>"));
        assert_eq!(config.turn_ends, ["<eot>", "<end_of_turn>"]);
        assert_eq!(config.additional_special, ["<a>", "<b>"]);
        assert!(config.added[&7].special);
        assert_eq!(config.add_bos, Some(true));
    }

    #[test]
    fn says_what_is_wrong_and_where() {
        let error = TokenizerConfig::from_json("{\n  \"a\": ]").unwrap_err();
        assert_eq!(error.place().unwrap().line_column, Some((2, 8)));
        assert!(TokenizerConfig::from_json("[]").is_err());
        assert!(TokenizerConfig::from_json(r#"{"added_tokens_decoder": {"x": {}}}"#).is_err());
        for malformed in [r#""true""#, "1", "[]"] {
            let json = format!(r#"{{"add_bos_token": {malformed}}}"#);
            let error = TokenizerConfig::from_json(&json).unwrap_err();
            assert!(error.to_string().contains("add_bos_token"), "{error}");
        }
        let unset = TokenizerConfig::from_json(r#"{"add_bos_token": null}"#).unwrap();
        assert_eq!(unset.add_bos, None);
    }

    #[test]
    fn a_special_tokens_map_adds_what_is_lacking() {
        let mut config =
            TokenizerConfig::from_json(r#"{"bos_token": "<s>", "unk_token": null}"#).unwrap();
        let map = r#"{"bos_token": "<other>", "eos_token": {"content": "</s>", "lstrip": false}, "unk_token": "<unk>",
            "pad_token": "<pad>", "additional_special_tokens": ["<a>", {"content": "<b>"}]}"#;
        config.complete(map).unwrap();
        for (role, spelling) in [
            ("bos", "<s>"),
            ("eos", "</s>"),
            ("unk", "<unk>"),
            ("pad", "<pad>"),
        ] {
            assert_eq!(
                config.special_token(&format!("{role}_token")),
                Some(spelling)
            );
        }
        assert_eq!(config.additional_special, ["<a>", "<b>"]);
        config
            .complete(r#"{"additional_special_tokens": ["<c>"]}"#)
            .unwrap();
        assert_eq!(config.additional_special, ["<a>", "<b>"]);
        let error = config.complete("[]").unwrap_err();
        assert!(
            error.to_string().contains("special_tokens_map.json"),
            "{error}"
        );
    }
}
