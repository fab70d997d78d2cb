//! What an answer may be, as the command line says it.

use std::collections::HashSet;
use std::fmt;
use std::path::{Path, PathBuf};

use clap::Args;
use rushlight::GrammarSource;
use serde::de::{self, Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::Value;

use crate::failure::Failure;
use crate::input;

/// A grammar, in one of its spellings.
#[derive(Args, Debug)]
#[group(multiple = false)]
#[command(next_help_heading = "Grammar")]
pub(crate) struct SourceArgs {
    /// A JSON Schema: a file, or the schema itself where it begins with { (or is true or false)
    #[arg(long, value_name = "FILE|JSON", alias = "schema")]
    json_schema: Option<String>,
    /// Any JSON object
    #[arg(long)]
    json_object: bool,
    /// A file with a grammar in GBNF; its rule `root` is the answer
    #[arg(long, value_name = "FILE")]
    grammar: Option<PathBuf>,
    /// A file with a grammar in Lark; its rule `start` is the answer
    #[arg(long, value_name = "FILE")]
    lark: Option<PathBuf>,
    /// A pattern that the whole answer matches
    #[arg(long, value_name = "PATTERN", allow_hyphen_values = true)]
    regex: Option<String>,
    /// One of these texts; may be given several times
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    choice: Vec<String>,
    /// A structural tag: a file, or the JSON itself where it begins with {
    #[arg(long, value_name = "FILE|JSON")]
    structural_tag: Option<String>,
}

/// A grammar for an answer, and how it is kept to.
#[derive(Args, Debug)]
#[command(next_help_heading = "Grammar")]
pub(crate) struct GuideArgs {
    #[command(flatten)]
    source: SourceArgs,
    /// Leave the answer free up to this control token (</think>), after which the grammar begins
    #[arg(long, value_name = "TOKEN", requires = "SourceArgs")]
    grammar_after: Option<String>,
    /// Sample also where the grammar leaves no choice, instead of taking that text in one pass
    #[arg(long, requires = "SourceArgs")]
    sample_forced: bool,
}

/// What [`GuideArgs`] come to.
#[derive(Debug, Default)]
pub(crate) struct Guide {
    pub(crate) grammar: Option<GrammarSource>,
    pub(crate) grammar_after: Option<String>,
    pub(crate) sample_forced: bool,
}

impl GuideArgs {
    /// Reads the grammar, where one is given.
    pub(crate) fn read(&self) -> Result<Guide, Failure> {
        Ok(Guide {
            grammar: self.source.read()?,
            grammar_after: self.grammar_after.clone(),
            sample_forced: self.sample_forced,
        })
    }
}

impl SourceArgs {
    /// Reads the grammar, where one is given.
    pub(crate) fn read(&self) -> Result<Option<GrammarSource>, Failure> {
        let text = |path: &Option<PathBuf>| -> Result<Option<String>, Failure> {
            let text = path.as_deref().map(input::file).transpose()?;
            Ok(text.map(|text| without_mark(&text).to_owned()))
        };
        if let Some(schema) = &self.json_schema {
            return Ok(Some(GrammarSource::JsonSchema(json(
                "--json-schema",
                schema,
            )?)));
        }
        if let Some(tag) = &self.structural_tag {
            return Ok(Some(GrammarSource::StructuralTag(json(
                "--structural-tag",
                tag,
            )?)));
        }
        if let Some(text) = text(&self.grammar)? {
            return Ok(Some(GrammarSource::Ebnf(text)));
        }
        if let Some(text) = text(&self.lark)? {
            return Ok(Some(GrammarSource::Lark(text)));
        }
        if let Some(pattern) = &self.regex {
            return Ok(Some(GrammarSource::Regex(pattern.clone())));
        }
        if !self.choice.is_empty() {
            return Ok(Some(GrammarSource::Choice(self.choice.clone())));
        }
        Ok(self.json_object.then_some(GrammarSource::JsonObject))
    }
}

/// Containers inside each other that the JSON reader takes.
const JSON_DEPTH: usize = 127;

/// JSON given on the command line as `option`, or in the file named there.
pub(crate) fn json(option: &str, given: &str) -> Result<Value, Failure> {
    let text = without_mark(given);
    let inline = text.trim_start().starts_with('{') || ["true", "false"].contains(&text.trim());
    if inline {
        return read(text).map_err(|error| Failure::request(format!("{option}: {error}")));
    }
    let path = Path::new(given);
    if !path.exists() {
        let hint =
            "there is no such file, and JSON on the command line begins with { or is true or false";
        return Err(Failure::request(format!("{given:?}: {hint}")));
    }
    let text = input::file(path)?;
    read(&text).map_err(|error| Failure::request(format!("{given}: {error}")))
}

/// The text without a byte order mark, which editors put there.
fn without_mark(text: &str) -> &str {
    text.trim_start_matches('\u{feff}')
}

/// JSON whose objects have every name once.
///
/// # Errors
/// What is wrong, with line and column.
pub(crate) fn read(text: &str) -> Result<Value, String> {
    let text = without_mark(text);
    if let Some((line, column)) = too_deep(text) {
        return Err(format!(
            "nested more than {JSON_DEPTH} deep at line {line} column {column}"
        ));
    }
    let value = serde_json::from_str(text).map_err(|error| told(&error))?;
    // Of two members of one name the value above has the last alone: the first would be dropped.
    serde_json::from_str::<Distinct>(text).map_err(|error| told(&error))?;
    rushlight::grammar::json_schema::check_numbers(text).map_err(|error| error.to_string())?;
    Ok(value)
}

/// The reader's message, which ends with line and column, where it says what is wrong.
fn told(error: &serde_json::Error) -> String {
    let message = error.to_string();
    let surrogate = ["unexpected end of hex escape", "lone leading surrogate"];
    if surrogate.iter().any(|begin| message.starts_with(begin)) {
        let (line, column) = (error.line(), error.column());
        return format!(
            "an escape is half of a surrogate pair, which is no character, at line {line} column {column}"
        );
    }
    message
}

/// Where `text` opens more containers than the reader takes, if it does.
fn too_deep(text: &str) -> Option<(usize, usize)> {
    let (mut line, mut column, mut open) = (1, 0, 0usize);
    let (mut string, mut escaped) = (false, false);
    for c in text.chars() {
        column += 1;
        match c {
            '\n' => (line, column) = (line + 1, 0),
            _ if escaped => escaped = false,
            '\\' if string => escaped = true,
            '"' => string = !string,
            '{' | '[' if !string => {
                open += 1;
                if open > JSON_DEPTH {
                    return Some((line, column));
                }
            }
            '}' | ']' if !string => open = open.saturating_sub(1),
            _ => {}
        }
    }
    None
}

/// JSON whose objects have every name once.
struct Distinct;

impl<'de> Deserialize<'de> for Distinct {
    fn deserialize<D: Deserializer<'de>>(json: D) -> Result<Distinct, D::Error> {
        json.deserialize_any(Distinct)
    }
}

