//! Rules to the engine's symbols: which parts become lexemes, and how everything is built.

use std::collections::{BTreeSet, HashMap};

use llguidance::derivre::RegexAst;
use llguidance::earley::SymIdx;

use super::analyse::{Facts, is, nullable};
use super::lexemes;
use super::node::{Node, Rule, Token};
use crate::error::{GrammarError, GrammarErrorKind, Result};
use crate::expression::normal;
use crate::target::{Target, class};
use crate::vocabulary::Vocabulary;

/// Nesting of a lexeme's pattern, the rules in it included. Deeper parts stay rules.
const LEXEME_DEPTH: usize = 200;
/// Characters and classes of a lexeme's pattern, the rules in it written out, as the engine has them. Larger rules stay rules.
const LEXEME_SIZE: usize = 30_000;
/// Bytes of a rule's only text up to which it is written out wherever the rule is used.
const JOINED: usize = 256;
/// Rounds of splitting lexemes that meet; after these everything is split.
const ROUNDS: usize = 12;

/// A rule's body over lexemes.
#[derive(Clone, Debug)]
pub(crate) enum Sym {
    Empty,
    Lexeme(usize),
    Rule(usize),
    Token(Token),
    Seq(Vec<Sym>),
    Alt(Vec<Sym>),
    Repeat(Box<Sym>, usize, Option<usize>),
}

/// What the lexer reads in one piece: a regular expression that may use regular rules. It never matches the empty text,
/// which is left out of it where the expression does.
#[derive(Clone, Debug)]
pub(crate) struct Lexeme {
    pub(crate) node: Node,
    // The rules it was made for.
    pub(crate) owners: BTreeSet<usize>,
    minus_empty: bool,
}

/// A grammar of rules over lexemes.
pub(crate) struct Plan<'a> {
    bodies: &'a [Node],
    nullable: &'a [bool],
    order: &'a [usize],
    regular: Vec<bool>,
    // Rules that match the empty text and nothing else, of the regular ones.
    empty_only: Vec<bool>,
    // Rules whose lexemes are single characters.
    fine: Vec<bool>,
    pub(crate) lexemes: Vec<Lexeme>,
    by_text: HashMap<String, usize>,
    /// Bodies of the rules that are not part of lexemes.
    pub(crate) rules: Vec<Option<Sym>>,
}

/// Builds the grammar of `rules` in `target`; the answer derives what rule `root` does.
///
/// # Errors
/// [`GrammarErrorKind::Undefined`] for a token that the vocabulary has not, [`GrammarErrorKind::Limit`].
pub(crate) fn build(
    rules: &[Rule],
    root: usize,
    facts: &Facts,
    vocabulary: Option<&Vocabulary>,
    target: &mut Target,
) -> Result<SymIdx> {
    let mut cyclic = facts.cyclic.clone();
    let bodies: Vec<Node> = rules
        .iter()
        .enumerate()
        .map(|(id, rule)| match unrolled(&rule.body, id) {
            Some(body) => {
                if let Some(flag) = cyclic.get_mut(id) {
                    *flag = false;
                }
                body
            }
            None => rule.body.clone(),
        })
        .collect();
    let mut fine = vec![false; rules.len()];
    let mut plan = Plan::new(&bodies, facts, &cyclic, root, fine.clone());
    let mut pairs = lexemes::ALL_PAIRS;
    for _ in 0..ROUNDS {
        let broken = lexemes::conflicts(&plan, &bodies, &facts.nullable, &mut pairs);
        if broken.is_empty() {
            return Writer::new(&plan, rules, vocabulary, target).write(root);
        }
        for id in broken {
            if let Some(flag) = fine.get_mut(id) {
                *flag = true;
            }
        }
        plan = Plan::new(&bodies, facts, &cyclic, root, fine.clone());
    }
    fine.fill(true);
    plan = Plan::new(&bodies, facts, &cyclic, root, fine);
    Writer::new(&plan, rules, vocabulary, target).write(root)
}

/// `a ::= x a | y` as `a ::= x* y`: a cycle that only goes on to the right is regular.
pub(super) fn unrolled(body: &Node, id: usize) -> Option<Node> {
    let ways = match body {
        Node::Alt(ways) => ways.as_slice(),
        other => std::slice::from_ref(other),
    };
    let mut again = Vec::new();
    let mut last = Vec::new();
    for way in ways {
        let parts = match way {
            Node::Seq(parts) => parts.as_slice(),
            other => std::slice::from_ref(other),
        };
        match parts.split_last() {
            Some((Node::Rule(used), before)) if *used == id && !before.is_empty() => {
                if before.iter().any(|part| uses(part, id)) {
                    return None;
                }
                again.push(Node::Seq(before.to_vec()));
            }
            _ if parts.iter().any(|part| uses(part, id)) => return None,
            _ => last.push(way.clone()),
        }
    }
    if again.is_empty() || last.is_empty() {
        return None;
    }
    Some(Node::Seq(vec![
        Node::Repeat(Box::new(Node::Alt(again)), 0, None),
        Node::Alt(last),
    ]))
}

