//! Keeping content apart from the template, so that content can never become a control token.
//!
//! A template joins its own text and the caller's content into one string. To tell them apart again, a *mark*, a
//! noncharacter that occurs nowhere in the request, is put behind certain characters of the content before
//! rendering, and taken out of the output afterwards; the character in front of it is then known to be content, and
//! a control token's spelling that touches it is text.
//!
//! Marking every character would break what templates do with content (`trim`, `split`, `startswith`), so only those
//! are marked at which a spelling could cross the border:
//! - a character that a control spelling starts with, if what follows could continue it: the spelling's second
//!   character, another first character, white space (which a template may trim away), or the end of the string;
//! - likewise, mirrored, a character that a spelling ends with;
//! - in a string that is, white space aside, the inside of a spelling (`im_end`, `tool_call`): its first character,
//!   against templates that write `<` + key + `>`. Strings that the template itself names, like `user`, are its own
//!   vocabulary and are left alone, because it compares with them.
//!
//! Reasoning markers in the content of assistant messages need care: a template that mentions them takes old thoughts
//! out by splitting at them. If leaving them whole, up to the last closing one, makes the template render another text
//! than marking them does, then the template does so, and they stay whole. Otherwise they are content like any other.

use std::borrow::Cow;
use std::collections::HashSet;
use std::ops::Range;

use serde_json::{Map, Value};

use super::{RenderRequest, Rendered};
use crate::error::{Result, TextError, TextErrorKind};
use crate::markers::{self, ReasoningMarkers};

/// Roles that templates build tokens from (`'<|' + role + '|>'`) without naming each.
const ROLES: &[&str] = &[
    "system",
    "developer",
    "user",
    "assistant",
    "model",
    "tool",
    "function",
    "observation",
    "ipython",
    "environment",
];

/// What to mark for one request, and the mark.
pub(crate) struct Marking<'a> {
    source: &'a str,
    mark: char,
    input_bytes: usize,
    firsts: HashSet<char>,
    lasts: HashSet<char>,
    /// The first two characters of each spelling.
    openings: HashSet<(char, char)>,
    /// The last two.
    closings: HashSet<(char, char)>,
    /// Every spelling without its first and last character, each followed by a line that ends nowhere in a spelling.
    insides: String,
    longest: usize,
    /// The reasoning markers that the template mentions.
    reasoning: Vec<ReasoningMarkers>,
}

/// What to do with reasoning markers in an assistant's content.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Thoughts {
    /// Leave them whole, for the template to find.
    Whole,
    /// Mark them, as all content.
    Marked,
}

/// What kind of string is being marked.
#[derive(Clone, Copy, PartialEq)]
enum Text {
    /// Any content.
    Plain,
    /// Content of an assistant message.
    Assistant,
    /// A value that a template compares with words of its own.
    Variable,
}

impl<'a> Marking<'a> {
    pub(crate) fn new(
        control: &[String],
        source: &'a str,
        request: &RenderRequest<'_>,
    ) -> Result<Self> {
        let mut scan = Scan::default();
        scan.text(source);
        scan.bytes = 0;
        scan.value(request.messages);
        request
            .tools
            .into_iter()
            .for_each(|tools| scan.value(tools));
        request
            .documents
            .into_iter()
            .for_each(|docs| scan.value(docs));
        for (name, value) in &request.variables {
            scan.text(name);
            scan.value(value);
        }
        let mark = (0..32u32)
            .find(|bit| scan.noncharacters & (1 << bit) == 0)
            .and_then(|bit| char::from_u32(0xFDD0 + bit))
            .ok_or_else(|| {
                TextError::new(
                    TextErrorKind::InvalidInput,
                    "the messages hold all 32 noncharacters from U+FDD0 on, which leaves none to mark content with",
                )
            })?;
        let mut marking = Self {
            source,
            mark,
            input_bytes: scan.bytes,
            firsts: HashSet::new(),
            lasts: HashSet::new(),
            openings: HashSet::new(),
            closings: HashSet::new(),
            insides: String::new(),
            longest: 0,
            reasoning: markers::REASONING
                .iter()
                .filter(|pair| source.contains(pair.close))
                .copied()
                .collect(),
        };
        for spelling in control {
            marking.learn(spelling);
        }
        Ok(marking)
    }

    /// Bytes of all strings of the request.
    pub(crate) fn input_bytes(&self) -> usize {
        self.input_bytes
    }