impl<'de> Visitor<'de> for Distinct {
    type Value = Distinct;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_bool<E>(self, _: bool) -> Result<Distinct, E> {
        Ok(Distinct)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Distinct, E> {
        Ok(Distinct)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Distinct, E> {
        Ok(Distinct)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Distinct, E> {
        Ok(Distinct)
    }

    fn visit_str<E>(self, _: &str) -> Result<Distinct, E> {
        Ok(Distinct)
    }

    fn visit_unit<E>(self) -> Result<Distinct, E> {
        Ok(Distinct)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Distinct, A::Error> {
        while items.next_element::<Distinct>()?.is_some() {}
        Ok(Distinct)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Distinct, A::Error> {
        let mut names = HashSet::new();
        while let Some(name) = members.next_key::<String>()? {
            if names.contains(&name) {
                return Err(de::Error::custom(format!("the name {name:?} stands twice")));
            }
            names.insert(name);
            members.next_value::<Distinct>()?;
        }
        Ok(Distinct)
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        guide: GuideArgs,
    }

    fn guide(arguments: &[&str]) -> Guide {
        let line = Line::try_parse_from([&["x"], arguments].concat()).unwrap();
        line.guide.read().unwrap()
    }

    #[test]
    fn a_number_that_would_be_read_as_another_is_refused() {
        assert!(json("", r#"{"const": 18446744073709551617}"#).is_err());
        assert!(json("", r#"{"const": 18446744073709551615}"#).is_ok());
    }

    #[test]
    fn each_spelling_is_its_source() {
        assert_eq!(
            guide(&["--schema", r#" {"type": "null"}"#]).grammar,
            Some(GrammarSource::JsonSchema(
                serde_json::json!({"type": "null"})
            ))
        );
        assert_eq!(
            guide(&["--choice", "a", "--choice", "-b"]).grammar,
            Some(GrammarSource::Choice(vec!["a".into(), "-b".into()]))
        );
        assert_eq!(
            guide(&["--json-object"]).grammar,
            Some(GrammarSource::JsonObject)
        );
        assert_eq!(
            guide(&["--regex", "[ab]"]).grammar,
            Some(GrammarSource::Regex("[ab]".into()))
        );
        assert_eq!(guide(&[]).grammar, None);
    }

    #[test]
    fn a_byte_order_mark_is_no_part_of_a_grammar() {
        let path = std::env::temp_dir().join(format!("rushlight-mark-{}", std::process::id()));
        std::fs::write(&path, "\u{feff}{\"type\": \"null\"}").unwrap();
        let path = path.to_str().unwrap();
        let text = "{\"type\": \"null\"}".to_owned();
        assert_eq!(
            guide(&["--grammar", path]).grammar,
            Some(GrammarSource::Ebnf(text.clone()))
        );
        assert_eq!(
            guide(&["--lark", path]).grammar,
            Some(GrammarSource::Lark(text))
        );
        assert_eq!(
            guide(&["--schema", path]).grammar,
            Some(GrammarSource::JsonSchema(
                serde_json::json!({"type": "null"})
            ))
        );
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn two_grammars_are_one_too_many_and_options_want_one() {
        assert!(Line::try_parse_from(["x", "--json-object", "--regex", "a"]).is_err());
        for alone in [
            &["x", "--sample-forced"][..],
            &["x", "--grammar-after", "a"],
        ] {
            assert!(Line::try_parse_from(alone).is_err(), "{alone:?}");
        }
        let error = json("--json-schema", r#"{"type": "string", "type": "integer"}"#).unwrap_err();
        assert!(
            error.text().contains("\"type\" stands twice"),
            "{}",
            error.text()
        );
        let error = json("--json-schema", "{\"a\": \"\\ud800\"}").unwrap_err();
        assert!(
            error
                .text()
                .contains("half of a surrogate pair, which is no character, at line 1 column 1"),
            "{}",
            error.text()
        );
        let deep = |levels| format!("{}1{}", "{\"[\\\"\":\n".repeat(levels), "}".repeat(levels));
        assert!(read(&deep(JSON_DEPTH)).is_ok());
        assert_eq!(
            read(&deep(JSON_DEPTH + 1)).unwrap_err(),
            "nested more than 127 deep at line 128 column 1"
        );
        for no_file in ["5", "[]", ""] {
            let error = json("--json-schema", no_file).unwrap_err();
            assert!(
                error
                    .text()
                    .contains("JSON on the command line begins with {"),
                "{}",
                error.text()
            );
        }
        let error = json("--json-schema", "{\"a\": }").unwrap_err();
        assert!(
            error.text().ends_with("line 1 column 7"),
            "{}",
            error.text()
        );
    }
}