fn uses(node: &Node, id: usize) -> bool {
    match node {
        Node::Rule(used) => *used == id,
        Node::Seq(parts) | Node::Alt(parts) => parts.iter().any(|part| uses(part, id)),
        Node::Repeat(inner, _, _) => uses(inner, id),
        _ => false,
    }
}

impl<'a> Plan<'a> {
    fn new(
        bodies: &'a [Node],
        facts: &'a Facts,
        cyclic: &[bool],
        root: usize,
        fine: Vec<bool>,
    ) -> Self {
        let mut plan = Self {
            bodies,
            nullable: &facts.nullable,
            order: &facts.order,
            regular: vec![false; bodies.len()],
            empty_only: vec![false; bodies.len()],
            fine,
            lexemes: Vec::new(),
            by_text: HashMap::new(),
            rules: vec![None; bodies.len()],
        };
        let mut depths = vec![0usize; bodies.len()];
        let mut sizes = vec![0usize; bodies.len()];
        for &id in &facts.order {
            let Some(body) = bodies.get(id) else { continue };
            let depth = depth(body, &depths);
            if let Some(slot) = depths.get_mut(id) {
                *slot = depth;
            }
            let size = size(body, &sizes);
            if let Some(slot) = sizes.get_mut(id) {
                *slot = size;
            }
            let regular = !is(cyclic, id)
                && !is(&plan.fine, id)
                && depth <= LEXEME_DEPTH
                && size <= LEXEME_SIZE
                && plan.is_regular(body);
            let empty = regular && plan.is_empty_only(body);
            if let Some(slot) = plan.regular.get_mut(id) {
                *slot = regular;
            }
            if let Some(slot) = plan.empty_only.get_mut(id) {
                *slot = empty;
            }
        }
        // Only what the start needs, so that lexemes which nothing uses split nothing.
        let mut open = vec![root];
        while let Some(id) = open.pop() {
            if !is(&facts.reached, id) || plan.rules.get(id).is_none_or(Option::is_some) {
                continue;
            }
            let Some(body) = bodies.get(id) else { continue };
            let sym = plan.sym(body, id);
            used_rules(&sym, &mut open);
            if let Some(slot) = plan.rules.get_mut(id) {
                *slot = Some(sym);
            }
        }
        plan
    }

    fn is_regular(&self, node: &Node) -> bool {
        match node {
            Node::Text(_) | Node::Class(_) => true,
            Node::Token(_) => false,
            Node::Seq(parts) | Node::Alt(parts) => parts.iter().all(|part| self.is_regular(part)),
            Node::Repeat(inner, _, _) => self.is_regular(inner),
            Node::Rule(id) => is(&self.regular, *id),
        }
    }

    fn sym(&mut self, node: &Node, owner: usize) -> Sym {
        let fine = is(&self.fine, owner);
        if !fine && self.is_regular(node) {
            return self.lexeme(node.clone(), owner);
        }
        match node {
            Node::Text(text) => Sym::Seq(
                text.chars()
                    .map(|c| self.lexeme(Node::Class(vec![(c.into(), c.into())]), owner))
                    .collect(),
            ),
            Node::Class(_) => self.lexeme(node.clone(), owner),
            Node::Token(token) => Sym::Token(token.clone()),
            Node::Rule(id) => Sym::Rule(*id),
            Node::Repeat(inner, min, max) => {
                Sym::Repeat(Box::new(self.sym(inner, owner)), *min, *max)
            }
            Node::Seq(parts) => {
                Sym::Seq(self.runs(parts, owner, fine, |run| Node::Seq(run.to_vec())))
            }
            Node::Alt(ways) => {
                let (regular, others): (Vec<_>, Vec<_>) = ways
                    .iter()
                    .cloned()
                    .partition(|way| !fine && self.is_regular(way));
                let mut syms: Vec<Sym> = others.iter().map(|way| self.sym(way, owner)).collect();
                if !regular.is_empty() {
                    syms.push(self.lexeme(Node::Alt(regular), owner));
                }
                Sym::Alt(syms)
            }
        }
    }

    /// The parts of a sequence, neighbours that are regular joined.
    fn runs(
        &mut self,
        parts: &[Node],
        owner: usize,
        fine: bool,
        join: impl Fn(&[Node]) -> Node,
    ) -> Vec<Sym> {
        let mut syms = Vec::new();
        let mut from = 0;
        while let Some(rest) = parts.get(from..).filter(|rest| !rest.is_empty()) {
            let run = match fine {
                true => 0,
                false => rest.iter().take_while(|part| self.is_regular(part)).count(),
            };
            match rest.get(..run) {
                Some(run) if !run.is_empty() => syms.push(self.lexeme(join(run), owner)),
                _ => syms.extend(rest.first().map(|part| self.sym(part, owner))),
            }
            from += run.max(1);
        }
        syms
    }

