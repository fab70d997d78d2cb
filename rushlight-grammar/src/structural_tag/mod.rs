//! Structural tags: answers that are partly free text and partly structured, in the JSON form that xgrammar defines.
//!
//! ```json
//! {"type": "structural_tag", "format": {
//!   "type": "triggered_tags", "triggers": ["<function="],
//!   "tags": [{"begin": "<function=time>", "content": {"type": "json_schema", "json_schema": {"type": "object"}}, "end": "</function>"}]
//! }}
//! ```
//!
//! | `type` | its text |
//! |---|---|
//! | `const_string` | `value` |
//! | `json_schema` | a value of `json_schema`; `style` `json` (default) or `qwen_xml` |
//! | `qwen_xml_parameter` | the members of an object schema as `<parameter=NAME>VALUE</parameter>` |
//! | `grammar`, `regex` | a text of `grammar` (GBNF), of `pattern` |
//! | `any_text` | any text without the strings of `excludes`; in a tag it goes on to the tag's end |
//! | `sequence`, `or` | all of `elements` in order, any one of them |
//! | `tag` | `begin`, `content`, `end` (one string or several to choose from) |
//! | `triggered_tags` | free text; where a string of `triggers` comes up, a tag that begins with it must follow; each has one |
//! | `tags_with_separator` | tags with `separator` between them, and nothing else |
//!
//! The last two take `at_least_one` (with `triggered_tags`, the text then begins with a tag) and `stop_after_first`. The older
//! form, `{"structures": [{"begin", "schema", "end"}], "triggers": [...]}`, is read as `triggered_tags`.
//!
//! Composition needs nothing else: text then a call is `triggered_tags`; thinking, then a schema is `sequence` of a `tag` with
//! `any_text` and a `json_schema`; tools or a schema is `or`.
//!
//! Free text that nothing ends may only stand last. A kind or member that is not listed here is refused by name.
//!
//! Refused too, with the place: a schema that needs a guard where its value's begin cannot be told from other text that may
//! stand there, and a pattern or number that could go on with what follows it, so that its end cannot be told. A `grammar` of
//! regular rules is a pattern; what another begins with counts as any text there.
//!
//! A text is read once, from left to right. Where several parts may begin at one place, as the ways of an `or` do, the longest is
//! taken, and free text as soon as it comes to its end. So ways that begin alike can hide texts of each other: an `or` of the tags
//! `<`, free text, `>` and `<`, a string, `]` takes no `<"x"]`. In the same way a `grammar` that is no pattern takes what its last
//! characters could be of the text after it. Such texts are not written, and none is that is no text of the format; ways that begin differently,
//! and a character after a grammar that it does not end in, hide nothing.

mod automaton;
mod content;
mod document;
mod greedy;
mod guard;
mod shape;
mod tags;
mod track;
mod xml;

use std::rc::Rc;
use std::sync::Arc;

use llguidance::earley::SymIdx;
use serde_json::{Map, Value};

use crate::ebnf;
use crate::error::{GrammarErrorKind, GrammarReport, Result};
use crate::json_schema::{SchemaOptions, Whitespace};
use crate::limits::Limits;
use crate::lower::{Guard, Lowered};
use crate::regex;
use crate::source;
use crate::target::Target;
use crate::vocabulary::Vocabulary;
use content::Content;
use document::{At, Format, format_of};
use greedy::Work;
use guard::TagGuard;
use shape::{Joiner, Part, Shape, Writer};
use track::Track;

/// Lowers a structural tag.
///
/// # Errors
/// A report of every problem found; those of an embedded schema have the pointer in the whole document.
pub fn lower(
    value: &Value,
    vocabulary: Option<&Vocabulary>,
    limits: &Limits,
    schema: &SchemaOptions,
) -> Result<Lowered, GrammarReport> {
    let format = format_of(value)?;
    let old = format.old;
    build(format, vocabulary, limits, schema).map_err(|report| match old {
        true => report.map(document::in_old_form),
        false => report,
    })
}

