//! Chat templates: messages to the text of a prompt, as `transformers` renders them.

mod capabilities;
mod clock;
mod content;
mod environment;
mod json;
mod python;
mod source;

use std::io;
use std::ops::Range;

use minijinja::Environment;
use serde_json::{Map, Value};

pub use capabilities::{Capabilities, ToolCallForm};
pub use clock::{Clock, LocalTime};
use content::{Marking, Thoughts};

use crate::error::{Result, TextError, TextErrorKind};

/// A longer template is refused, in bytes.
const MAX_SOURCE: usize = 4 << 20;
/// Fuel that `input` may raise the limit to: values can nest a level deeper for every eight units, and have to be taken
/// apart again on [`STACK`].
const MAX_FUEL: u64 = 6_000_000;
/// Stack for rendering, in bytes. Only what is used of it takes memory.
const STACK: usize = 256 << 20;
/// Deeper messages or tools are refused; `serde_json` refuses to parse deeper ones, too.
const MAX_DEPTH: usize = 128;

/// One template, or several by name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TemplateSource {
    /// The template for every request.
    One(String),
    /// Pairs of name and template. `tool_use` serves requests with tools, `default` all others.
    Named(Vec<(String, String)>),
}

impl TemplateSource {
    /// Reads the `chat_template` of a `tokenizer_config.json`: a string, or a list of `{"name", "template"}`.
    ///
    /// # Errors
    /// [`TextErrorKind::Malformed`].
    pub fn from_json(value: Value) -> Result<Option<Self>> {
        let malformed =
            || TextError::malformed("chat_template must be a string or a list of {name, template}");
        match value {
            Value::Null => Ok(None),
            Value::String(template) => Ok(Some(Self::One(template))),
            Value::Array(list) => list
                .iter()
                .map(|entry| {
                    let text = |key| entry.get(key)?.as_str().map(str::to_owned);
                    Some((text("name")?, text("template")?))
                })
                .collect::<Option<Vec<_>>>()
                .map(|named| Some(Self::Named(named)))
                .ok_or_else(malformed),
            _ => Err(malformed()),
        }
    }

    /// Names and templates; a single template is called `default`.
    pub fn named(&self) -> impl Iterator<Item = (&str, &str)> {
        let (one, many) = match self {
            Self::One(template) => (Some(("default", template.as_str())), &[][..]),
            Self::Named(named) => (None, named.as_slice()),
        };
        one.into_iter().chain(
            many.iter()
                .map(|(name, source)| (name.as_str(), source.as_str())),
        )
    }
}

/// What a template needs to know of the vocabulary.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TemplateTokens {
    /// Special tokens by role, which the template sees as variables (`bos_token`, `eos_token`, …).
    pub special: Vec<(String, String)>,
    /// The spellings of all control tokens, which content must not form.
    pub control: Vec<String>,
}

/// How much a template may do.
///
/// A unit of fuel pays for one instruction of the template, or for 64 bytes of text that it makes; so the limit of
/// fuel bounds both time and memory. Both limits grow with what the caller passes in, because a longer conversation
/// is more work for an honest template: `input` is the bytes of all its strings.
///
/// One hole is the template engine's (minijinja 3.1): it adds lists lazily and charges nothing when it does copy them,
/// so a template made to harm can double a list thirty times and exhaust memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TemplateLimits {
    /// Units of fuel, to which `input` / 4 is added, up to 6,000,000 in all. Default 1,000,000 (at most 64 MB of text
    /// made on the way; a conversation of 200 messages with tools takes some 40,000).
    pub fuel: u64,
    /// Bytes of output, to which 8 × `input` is added. Default 16 MiB.
    pub output: usize,
}

impl Default for TemplateLimits {
    fn default() -> Self {
        Self {
            fuel: 1_000_000,
            output: 16 << 20,
        }
    }
}

/// What a template is rendered with.
#[derive(Clone, Debug)]
pub struct RenderRequest<'a> {
    /// A list of messages: objects with `role` and, mostly, `content` (a string or a list of parts).
    pub messages: &'a Value,
    /// A list of tool definitions.
    pub tools: Option<&'a Value>,
    /// A list of documents, for templates made for retrieval.
    pub documents: Option<&'a Value>,
    /// End with the beginning of an assistant's turn.
    pub add_generation_prompt: bool,
    /// Further variables, like `enable_thinking`. Strings among them count as content.
    pub variables: Map<String, Value>,
    /// The template to use, where the model has several and `tool_use` or `default` is not meant.
    pub template: Option<&'a str>,
}

