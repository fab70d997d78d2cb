//! Reading: patterns of ECMA-262, with the flag `u`, as trees.

use super::{ANY, Node};

/// Nested groups allowed in a pattern.
const MAX_DEPTH: usize = 250;
/// The largest count of a repetition, times those of the repetitions around it: a text may stand at as many places.
const MAX_COUNT: u32 = 100_000;
const SPACE: &str = r"\t\n\x0B\x0C\r \u{a0}\u{1680}\u{2000}-\u{200a}\u{2028}\u{2029}\u{202f}\u{205f}\u{3000}\u{feff}";

// The opposites as ranges: a class in a class is not read alike everywhere.
const NO_DIGIT: &str = r"\u{0}-/:-\u{10ffff}";
const NO_WORD: &str = r"\u{0}-/:-@\u{5b}-\u{5e}`\u{7b}-\u{10ffff}";
const NO_SPACE: &str = concat!(
    r"\u{0}-\u{8}\u{e}-\u{1f}!-\u{9f}\u{a1}-\u{167f}\u{1681}-\u{1fff}\u{200b}-\u{2027}\u{202a}-\u{202e}",
    r"\u{2030}-\u{205e}\u{2060}-\u{2fff}\u{3001}-\u{fefe}\u{ff00}-\u{10ffff}",
);

/// Every character.
pub(super) const EVERY: &str = "(?s:.)";

pub(super) struct Parser<'a> {
    chars: std::iter::Peekable<std::str::Chars<'a>>,
    depth: usize,
    groups: usize,
    // How often the most repeated part of what was read may stand in a text, where its repetitions have an end.
    times: u32,
    /// Named groups by their numbers.
    pub(super) names: Vec<(String, usize)>,
}

impl<'a> Parser<'a> {
    pub(super) fn new(pattern: &'a str) -> Self {
        Self {
            chars: pattern.chars().peekable(),
            depth: 0,
            groups: 0,
            times: 1,
            names: Vec::new(),
        }
    }

    pub(super) fn parse(&mut self) -> Result<Node, String> {
        let node = self.alternatives()?;
        match self.chars.next() {
            None => Ok(node),
            Some(c) => Err(format!("unexpected '{c}'")),
        }
    }