fn build(
    format: Format,
    vocabulary: Option<&Vocabulary>,
    limits: &Limits,
    schema: &SchemaOptions,
) -> Result<Lowered, GrammarReport> {
    let mut builder = Builder {
        target: Target::new(limits)?,
        vocabulary,
        limits,
        schema,
        contents: Vec::new(),
        whole: Vec::new(),
        closers: Vec::new(),
        ends: Vec::new(),
        nodes: 0,
    };
    let place = At {
        pointer: format.pointer,
        depth: 0,
    };
    let whole = builder.format(&format.value, &place, &Around::start())?;
    let mut work = Work::new();
    let whole = Joiner::new(&mut work).join(&whole)?;
    greedy::check(&whole, &builder.contents, &mut work)?;
    // What ends a tag is written last.
    let mut closers = builder.closers;
    closers.extend(builder.ends);
    let mut target = builder.target;
    let first = Writer::new(&mut target).write(&whole)?;
    let mut guards = builder.whole;
    if builder.contents.iter().any(|c| c.class.is_some()) {
        let blank = !matches!(
            schema.whitespace,
            Whitespace::Compact | Whitespace::Bounded(0)
        );
        let track = Track::new(&whole, builder.contents, blank)?;
        guards.push(Arc::new(TagGuard::new(track)));
    }
    Ok(Lowered {
        guards,
        closers,
        ..Lowered::from(target.finish(first)?)
    })
}

/// What surrounds a format.
#[derive(Clone, Copy)]
struct Around {
    // Whether nothing comes after it in the text.
    last: bool,
    // Whether it begins the whole text, and nothing else may.
    start: bool,
}

impl Around {
    fn start() -> Self {
        Self {
            last: true,
            start: true,
        }
    }
}

struct Builder<'a> {
    target: Target,
    vocabulary: Option<&'a Vocabulary>,
    limits: &'a Limits,
    schema: &'a SchemaOptions,
    contents: Vec<Content>,
    // Guards of a schema that is the whole text.
    whole: Vec<Arc<dyn Guard>>,
    // Texts that end free text within contents.
    closers: Vec<String>,
    // Texts that end tags.
    ends: Vec<String>,
    nodes: usize,
}

