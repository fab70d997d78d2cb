//! What is done to a template's source before it is compiled.
//!
//! `transformers` marks the assistant's tokens for training with `{% generation %}` blocks; in a prompt they are a
//! scope and nothing else. They become `{% with %}` blocks of the same length, so that places in errors stay true.
//!
//! The compiler is recursive along chains of operators, and so is `elif`. Both are counted here, so that no source
//! can exhaust the stack.

use crate::error::{Result, TextError, TextErrorKind};

/// Words, operators and strings in one tag. The longest tags of real templates have about a hundred.
const MAX_PARTS: usize = 1_000;
/// `elif` branches in a template. Real templates have a few dozen.
const MAX_BRANCHES: usize = 1_000;

/// The template with its generation blocks made `with` blocks.
///
/// # Errors
/// [`TextErrorKind::TooLarge`] for a tag or a template too complex to compile safely.
pub(crate) fn prepare(source: &str) -> Result<String> {
    let mut out = String::with_capacity(source.len());
    let mut branches = 0;
    let mut rest = source;
    while let Some(at) = rest.find('{') {
        out.push_str(&rest[..at]);
        rest = &rest[at..];
        let taken = if rest.starts_with("{#") {
            end_of(rest, "#}")
        } else if rest.starts_with("{{") {
            end_of_code(rest, "}}")
        } else if rest.starts_with("{%") {
            match block_name(rest) {
                "raw" => end_of_raw(rest),
                _ => end_of_code(rest, "%}"),
            }
        } else {
            1
        };
        let part = &rest[..taken];
        let is_code = part.starts_with("{{") || part.starts_with("{%") && block_name(part) != "raw";
        branches += usize::from(block_name(part) == "elif");
        if branches > MAX_BRANCHES || is_code && parts(part) > MAX_PARTS {
            let line = out.matches('\n').count() + 1;
            let column = out.chars().rev().take_while(|c| *c != '\n').count() + 1;
            return Err(TextError::new(
                TextErrorKind::TooLarge,
                format!("more than {MAX_PARTS} parts in a tag, or {MAX_BRANCHES} elif branches"),
            )
            .at("", Some((line, column))));
        }
        match block_name(part) {
            "generation" => out.push_str(&part.replacen("generation", "with      ", 1)),
            "endgeneration" => out.push_str(&part.replacen("endgeneration", "endwith      ", 1)),
            _ => out.push_str(part),
        }
        rest = &rest[taken..];
    }
    out.push_str(rest);
    Ok(out)
}

/// Counts words, strings and single punctuation characters.
fn parts(tag: &str) -> usize {
    let mut count = 0;
    let mut in_word = false;
    let mut quote = None;
    let mut escaped = false;
    for c in tag.chars() {
        match quote {
            Some(_) if escaped => escaped = false,
            Some(_) if c == '\\' => escaped = true,
            Some(open) if c == open => quote = None,
            Some(_) => {}
            None => {
                let word = c.is_alphanumeric() || c == '_';
                if c == '"' || c == '\'' {
                    quote = Some(c);
                    count += 1;
                } else if !word && !c.is_whitespace() || word && !in_word {
                    count += 1;
                }
                in_word = word;
            }
        }
    }
    count
}

/// The first word of a block tag.
fn block_name(tag: &str) -> &str {
    let Some(inner) = tag.strip_prefix("{%") else {
        return "";
    };
    let inner = inner.trim_start_matches(['-', '+']).trim_start();
    let end = inner
        .find(|c: char| !c.is_alphanumeric() && c != '_')
        .unwrap_or(inner.len());
    &inner[..end]
}

fn end_of(text: &str, closer: &str) -> usize {
    text.find(closer).map_or(text.len(), |at| at + closer.len())
}

/// The end of a tag with code in it, in whose strings a closer closes nothing.
fn end_of_code(text: &str, closer: &str) -> usize {
    let mut quote = None;
    let mut escaped = false;
    for (at, c) in text.char_indices().skip(2) {
        match quote {
            Some(_) if escaped => escaped = false,
            Some(_) if c == '\\' => escaped = true,
            Some(open) if c == open => quote = None,
            Some(_) => {}
            None if c == '"' || c == '\'' => quote = Some(c),
            None if text[at..].starts_with(closer) => return at + closer.len(),
            None => {}
        }
    }
    text.len()
}

fn end_of_raw(text: &str) -> usize {
    let mut at = end_of(text, "%}");
    while let Some(next) = text[at..].find("{%") {
        let tag = at + next;
        let end = tag + end_of(&text[tag..], "%}");
        if block_name(&text[tag..end]) == "endraw" {
            return end;
        }
        at = end;
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_tags_change_and_lengths_stay() {
        let source = "{%- generation -%}a{% endgeneration %}{# {% generation %} #}{{ '{% generation %}' }}\
                      {% raw %}{% generation %}{% endraw %}{% if add_generation_prompt %}generation{% endif %}";
        let out = prepare(source).unwrap();
        assert_eq!(out.len(), source.len());
        assert_eq!(
            out,
            "{%- with       -%}a{% endwith       %}{# {% generation %} #}{{ '{% generation %}' }}\
             {% raw %}{% generation %}{% endraw %}{% if add_generation_prompt %}generation{% endif %}"
        );
    }

    #[test]
    fn broken_templates_are_passed_on() {
        for source in [
            "{% generation",
            "{{ 'generation",
            "{# generation",
            "{",
            "{%",
            "generation {% raw %}{%",
            "{%é generation",
        ] {
            assert_eq!(prepare(source).unwrap().len(), source.len(), "{source}");
        }
    }

    #[test]
    fn long_chains_are_refused_and_long_strings_are_not() {
        let text = format!("{{{{ '{}' }}}}", "a + ".repeat(10_000));
        assert_eq!(prepare(&text).unwrap(), text);
        let chain = format!("\n {{{{ 1{} }}}}", " + 1".repeat(600));
        let error = prepare(&chain).unwrap_err();
        assert_eq!(error.kind(), TextErrorKind::TooLarge);
        assert_eq!(error.place().unwrap().line_column, Some((2, 2)));
        let branches = "{% if a %}".to_owned() + &"{% elif b %}".repeat(1_001) + "{% endif %}";
        assert!(prepare(&branches).is_err());
    }
}