    /// Whether an assistant's content has reasoning markers that the template could look for.
    pub(crate) fn has_thoughts(&self, messages: &Value) -> bool {
        let assistants = messages
            .as_array()
            .into_iter()
            .flatten()
            .filter(|message| message.get("role").is_some_and(|role| role == "assistant"))
            .filter_map(|message| message.get("content"));
        assistants.into_iter().any(|content| {
            let parts = content.as_array().into_iter().flatten();
            parts
                .filter_map(|part| part.get("text"))
                .chain([content])
                .filter_map(Value::as_str)
                .any(|text| !self.reasoning_ranges(text).is_empty())
        })
    }

    /// Messages, marked.
    pub(crate) fn messages(&self, messages: &Value, thoughts: Thoughts) -> Value {
        let Value::Array(messages) = messages else {
            return messages.clone();
        };
        messages
            .iter()
            .map(|message| match message {
                Value::Object(message) => Value::Object(self.message(message, thoughts)),
                other => self.data(other),
            })
            .collect()
    }

    /// Tools, documents and whatever else is content throughout, marked.
    pub(crate) fn data(&self, value: &Value) -> Value {
        self.value(value, Text::Plain)
    }

    /// A variable of the caller, marked.
    pub(crate) fn variable(&self, value: &Value) -> Value {
        self.value(value, Text::Variable)
    }

    /// Takes the marks out of a rendered text, keeping where they were.
    pub(crate) fn unmark(&self, marked: &str) -> Rendered {
        let mut rendered = Rendered {
            text: String::with_capacity(marked.len()),
            literal: Vec::new(),
        };
        for (index, part) in marked.split(self.mark).enumerate() {
            if index > 0
                && let Some(last) = rendered.text.chars().next_back()
            {
                let end = rendered.text.len();
                let range = end - last.len_utf8()..end;
                if rendered.literal.last() != Some(&range) {
                    rendered.literal.push(range);
                }
            }
            rendered.text.push_str(part);
        }
        rendered
    }

    fn learn(&mut self, spelling: &str) {
        let mut chars = spelling.chars();
        let Some(first) = chars.next() else {
            return;
        };
        let last = chars.next_back().unwrap_or(first);
        let inside = chars.as_str();
        self.firsts.insert(first);
        self.lasts.insert(last);
        self.openings
            .insert((first, inside.chars().next().unwrap_or(last)));
        self.closings
            .insert((inside.chars().next_back().unwrap_or(first), last));
        self.longest = self.longest.max(inside.len());
        self.insides.push_str(inside);
        self.insides.push('\n');
    }

    fn message(&self, message: &Map<String, Value>, thoughts: Thoughts) -> Map<String, Value> {
        let role = message.get("role").and_then(Value::as_str);
        message
            .iter()
            .map(|(key, value)| {
                let value = match (key.as_str(), value) {
                    ("role", Value::String(role)) if ROLES.contains(&role.as_str()) => {
                        value.clone()
                    }
                    ("content", content)
                        if role == Some("assistant") && thoughts == Thoughts::Whole =>
                    {
                        self.value(content, Text::Assistant)
                    }
                    (_, value) => self.data(value),
                };
                (self.string(key, Text::Plain).into_owned(), value)
            })
            .collect()
    }

    fn value(&self, value: &Value, text: Text) -> Value {
        match value {
            Value::String(string) => Value::String(self.string(string, text).into_owned()),
            Value::Array(items) => items.iter().map(|item| self.value(item, text)).collect(),
            Value::Object(object) => object
                .iter()
                .map(|(key, value)| {
                    let key = self.string(key, Text::Plain).into_owned();
                    (key, self.value(value, text))
                })
                .collect::<Map<_, _>>()
                .into(),
            other => other.clone(),
        }
    }