    fn lexeme(&mut self, node: Node, owner: usize) -> Sym {
        if self.is_empty_only(&node) {
            return Sym::Empty;
        }
        let minus_empty = nullable(&node, self.nullable);
        let text = format!("{node:?}");
        let id = *self.by_text.entry(text).or_insert(self.lexemes.len());
        match self.lexemes.get_mut(id) {
            Some(lexeme) => {
                lexeme.owners.insert(owner);
            }
            None => self.lexemes.push(Lexeme {
                node,
                owners: BTreeSet::from([owner]),
                minus_empty,
            }),
        }
        if minus_empty {
            Sym::Alt(vec![Sym::Empty, Sym::Lexeme(id)])
        } else {
            Sym::Lexeme(id)
        }
    }

    /// Whether a rule's lexemes are single characters already.
    pub(crate) fn is_fine(&self, rule: usize) -> bool {
        is(&self.fine, rule)
    }

    /// Whether `node`, a regular expression, matches the empty text and nothing else.
    fn is_empty_only(&self, node: &Node) -> bool {
        empty_only(node, &self.empty_only)
    }
}

fn empty_only(node: &Node, rules: &[bool]) -> bool {
    match node {
        Node::Text(text) => text.is_empty(),
        Node::Class(_) | Node::Token(_) => false,
        Node::Seq(parts) | Node::Alt(parts) => parts.iter().all(|part| empty_only(part, rules)),
        Node::Repeat(inner, _, max) => *max == Some(0) || empty_only(inner, rules),
        Node::Rule(id) => is(rules, *id),
    }
}

/// Builds a plan's symbols.
struct Writer<'a> {
    plan: &'a Plan<'a>,
    rules: &'a [Rule],
    vocabulary: Option<&'a Vocabulary>,
    target: &'a mut Target,
    // Of regular rules, made once.
    expressions: Vec<Option<RegexAst>>,
    lexemes: Vec<SymIdx>,
    symbols: Vec<Option<SymIdx>>,
}

impl<'a> Writer<'a> {
    fn new(
        plan: &'a Plan<'a>,
        rules: &'a [Rule],
        vocabulary: Option<&'a Vocabulary>,
        target: &'a mut Target,
    ) -> Self {
        Self {
            expressions: vec![None; rules.len()],
            lexemes: Vec::new(),
            symbols: vec![None; rules.len()],
            plan,
            rules,
            vocabulary,
            target,
        }
    }

    fn write(mut self, root: usize) -> Result<SymIdx> {
        let plan = self.plan;
        for &id in plan.order {
            if let Some(body) = plan.bodies.get(id).filter(|_| is(&plan.regular, id)) {
                let made = match normal(self.expression(body)) {
                    // It is joined with the texts beside it wherever it is used.
                    text @ RegexAst::EmptyString => text,
                    RegexAst::Literal(text) if text.len() <= JOINED => RegexAst::Literal(text),
                    ast => RegexAst::ExprRef(self.target.expression(ast)?),
                };
                if let Some(slot) = self.expressions.get_mut(id) {
                    *slot = Some(made);
                }
            }
        }
        for lexeme in &plan.lexemes {
            let mut ast = self.expression(&lexeme.node);
            if lexeme.minus_empty {
                let something = RegexAst::Regex("(?s:.)+".to_owned());
                ast = RegexAst::And(vec![ast, something]);
            }
            let made = self.target.lexeme(ast)?;
            self.lexemes.push(made);
        }
        for (id, sym) in plan.rules.iter().enumerate() {
            if sym.is_some() {
                let symbol = self.target.symbol()?;
                if let Some(slot) = self.symbols.get_mut(id) {
                    *slot = Some(symbol);
                }
            }
        }
        for (id, sym) in plan.rules.iter().enumerate() {
            if let (Some(sym), Some(symbol)) = (sym, self.symbol_of(id)) {
                let body = self.sym(sym, id)?;
                self.target.rule(symbol, vec![body])?;
            }
        }
        self.symbol_of(root).ok_or_else(lost)
    }

    fn symbol_of(&self, rule: usize) -> Option<SymIdx> {
        self.symbols.get(rule).copied().flatten()
    }