impl Builder<'_> {
    /// Counts a format; every way down comes through here.
    fn visit(&mut self, at: &At) -> Result<()> {
        self.nodes += 1;
        if self.nodes > self.limits.rules || at.depth > self.limits.depth {
            let reason = "too many formats, or nested too deep";
            return Err(at.error(GrammarErrorKind::Limit, "", reason));
        }
        Ok(())
    }

    fn format(&mut self, value: &Value, at: &At, around: &Around) -> Result<Part, GrammarReport> {
        self.visit(at)?;
        let object = at.object(value)?;
        match at.text(object, "type")? {
            "const_string" => {
                at.only(object, &["type", "value"])?;
                Ok(shape::text(at.text(object, "value")?))
            }
            "json_schema" => self.json_schema(object, at, around),
            "qwen_xml_parameter" => {
                at.only(object, &["type", "json_schema"])?;
                xml::parameters(
                    self,
                    at.member(object, "json_schema")?,
                    &at.under("json_schema"),
                )
            }
            "grammar" => {
                at.only(object, &["type", "grammar"])?;
                let text = at.text(object, "grammar")?;
                let pointer = at.under("grammar").pointer;
                let (part, texts) =
                    ebnf::build(text, self.vocabulary, self.limits, &mut self.target)
                        .map_err(|report| report.map(|e| e.under_pointer(&pointer)))?;
                self.closers.extend(texts);
                Ok(Rc::new(match part {
                    ebnf::Part::Pattern(pattern) => Shape::Regex { pattern, pointer },
                    ebnf::Part::Built(symbol) => Shape::Built(symbol),
                }))
            }
            "regex" => {
                at.only(object, &["type", "pattern"])?;
                let pattern = at.text(object, "pattern")?;
                self.closers.extend(regex::literals(pattern));
                let pointer = at.under("pattern").pointer;
                let pattern =
                    regex::printed(pattern, self.limits).map_err(|e| e.under_pointer(&pointer))?;
                Ok(Rc::new(Shape::Regex { pattern, pointer }))
            }
            "any_text" => {
                at.only(object, &["type", "excludes"])?;
                let excludes = at.excludes(object)?;
                Ok(free_text(excludes, at, around)?)
            }
            "sequence" => self.sequence(object, at, around),
            "or" => self.or(object, at, around),
            "tag" => self.tag(object, at, around),
            "triggered_tags" => self.triggered(object, at, around, &[]),
            "tags_with_separator" => self.separated(object, at, around),
            other => Err(at
                .error(
                    GrammarErrorKind::Unsupported,
                    "type",
                    format!("the format '{other}' is not supported"),
                )
                .into()),
        }
    }

    fn json_schema(
        &mut self,
        object: &Map<String, Value>,
        at: &At,
        around: &Around,
    ) -> Result<Part, GrammarReport> {
        at.only(object, &["type", "json_schema", "style"])?;
        let schema = at.member(object, "json_schema")?;
        let inner = at.under("json_schema");
        match object.get("style").map(Value::as_str) {
            None | Some(Some("json")) => {}
            Some(Some("qwen_xml")) => return xml::parameters(self, schema, &inner),
            Some(_) => {
                let reason = "must be \"json\" or \"qwen_xml\"";
                return Err(at
                    .error(GrammarErrorKind::Unsupported, "style", reason)
                    .into());
            }
        }
        let (symbol, mut guards) = self.embed(schema, &[], &inner)?;
        if around.start && around.last {
            self.whole.append(&mut guards);
        }
        Ok(self.json(symbol, (schema, schema), &inner, guards))
    }

    /// A value of a schema, given with its document, that `symbol` reads and `guards` judge.
    fn json(
        &mut self,
        symbol: SymIdx,
        schema: (&Value, &Value),
        at: &At,
        guards: Vec<Arc<dyn Guard>>,
    ) -> Part {
        let content = content::add(&mut self.contents, schema, &at.pointer, guards);
        Rc::new(Shape::Json { symbol, content })
    }

    /// The values of the schema at `path` of `document`, with problems placed in the whole of this document, in which that one
    /// is `at`.
    fn embed(
        &mut self,
        document: &Value,
        path: &[&str],
        at: &At,
    ) -> Result<(SymIdx, Vec<Arc<dyn Guard>>), GrammarReport> {
        let part = path
            .iter()
            .try_fold(document, |value, key| value.get(*key))
            .map(source::closers);
        self.closers.extend(part.into_iter().flatten());
        self.target
            .schema(document, path, self.schema)
            .map_err(|report| report.map(|e| e.under_pointer(&at.pointer)))
    }

    fn sequence(
        &mut self,
        object: &Map<String, Value>,
        at: &At,
        around: &Around,
    ) -> Result<Part, GrammarReport> {
        at.only(object, &["type", "elements"])?;
        let elements = at.under("elements");
        let list = elements.list(at.member(object, "elements")?)?;
        let mut parts = Vec::with_capacity(list.len());
        for (n, element) in list.iter().enumerate() {
            let around = Around {
                last: around.last && n + 1 == list.len(),
                start: around.start && n == 0,
            };
            parts.push(self.format(element, &elements.under(&n.to_string()), &around)?);
        }
        Ok(shape::seq(parts))
    }

    fn or(
        &mut self,
        object: &Map<String, Value>,
        at: &At,
        around: &Around,
    ) -> Result<Part, GrammarReport> {
        at.only(object, &["type", "elements"])?;
        let elements = at.under("elements");
        let list = elements.list(at.member(object, "elements")?)?;
        if list.is_empty() {
            let reason = "an 'or' of nothing matches no text";
            return Err(at
                .error(GrammarErrorKind::Unsatisfiable, "elements", reason)
                .into());
        }
        let mut ways = Vec::with_capacity(list.len());
        let around = Around {
            start: around.start && list.len() == 1,
            ..*around
        };
        for (n, element) in list.iter().enumerate() {
            ways.push(self.format(element, &elements.under(&n.to_string()), &around)?);
        }
        Ok(shape::alt(ways))
    }

    fn tag(
        &mut self,
        object: &Map<String, Value>,
        at: &At,
        around: &Around,
    ) -> Result<Part, GrammarReport> {
        let begin = shape::text(at.text(object, "begin")?);
        let rest = self.tag_after(object, at, around)?;
        Ok(shape::seq(vec![begin, rest]))
    }

    /// What comes after a tag's begin: content and end.
    fn tag_after(
        &mut self,
        object: &Map<String, Value>,
        at: &At,
        around: &Around,
    ) -> Result<Part, GrammarReport> {
        at.only(object, &["type", "begin", "content", "end"])?;
        let ends = match at.member(object, "end")? {
            Value::Array(_) => at.texts(object, "end")?,
            _ => vec![at.text(object, "end")?.to_owned()],
        };
        if ends.is_empty() {
            return Err(at
                .error(GrammarErrorKind::Invalid, "end", "is an empty list")
                .into());
        }
        self.ends.extend(ends.iter().cloned());
        let content = at.member(object, "content")?;
        let place = at.under("content");
        let inside = Around {
            start: false,
            ..*around
        };
        if ends.iter().any(String::is_empty) {
            // It goes on as far as its content does.
            let content = self.format(content, &place, &inside)?;
            return Ok(shape::seq(vec![content, shape::texts(&ends)]));
        }
        self.up_to(content, &place, &inside, &ends)
    }

    /// A format and one of `ends`. Free text at its end reads that end too: the lexer could not tell where to stop before it.
    fn up_to(
        &mut self,
        value: &Value,
        at: &At,
        around: &Around,
        ends: &[String],
    ) -> Result<Part, GrammarReport> {
        self.visit(at)?;
        let object = at.object(value)?;
        match object.get("type").and_then(Value::as_str) {
            Some("any_text") => {
                at.only(object, &["type", "excludes"])?;
                let excludes = at.excludes(object)?;
                at.can_stop(ends, &excludes, "excludes")?;
                Ok(shape::until(ends, &excludes))
            }
            Some("triggered_tags") => self.triggered(object, at, around, ends),
            Some(kind @ ("sequence" | "or")) => {
                at.only(object, &["type", "elements"])?;
                let elements = at.under("elements");
                let list = elements.list(at.member(object, "elements")?)?;
                let Some((last, before)) = list.split_last() else {
                    let none = self.format(value, at, around)?;
                    return Ok(shape::seq(vec![none, shape::texts(ends)]));
                };
                let around = Around {
                    start: around.start && before.is_empty(),
                    last: false,
                };
                let mut parts = Vec::with_capacity(list.len());
                for (n, element) in before.iter().enumerate() {
                    let at = elements.under(&n.to_string());
                    parts.push(match kind {
                        "or" => self.up_to(element, &at, &around, ends)?,
                        _ => self.format(element, &at, &around)?,
                    });
                }
                let at = elements.under(&before.len().to_string());
                parts.push(self.up_to(last, &at, &around, ends)?);
                Ok(match kind {
                    "or" => shape::alt(parts),
                    _ => shape::seq(parts),
                })
            }
            _ => {
                let around = Around {
                    last: false,
                    ..*around
                };
                let content = self.format(value, at, &around)?;
                Ok(shape::seq(vec![content, shape::texts(ends)]))
            }
        }
    }
}

/// Free text that nothing but the end of the whole text ends.
fn free_text(excludes: Vec<String>, at: &At, around: &Around) -> Result<Part> {
    if !around.last {
        let reason = "free text must stand last, or be all of a tag's content";
        return Err(at.error(GrammarErrorKind::Unsupported, "type", reason));
    }
    Ok(Rc::new(Shape::Rest { excludes }))
}