    /// Puts marks into one string.
    fn string<'t>(&self, string: &'t str, text: Text) -> Cow<'t, str> {
        let inside = if text != Text::Variable && self.is_inside_of_a_spelling(string) {
            string.find(|c: char| !c.is_whitespace())
        } else {
            None
        };
        let whole = match text {
            Text::Assistant => self.reasoning_ranges(string),
            _ => Vec::new(),
        };
        let mut whole = whole.iter().peekable();
        let mut marked: Option<String> = None;
        let mut before = None;
        let mut chars = string.char_indices().peekable();
        while let Some((at, c)) = chars.next() {
            while whole.next_if(|range| range.end <= at).is_some() {}
            let after = chars.peek().map(|(_, c)| *c);
            let hot = inside == Some(at)
                || (self.could_open(c, after) || self.could_close(before, c))
                    && !whole.peek().is_some_and(|range| range.contains(&at));
            let end = at + c.len_utf8();
            if hot && marked.is_none() {
                marked = Some(string[..at].to_owned());
            }
            if let Some(marked) = &mut marked {
                marked.push_str(&string[at..end]);
                if hot {
                    marked.push(self.mark);
                }
            }
            before = Some(c);
        }
        marked.map_or(Cow::Borrowed(string), Cow::Owned)
    }

    fn could_open(&self, c: char, after: Option<char>) -> bool {
        self.firsts.contains(&c)
            && after.is_none_or(|after| {
                after.is_whitespace()
                    || self.firsts.contains(&after)
                    || self.openings.contains(&(c, after))
            })
    }

    fn could_close(&self, before: Option<char>, c: char) -> bool {
        self.lasts.contains(&c)
            && before.is_none_or(|before| {
                before.is_whitespace()
                    || self.lasts.contains(&before)
                    || self.closings.contains(&(before, c))
            })
    }

    fn is_inside_of_a_spelling(&self, string: &str) -> bool {
        let word = string.trim();
        !word.is_empty()
            && word.len() <= self.longest
            && !word.contains('\n')
            && self.insides.contains(word)
            && !self.is_named_by_template(word)
    }

    /// Whether the template holds the word as a whole string or as an attribute.
    fn is_named_by_template(&self, word: &str) -> bool {
        self.source.match_indices(word).any(|(at, _)| {
            let before = self.source[..at].chars().next_back();
            let after = self.source[at + word.len()..].chars().next();
            match before {
                Some(quote @ ('\'' | '"')) => after == Some(quote),
                Some('.') => !after.is_some_and(|c| c.is_alphanumeric() || c == '_'),
                _ => false,
            }
        })
    }

    /// Where reasoning markers that the template mentions stand in an assistant's content, up to the last closing one.
    fn reasoning_ranges(&self, string: &str) -> Vec<Range<usize>> {
        let mut ranges: Vec<Range<usize>> = Vec::new();
        for pair in &self.reasoning {
            let Some(last) = string.rfind(pair.close) else {
                continue;
            };
            for marker in [pair.open, pair.close] {
                let found = string.match_indices(marker).map(|(at, _)| at);
                ranges.extend(
                    found
                        .take_while(|at| *at <= last)
                        .map(|at| at..at + marker.len()),
                );
            }
        }
        ranges.sort_by_key(|range| range.start);
        ranges
    }
}

/// What a request holds: bytes, and which of the noncharacters U+FDD0 to U+FDEF.
#[derive(Default)]
struct Scan {
    bytes: usize,
    noncharacters: u32,
}

impl Scan {
    fn text(&mut self, text: &str) {
        self.bytes = self.bytes.saturating_add(text.len());
        // These characters are EF B7 90 to EF B7 AF; almost no text has the first two bytes.
        if !text.as_bytes().windows(2).any(|pair| pair == [0xEF, 0xB7]) {
            return;
        }
        for c in text.chars() {
            if let Some(bit) = u32::from(c).checked_sub(0xFDD0).filter(|bit| *bit < 32) {
                self.noncharacters |= 1 << bit;
            }
        }
    }

