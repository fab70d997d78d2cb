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
        let text = |path: &Option<PathBuf>| path.as_deref().map(input::file).transpose();
        if let Some(schema) = &self.json_schema {
            return Ok(Some(GrammarSource::JsonSchema(json(schema)?)));
        }
        if let Some(tag) = &self.structural_tag {
            return Ok(Some(GrammarSource::StructuralTag(json(tag)?)));
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

/// JSON given on the command line, or in the file named there.
pub(crate) fn json(given: &str) -> Result<Value, Failure> {
    let given = given.trim_start_matches('\u{feff}');
    let inline = given.trim_start().starts_with('{') || ["true", "false"].contains(&given.trim());
    let (name, text) = if inline {
        ("the command line".to_owned(), given.to_owned())
    } else {
        (given.to_owned(), input::file(Path::new(given))?)
    };
    let text = text.trim_start_matches('\u{feff}');
    // Its message ends with line and column.
    let failed = |error: serde_json::Error| Failure::request(format!("{name}: {error}"));
    let value = serde_json::from_str(text).map_err(failed)?;
    // Of two members of one name the value above has the last alone: the first would be dropped.
    serde_json::from_str::<Distinct>(text).map_err(failed)?;
    rushlight::grammar::json_schema::check_numbers(text)
        .map_err(|error| Failure::request(format!("{name}: {error}")))?;
    Ok(value)
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
        assert!(json(r#"{"const": 18446744073709551617}"#).is_err());
        assert!(json(r#"{"const": 18446744073709551615}"#).is_ok());
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
    fn two_grammars_are_one_too_many_and_options_want_one() {
        assert!(Line::try_parse_from(["x", "--json-object", "--regex", "a"]).is_err());
        for alone in [
            &["x", "--sample-forced"][..],
            &["x", "--grammar-after", "a"],
        ] {
            assert!(Line::try_parse_from(alone).is_err(), "{alone:?}");
        }
        let error = json(r#"{"type": "string", "type": "integer"}"#).unwrap_err();
        assert!(
            error.text().contains("\"type\" stands twice"),
            "{}",
            error.text()
        );
        let error = json("{\"a\": }").unwrap_err();
        assert!(
            error.text().ends_with("line 1 column 7"),
            "{}",
            error.text()
        );
    }
}
