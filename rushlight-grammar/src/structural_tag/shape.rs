//! What a structural tag's text is made of: one tree that the grammar, the guard and the check of greedy reading are made from.

use std::collections::HashMap;
use std::rc::Rc;

use llguidance::derivre::RegexAst;
use llguidance::earley::SymIdx;

use super::greedy::{self, Work};
use crate::error::Result;
use crate::target::Target;

/// A part of the text; parts may be shared.
pub(super) type Part = Rc<Shape>;

pub(super) enum Shape {
    Text(String),
    /// A text of a pattern, and where the pattern stands.
    Regex {
        pattern: String,
        pointer: String,
    },
    /// A text of a grammar of its own.
    Built(SymIdx),
    /// A JSON value, by the number of its content.
    Json {
        symbol: SymIdx,
        content: usize,
    },
    Until(Until),
    /// Free text that the end of the whole text ends.
    Rest {
        excludes: Vec<String>,
    },
    Seq(Vec<Part>),
    Alt(Vec<Part>),
    Star(Part),
    /// `tag` once or more, with `separator` between.
    Separated {
        tag: Part,
        separator: Part,
    },
}

/// Free text up to and with the first of its stops, and what follows that stop.
pub(super) struct Until {
    pub(super) stops: Vec<(String, Part)>,
    /// Stops of other free text that may stand at the same place: where one comes up first, the text is that other one.
    pub(super) rivals: Vec<String>,
    pub(super) excludes: Vec<String>,
}

pub(super) fn text(text: impl Into<String>) -> Part {
    Rc::new(Shape::Text(text.into()))
}

pub(super) fn empty() -> Part {
    Rc::new(Shape::Seq(Vec::new()))
}

/// Any one of `texts`.
pub(super) fn texts(texts: &[String]) -> Part {
    alt(texts.iter().map(text).collect())
}

pub(super) fn alt(mut ways: Vec<Part>) -> Part {
    match (ways.pop(), ways.is_empty()) {
        (Some(one), true) => one,
        (last, _) => {
            ways.extend(last);
            Rc::new(Shape::Alt(ways))
        }
    }
}

pub(super) fn optional(part: Part) -> Part {
    alt(vec![empty(), part])
}

/// Free text up to and with the first of `stops`.
pub(super) fn until(stops: &[String], excludes: &[String]) -> Part {
    Rc::new(Shape::Until(Until {
        stops: stops.iter().map(|stop| (stop.clone(), empty())).collect(),
        rivals: Vec::new(),
        excludes: excludes.to_vec(),
    }))
}

/// All of `parts` in order.
pub(super) fn seq(parts: Vec<Part>) -> Part {
    let mut flat: Vec<Part> = Vec::with_capacity(parts.len());
    let mut open: Vec<Part> = parts;
    open.reverse();
    while let Some(part) = open.pop() {
        match &*part {
            Shape::Text(text) if text.is_empty() => {}
            Shape::Seq(inner) => open.extend(inner.iter().rev().cloned()),
            _ => flat.push(part),
        }
    }
    match flat.as_slice() {
        [one] => one.clone(),
        _ => Rc::new(Shape::Seq(flat)),
    }
}

/// Joins each pattern that could go on with what follows it with that, where that is regular too: read apart, it would swallow
/// what follows.
pub(super) struct Joiner<'a> {
    work: &'a mut Work,
    // By address: parts live as long as the tree does.
    joined: HashMap<*const Shape, Part>,
}

impl<'a> Joiner<'a> {
    pub(super) fn new(work: &'a mut Work) -> Self {
        Self {
            work,
            joined: HashMap::new(),
        }
    }

