//! What a chat template can express.
//!
//! A template that ignores tools renders a request with tools without complaint, so the only honest answer is to
//! render messages made for the purpose and look whether they are in the output.

use serde_json::{Value, json};

use super::{ChatTemplate, RenderRequest};
use crate::markers::{self, ReasoningMarkers};

const SYSTEM: &str = "Zq7system";
const USER: &str = "Zq7user";
const TOOL: &str = "zq7tool";
const ARGUMENT: &str = "Zq7argument";
const RESULT: &str = "Zq7result";
const THOUGHT: &str = "Zq7thought";

/// What a template does with what it is given.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Capabilities {
    /// A system message is in the output.
    pub system: bool,
    /// Content as one string is in the output.
    pub string_content: bool,
    /// Content as a list of text parts is in the output.
    pub content_parts: bool,
    /// Tool definitions are in the output.
    pub tools: bool,
    /// The form in which an assistant's tool calls come into the output, if they do.
    pub tool_calls: Option<ToolCallForm>,
    /// A tool's result is in the output.
    pub tool_results: bool,
    /// An assistant's `reasoning_content` is in the output, in the turn that is not yet answered.
    pub reasoning_content: bool,
    /// `enable_thinking` changes the prompt.
    pub thinking_switch: bool,
    /// The reasoning markers that the template mentions.
    pub reasoning: Option<ReasoningMarkers>,
    /// With `add_generation_prompt` the prompt ends with the beginning of a thought, so that the answer starts in it.
    pub opens_reasoning: bool,
}

/// How a template takes tool calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ToolCallForm {
    /// The message's content must be null.
    pub null_content: bool,
    /// Arguments must be a string of JSON, not an object.
    pub string_arguments: bool,
}

pub(crate) fn probe(template: &ChatTemplate) -> Capabilities {
    let user = json!({"role": "user", "content": USER});
    let shows = |messages: Value, tools: Option<&Value>, wanted: &[&str]| {
        render(template, &messages, tools, None)
            .is_some_and(|text| wanted.iter().all(|wanted| text.contains(wanted)))
    };
    let tools = json!([{"type": "function", "function": {"name": TOOL, "description": "Probe.",
        "parameters": {"type": "object", "properties": {"argument": {"type": "string"}}, "required": ["argument"]}}}]);

    let mut found = Capabilities {
        system: shows(
            json!([{"role": "system", "content": SYSTEM}, user]),
            None,
            &[SYSTEM, USER],
        ),
        string_content: shows(json!([user]), None, &[USER]),
        content_parts: render(
            template,
            &json!([{"role": "user", "content": [{"type": "text", "text": USER}]}]),
            None,
            None,
        )
        .is_some_and(|text| text.contains(USER) && !text.contains("'text'")),
        tools: shows(json!([user]), Some(&tools), &[TOOL]),
        ..Capabilities::default()
    };

    let call = |form: ToolCallForm| {
        let arguments = json!({"argument": ARGUMENT});
        let arguments = match form.string_arguments {
            true => Value::String(arguments.to_string()),
            false => arguments,
        };
        json!({"role": "assistant", "content": if form.null_content { Value::Null } else { json!("") },
            "tool_calls": [{"type": "function", "id": "call00001",
                "function": {"name": TOOL, "arguments": arguments}}]})
    };
    let result =
        json!({"role": "tool", "tool_call_id": "call00001", "name": TOOL, "content": RESULT});
    let forms = [(false, false), (true, false), (false, true), (true, true)];
    let forms = forms.map(|(null_content, string_arguments)| ToolCallForm {
        null_content,
        string_arguments,
    });
    found.tool_calls = forms.into_iter().find(|form| {
        shows(
            json!([user, call(*form), result]),
            Some(&tools),
            &[TOOL, ARGUMENT],
        )
    });
    found.tool_results = forms
        .iter()
        .any(|form| shows(json!([user, call(*form), result]), Some(&tools), &[RESULT]));

    found.reasoning_content = shows(
        json!([user, {"role": "assistant", "content": "", "reasoning_content": THOUGHT,
            "tool_calls": [{"type": "function", "id": "call00001",
                "function": {"name": TOOL, "arguments": {"argument": ARGUMENT}}}]}, result]),
        Some(&tools),
        &[THOUGHT],
    );
    let thinking = |on: bool| render(template, &json!([user]), None, Some(on));
    found.thinking_switch = thinking(true) != thinking(false);
    found.reasoning = markers::REASONING
        .iter()
        .find(|pair| template.main_source().contains(pair.close))
        .copied();
    found.opens_reasoning = found.reasoning.is_some_and(|pair| {
        render(template, &json!([user]), None, None)
            .is_some_and(|text| text.trim_end().ends_with(pair.open))
    });
    found
}

fn render(
    template: &ChatTemplate,
    messages: &Value,
    tools: Option<&Value>,
    thinking: Option<bool>,
) -> Option<String> {
    let mut request = RenderRequest::new(messages);
    request.tools = tools;
    if let Some(on) = thinking {
        request = request.with_variable("enable_thinking", on);
    }
    template.render(&request).ok().map(|rendered| rendered.text)
}
