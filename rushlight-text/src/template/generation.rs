//! `{% generation %}` blocks.
//!
//! `transformers` marks with them the assistant's tokens for training; in a prompt they are a scope and nothing
//! else. They become `{% with %}` blocks of the same length, so that places in errors stay true.

use std::borrow::Cow;

/// The template with its generation blocks made `with` blocks.
pub(crate) fn as_with(source: &str) -> Cow<'_, str> {
    if !source.contains("generation") {
        return Cow::Borrowed(source);
    }
    let mut out = String::with_capacity(source.len());
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
        match block_name(part) {
            "generation" => out.push_str(&part.replacen("generation", "with      ", 1)),
            "endgeneration" => out.push_str(&part.replacen("endgeneration", "endwith      ", 1)),
            _ => out.push_str(part),
        }
        rest = &rest[taken..];
    }
    out.push_str(rest);
    Cow::Owned(out)
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
    use super::as_with;

    #[test]
    fn only_tags_change_and_lengths_stay() {
        let source = "{%- generation -%}a{% endgeneration %}{# {% generation %} #}{{ '{% generation %}' }}\
                      {% raw %}{% generation %}{% endraw %}{% if add_generation_prompt %}generation{% endif %}";
        let out = as_with(source);
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
            assert_eq!(as_with(source).len(), source.len(), "{source}");
        }
    }
}
