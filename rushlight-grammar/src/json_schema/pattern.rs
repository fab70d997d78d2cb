//! ECMA-262 patterns as regular languages.
//!
//! JSON Schema patterns are unanchored searches. The pattern is read into a small tree, then turned into the language of
//! whole texts in which a match exists, by passing the rest of the text ("what may still follow") inwards: `$` is "and
//! nothing follows", `(?=x)` is "and what follows starts with x", `(?!x)` the complement of that. This is exact for
//! look-ahead outside of repetitions. Back-references, look-behind, `\b`, and look-ahead under `*` are not regular in this
//! form and are refused; the caller guards them instead.

mod judged;
mod read;

use super::rx::Rx;
pub(super) use judged::judged;
use read::Parser;

/// The language of whole texts in which `pattern` finds a match, or why it cannot be stated.
pub(super) fn search(pattern: &str) -> Result<Rx, String> {
    let node = Parser::new(pattern).parse()?;
    begin(&regular(node)?)
}

/// `node` without its groups, or why it is not regular.
fn regular(node: Node) -> Result<Node, String> {
    let each = |parts: Vec<Node>| parts.into_iter().map(regular).collect::<Result<_, _>>();
    Ok(match node {
        Node::Cat(parts) => Node::Cat(each(parts)?),
        Node::Alt(parts) => Node::Alt(each(parts)?),
        Node::Rep(inner, min, max) => Node::Rep(Box::new(regular(*inner)?), min, max),
        Node::Ahead(inner, positive) => Node::Ahead(Box::new(regular(*inner)?), positive),
        Node::Group(_, inner) => regular(*inner)?,
        Node::Behind(..) => return Err("look-behind".to_owned()),
        Node::Boundary(_) => return Err("a word boundary".to_owned()),
        Node::Back(_) => return Err("a back-reference".to_owned()),
        Node::Plain(_) | Node::Begin | Node::End => node,
    })
}

/// The language of texts that `pattern`, given without anchors, matches from end to end.
///
/// Only for patterns written in this crate.
pub(super) fn whole(pattern: &str) -> Rx {
    Rx::Plain(pattern.to_owned())
}

#[derive(Clone, Debug)]
enum Node {
    /// Regex-crate text without look-around or anchors.
    Plain(String),
    Cat(Vec<Node>),
    Alt(Vec<Node>),
    Rep(Box<Node>, u32, Option<u32>),
    Begin,
    End,
    Ahead(Box<Node>, bool),
    Behind(Box<Node>, bool),
    /// `\b`, or `\B`.
    Boundary(bool),
    /// A group that is counted, by its number from 1.
    Group(usize, Box<Node>),
    /// What the group of this number or name matched.
    Back(String),
}

impl Node {
    fn is_plain(&self) -> bool {
        match self {
            Node::Plain(_) => true,
            Node::Cat(parts) | Node::Alt(parts) => parts.iter().all(Node::is_plain),
            Node::Rep(inner, ..) => inner.is_plain(),
            _ => false,
        }
    }

    fn has_begin(&self) -> bool {
        match self {
            Node::Begin => true,
            Node::Cat(parts) | Node::Alt(parts) => parts.iter().any(Node::has_begin),
            Node::Rep(inner, ..) => inner.has_begin(),
            _ => false,
        }
    }

    fn to_rx(&self) -> Result<Rx, String> {
        Ok(match self {
            Node::Plain(text) => Rx::Plain(text.clone()),
            Node::Cat(parts) => Rx::cat(
                parts
                    .iter()
                    .map(Node::to_rx)
                    .collect::<Result<Vec<_>, _>>()?,
            ),
            Node::Alt(parts) => Rx::alt(
                parts
                    .iter()
                    .map(Node::to_rx)
                    .collect::<Result<Vec<_>, _>>()?,
            ),
            Node::Rep(inner, min, max) => Rx::Rep(Box::new(inner.to_rx()?), *min, *max),
            _ => return Err("an anchor or look-ahead inside a repetition".to_owned()),
        })
    }
}

/// The language of a whole text, at its very start.
fn begin(node: &Node) -> Result<Rx, String> {
    match node {
        Node::Alt(parts) => Ok(Rx::alt(
            parts.iter().map(begin).collect::<Result<Vec<_>, _>>()?,
        )),
        Node::Cat(parts) => {
            let mut parts: &[Node] = parts;
            // `^` may stand after look-aheads, which consume nothing; everything after it starts at 0.
            let lead = parts
                .iter()
                .take_while(|p| matches!(p, Node::Begin | Node::Ahead(..)))
                .count();
            if parts.iter().take(lead).any(|p| matches!(p, Node::Begin)) {
                let kept: Vec<Node> = parts
                    .iter()
                    .enumerate()
                    .filter(|(i, p)| !(*i < lead && matches!(p, Node::Begin)))
                    .map(|(_, p)| p.clone())
                    .collect();
                return follow(&Node::Cat(kept), Rx::All);
            }
            if let Some((first, rest)) = parts.split_first()
                && first.has_begin()
            {
                return match first {
                    Node::Alt(options) => {
                        let whole = options.iter().map(|option| {
                            let mut joined = match option {
                                Node::Cat(inner) => inner.clone(),
                                other => vec![other.clone()],
                            };
                            joined.extend(rest.iter().cloned());
                            begin(&Node::Cat(joined))
                        });
                        Ok(Rx::alt(whole.collect::<Result<Vec<_>, _>>()?))
                    }
                    Node::Cat(inner) => {
                        let mut joined = inner.clone();
                        joined.extend(rest.iter().cloned());
                        begin(&Node::Cat(joined))
                    }
                    _ => Err("a start anchor inside a repetition".to_owned()),
                };
            }
            if parts.iter().any(Node::has_begin) {
                return Err("a start anchor after other text".to_owned());
            }
            // `.*` in front is what a search adds anyway.
            while let [Node::Rep(inner, 0, None), rest @ ..] = parts
                && matches!(&**inner, Node::Plain(p) if p == ANY)
            {
                parts = rest;
            }
            Ok(Rx::cat([
                Rx::All,
                follow(&Node::Cat(parts.to_vec()), Rx::All)?,
            ]))
        }
        Node::Begin => Ok(Rx::All),
        other if other.has_begin() => Err("a start anchor inside a repetition".to_owned()),
        other => Ok(Rx::cat([Rx::All, follow(other, Rx::All)?])),
    }
}

