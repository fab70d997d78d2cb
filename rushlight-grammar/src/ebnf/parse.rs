//! The text of a grammar, parsed.

use std::collections::HashMap;

use super::node::{At, Node, Parsed, Rule, Token, normal, repeat};
use crate::error::{GrammarError, GrammarErrorKind, Place, Result};
use crate::limits::Limits;

/// Parses `text`. Problems that do not stop the reading (rules defined twice, or nowhere) are all found.
///
/// # Errors
/// A syntax error, which ends the reading, or every name problem.
pub(crate) fn parse(text: &str, limits: &Limits) -> Result<Parsed, Vec<GrammarError>> {
    limits.check_bytes(text.len()).map_err(|e| vec![e])?;
    let mut parser = Parser {
        chars: text.chars().collect(),
        pos: 0,
        at: At { line: 1, column: 1 },
        limits,
        ids: HashMap::new(),
        slots: Vec::new(),
        uses: Vec::new(),
        tokens: Vec::new(),
        rule: String::new(),
        problems: Vec::new(),
    };
    if let Err(e) = parser.grammar() {
        parser.problems.push(e);
        return Err(parser.problems);
    }
    parser.finish()
}

struct Slot {
    name: String,
    first_use: Option<(At, String)>,
    defined: Option<Rule>,
}

struct Parser<'a> {
    chars: Vec<char>,
    pos: usize,
    at: At,
    limits: &'a Limits,
    ids: HashMap<String, usize>,
    slots: Vec<Slot>,
    // Of the rule being read.
    uses: Vec<(usize, At)>,
    tokens: Vec<(Token, At)>,
    rule: String,
    problems: Vec<GrammarError>,
}

