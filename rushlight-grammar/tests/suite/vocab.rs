//! Vocabularies for tests: a toy one, and those of real tokenizers where the models are there.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use rushlight_engine::constrain::{Accepted, MaskStatus};
use rushlight_grammar::{
    CancelToken, CompiledGrammar, Compiler, GrammarReport, GrammarSource, Limits, Matcher,
    TokenEntry, TokenTable, Vocabulary,
};
use serde_json::json;

/// The stop id of [`toy`].
pub(crate) const STOP: u32 = 256;
/// Another stop id of [`toy`].
pub(crate) const STOP_TOO: u32 = 257;
/// A control token of [`toy`], `<|tool|>`.
pub(crate) const TOOL: u32 = 258;

/// 256 single bytes, two stop ids, a control token, an unused id, then words; logits of 300.
pub(crate) fn toy() -> Arc<Vocabulary> {
    toy_with(false)
}

/// As [`toy`], with a canonical spelling: longest first.
pub(crate) fn toy_canonical() -> Arc<Vocabulary> {
    toy_with(true)
}

const WORDS: [&str; 24] = [
    "{\"", "\":", "\":\"", "\",\"", "\"}", "name", "na", "me", "true", "false", "null", "yes",
    " please", "the", " the", "ing", "12", "123", "ab", "abc", "[]", "{}", "\"a", "é",
];

fn toy_with(canonical: bool) -> Arc<Vocabulary> {
    let mut tokens: Vec<TokenEntry> = (0..=255u8).map(|b| TokenEntry::Text(vec![b])).collect();
    tokens.push(TokenEntry::Control("</s>".into()));
    tokens.push(TokenEntry::Control("<|end|>".into()));
    tokens.push(TokenEntry::Control("<|tool|>".into()));
    tokens.push(TokenEntry::Unused);
    tokens.extend(WORDS.map(|w| TokenEntry::Text(w.as_bytes().to_vec())));
    let encode = longest_first(&tokens);
    Vocabulary::new(TokenTable {
        identity: "toy".into(),
        tokens,
        stop_ids: vec![STOP, STOP_TOO],
        logits: 300,
        encode: canonical.then_some(encode),
    })
    .unwrap()
}

fn longest_first(tokens: &[TokenEntry]) -> rushlight_grammar::Encode {
    let mut ids: HashMap<Vec<u8>, u32> = HashMap::new();
    for (id, token) in (0..).zip(tokens) {
        if let TokenEntry::Text(bytes) = token {
            ids.entry(bytes.clone()).or_insert(id);
        }
    }
    let longest = ids.keys().map(Vec::len).max().unwrap_or(1);
    Arc::new(move |text: &str| {
        let mut rest = text.as_bytes();
        let mut out = Vec::new();
        while !rest.is_empty() {
            let (length, id) = (1..=longest.min(rest.len()))
                .rev()
                .find_map(|n| ids.get(&rest[..n]).map(|&id| (n, id)))
                .unwrap();
            out.push(id);
            rest = &rest[length..];
        }
        out
    })
}

/// The folder of test models, or `None` with a line that says why.
pub(crate) fn models() -> Option<PathBuf> {
    let found = std::env::var_os("RUSHLIGHT_TEST_MODELS").map(PathBuf::from);
    if found.is_none() {
        eprintln!("skipped: RUSHLIGHT_TEST_MODELS is not set");
    }
    found
}