    /// # Errors
    /// [`GrammarErrorKind::Limit`](crate::GrammarErrorKind::Limit).
    pub(super) fn join(&mut self, part: &Part) -> Result<Part> {
        let key = Rc::as_ptr(part);
        if let Some(joined) = self.joined.get(&key) {
            return Ok(joined.clone());
        }
        let joined = match &**part {
            Shape::Text(_)
            | Shape::Regex { .. }
            | Shape::Built(_)
            | Shape::Json { .. }
            | Shape::Rest { .. } => part.clone(),
            Shape::Until(until) => {
                let mut stops = Vec::with_capacity(until.stops.len());
                for (stop, then) in &until.stops {
                    stops.push((stop.clone(), self.join(then)?));
                }
                Rc::new(Shape::Until(Until {
                    stops,
                    rivals: until.rivals.clone(),
                    excludes: until.excludes.clone(),
                }))
            }
            Shape::Seq(parts) => self.sequence(parts)?,
            Shape::Alt(ways) => {
                let ways: Result<Vec<_>> = ways.iter().map(|way| self.join(way)).collect();
                Rc::new(Shape::Alt(ways?))
            }
            Shape::Star(inner) => Rc::new(Shape::Star(self.join(inner)?)),
            Shape::Separated { tag, separator } => Rc::new(Shape::Separated {
                tag: self.join(tag)?,
                separator: self.join(separator)?,
            }),
        };
        self.joined.insert(key, joined.clone());
        Ok(joined)
    }

    fn sequence(&mut self, parts: &[Part]) -> Result<Part> {
        let mut flat: Vec<Part> = Vec::with_capacity(parts.len());
        // A pattern that was joined with what follows it, and where it stands. It takes all that is regular after it: one
        // pattern more loses nothing, and asking again would cost more each time.
        let mut run: Option<(String, String)> = None;
        for part in parts {
            let part = self.join(part)?;
            let piece = pattern_of(&part);
            if let Some((mut pattern, pointer)) = run.take() {
                match piece {
                    Some(piece) => {
                        pattern.push_str(&piece);
                        run = Some((pattern, pointer));
                        continue;
                    }
                    None => flat.push(Rc::new(Shape::Regex { pattern, pointer })),
                }
            } else if let (Some(piece), Some(last)) = (piece, flat.last())
                && let (Some(pointer), Some(head)) = (pointer_of(last), pattern_of(last))
            {
                let pointer = pointer.to_owned();
                let first = greedy::first_of_pattern(&piece, self.work);
                let goes_on = first.and_then(|first| greedy::goes_on(&head, &first, self.work));
                if goes_on.ok_or_else(|| greedy::too_large(&pointer))? {
                    flat.pop();
                    run = Some((head + &piece, pointer));
                    continue;
                }
            }
            flat.push(part);
        }
        if let Some((pattern, pointer)) = run {
            flat.push(Rc::new(Shape::Regex { pattern, pointer }));
        }
        Ok(match flat.as_slice() {
            [one] => one.clone(),
            _ => Rc::new(Shape::Seq(flat)),
        })
    }
}

/// Where a pattern in `part` stands.
fn pointer_of(part: &Shape) -> Option<&str> {
    match part {
        Shape::Regex { pointer, .. } => Some(pointer),
        Shape::Seq(parts) | Shape::Alt(parts) => parts.iter().find_map(|part| pointer_of(part)),
        _ => None,
    }
}

/// A regular part as a pattern that others may stand beside.
fn pattern_of(part: &Shape) -> Option<String> {
    let all = |parts: &[Part]| {
        parts
            .iter()
            .map(|p| pattern_of(p))
            .collect::<Option<Vec<_>>>()
    };
    match part {
        Shape::Text(text) => Some(regex_syntax::escape(text)),
        Shape::Regex { pattern, .. } => Some(format!("(?:{pattern})")),
        Shape::Seq(parts) => Some(all(parts)?.concat()),
        Shape::Alt(ways) if !ways.is_empty() => Some(format!("(?:{})", all(ways)?.join("|"))),
        _ => None,
    }
}

/// Writes parts as symbols of the mask engine's grammar.
pub(super) struct Writer<'a> {
    target: &'a mut Target,
    // By address: parts live as long as the tree does.
    written: HashMap<*const Shape, SymIdx>,
    // Parts that are not of the tree, kept so that no other gets their addresses.
    made: Vec<Part>,
}

impl<'a> Writer<'a> {
    pub(super) fn new(target: &'a mut Target) -> Self {
        Self {
            target,
            written: HashMap::new(),
            made: Vec::new(),
        }
    }

    pub(super) fn write(&mut self, part: &Part) -> Result<SymIdx> {
        let key = Rc::as_ptr(part);
        if let Some(&symbol) = self.written.get(&key) {
            return Ok(symbol);
        }
        let symbol = self.fresh(part)?;
        self.written.insert(key, symbol);
        Ok(symbol)
    }

