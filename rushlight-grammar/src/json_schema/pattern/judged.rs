//! ECMA-262 patterns in the dialect of the validator behind guards.
//!
//! The validator reads `\w`, `.` and the like as ECMA-262 does, unless a pattern looks around or back: such a one it hands to
//! its engine as it is, where these are of Unicode, and `\b` always is. Here everything is written out.

use foldhash::HashMap;

use super::Node;
use super::read::Parser;

/// A pattern for the validator.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::json_schema) enum Judged {
    /// It reads the pattern as it stands.
    AsItIs,
    /// The same in its dialect.
    Written(String),
    /// Its dialect has no such pattern.
    Unknown,
}

/// What a word boundary has on one side, and not on the other.
const WORD: &str = "[0-9A-Za-z_]";

/// What begins a part that the validator reads in its engine's dialect.
const FOREIGN: [&str; 4] = ["(?=", "(?!", "(?<", "\\k"];

/// How the validator has to be given `pattern`. What is not read here is its own to read, as far as it reads as ECMA-262 does.
pub(in crate::json_schema) fn judged(pattern: &str) -> Judged {
    let mut parser = Parser::new(pattern);
    let Ok(node) = parser.parse() else {
        let mut escapes = pattern.split('\\').skip(1);
        let is_foreign = FOREIGN.iter().any(|part| pattern.contains(part))
            || escapes.any(|escape| escape.starts_with(|c| matches!(c, 'b' | 'B' | '1'..='9')));
        return match is_foreign {
            true => Judged::Unknown,
            false => Judged::AsItIs,
        };
    };
    if is_plain(&node) {
        return Judged::AsItIs;
    }
    let mut writer = Writer {
        names: parser.names.into_iter().collect(),
        closed: HashMap::default(),
        scope: 0,
        around: vec![0],
        behind: 0,
        out: String::new(),
    };
    match writer.write(&node) {
        Some(()) => Judged::Written(writer.out),
        None => Judged::Unknown,
    }
}

fn is_plain(node: &Node) -> bool {
    match node {
        Node::Plain(_) | Node::Begin | Node::End => true,
        Node::Cat(parts) | Node::Alt(parts) => parts.iter().all(is_plain),
        Node::Rep(inner, ..) | Node::Group(_, inner) => is_plain(inner),
        Node::Ahead(..) | Node::Behind(..) | Node::Boundary(_) | Node::Back(_) => false,
    }
}

struct Writer {
    // Groups by name.
    names: HashMap<String, usize>,
    // The groups before this place, and the scope in which each surely took part in the match.
    closed: HashMap<usize, usize>,
    // The innermost alternative, repetition or look around this place, and for each what is around it; 0 is the pattern.
    scope: usize,
    around: Vec<usize>,
    // Look-behinds around this place.
    behind: usize,
    out: String,
}

impl Writer {
    /// Appends `node`; `None` where the dialects differ about it.
    fn write(&mut self, node: &Node) -> Option<()> {
        match node {
            Node::Plain(text) => self.out.push_str(text),
            Node::Begin => self.out.push('^'),
            Node::End => self.out.push('$'),
            Node::Cat(parts) => parts.iter().try_for_each(|part| self.write(part))?,
            Node::Alt(ways) => {
                self.out.push_str("(?:");
                for (i, way) in ways.iter().enumerate() {
                    if i > 0 {
                        self.out.push('|');
                    }
                    self.within(way)?;
                }
                self.out.push(')');
            }
            Node::Rep(inner, min, max) => {
                self.out.push_str("(?:");
                self.within(inner)?;
                self.out.push(')');
                self.out.push_str(&match max {
                    Some(max) => format!("{{{min},{max}}}"),
                    None => format!("{{{min},}}"),
                });
            }
            Node::Ahead(inner, positive) => {
                self.out.push_str(if *positive { "(?=" } else { "(?!" });
                self.within(inner)?;
                self.out.push(')');
            }
            Node::Behind(inner, positive) => {
                self.out.push_str(if *positive { "(?<=" } else { "(?<!" });
                self.behind += 1;
                self.within(inner)?;
                self.behind -= 1;
                self.out.push(')');
            }
            Node::Boundary(positive) => {
                let (at_end, inside) = if *positive { ("!", "=") } else { ("=", "!") };
                self.out.push_str(&format!(
                    "(?:(?<={WORD})(?{at_end}{WORD})|(?<!{WORD})(?{inside}{WORD}))"
                ));
            }
            Node::Group(number, inner) => {
                self.out.push('(');
                self.write(inner)?;
                self.out.push(')');
                self.closed.insert(*number, self.scope);
            }
            // In ECMA-262 what a group that took no part matched is empty, and in the validator it matches nothing; and there a
            // repetition keeps what its last round matched, and a look-behind is read forwards.
            Node::Back(_) if self.behind > 0 => return None,
            Node::Back(name) => {
                let number = self.number(name)?;
                let scope = *self.closed.get(&number)?;
                if !self.is_within(scope) {
                    return None;
                }
                self.out.push_str(&format!("(?:\\{number})"));
            }
        }
        Some(())
    }