/// The language of `node` followed by a text of `rest`.
fn follow(node: &Node, rest: Rx) -> Result<Rx, String> {
    if node.is_plain() {
        return Ok(Rx::cat([node.to_rx()?, rest]));
    }
    match node {
        Node::Cat(parts) => parts
            .iter()
            .rev()
            .try_fold(rest, |rest, part| follow(part, rest)),
        Node::Alt(parts) => {
            let options = parts.iter().map(|part| follow(part, rest.clone()));
            Ok(Rx::alt(options.collect::<Result<Vec<_>, _>>()?))
        }
        Node::Rep(inner, 0, Some(1)) => Ok(Rx::alt([rest.clone(), follow(inner, rest)?])),
        Node::End => Ok(match rest {
            Rx::All | Rx::Empty => Rx::Empty,
            other => Rx::and([Rx::Empty, other]),
        }),
        Node::Ahead(inner, positive) => {
            let seen = follow(inner, Rx::All)?;
            Ok(Rx::and([
                rest,
                if *positive { seen } else { seen.complement() },
            ]))
        }
        Node::Begin => Err("a start anchor after other text".to_owned()),
        _ => Err("an anchor or look-ahead inside a repetition".to_owned()),
    }
}

/// ECMA-262's `.`: everything but the four line terminators.
const ANY: &str = r"[^\n\r\u{2028}\u{2029}]";

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(pattern: &str, yes: &[&str], no: &[&str]) {
        let rx = search(pattern).unwrap();
        for text in yes {
            assert_eq!(
                rx.matches(text, &mut 1_000_000),
                Some(true),
                "{pattern} should find in {text:?}"
            );
        }
        for text in no {
            assert_eq!(
                rx.matches(text, &mut 1_000_000),
                Some(false),
                "{pattern} should not find in {text:?}"
            );
        }
    }

    #[test]
    fn anchors_and_searches() {
        check("a", &["a", "xay", "\na"], &["", "b"]);
        check("^a", &["a", "ab"], &["ba"]);
        check("a$", &["a", "ba"], &["ab", "a\n"]);
        check("^(a|b)$", &["a", "b"], &["ab", ""]);
        check("^a|b$", &["ax", "xb"], &["xa", "bx"]);
        check("(^a|b)c", &["acx", "xbc"], &["xac"]);
        check("^$", &[""], &["a", "\n"]);
        check("", &["", "a"], &[]);
        check("^a?$|^b{2,3}$", &["", "a", "bb", "bbb"], &["b", "aa"]);
        check("^a{,2}$", &["a{,2}"], &["aa"]);
    }

    #[test]
    fn look_ahead_is_intersection_and_complement() {
        check("^(?!foo)", &["", "bar", "xfoo"], &["foo", "foobar"]);
        check("^(?!.*bad).*$", &["good"], &["a bad one"]);
        check(
            "^(?=.*[a-z])(?=.*[0-9]).{3,}$",
            &["a1b", "12c"],
            &["abc", "a1"],
        );
        check("^(?!-)[a-z-]+$", &["a-"], &["-a"]);
        check("^a(?!b$)", &["a", "abc"], &["ab"]);
        assert!(search("(?<=a)b").is_err());
        assert!(search(r"\bfoo\b").is_err());
        assert!(search(r"(a)\1").is_err());
        assert!(search("(?:(?!x).)*y").is_err());
    }

    #[test]
    fn escapes_and_classes_are_ecma() {
        check(r"^\d+$", &["12"], &["١", ""]);
        check(r"^\w$", &["a", "_"], &["é"]);
        check(r"^\s$", &[" ", "\u{feff}", "\u{a0}"], &["a"]);
        check(r"^\S\D\W$", &["xy-"], &[" y-"]);
        check(r"^[\w.-]+$", &["a.b-c"], &["a b"]);
        check(r"^[^\d\s]$", &["x"], &["1", " "]);
        check(r"^[a\-z]$", &["-", "a", "z"], &["b"]);
        check(r"^[-a]$", &["-"], &["b"]);
        check(r"^[\]\[&&~]$", &["]", "[", "&", "~"], &["a"]);
        check(r"^\u00e9\x41\/\.$", &["éA/."], &["éA/x"]);
        check(r"^[^]$", &["\n", "a"], &["", "ab"]);
        check(r"^\p{Lu}$", &["A", "É"], &["a"]);
        check(r"^\cA$", &["\u{1}"], &["A"]);
        check(r"^🐲*$", &["", "🐲🐲"], &["🐉"]);
        check(r"^.$", &["a", "\u{85}"], &["\n", "\u{2028}"]);
        check(r"^(?<year>\d{4})$", &["2024"], &["24"]);
        assert!(search(r"^\S(|(.|\n)*\S)\Z").is_ok());
        assert!(search(r"\a").is_err());
        assert!(search("[z-a]").is_err());
        assert!(search("(").is_err());
    }
}