    fn alternatives(&mut self) -> Result<Node, String> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(format!("more than {MAX_DEPTH} nested groups"));
        }
        let mut options = vec![self.sequence()?];
        while self.chars.next_if_eq(&'|').is_some() {
            options.push(self.sequence()?);
        }
        self.depth -= 1;
        Ok(if options.len() == 1 {
            options.swap_remove(0)
        } else {
            Node::Alt(options)
        })
    }

    fn sequence(&mut self) -> Result<Node, String> {
        let mut parts = Vec::new();
        while let Some(&c) = self.chars.peek() {
            if c == '|' || c == ')' {
                break;
            }
            let before = std::mem::replace(&mut self.times, 1);
            let atom = self.atom()?;
            parts.push(self.quantified(atom)?);
            self.times = self.times.max(before);
        }
        Ok(Node::Cat(parts))
    }

    fn quantified(&mut self, atom: Node) -> Result<Node, String> {
        let Some((min, max)) = self.counts()? else {
            return match self.chars.peek() {
                Some('{') => self.brace_literal(atom),
                _ => Ok(atom),
            };
        };
        self.times = self.times.saturating_mul(max.unwrap_or(min).max(1));
        if self.times > MAX_COUNT {
            return Err(format!(
                "repetitions in each other of more than {MAX_COUNT} together"
            ));
        }
        // Laziness chooses among matches, never whether one exists.
        self.chars.next_if_eq(&'?');
        if matches!(atom, Node::Begin | Node::End) {
            return Err("a repeated anchor".to_owned());
        }
        let repeated = Node::Rep(Box::new(atom), min, max);
        if self.counts()?.is_some() {
            return Err("a repetition of a repetition without a group".to_owned());
        }
        match self.chars.peek() {
            Some('{') => self.brace_literal(repeated),
            _ => Ok(repeated),
        }
    }

    fn counts(&mut self) -> Result<Option<(u32, Option<u32>)>, String> {
        let counts = match self.chars.peek() {
            Some('{') => return self.braces(),
            Some('*') => (0, None),
            Some('+') => (1, None),
            Some('?') => (0, Some(1)),
            _ => return Ok(None),
        };
        self.chars.next();
        Ok(Some(counts))
    }

    /// `{n}`, `{n,}`, `{n,m}`; anything else is a literal brace, as in web browsers.
    fn braces(&mut self) -> Result<Option<(u32, Option<u32>)>, String> {
        let ahead: String = self
            .chars
            .clone()
            .skip(1)
            .take_while(|c| *c != '}')
            .take(24)
            .collect();
        let closes = self.chars.clone().nth(ahead.chars().count() + 1) == Some('}');
        let (low, high) = match ahead.split_once(',') {
            Some((low, high)) => (low, Some(high)),
            None => (ahead.as_str(), None),
        };
        let digits = |s: &str| !s.is_empty() && s.bytes().all(|b| b.is_ascii_digit());
        if !closes || !digits(low) || high.is_some_and(|h| !h.is_empty() && !digits(h)) {
            return Ok(None);
        }
        let count = |s: &str| match s.parse::<u32>() {
            Ok(n) if n <= MAX_COUNT => Ok(n),
            _ => Err(format!("a repetition of more than {MAX_COUNT}")),
        };
        let min = count(low)?;
        let max = match high {
            None => Some(min),
            Some("") => None,
            Some(high) => Some(count(high)?),
        };
        if max.is_some_and(|max| max < min) {
            return Err("a repetition whose bounds are out of order".to_owned());
        }
        for _ in 0..ahead.chars().count() + 2 {
            self.chars.next();
        }
        Ok(Some((min, max)))
    }

    /// A brace that counts nothing is the next atom, not a quantifier.
    fn brace_literal(&mut self, atom: Node) -> Result<Node, String> {
        self.chars.next();
        let brace = self.quantified(Node::Plain(literal('{')))?;
        Ok(Node::Cat(vec![atom, brace]))
    }

    fn atom(&mut self) -> Result<Node, String> {
        let Some(c) = self.chars.next() else {
            return Err("the pattern ends early".to_owned());
        };
        match c {
            '^' => Ok(Node::Begin),
            '$' => Ok(Node::End),
            '.' => Ok(Node::Plain(ANY.to_owned())),
            '(' => self.group(),
            '[' => self.class(),
            '\\' => self.escape(),
            '*' | '+' | '?' => Err(format!("nothing to repeat before '{c}'")),
            other => Ok(Node::Plain(literal(other))),
        }
    }

    fn group(&mut self) -> Result<Node, String> {
        type Made = fn(Box<Node>) -> Node;
        let mut look: Option<Made> = None;
        let mut number = None;
        if self.chars.next_if_eq(&'?').is_some() {
            match self.chars.next() {
                Some(':') => {}
                Some('=') => look = Some(|inner| Node::Ahead(inner, true)),
                Some('!') => look = Some(|inner| Node::Ahead(inner, false)),
                Some('<') => {
                    if self.chars.next_if_eq(&'=').is_some() {
                        look = Some(|inner| Node::Behind(inner, true));
                    } else if self.chars.next_if_eq(&'!').is_some() {
                        look = Some(|inner| Node::Behind(inner, false));
                    } else {
                        let name = self.up_to('>').ok_or("an unclosed group name")?;
                        self.groups += 1;
                        self.names.push((name, self.groups));
                        number = Some(self.groups);
                    }
                }
                Some('P') => return Err("a Python-style group".to_owned()),
                _ => return Err("an inline flag group".to_owned()),
            }
        } else {
            self.groups += 1;
            number = Some(self.groups);
        }
        let inner = self.alternatives()?;
        if self.chars.next() != Some(')') {
            return Err("an unclosed group".to_owned());
        }
        Ok(match (look, number) {
            (Some(look), _) => look(Box::new(inner)),
            (None, Some(number)) => Node::Group(number, Box::new(inner)),
            (None, None) => inner,
        })
    }

    /// What stands before `end`, which there has to be.
    fn up_to(&mut self, end: char) -> Option<String> {
        let mut text = String::new();
        loop {
            match self.chars.next()? {
                c if c == end => return Some(text),
                c => text.push(c),
            }
        }
    }

    fn class(&mut self) -> Result<Node, String> {
        let negated = self.chars.next_if_eq(&'^').is_some();
        let mut body = String::new();
        loop {
            let c = self.chars.next().ok_or("an unclosed class")?;
            if c == ']' {
                break;
            }
            let (low, single) = self.class_item(c)?;
            if self.chars.peek() == Some(&'-') {
                let after = self.chars.clone().nth(1);
                match (single, after) {
                    (Some(start), Some(end)) if end != ']' => {
                        self.chars.next();
                        let c = self.chars.next().ok_or("an unclosed class")?;
                        let (high, end) = self.class_item(c)?;
                        match end {
                            Some(end) if end >= start => {
                                body.push_str(&format!("{low}-{high}"));
                            }
                            Some(_) => return Err("a class range out of order".to_owned()),
                            None => body.push_str(&format!("{low}\\-{high}")),
                        }
                        continue;
                    }
                    _ => {}
                }
            }
            body.push_str(&low);
        }
        Ok(Node::Plain(match (negated, body.is_empty()) {
            (false, true) => "[^\\u{0}-\\u{10ffff}]".to_owned(),
            (true, true) => EVERY.to_owned(),
            (false, false) => format!("[{body}]"),
            (true, false) => format!("[^{body}]"),
        }))
    }

    /// One member of a class as class text, and its code point where it is a single character.
    fn class_item(&mut self, c: char) -> Result<(String, Option<char>), String> {
        if c != '\\' {
            return Ok((literal(c), Some(c)));
        }
        match self.chars.peek() {
            Some('b') => {
                self.chars.next();
                Ok((literal('\u{8}'), Some('\u{8}')))
            }
            Some('-') => {
                self.chars.next();
                Ok((literal('-'), Some('-')))
            }
            _ => match self.escaped()? {
                Escaped::Char(c) => Ok((literal(c), Some(c))),
                Escaped::Set(set) => Ok((set, None)),
            },
        }
    }

    fn escape(&mut self) -> Result<Node, String> {
        match self.chars.peek() {
            Some('b' | 'B') => return Ok(Node::Boundary(self.chars.next() == Some('b'))),
            Some('1'..='9') => {
                let digits = std::iter::from_fn(|| self.chars.next_if(char::is_ascii_digit));
                return Ok(Node::Back(digits.collect()));
            }
            Some('k') => {
                self.chars.next();
                let name = match self.chars.next() {
                    Some('<') => self.up_to('>'),
                    _ => None,
                };
                return Ok(Node::Back(name.ok_or("a back-reference without a name")?));
            }
            // Not ECMA-262, but common in schemas written for other engines.
            Some('A') => {
                self.chars.next();
                return Ok(Node::Begin);
            }
            Some('Z' | 'z') => {
                self.chars.next();
                return Ok(Node::End);
            }
            _ => {}
        }
        Ok(Node::Plain(match self.escaped()? {
            Escaped::Char(c) => literal(c),
            Escaped::Set(set) => format!("[{set}]"),
        }))
    }

    fn escaped(&mut self) -> Result<Escaped, String> {
        let c = self
            .chars
            .next()
            .ok_or("the pattern ends after a backslash")?;
        let set = |s: &str| Ok(Escaped::Set(s.to_owned()));
        match c {
            'd' => set("0-9"),
            'D' => set(NO_DIGIT),
            'w' => set("0-9A-Za-z_"),
            'W' => set(NO_WORD),
            's' => set(SPACE),
            'S' => set(NO_SPACE),
            'p' | 'P' => self.property(c),
            'n' => Ok(Escaped::Char('\n')),
            'r' => Ok(Escaped::Char('\r')),
            't' => Ok(Escaped::Char('\t')),
            'f' => Ok(Escaped::Char('\u{c}')),
            'v' => Ok(Escaped::Char('\u{b}')),
            '0' => Ok(Escaped::Char('\0')),
            'c' => match self.chars.next() {
                Some(letter) if letter.is_ascii_alphabetic() => {
                    let code = u32::from(letter.to_ascii_uppercase()) - u32::from('@');
                    char::from_u32(code)
                        .map(Escaped::Char)
                        .ok_or_else(|| "a bad control escape".to_owned())
                }
                _ => Err("a bad control escape".to_owned()),
            },
            'x' => self.hex(2).and_then(scalar),
            'u' => self.unicode(),
            other if other.is_ascii_alphanumeric() => Err(format!("the escape '\\{other}'")),
            other => Ok(Escaped::Char(other)),
        }
    }

    fn property(&mut self, kind: char) -> Result<Escaped, String> {
        if self.chars.next() != Some('{') {
            return Err("a property escape without braces".to_owned());
        }
        let name = self.up_to('}').ok_or("an unclosed property escape")?;
        if name.is_empty()
            || !name
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || "_=- ".contains(c))
        {
            return Err(format!("the property '{name}'"));
        }
        // The engine's own parser knows which names exist.
        let set = format!("\\{kind}{{{name}}}");
        llguidance::derivre::RegexBuilder::new()
            .mk_regex(&format!("[{set}]"))
            .map_err(|_| format!("the property '{name}'"))?;
        Ok(Escaped::Set(set))
    }

    fn hex(&mut self, digits: usize) -> Result<u32, String> {
        let mut value = 0;
        for _ in 0..digits {
            let digit = self.chars.next().and_then(|c| c.to_digit(16));
            value = value * 16 + digit.ok_or("a bad hexadecimal escape")?;
        }
        Ok(value)
    }

    fn unicode(&mut self) -> Result<Escaped, String> {
        if self.chars.next_if_eq(&'{').is_some() {
            let text = self.up_to('}').ok_or("an unclosed code point escape")?;
            let code = u32::from_str_radix(&text, 16).map_err(|_| "a bad code point escape")?;
            return scalar(code);
        }
        let high = self.hex(4)?;
        if (0xD800..0xDC00).contains(&high) {
            let mut rest = self.chars.clone();
            if rest.next() == Some('\\') && rest.next() == Some('u') {
                self.chars.next();
                self.chars.next();
                let low = self.hex(4)?;
                if (0xDC00..0xE000).contains(&low) {
                    return scalar(0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00));
                }
            }
        }
        scalar(high)
    }
}

enum Escaped {
    Char(char),
    /// Text for the inside of a class.
    Set(String),
}

fn scalar(code: u32) -> Result<Escaped, String> {
    char::from_u32(code)
        .map(Escaped::Char)
        .ok_or_else(|| "a lone surrogate".to_owned())
}

/// `c` for both the inside and the outside of a class.
fn literal(c: char) -> String {
    if c.is_ascii_alphanumeric() || (!c.is_ascii() && !c.is_control()) {
        c.to_string()
    } else {
        format!("\\u{{{:x}}}", u32::from(c))
    }
}