    fn within(&mut self, node: &Node) -> Option<()> {
        let outer = std::mem::replace(&mut self.scope, self.around.len());
        self.around.push(outer);
        self.write(node)?;
        self.scope = outer;
        Some(())
    }

    /// Whether this place is inside of `scope`. Scopes are no deeper than a pattern's groups.
    fn is_within(&self, scope: usize) -> bool {
        let mut at = self.scope;
        while at != scope && at != 0 {
            at = self.around.get(at).copied().unwrap_or(0);
        }
        at == scope
    }

    fn number(&self, name: &str) -> Option<usize> {
        let named = self.names.get(name).copied();
        named.or_else(|| name.parse().ok())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the validator says of each text.
    #[track_caller]
    fn check(pattern: &str, yes: &[&str], no: &[&str]) {
        let Judged::Written(written) = judged(pattern) else {
            panic!("{pattern} is not written");
        };
        let schema = serde_json::json!({"pattern": written});
        let validator = jsonschema::validator_for(&schema).unwrap();
        for (texts, expected) in [(yes, true), (no, false)] {
            for text in texts {
                let found = validator.is_valid(&serde_json::Value::from(*text));
                assert_eq!(found, expected, "{pattern} in {text:?}, written {written}");
            }
        }
    }

    // The expected verdicts are those of ECMA-262 with the flag `u`.
    #[test]
    fn classes_and_boundaries_are_those_of_ecma() {
        check(r"\b", &["a", "é_"], &["é", ""]);
        check(r"\B", &["é", "ab", ""], &["a"]);
        check(r"\bfoo\b", &["foo", "éfoo", "a-foo!"], &["foos", "xfoo"]);
        check(r"[\d\s]\Bé", &[" é"], &["1é"]);
        check(r"(?<=a)\w$", &["ab", "aa_"], &["aé", "a"]);
        check(r"(?<=a)\d$", &["a1"], &["a١"]);
        check(r"(?<=a).$", &["a\u{85}"], &["a\r", "a\u{2028}", "a\n"]);
        check(r"(?<=\s)b$", &["\u{feff}b", " b"], &["\u{85}b"]);
        check(r"(?<=a)[^\w]$", &["aé"], &["ab"]);
        check(r"(?<=a)[\D\S]$", &["ab", "a\u{a0}", "a1"], &["a"]);
        check(r"(?<!\w)b$", &["éb", "b"], &["ab"]);
        check(r"^(?!x)[^]\p{Lu}$", &["\nA"], &["xA", "aa"]);
        check(r"^(?=a)[\]\[&&~-]*a{2}$", &["aa"], &["a"]);
        check(r"^(?!.*[]).$", &["a"], &["\n"]);
    }

    #[test]
    fn what_a_group_surely_matched_may_be_asked_for() {
        check(r"^(\w)\1$", &["aa", "__"], &["éé", "ab"]);
        check(r"^(?<q>['\x22]).*\k<q>$", &["'a'", "\"\""], &["'a\""]);
        check(r"^((a|b)c)\2\1$", &["acaac"], &["acbac"]);
        check(r"^(?:(a|b)\1)+$", &["aabb"], &["ab", "abab"]);
        check(r"^(a)(?:\1|b)0$", &["aa0", "ab0"], &["a0"]);
        for pattern in [
            r"^(a)?\1b$",
            r"^(?:(a)|b)\1c$",
            r"^\1(a)$",
            r"^(a\1)$",
            r"^(?!(a))\1b$",
            r"^(?:(a)|b)*\1$",
            r"^(a)\2$",
            r"(?<=(a)b\1)",
            r"^(a)\k<b>$",
        ] {
            assert_eq!(judged(pattern), Judged::Unknown, "{pattern}");
        }
    }

    #[test]
    fn other_patterns_stay_as_they_are() {
        for pattern in [r"^\w+$", "", r"(?i)x\w", "(", r"^(a|b)+\.$"] {
            assert_eq!(judged(pattern), Judged::AsItIs, "{pattern}");
        }
        // Not read here, and by the validator in another dialect.
        let deep = format!(r"{}\bx{}", "(".repeat(300), ")".repeat(300));
        for pattern in [r"(?i)\bx", r"(?<=a)\w{1,200000}", r"(?P<q>.)\1", &deep] {
            assert_eq!(judged(pattern), Judged::Unknown, "{pattern}");
        }
    }
}