impl Parser<'_> {
    fn finish(self) -> Result<Parsed, Vec<GrammarError>> {
        let mut problems = self.problems;
        let root = self.ids.get("root").copied();
        let root_defined = root
            .and_then(|id| self.slots.get(id))
            .is_some_and(|slot| slot.defined.is_some());
        if !root_defined {
            problems.push(GrammarError::new(
                GrammarErrorKind::Undefined,
                "no rule is called 'root', where a grammar starts",
            ));
        }
        let mut rules = Vec::with_capacity(self.slots.len());
        for slot in self.slots {
            match slot.defined {
                Some(rule) => rules.push(rule),
                None if slot.name == "root" => {}
                None => {
                    let error = GrammarError::new(
                        GrammarErrorKind::Undefined,
                        format!("rule '{}' is used but defined nowhere", slot.name),
                    );
                    problems.push(match slot.first_use {
                        Some((at, rule)) => error.with_place(at.place(&rule)),
                        None => error,
                    });
                }
            }
        }
        if problems.is_empty() {
            Ok(Parsed { rules, root })
        } else {
            Err(problems)
        }
    }

    fn grammar(&mut self) -> Result<()> {
        self.space(true);
        while self.peek().is_some() {
            self.rule()?;
            self.space(true);
        }
        Ok(())
    }

    fn rule(&mut self) -> Result<()> {
        let at = self.at;
        let name = self.name();
        if name.is_empty() {
            return Err(self.syntax("a rule's name is expected"));
        }
        self.rule.clone_from(&name);
        self.space(false);
        for c in "::=".chars() {
            if !self.eat(c) {
                return Err(self.syntax("'::=' is expected after a rule's name"));
            }
        }
        self.space(true);
        // Before the body, so that rules are numbered in the order of the text.
        let id = self.id(&name)?;
        let body = self.alternates(0)?;
        self.space(false);
        if !matches!(self.peek(), None | Some('\n' | '\r')) {
            return Err(self.syntax("a line's end is expected after a rule"));
        }
        let uses = std::mem::take(&mut self.uses);
        let tokens = std::mem::take(&mut self.tokens);
        let Some(slot) = self.slots.get_mut(id) else {
            return Ok(());
        };
        if let Some(first) = &slot.defined {
            self.problems.push(
                GrammarError::new(
                    GrammarErrorKind::Duplicate,
                    format!(
                        "rule '{name}' is defined already, on line {}",
                        first.at.line
                    ),
                )
                .with_place(at.place(&name)),
            );
            return Ok(());
        }
        slot.defined = Some(Rule {
            name,
            at,
            body,
            uses,
            tokens,
        });
        Ok(())
    }

    fn alternates(&mut self, depth: usize) -> Result<Node> {
        if depth > self.limits.depth {
            return Err(self.limit(format!(
                "groups are nested more than {} deep",
                self.limits.depth
            )));
        }
        let mut ways = vec![self.sequence(depth)?];
        loop {
            if depth > 0 {
                self.space(true);
            } else if !self.another_line() {
                self.space(false);
            }
            if !self.eat('|') {
                break;
            }
            self.space(true);
            ways.push(self.sequence(depth)?);
        }
        Ok(match ways.len() {
            1 => ways.remove(0),
            _ => Node::Alt(ways),
        })
    }

    /// Whether the next line goes on with `|`; if so, that is next.
    fn another_line(&mut self) -> bool {
        let (pos, at) = (self.pos, self.at);
        self.space(true);
        if self.peek() == Some('|') {
            return true;
        }
        (self.pos, self.at) = (pos, at);
        false
    }

    fn sequence(&mut self, depth: usize) -> Result<Node> {
        let mut parts = Vec::new();
        loop {
            self.space(depth > 0);
            // A name before `::=` on the line that follows `::=` or `|` is the next rule's.
            if self.starts_rule() {
                break;
            }
            let Some(part) = self.atom(depth)? else {
                break;
            };
            let part = self.repeats(part)?;
            parts.push(part);
        }
        Ok(match parts.len() {
            0 => Node::Text(String::new()),
            1 => parts.remove(0),
            _ => Node::Seq(parts),
        })
    }

    fn starts_rule(&self) -> bool {
        let mut pos = self.pos;
        while self.chars.get(pos).is_some_and(|&c| is_name(c)) {
            pos += 1;
        }
        if pos == self.pos {
            return false;
        }
        while matches!(self.chars.get(pos), Some(' ' | '\t')) {
            pos += 1;
        }
        self.chars
            .get(pos..)
            .is_some_and(|rest| rest.starts_with(&[':', ':', '=']))
    }

    fn atom(&mut self, depth: usize) -> Result<Option<Node>> {
        let at = self.at;
        match self.peek() {
            Some('"') => self.literal().map(Some),
            Some('[') => self.class().map(Some),
            Some('.') => {
                self.next();
                Ok(Some(Node::Class(normal(vec![(0, 0x10_ffff)], false))))
            }
            Some('(') => {
                self.next();
                let inner = self.alternates(depth + 1)?;
                self.space(true);
                if self.peek().is_none() {
                    return Err(self.syntax_at(at, "a group is not closed"));
                }
                if !self.eat(')') {
                    return Err(self.syntax("')' is expected"));
                }
                Ok(Some(inner))
            }
            Some('<') => self.token(false).map(Some),
            Some('!') => {
                self.next();
                self.token(true).map(Some)
            }
            Some(c) if is_name(c) => {
                let name = self.name();
                let id = self.id(&name)?;
                let rule = self.rule.clone();
                if let Some(slot) = self.slots.get_mut(id)
                    && slot.first_use.is_none()
                {
                    slot.first_use = Some((at, rule));
                }
                self.uses.push((id, at));
                Ok(Some(Node::Rule(id)))
            }
            _ => Ok(None),
        }
    }

    fn repeats(&mut self, mut node: Node) -> Result<Node> {
        loop {
            let (min, max) = match self.peek() {
                Some('*') => (0, None),
                Some('+') => (1, None),
                Some('?') => (0, Some(1)),
                Some('{') => {
                    self.next();
                    let range = self.braces()?;
                    node = repeat(node, range.0, range.1);
                    continue;
                }
                _ => return Ok(node),
            };
            self.next();
            node = repeat(node, min, max);
        }
    }

    fn braces(&mut self) -> Result<(usize, Option<usize>)> {
        self.space(true);
        let min = self.number()?;
        self.space(true);
        let max = if self.eat(',') {
            self.space(true);
            match self.peek() {
                Some('}') => None,
                _ => Some(self.number()?),
            }
        } else {
            Some(min)
        };
        self.space(true);
        if max.is_some_and(|max| max < min) {
            return Err(self.syntax("a repetition's second number is smaller than its first"));
        }
        if !self.eat('}') {
            return Err(self.syntax("'}' is expected"));
        }
        Ok((min, max))
    }

    fn number(&mut self) -> Result<usize> {
        let mut digits = String::new();
        while let Some(digit) = self.peek().filter(char::is_ascii_digit) {
            self.next();
            digits.push(digit);
        }
        if digits.is_empty() {
            return Err(self.syntax("a number is expected"));
        }
        match digits.parse() {
            Ok(value) if value <= self.limits.repeat => Ok(value),
            // One that no integer holds, too.
            _ => Err(self.limit(format!(
                "a repetition of {digits}; the limit is {}",
                self.limits.repeat
            ))),
        }
    }

    fn literal(&mut self) -> Result<Node> {
        let open = self.at;
        self.next();
        let mut text = String::new();
        loop {
            match self.peek() {
                None => return Err(self.syntax_at(open, "a text is not closed")),
                Some('"') => {
                    self.next();
                    return Ok(Node::Text(text));
                }
                Some(_) => {
                    let at = self.at;
                    let code = self.character()?;
                    let c = char::from_u32(code)
                        .ok_or_else(|| self.syntax_at(at, "this is half of a surrogate pair"))?;
                    text.push(c);
                }
            }
        }
    }

    fn class(&mut self) -> Result<Node> {
        let open = self.at;
        self.next();
        let negated = self.eat('^');
        let mut ranges = Vec::new();
        loop {
            match self.peek() {
                None => return Err(self.syntax_at(open, "a character class is not closed")),
                Some(']') => {
                    self.next();
                    break;
                }
                Some(_) => {}
            }
            let at = self.at;
            let low = self.character()?;
            let dash =
                self.peek() == Some('-') && self.chars.get(self.pos + 1).is_some_and(|&c| c != ']');
            let high = if dash {
                self.next();
                self.character()?
            } else {
                low
            };
            if high < low {
                return Err(self.syntax_at(at, "a range's end is before its start"));
            }
            ranges.push((low, high));
        }
        Ok(Node::Class(normal(ranges, negated)))
    }

    /// One character, escapes read.
    fn character(&mut self) -> Result<u32> {
        let at = self.at;
        let Some(c) = self.next() else {
            return Err(self.syntax("the grammar ends inside a text"));
        };
        if c != '\\' {
            return Ok(u32::from(c));
        }
        let escape = self.next();
        match escape {
            Some('x') => self.hex(2),
            Some('u') => self.hex(4),
            Some('U') => self.hex(8),
            Some('t') => Ok(u32::from('\t')),
            Some('r') => Ok(u32::from('\r')),
            Some('n') => Ok(u32::from('\n')),
            Some(c @ ('\\' | '"' | '[' | ']' | '-' | '^' | '/' | '.' | '\'')) => Ok(u32::from(c)),
            Some(c) => Err(self.syntax_at(at, format!("unknown escape '\\{c}'"))),
            None => Err(self.syntax_at(at, "the grammar ends inside an escape")),
        }
    }

    fn hex(&mut self, digits: usize) -> Result<u32> {
        let at = self.at;
        let mut value = 0u32;
        for _ in 0..digits {
            let digit = self.peek().and_then(|c| c.to_digit(16)).ok_or_else(|| {
                self.syntax_at(at, format!("{digits} hexadecimal digits are expected"))
            })?;
            self.next();
            value = value.wrapping_mul(16).wrapping_add(digit);
        }
        if value > 0x10_ffff {
            return Err(self.syntax_at(at, "this is past the last code point"));
        }
        Ok(value)
    }

    /// `<name>` or `<[12]>`, both after `!` where `negated`.
    fn token(&mut self, negated: bool) -> Result<Node> {
        let at = self.at;
        if !self.eat('<') {
            return Err(self.syntax_at(at, "'!' is followed by a token"));
        }
        let mut inner = String::new();
        loop {
            match self.next() {
                Some('>') => break,
                Some(c) if !c.is_whitespace() && c != '<' && c != '"' => inner.push(c),
                _ => return Err(self.syntax_at(at, "a token is written <name> or <[id]>")),
            }
        }
        let id = inner.strip_prefix('[').and_then(|i| i.strip_suffix(']'));
        let token = match (id, negated) {
            (Some(id), _) => {
                let id = id
                    .parse()
                    .map_err(|_| self.syntax_at(at, "a token's id is a number"))?;
                match negated {
                    true => Token::NotId(id),
                    false => Token::Id(id),
                }
            }
            (None, true) => {
                return Err(GrammarError::new(
                    GrammarErrorKind::Unsupported,
                    format!("'!<{inner}>': write the token's id instead, as '!<[id]>'"),
                )
                .with_place(at.place(&self.rule)));
            }
            (None, false) if inner.is_empty() => {
                return Err(self.syntax_at(at, "a token has no name"));
            }
            (None, false) => Token::Named(format!("<{inner}>")),
        };
        self.tokens.push((token.clone(), at));
        Ok(Node::Token(token))
    }

    fn name(&mut self) -> String {
        let mut name = String::new();
        while let Some(c) = self.peek().filter(|&c| is_name(c)) {
            name.push(c);
            self.next();
        }
        name
    }

    fn id(&mut self, name: &str) -> Result<usize> {
        if let Some(&id) = self.ids.get(name) {
            return Ok(id);
        }
        let id = self.slots.len();
        if id >= self.limits.rules {
            return Err(self.limit(format!("more than {} rules", self.limits.rules)));
        }
        self.ids.insert(name.to_owned(), id);
        self.slots.push(Slot {
            name: name.to_owned(),
            first_use: None,
            defined: None,
        });
        Ok(id)
    }

    /// Skips blanks and comments, and line ends where `lines`.
    fn space(&mut self, lines: bool) {
        while let Some(c) = self.peek() {
            match c {
                ' ' | '\t' => {}
                '\r' | '\n' if lines => {}
                '#' => {
                    while self.peek().is_some_and(|c| c != '\n' && c != '\r') {
                        self.next();
                    }
                    continue;
                }
                _ => return,
            }
            self.next();
        }
    }

    fn peek(&self) -> Option<char> {
        self.chars.get(self.pos).copied()
    }

    fn next(&mut self) -> Option<char> {
        let c = self.peek()?;
        self.pos += 1;
        if c == '\n' {
            self.at.line += 1;
            self.at.column = 1;
        } else {
            self.at.column += 1;
        }
        Some(c)
    }

    fn eat(&mut self, wanted: char) -> bool {
        let found = self.peek() == Some(wanted);
        if found {
            self.next();
        }
        found
    }

    fn syntax(&self, message: impl Into<String>) -> GrammarError {
        self.syntax_at(self.at, message)
    }

    fn syntax_at(&self, at: At, message: impl Into<String>) -> GrammarError {
        self.error(GrammarErrorKind::Invalid, at, message.into())
    }

    fn limit(&self, message: String) -> GrammarError {
        self.error(GrammarErrorKind::Limit, self.at, message)
    }

    fn error(&self, kind: GrammarErrorKind, at: At, message: String) -> GrammarError {
        let rule = (!self.rule.is_empty()).then(|| self.rule.clone());
        GrammarError::new(kind, message).with_place(Place::Text {
            rule,
            line: at.line,
            column: at.column,
        })
    }
}