    fn fresh(&mut self, part: &Shape) -> Result<SymIdx> {
        match part {
            Shape::Text(text) => self.target.text(text),
            Shape::Regex { pattern, .. } => self.target.lexeme(RegexAst::Regex(pattern.clone())),
            Shape::Built(symbol) | Shape::Json { symbol, .. } => Ok(*symbol),
            Shape::Until(until) => self.until(until),
            Shape::Rest { excludes } => self.target.lexeme(text_without(excludes)),
            Shape::Seq(parts) => {
                let parts = self.all(parts)?;
                self.target.seq(parts)
            }
            Shape::Alt(ways) => {
                let ways = self.all(ways)?;
                self.target.alt(&ways)
            }
            Shape::Star(inner) => {
                let inner = self.write(inner)?;
                self.target.repeat(inner, 0, None)
            }
            Shape::Separated { tag, separator } => {
                let (tag, separator) = (self.write(tag)?, self.write(separator)?);
                let next = self.target.seq(vec![separator, tag])?;
                let more = self.target.repeat(next, 0, None)?;
                self.target.seq(vec![tag, more])
            }
        }
    }

    /// The mask engine misses a lazy lexeme that is whole with the very byte that ended the lexeme before it. So a stop of one
    /// byte that comes at once is a lexeme of its own, and no other text that may stand here begins with it.
    fn until(&mut self, until: &Until) -> Result<SymIdx> {
        let stops = until.stops.iter().map(|(stop, _)| stop);
        let short: Vec<&str> = stops
            .chain(&until.rivals)
            .map(String::as_str)
            .filter(|stop| stop.len() == 1)
            .collect();
        let mut ways = Vec::with_capacity(until.stops.len());
        for (stop, then) in &until.stops {
            let mut parts = vec![RegexAst::Concat(vec![
                any(),
                RegexAst::Literal(stop.clone()),
            ])];
            if !until.excludes.is_empty() {
                parts.push(text_without(&until.excludes));
            }
            if !short.is_empty() {
                parts.push(text_after_none_of(&short));
            }
            let text = self.target.lazy_lexeme(RegexAst::And(parts))?;
            let rest = self.write(then)?;
            ways.push(self.target.seq(vec![text, rest])?);
            if stop.len() == 1 {
                let at_once = after_text(stop, then);
                ways.push(self.write(&at_once)?);
                self.made.push(at_once);
            }
        }
        self.target.alt(&ways)
    }

    fn all(&mut self, parts: &[Part]) -> Result<Vec<SymIdx>> {
        parts.iter().map(|part| self.write(part)).collect()
    }
}

fn any() -> RegexAst {
    RegexAst::Regex("(?s:.)*".to_owned())
}

/// `part` after `text`, as one text with the text that it begins with: other texts that begin alike may stand at the same place.
fn after_text(before: &str, part: &Part) -> Part {
    match &**part {
        Shape::Text(text) => self::text(format!("{before}{text}")),
        Shape::Alt(ways) => alt(ways.iter().map(|way| after_text(before, way)).collect()),
        Shape::Seq(parts) => match parts.split_first() {
            Some((first, rest)) => {
                let first = after_text(before, first);
                seq([first].into_iter().chain(rest.iter().cloned()).collect())
            }
            None => text(before),
        },
        _ => seq(vec![text(before), part.clone()]),
    }
}

/// Any text that begins with none of `bytes`, which are characters of one byte.
fn text_after_none_of(bytes: &[&str]) -> RegexAst {
    let bytes: String = bytes
        .iter()
        .flat_map(|text| text.bytes())
        .map(|byte| format!("\\x{byte:02x}"))
        .collect();
    RegexAst::Regex(format!("[^{bytes}](?s:.)*"))
}

/// Any text that holds none of `strings`.
fn text_without(strings: &[String]) -> RegexAst {
    let mut parts = vec![any()];
    for string in strings {
        let with = RegexAst::Concat(vec![any(), RegexAst::Literal(string.clone()), any()]);
        parts.push(RegexAst::Not(Box::new(with)));
    }
    RegexAst::And(parts)
}