impl<'a> RenderRequest<'a> {
    /// A request for the assistant's answer to these messages.
    pub fn new(messages: &'a Value) -> Self {
        Self {
            messages,
            tools: None,
            documents: None,
            add_generation_prompt: true,
            variables: Map::new(),
            template: None,
        }
    }

    /// With tools.
    pub fn with_tools(mut self, tools: &'a Value) -> Self {
        self.tools = Some(tools);
        self
    }

    /// With a further variable.
    pub fn with_variable(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.variables.insert(name.to_owned(), value.into());
        self
    }
}

/// A rendered prompt.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rendered {
    /// The text, byte for byte what `transformers` renders.
    pub text: String,
    /// Byte ranges of `text`, ascending and apart, that are content where a control token could start, end or be
    /// completed. A control token's spelling that touches one of them is text. Other bytes may be content, too: they
    /// spell nothing.
    pub literal: Vec<Range<usize>>,
}

/// A model's chat template, compiled.
///
/// The dialect is that of `transformers`: Jinja2 with `trim_blocks` and `lstrip_blocks`, `break` and `continue`,
/// `{% generation %}` blocks, Python's string, list and dict methods, `tojson` as Python's `json.dumps` writes it,
/// `strftime_now`, and `raise_exception`, whose words become the error's. A method, filter or test that does not
/// exist here is an error with line and column.
#[derive(Debug)]
pub struct ChatTemplate {
    environment: Environment<'static>,
    sources: Vec<(String, String)>,
    tokens: TemplateTokens,
    limits: TemplateLimits,
}

impl ChatTemplate {
    /// Compiles a model's template or templates.
    ///
    /// # Errors
    /// [`TextErrorKind::TemplateSyntax`] with line and column; [`TextErrorKind::TooLarge`] past 4 MiB.
    pub fn new(source: &TemplateSource, tokens: TemplateTokens) -> Result<Self> {
        let mut environment = environment::new(clock::system());
        let mut sources = Vec::new();
        for (name, template) in source.named() {
            if template.len() > MAX_SOURCE {
                return Err(TextError::new(
                    TextErrorKind::TooLarge,
                    format!(
                        "a template of {} bytes is past the limit of {MAX_SOURCE}",
                        template.len()
                    ),
                )
                .at(name, None));
            }
            let prepared = source::prepare(template)
                .map_err(|error| error.in_file(std::path::Path::new(name)))?;
            environment
                .add_template_owned(name.to_owned(), prepared)
                .map_err(|error| environment::error(error, name, template))?;
            sources.push((name.to_owned(), template.to_owned()));
        }
        Ok(Self {
            environment,
            sources,
            tokens,
            limits: TemplateLimits::default(),
        })
    }

    /// With another clock for `strftime_now` than the system's.
    pub fn with_clock(mut self, clock: Clock) -> Self {
        environment::set_clock(&mut self.environment, clock);
        self
    }

    /// With other limits.
    pub fn with_limits(mut self, limits: TemplateLimits) -> Self {
        self.limits = limits;
        self
    }

