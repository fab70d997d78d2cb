//! ECMA-262 patterns in the dialect of the validator behind guards.
//!
//! The validator has its own reading of ECMA-262, in which `\w` and `.` are of Unicode beside a look-around, `\b` always is, `\<`
//! begins a word, and `[]a]` is one class. So it is given nothing of that: every pattern is read here, and written out in what
//! means the same to it and to ECMA-262.

use foldhash::HashMap;

use super::Node;
use super::read::{EVERY, Parser};

/// What a word boundary has on one side, and not on the other.
const WORD: &str = "[0-9A-Za-z_]";

/// Not ECMA-262, but common at the beginning of patterns written for other engines: letters of either case.
const ANY_CASE: &str = "(?i)";

/// `pattern` for the validator, or `None` where it is no pattern, or where the dialects differ about a part of it.
pub(in crate::json_schema) fn judged(pattern: &str) -> Option<String> {
    let (flag, rest) = match pattern.strip_prefix(ANY_CASE) {
        Some(rest) => (ANY_CASE, rest),
        None => ("", pattern),
    };
    let mut parser = Parser::new(rest);
    let node = parser.parse().ok()?;
    let mut writer = Writer {
        names: parser.names.into_iter().collect(),
        closed: HashMap::default(),
        scope: 0,
        around: vec![0],
        behind: 0,
        out: flag.to_owned(),
    };
    writer.write(&node)?;
    Some(writer.out)
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
            // The validator takes the point for that of ECMA-262 under every flag.
            Node::Plain(text) if text == EVERY => self.out.push_str("[\\u{0}-\\u{10ffff}]"),
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
        let written = judged(pattern).unwrap();
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
            assert_eq!(judged(pattern), None, "{pattern}");
        }
    }

    #[test]
    fn what_the_dialects_spell_alike_and_read_apart() {
        check(r"\<", &["<", "a<"], &["a", ""]);
        check(r"^\<a\>$", &["<a>"], &["a"]);
        check("^[]a]$", &[], &["a", "]", "a]"]);
        check("^[^]$", &["a", "\n"], &[""]);
        check(r"^[\b]$", &["\u{8}"], &["b", ""]);
        check(r"^[\d-x]$", &["1", "-", "x"], &["a"]);
        check(r"^[\w-a]$", &["z", "-"], &["!"]);
        check("^[[:alpha:]]$", &["a]", ":]", "[]"], &["a", "z"]);
        check("^[a&&b~~+--d]+$", &["&~-,", "abd"], &["c", ".", ""]);
        check("^a{,2}$", &["a{,2}"], &["a", ""]);
        check("^{$", &["{"], &[""]);
        check(r"^\0\ud83d\ude00$", &["\0😀"], &["0"]);
        check(r"(?<$a>x)", &["x"], &["a"]);
        check(r"^.$", &["a", "\u{85}"], &["\n", "\u{2028}"]);
        check(r"(?i)^x\bé", &["Xé"], &["Xe"]);
        check(r"(?i)^x\w$", &["XY", "x_"], &["Xé"]);
        check("", &[""], &[]);
    }

    #[test]
    fn what_is_no_pattern_is_not_given_to_the_validator() {
        let deep = format!(r"{}x{}", "(".repeat(300), ")".repeat(300));
        for pattern in [
            "(",
            "a++",
            "a**",
            "(?R)",
            "(?s).",
            "x(?i)",
            r"\a",
            r"\x{41}",
            r"\Q",
            r"^\p{L",
            r"^\u{61",
            r"(?<=a)\w{1,200000}",
            "(?P<q>.)",
            &deep,
        ] {
            assert_eq!(judged(pattern), None, "{pattern}");
        }
    }
}