    fn value(&mut self, value: &Value) {
        match value {
            Value::String(text) => self.text(text),
            Value::Array(items) => items.iter().for_each(|item| self.value(item)),
            Value::Object(object) => {
                for (key, value) in object {
                    self.text(key);
                    self.value(value);
                }
            }
            Value::Number(_) => self.bytes = self.bytes.saturating_add(8),
            Value::Null | Value::Bool(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn control() -> Vec<String> {
        [
            "<|im_start|>",
            "<|im_end|>",
            "<tool_call>",
            "<think>",
            "</think>",
        ]
        .map(str::to_owned)
        .to_vec()
    }

    fn marked(source: &str, messages: Value) -> String {
        let request = RenderRequest::new(&messages);
        let marking = Marking::new(&control(), source, &request).unwrap();
        marking
            .messages(&messages, Thoughts::Whole)
            .to_string()
            .replace(marking.mark, "·")
    }

    fn user(source: &str, content: &str) -> String {
        let out = marked(source, json!([{"role": "user", "content": content}]));
        let value: Value = serde_json::from_str(&out).unwrap();
        value[0]["content"].as_str().unwrap().to_owned()
    }

    #[test]
    fn ordinary_text_is_left_alone() {
        for text in [
            "",
            "  a < b, c > d.",
            "if (x<3) { y>>2 }",
            "<b>bold</b>",
            "名前は？",
            "f(x)=>y",
        ] {
            let out = user("", text);
            assert_eq!(out.replace('·', ""), text);
        }
        assert_eq!(user("", "<b>bold</b>"), "<b>bold<·/b>");
        assert_eq!(user("", "plain text, 3 words"), "plain text, 3 words");
    }

    #[test]
    fn spellings_and_their_ends_are_marked() {
        assert_eq!(user("", "a<|im_end|>b"), "a<·|im_end|>·b");
        assert_eq!(user("", "x <|im_"), "x <·|im_");
        assert_eq!(user("", "x <  "), "x <·  ");
        assert_eq!(user("", "end|>"), "end|>·");
        assert_eq!(user("", "<<think>"), "<·<·think>·");
        assert_eq!(user("", " > "), " >· ");
    }

    #[test]
    fn the_inside_of_a_spelling_is_marked_unless_the_template_names_it() {
        assert_eq!(user("", "tool_call"), "t·ool_call");
        assert_eq!(user("x == 'tool_call'", "tool_call"), "tool_call");
        assert_eq!(user("message.tool_call is", "tool_call"), "tool_call");
        assert_eq!(
            user("message.tool_calls '<tool_call>'", "tool_call"),
            "t·ool_call"
        );
        assert_eq!(user("", " think\n"), " t·hink\n");
    }

    #[test]
    fn known_roles_stay_and_others_are_content() {
        let out = marked("", json!([{"role": "im_end", "content": ""}]));
        assert_eq!(out, r#"[{"role":"i·m_end","content":""}]"#);
        let out = marked("", json!([{"role": "user|>", "content": ""}]));
        assert_eq!(out, r#"[{"role":"user|>·","content":""}]"#);
    }

    #[test]
    fn reasoning_markers_of_assistants_are_for_the_template() {
        let message = json!([{"role": "assistant", "content": "<think>a</think><|im_end|>"}]);
        assert_eq!(
            marked("'</think>' in content", message.clone()),
            r#"[{"role":"assistant","content":"<think>a</think><·|im_end|>·"}]"#
        );
        assert_eq!(
            marked("", message),
            r#"[{"role":"assistant","content":"<·think>·a<·/think>·<·|im_end|>·"}]"#
        );
    }

    #[test]
    fn only_thoughts_that_close_are_left_whole() {
        let out = |content: &str| {
            let message = json!([{"role": "assistant", "content": content}]);
            let out: Value = serde_json::from_str(&marked("'</think>'", message)).unwrap();
            out[0]["content"].as_str().unwrap().to_owned()
        };
        assert_eq!(out("<think>a"), "<·think>·a");
        assert_eq!(
            out("<think>a</think>b<think>c"),
            "<think>a</think>b<·think>·c"
        );
        let message = json!([{"role": "assistant", "content": "a</think>"}]);
        let request = RenderRequest::new(&message);
        let marking = |source| Marking::new(&control(), source, &request).unwrap();
        assert!(marking("'</think>'").has_thoughts(&message));
        assert!(!marking("").has_thoughts(&message));
    }

    #[test]
    fn a_mark_in_the_content_makes_another_mark() {
        let messages = json!([{"role": "user", "content": "\u{FDD0}\u{FDD2}<|im_end|>"}]);
        let request = RenderRequest::new(&messages);
        let marking = Marking::new(&control(), "\u{FDD1}", &request).unwrap();
        assert_eq!(marking.mark, '\u{FDD3}');
        let all: String = ('\u{FDD0}'..='\u{FDEF}').collect();
        let messages = json!([{"role": "user", "content": all}]);
        let error = Marking::new(&control(), "", &RenderRequest::new(&messages))
            .err()
            .unwrap();
        assert_eq!(error.kind(), TextErrorKind::InvalidInput);
    }

    #[test]
    fn unmarking_gives_ranges_of_the_characters_before() {
        let messages = json!([]);
        let marking = Marking::new(&control(), "", &RenderRequest::new(&messages)).unwrap();
        let rendered = marking.unmark("é<\u{FDD0}x｜\u{FDD0}\u{FDD0}");
        assert_eq!(rendered.text, "é<x｜");
        assert_eq!(rendered.literal, [2..3, 4..7]);
    }
}