    /// The names of the templates.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.sources.iter().map(|(name, _)| name.as_str())
    }

    /// What the template can express, found by rendering it with messages made for the purpose.
    pub fn capabilities(&self) -> Capabilities {
        capabilities::probe(self)
    }

    /// Renders a conversation.
    ///
    /// # Errors
    /// - [`TextErrorKind::InvalidInput`]: messages, tools or documents that are no lists of objects, or nest deeper
    ///   than 128, or a variable by the name of one of these.
    /// - [`TextErrorKind::TemplateMissing`]: no template of the wanted name.
    /// - [`TextErrorKind::TemplateRaised`]: the template's own refusal, in its words.
    /// - [`TextErrorKind::TemplateUnsupported`], [`TextErrorKind::TemplateFailed`]: with line and column.
    /// - [`TextErrorKind::TemplateRejected`]: likewise, where the same roles with plain text do render.
    /// - [`TextErrorKind::TemplateLimit`].
    pub fn render(&self, request: &RenderRequest<'_>) -> Result<Rendered> {
        check(request)?;
        let (_, source) = self.choose(request)?;
        let marking = Marking::new(&self.tokens.control, source, request)?;
        let whole = self
            .render_marked(request, &marking, Thoughts::Whole)
            .map_err(|error| self.blame(error, request))?;
        if !marking.has_thoughts(request.messages) {
            return Ok(whole);
        }
        Ok(
            match self.render_marked(request, &marking, Thoughts::Marked) {
                Ok(marked) if marked.text == whole.text => marked,
                _ => whole,
            },
        )
    }

    /// Tells a template that cannot render from a request that it cannot take: the latter is one whose roles render
    /// when each message has plain text and nothing else.
    fn blame(&self, error: TextError, request: &RenderRequest<'_>) -> TextError {
        let expression = matches!(
            error.kind(),
            TextErrorKind::TemplateFailed | TextErrorKind::TemplateUnsupported
        );
        let messages = request.messages.as_array().map(Vec::as_slice);
        let plain = messages.unwrap_or_default().iter().map(|message| {
            let role = message.get("role").cloned().unwrap_or_default();
            serde_json::json!({"role": role, "content": "text"})
        });
        let plain = Value::Array(plain.collect());
        let plain = RenderRequest {
            add_generation_prompt: request.add_generation_prompt,
            template: request.template,
            ..RenderRequest::new(&plain)
        };
        let renders = || {
            let (_, source) = self.choose(&plain)?;
            let marking = Marking::new(&self.tokens.control, source, &plain)?;
            self.render_marked(&plain, &marking, Thoughts::Whole)
        };
        if expression && renders().is_ok() {
            return error.rejected(
                "the template renders these roles with plain text, so it is the content, tools or variables that it \
                 cannot take",
            );
        }
        error
    }

    fn render_marked(
        &self,
        request: &RenderRequest<'_>,
        marking: &Marking<'_>,
        thoughts: Thoughts,
    ) -> Result<Rendered> {
        let (name, source) = self.choose(request)?;
        let mut environment = self.environment.clone();
        let input = u64::try_from(marking.input_bytes()).unwrap_or(u64::MAX);
        let fuel = self.limits.fuel.saturating_add(input / 4);
        environment.set_fuel(Some(fuel.min(MAX_FUEL.max(self.limits.fuel))));
        let output = self
            .limits
            .output
            .saturating_add(marking.input_bytes().saturating_mul(8));
        let context = self.context(request, marking, thoughts);
        let text = on_own_stack(|| {
            // Everything of the engine's, errors included, is made and dropped in here.
            let failed = |error| environment::error(error, name, source);
            let template = environment.get_template(name).map_err(failed)?;
            let mut output = Bounded {
                bytes: Vec::new(),
                limit: output,
            };
            template
                .render_captured_to(context, &mut output)
                .map_err(failed)?;
            String::from_utf8(output.bytes).map_err(|error| {
                TextError::new(TextErrorKind::TemplateFailed, "the output is not UTF-8")
                    .caused_by(error)
            })
        })??;
        Ok(marking.unmark(&text))
    }

    /// The template for a request: as asked, else `tool_use` with tools, else `default`, as `transformers` chooses.
    fn choose(&self, request: &RenderRequest<'_>) -> Result<(&str, &str)> {
        let find = |wanted: &str| {
            self.sources
                .iter()
                .find(|(name, _)| name == wanted)
                .map(|(name, source)| (name.as_str(), source.as_str()))
        };
        let found = match request.template {
            Some(name) => find(name),
            None => request
                .tools
                .and_then(|_| find("tool_use"))
                .or_else(|| find("default")),
        };
        found.ok_or_else(|| {
            let names: Vec<&str> = self.names().collect();
            TextError::new(
                TextErrorKind::TemplateMissing,
                format!(
                    "the model has no chat template {:?}; it has {names:?}",
                    request.template.unwrap_or("default")
                ),
            )
        })
    }

    fn context(
        &self,
        request: &RenderRequest<'_>,
        marking: &Marking<'_>,
        thoughts: Thoughts,
    ) -> minijinja::Value {
        let mut variables: Vec<(String, minijinja::Value)> = Vec::new();
        for (role, spelling) in &self.tokens.special {
            variables.push((role.clone(), minijinja::Value::from(spelling.as_str())));
        }
        for (name, value) in &request.variables {
            variables.push((name.clone(), json::to_template(&marking.variable(value))));
        }
        let optional = |value: Option<&Value>| {
            value.map_or_else(
                || minijinja::Value::from(()),
                |value| json::to_template(&marking.data(value)),
            )
        };
        variables.extend([
            (
                "messages".to_owned(),
                json::to_template(&marking.messages(request.messages, thoughts)),
            ),
            ("tools".to_owned(), optional(request.tools)),
            ("documents".to_owned(), optional(request.documents)),
            (
                "add_generation_prompt".to_owned(),
                minijinja::Value::from(request.add_generation_prompt),
            ),
        ]);
        minijinja::Value::from_pairs(variables)
    }

    /// The source of the template that serves requests without tools, or of the first.
    pub(crate) fn main_source(&self) -> &str {
        self.sources
            .iter()
            .find(|(name, _)| name == "default")
            .or_else(|| self.sources.first())
            .map_or("", |(_, source)| source.as_str())
    }
}