fn is_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '-' || c == '_'
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn syntax_errors_name_rule_line_and_column() {
        let limits = Limits::default();
        for (text, at, says) in [
            ("root ::= \"a", "1:10 in rule 'root'", "not closed"),
            (
                "root ::= \"a\nb ::= c\n",
                "1:10 in rule 'root'",
                "not closed",
            ),
            ("root ::= \"a\" [b", "1:14 in rule 'root'", "not closed"),
            ("root ::= (\"a\"\n", "1:10 in rule 'root'", "not closed"),
            ("root ::= (\"a\" }", "1:15 in rule 'root'", "')'"),
            ("root := \"a\"", "1:7 in rule 'root'", "'::='"),
            ("root ::= \"\\q\"", "1:11 in rule 'root'", "escape"),
            ("root ::= [b-a]", "1:11 in rule 'root'", "range"),
            ("root ::= \"a\"{3,2}", "1:17 in rule 'root'", "smaller"),
            (
                "root ::= \"a\"\nb ::= x )\n",
                "2:9 in rule 'b'",
                "line's end",
            ),
            ("root ::= !<a>", "1:11 in rule 'root'", "id"),
            ("root ::= \"a\"{1000000}", "1:21 in rule 'root'", "limit"),
            (
                "root ::= \"a\"{99999999999999999999999}",
                "1:37 in rule 'root'",
                "a repetition of 99999999999999999999999;",
            ),
        ] {
            let e = &parse(text, &limits).unwrap_err()[0];
            assert!(e.to_string().starts_with(&format!("{at}: ")), "{text}: {e}");
            assert!(e.message().contains(says), "{text}: {e}");
        }
    }

    #[test]
    fn every_name_problem_is_found() {
        let text = "root ::= a b\na ::= c | \"x\"\na ::= \"y\"\n";
        let problems = parse(text, &Limits::default()).unwrap_err();
        let said: Vec<String> = problems.iter().map(ToString::to_string).collect();
        assert_eq!(
            said,
            [
                "3:1 in rule 'a': rule 'a' is defined already, on line 2",
                "1:12 in rule 'root': rule 'b' is used but defined nowhere",
                "2:7 in rule 'a': rule 'c' is used but defined nowhere",
            ]
        );
        let problems = parse("a ::= \"x\"", &Limits::default()).unwrap_err();
        assert!(problems[0].message().contains("'root'"));
    }

    #[test]
    fn alternatives_go_on_over_lines() {
        let text = "root ::= # first\n  \"a\" |\n  b\n  | \"c\"\nb ::=\n  ( \"x\"\n    | \"y\" )\n";
        let parsed = parse(text, &Limits::default()).unwrap();
        assert_eq!(parsed.rules.len(), 2);
        let Node::Alt(ways) = &parsed.rules[0].body else {
            panic!("{:?}", parsed.rules[0].body);
        };
        assert_eq!(ways.len(), 3);
    }
}