/// The vocabulary of a byte-level tokenizer under `tokenizers/NAME`, without its spelling.
pub(crate) fn byte_level(name: &str) -> Option<Arc<Vocabulary>> {
    let path = models()?
        .join("tokenizers")
        .join(name)
        .join("tokenizer.json");
    let file = std::fs::read(&path).unwrap();
    let json: serde_json::Value = serde_json::from_slice(&file).unwrap();
    let alphabet = byte_alphabet();
    let mut tokens = Vec::new();
    let mut put = |id: usize, entry: TokenEntry| {
        if tokens.len() <= id {
            tokens.resize(id + 1, TokenEntry::Unused);
        }
        tokens[id] = entry;
    };
    for (text, id) in json["model"]["vocab"].as_object().unwrap() {
        let bytes = text.chars().map(|c| alphabet[&c]).collect();
        put(id.as_u64().unwrap() as usize, TokenEntry::Text(bytes));
    }
    let mut stop_ids = Vec::new();
    for added in json["added_tokens"].as_array().unwrap() {
        let id = added["id"].as_u64().unwrap() as usize;
        let content = added["content"].as_str().unwrap().to_owned();
        if ["<|im_end|>", "<|endoftext|>", "<|eot_id|>"].contains(&content.as_str()) {
            stop_ids.push(id as u32);
        }
        put(id, TokenEntry::Control(content));
    }
    let logits = tokens.len().next_multiple_of(128);
    let encode = longest_first(&tokens);
    Some(
        Vocabulary::new(TokenTable {
            identity: name.into(),
            tokens,
            stop_ids,
            logits,
            encode: Some(encode),
        })
        .unwrap(),
    )
}

/// GPT-2's printable stand-ins for bytes.
fn byte_alphabet() -> HashMap<char, u8> {
    let plain = |b: &u8| matches!(b, 0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff);
    let mut shifted = 256;
    (0..=255u8)
        .map(|b| {
            if plain(&b) {
                return (char::from(b), b);
            }
            let c = char::from_u32(shifted).unwrap();
            shifted += 1;
            (c, b)
        })
        .collect()
}

pub(crate) fn compiler(vocabulary: Arc<Vocabulary>) -> Compiler {
    Compiler::new(vocabulary, Limits::default(), Default::default())
}

pub(crate) fn compile(source: &GrammarSource) -> Result<Arc<CompiledGrammar>, GrammarReport> {
    compiler(toy()).compile(source, &CancelToken::new())
}

pub(crate) fn matcher(source: &GrammarSource) -> Matcher {
    compile(source)
        .unwrap_or_else(|e| panic!("{source:?}: {e}"))
        .matcher()
}

/// Whether the grammar accepts `text`, fed a byte at a time to a vocabulary whose first 256 ids are the bytes.
pub(crate) fn accepts(grammar: &Arc<CompiledGrammar>, text: &str) -> bool {
    let mut matcher = grammar.matcher();
    let mut mask = mask_of(&matcher);
    for &byte in text.as_bytes() {
        match matcher.mask(&mut mask).unwrap() {
            MaskStatus::Terminated => return false,
            MaskStatus::Unconstrained => {}
            MaskStatus::Constrained if !has(&mask, byte.into()) => return false,
            MaskStatus::Constrained => {}
        }
        if matcher.accept(byte.into()).unwrap() != Accepted::Taken {
            return false;
        }
    }
    matcher.may_end().unwrap()
}

pub(crate) fn mask_of(matcher: &Matcher) -> Vec<u32> {
    vec![0; matcher.grammar().vocabulary().logits().div_ceil(32)]
}

pub(crate) fn has(mask: &[u32], token: u32) -> bool {
    mask[token as usize / 32] >> (token % 32) & 1 == 1
}

/// The ids whose bits are set.
pub(crate) fn set(mask: &[u32]) -> Vec<u32> {
    (0..mask.len() as u32 * 32)
        .filter(|&t| has(mask, t))
        .collect()
}

/// A generator of numbers that is the same on every machine.
pub(crate) struct Draws(pub(crate) u64);

impl Draws {
    pub(crate) fn below(&mut self, n: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        ((self.0 >> 33) as usize) % n
    }
}

/// The default limits, changed.
pub(crate) fn limits(change: impl FnOnce(&mut Limits)) -> Limits {
    let mut limits = Limits::default();
    change(&mut limits);
    limits
}

/// A name, and perhaps an age.
pub(crate) fn person() -> GrammarSource {
    GrammarSource::JsonSchema(json!({
        "type": "object",
        "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
        "required": ["name"],
        "additionalProperties": false,
    }))
}