/// Refuses requests of a shape that no template could read sensibly.
fn check(request: &RenderRequest<'_>) -> Result<()> {
    let invalid = |message: String| Err(TextError::new(TextErrorKind::InvalidInput, message));
    let Value::Array(messages) = request.messages else {
        return invalid("messages must be a list".to_owned());
    };
    for (index, message) in messages.iter().enumerate() {
        if !message.get("role").is_some_and(Value::is_string) {
            return invalid(format!("message {index} must be an object with a role"));
        }
        match message.get("content") {
            None | Some(Value::Null | Value::String(_)) => {}
            Some(Value::Array(parts)) if parts.iter().all(|p| p.is_object() || p.is_string()) => {}
            Some(_) => {
                return invalid(format!(
                    "the content of message {index} must be a string or a list of parts"
                ));
            }
        }
    }
    for (name, list) in [("tools", request.tools), ("documents", request.documents)] {
        if !list.is_none_or(|list| {
            list.as_array()
                .is_some_and(|l| l.iter().all(Value::is_object))
        }) {
            return invalid(format!("{name} must be a list of objects"));
        }
    }
    for name in ["messages", "tools", "documents", "add_generation_prompt"] {
        if request.variables.contains_key(name) {
            return invalid(format!("the variable {name:?} is given twice"));
        }
    }
    let values = [Some(request.messages), request.tools, request.documents];
    let values = values
        .into_iter()
        .flatten()
        .chain(request.variables.values());
    for value in values {
        if depth_exceeds(value, MAX_DEPTH) {
            return invalid(format!(
                "messages, tools or variables nest deeper than {MAX_DEPTH}"
            ));
        }
    }
    Ok(())
}

/// Measures without recursion, so that the check itself cannot run out of stack.
fn depth_exceeds(value: &Value, limit: usize) -> bool {
    let mut open = vec![(value, 1)];
    while let Some((value, depth)) = open.pop() {
        if depth > limit {
            return true;
        }
        match value {
            Value::Array(items) => open.extend(items.iter().map(|item| (item, depth + 1))),
            Value::Object(object) => open.extend(object.values().map(|item| (item, depth + 1))),
            _ => {}
        }
    }
    false
}

/// Runs a function on a stack on which the deepest values that a template can build can be taken apart.
fn on_own_stack<T: Send>(function: impl FnOnce() -> T + Send) -> Result<T> {
    let failed = |message: &str| TextError::new(TextErrorKind::TemplateFailed, message);
    std::thread::scope(|scope| {
        std::thread::Builder::new()
            .name("chat-template".to_owned())
            .stack_size(STACK)
            .spawn_scoped(scope, function)
            .map_err(|error| failed("no thread to render on").caused_by(error))?
            .join()
            .map_err(|_| failed("the template engine panicked"))
    })
}

/// Collects output up to a limit.
struct Bounded {
    bytes: Vec<u8>,
    limit: usize,
}

impl io::Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.bytes.len().saturating_add(bytes.len()) > self.limit {
            return Err(io::Error::other(environment::OutputLimit(self.limit)));
        }
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