    fn expression(&self, node: &Node) -> RegexAst {
        let all = |nodes: &[Node]| nodes.iter().map(|node| self.expression(node)).collect();
        match node {
            Node::Text(text) => RegexAst::Literal(text.clone()),
            Node::Class(ranges) => {
                let ranges: Vec<(char, char)> = ranges
                    .iter()
                    .filter_map(|&(low, high)| Some((char::from_u32(low)?, char::from_u32(high)?)))
                    .collect();
                class(&ranges)
            }
            Node::Seq(parts) => RegexAst::Concat(all(parts)),
            Node::Alt(ways) => RegexAst::Or(all(ways)),
            Node::Repeat(inner, min, max) => RegexAst::Repeat(
                Box::new(self.expression(inner)),
                u32::try_from(*min).unwrap_or(u32::MAX),
                max.and_then(|max| u32::try_from(max).ok())
                    .unwrap_or(u32::MAX),
            ),
            Node::Rule(id) => match self.expressions.get(*id) {
                Some(Some(made)) => made.clone(),
                _ => RegexAst::NoMatch,
            },
            // Tokens are in no regular expression.
            Node::Token(_) => RegexAst::NoMatch,
        }
    }

    fn sym(&mut self, sym: &Sym, rule: usize) -> Result<SymIdx> {
        match sym {
            Sym::Empty | Sym::Repeat(_, _, Some(0)) => self.target.empty(),
            Sym::Lexeme(id) => self.lexemes.get(*id).copied().ok_or_else(lost),
            Sym::Rule(id) => self.symbol_of(*id).ok_or_else(lost),
            Sym::Token(token) => self.token(token, rule),
            Sym::Seq(parts) => {
                let parts = self.all(parts, rule)?;
                self.target.seq(parts)
            }
            Sym::Alt(ways) => {
                let ways = self.all(ways, rule)?;
                self.target.alt(&ways)
            }
            Sym::Repeat(inner, min, max) => {
                let inner = self.sym(inner, rule)?;
                self.target.repeat(inner, *min, *max)
            }
        }
    }

    fn all(&mut self, syms: &[Sym], rule: usize) -> Result<Vec<SymIdx>> {
        syms.iter().map(|sym| self.sym(sym, rule)).collect()
    }

    fn token(&mut self, token: &Token, rule: usize) -> Result<SymIdx> {
        let unknown = |what: String| {
            let error = GrammarError::new(GrammarErrorKind::Undefined, what);
            match self.rules.get(rule) {
                Some(rule) => {
                    let written = rule.tokens.iter().find(|(known, _)| known == token);
                    let at = written.map_or(rule.at, |&(_, at)| at);
                    error.with_place(at.place(&rule.name))
                }
                None => error,
            }
        };
        let Some(vocabulary) = self.vocabulary else {
            return Err(unknown("tokens need a vocabulary".to_owned()));
        };
        let last = u32::try_from(vocabulary.len())
            .unwrap_or(u32::MAX)
            .saturating_sub(1);
        let ids = match *token {
            Token::Named(ref name) => {
                let id = vocabulary.control_token(name).ok_or_else(|| {
                    unknown(format!("the vocabulary has no control token '{name}'"))
                })?;
                vec![(id, id)]
            }
            Token::Id(id) | Token::NotId(id) if id > last => {
                return Err(unknown(format!("token {id}: the last one is {last}")));
            }
            Token::Id(id) => {
                let id = vocabulary.in_trie(id);
                vec![(id, id)]
            }
            Token::NotId(id) => vocabulary.text_ids_but(id),
        };
        self.target.token(&ids)
    }
}

fn lost() -> GrammarError {
    GrammarError::new(
        GrammarErrorKind::Internal,
        "a rule was planned and not built",
    )
}

fn used_rules(sym: &Sym, used: &mut Vec<usize>) {
    match sym {
        Sym::Rule(id) => used.push(*id),
        Sym::Seq(parts) | Sym::Alt(parts) => parts.iter().for_each(|part| used_rules(part, used)),
        Sym::Repeat(inner, _, _) => used_rules(inner, used),
        _ => {}
    }
}

fn depth(node: &Node, rules: &[usize]) -> usize {
    let inner = match node {
        Node::Text(_) | Node::Class(_) | Node::Token(_) => 0,
        Node::Seq(parts) | Node::Alt(parts) => parts
            .iter()
            .map(|part| depth(part, rules))
            .max()
            .unwrap_or(0),
        Node::Repeat(inner, _, _) => depth(inner, rules),
        Node::Rule(id) => rules.get(*id).copied().unwrap_or(0),
    };
    inner.saturating_add(1)
}

/// Characters and classes of `node` once its rules are written out; a repetition counts once.
fn size(node: &Node, rules: &[usize]) -> usize {
    match node {
        Node::Text(text) => text.len(),
        Node::Class(_) | Node::Token(_) => 1,
        Node::Seq(parts) | Node::Alt(parts) => parts
            .iter()
            .fold(0usize, |sum, part| sum.saturating_add(size(part, rules))),
        Node::Repeat(inner, _, _) => size(inner, rules),
        Node::Rule(id) => rules.get(*id).copied().unwrap_or(0),
    }
}
