//! A tokenizer's table as the mask engine wants it: a trie over the bytes of every token.
//!
//! The trie holds one id for each byte string. Ids that spell the same bytes (a byte token and a character) are kept as
//! twins of the one in the trie and follow its bit. Beside the tokenizer's own ids the trie has private ones, numbered from
//! the table's end: the end of text, and one for each single byte that no token spells, so that text can be followed byte by
//! byte. Their bits never leave this crate.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

use llguidance::ParserFactory;
use toktrie::{InferenceCapabilities, TokEnv, TokRxInfo, TokTrie, TokenId, TokenizerEnv};

use crate::error::{GrammarError, GrammarErrorKind, Result};
use crate::strings;

/// Spells text as tokens, the way the model's tokenizer does.
pub type Encode = Arc<dyn Fn(&str) -> Vec<u32> + Send + Sync>;

/// What one id is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum TokenEntry {
    /// Ordinary text: these bytes, which need not be whole characters.
    Text(Vec<u8>),
    /// A control token, by its name (`<|im_end|>`). It is never content; a grammar may name it.
    Control(String),
    /// An id that no text has: reserved, or a hole in the table.
    Unused,
}

/// A tokenizer, as plain data.
#[derive(Clone)]
pub struct TokenTable {
    /// What makes two tables the same tokenizer: a digest or a path. Tables are shared by it.
    pub identity: String,
    /// Every id of the vocabulary, in order.
    pub tokens: Vec<TokenEntry>,
    /// The ids that end a text, in any order. They are never content, whatever their entry says.
    pub stop_ids: Vec<u32>,
    /// Width of the model's logits, in ids; at least as many as `tokens` has.
    pub logits: usize,
    /// Spells forced text. Without it, text is spelled by the longest token that fits, and nothing is forced.
    pub encode: Option<Encode>,
}

impl fmt::Debug for TokenTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TokenTable")
            .field("identity", &self.identity)
            .field("tokens", &self.tokens.len())
            .field("stop_ids", &self.stop_ids)
            .field("logits", &self.logits)
            .finish_non_exhaustive()
    }
}

/// A table made ready for masks; made once for a tokenizer and shared.
pub struct Vocabulary {
    identity: String,
    env: TokEnv,
    factory: ParserFactory,
    stop_ids: Vec<u32>,
    // (id in the trie, another id of the same bytes)
    twins: Vec<(u32, u32)>,
    // id of each single byte
    bytes: [u32; 256],
    len: usize,
    logits: usize,
    encode: Option<Encode>,
    // (characters that the token begins in a JSON string, id in the trie), in order
    lengths: OnceLock<Vec<(usize, u32)>>,
}

/// Ids above this do not fit the trie's nodes.
const MAX_TOKENS: usize = (1 << 24) - 600;
/// Bytes of the longest token that the trie can hold.
const MAX_TOKEN_BYTES: usize = 1000;
/// Nodes that the trie can hold.
const MAX_TRIE_NODES: usize = 4 << 20;

impl Vocabulary {
    /// Builds the trie of `table`. A vocabulary of 128,256 tokens takes some tenths of a second and about 10 MB.
    ///
    /// # Errors
    /// [`GrammarErrorKind::Vocabulary`]: no tokens, stop ids outside the table, logits narrower than it, a token too long.
    pub fn new(table: TokenTable) -> Result<Arc<Self>> {
        let TokenTable {
            identity,
            tokens,
            stop_ids,
            logits,
            encode,
        } = table;
        let len = tokens.len();
        check_table(&tokens, &stop_ids, logits)?;

        let mut words: Vec<Vec<u8>> = Vec::with_capacity(len + 257);
        let mut first: HashMap<Vec<u8>, u32> = HashMap::with_capacity(len);
        let mut twins = Vec::new();
        for (id, entry) in (0u32..).zip(tokens) {
            let word = match entry {
                TokenEntry::Text(bytes) if !stop_ids.contains(&id) => bytes,
                TokenEntry::Text(bytes) => control_word(&String::from_utf8_lossy(&bytes)),
                TokenEntry::Control(name) => control_word(&name),
                TokenEntry::Unused => Vec::new(),
            };
            // Bytes that start like a control word are not UTF-8, so no grammar allows them.
            let is_marked_text = word.first() == Some(&TokTrie::SPECIAL_TOKEN_MARKER);
            if is_marked_text && word.len() == 1 {
                words.push(Vec::new());
                continue;
            }
            match first.get(&word) {
                Some(&twin) if !word.is_empty() => {
                    twins.push((twin, id));
                    words.push(Vec::new());
                }
                _ => {
                    first.insert(word.clone(), id);
                    words.push(word);
                }
            }
        }
        // The end of text has a name that no tokenizer uses.
        let end = id_of(words.len())?;
        words.push(control_word("<rushlight:end>"));
        let mut bytes = [u32::MAX; 256];
        for byte in 0..=0xfe_u8 {
            let id = match first.get([byte].as_slice()) {
                Some(&id) => id,
                None => {
                    let id = id_of(words.len())?;
                    words.push(vec![byte]);
                    id
                }
            };
            if let Some(slot) = bytes.get_mut(usize::from(byte)) {
                *slot = id;
            }
        }
        let nodes: usize = words.iter().map(Vec::len).sum();
        if nodes > MAX_TRIE_NODES {
            return Err(vocabulary_error(format!(
                "the tokens spell {nodes} bytes; the limit is {MAX_TRIE_NODES}"
            )));
        }

        let info = TokRxInfo::new(id_of(words.len())?, end);
        let trie = TokTrie::from(&info, &words);
        let env: TokEnv = Arc::new(Env {
            trie,
            encode: encode.clone(),
        });
        let factory = ParserFactory::new(
            &env,
            InferenceCapabilities::default(),
            &llguidance::earley::SlicedBiasComputer::general_slices(),
        )
        .map_err(|e| vocabulary_error(format!("the token trie cannot be sliced: {e}")))?;
        Ok(Arc::new(Self {
            identity,
            env,
            factory,
            stop_ids,
            twins,
            bytes,
            len,
            logits,
            encode,
            lengths: OnceLock::new(),
        }))
    }

    /// The vocabulary of a tokenizer that is already loaded under `identity`, else the one that `table` describes.
    ///
    /// A vocabulary stays shared for as long as anyone holds it.
    ///
    /// # Errors
    /// Those of [`Vocabulary::new`].
    pub fn shared(identity: &str, table: impl FnOnce() -> TokenTable) -> Result<Arc<Self>> {
        static LOADED: OnceLock<Mutex<HashMap<String, Weak<Vocabulary>>>> = OnceLock::new();
        let mut loaded = LOADED
            .get_or_init(Mutex::default)
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = loaded.get(identity).and_then(Weak::upgrade) {
            return Ok(found);
        }
        loaded.retain(|_, weak| weak.strong_count() > 0);
        let made = Self::new(TokenTable {
            identity: identity.to_owned(),
            ..table()
        })?;
        loaded.insert(identity.to_owned(), Arc::downgrade(&made));
        Ok(made)
    }

    /// What the table called itself.
    pub fn identity(&self) -> &str {
        &self.identity
    }

    /// Ids of the tokenizer.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is no id; never true.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Width of the model's logits, in ids.
    pub fn logits(&self) -> usize {
        self.logits
    }

    /// The ids that end a text.
    pub fn stop_ids(&self) -> &[u32] {
        &self.stop_ids
    }

    /// The bytes that `token` spells as text; none for control tokens, stop ids and unused ids.
    pub fn token_bytes(&self, token: u32) -> &[u8] {
        let bytes = self.word(token);
        match bytes.first() {
            Some(&TokTrie::SPECIAL_TOKEN_MARKER) | None => &[],
            Some(_) => bytes,
        }
    }

    /// Spells `text` as tokens: the tokenizer's way where the table has one, else longest first, with private ids for bytes
    /// that no token spells.
    pub(crate) fn encode(&self, text: &str) -> Vec<u32> {
        match &self.encode {
            Some(encode) => encode(text),
            None => self.env.tokenize_bytes(text.as_bytes()),
        }
    }

    /// The control token called `name`; stop ids are control tokens.
    pub fn control_token(&self, name: &str) -> Option<u32> {
        let id = self.trie().token_id_at_bytes(&control_word(name))?;
        (usize::try_from(id).ok()? < self.len).then_some(id)
    }

    /// Whether `token` is a control token; stop ids are.
    pub fn is_control(&self, token: u32) -> bool {
        self.word(token).first() == Some(&TokTrie::SPECIAL_TOKEN_MARKER)
    }

    /// Whether `token` is an id of the tokenizer that spells something or controls something.
    pub(crate) fn is_used(&self, token: u32) -> bool {
        !self.word(token).is_empty()
    }

    /// Every id that spells text but `token` and its twins, as inclusive ranges.
    pub(crate) fn text_ids_but(&self, token: u32) -> Vec<(u32, u32)> {
        let excluded = self.in_trie(token);
        let mut ranges: Vec<(u32, u32)> = Vec::new();
        for id in (0u32..).take(self.len) {
            if self.token_bytes(id).is_empty() || self.in_trie(id) == excluded {
                continue;
            }
            match ranges.last_mut() {
                Some(last) if last.1 + 1 == id => last.1 = id,
                _ => ranges.push((id, id)),
            }
        }
        ranges
    }

    /// The token as the trie has it: control tokens start with the trie's marker.
    fn word(&self, token: u32) -> &[u8] {
        match usize::try_from(token) {
            Ok(index) if index < self.len => self.trie().token(self.in_trie(token)),
            _ => &[],
        }
    }

    /// Whether [`encode`](Self::encode) spells text as the model's tokenizer does.
    pub(crate) fn is_canonical(&self) -> bool {
        self.encode.is_some()
    }

    pub(crate) fn trie(&self) -> &TokTrie {
        self.env.tok_trie()
    }

    pub(crate) fn factory(&self) -> &ParserFactory {
        &self.factory
    }

    pub(crate) fn is_stop(&self, token: u32) -> bool {
        self.stop_ids.contains(&token)
    }

    /// The private id whose bit says that the text may end.
    pub(crate) fn end(&self) -> u32 {
        self.env.eos_token()
    }

    /// The id, private or not, that spells exactly `byte`; `None` for 0xFF, which no UTF-8 text holds.
    pub(crate) fn byte_token(&self, byte: u8) -> Option<u32> {
        self.bytes
            .get(usize::from(byte))
            .copied()
            .filter(|&id| id != u32::MAX)
    }

    /// The id that stands in the trie for `token`.
    pub(crate) fn in_trie(&self, token: u32) -> u32 {
        match self.twins.binary_search_by_key(&token, |&(_, id)| id) {
            Ok(at) => self.twins.get(at).map_or(token, |&(first, _)| first),
            Err(_) => token,
        }
    }

    /// The tokens, as the trie has them, that begin more than `left` and at most `most` characters in a JSON string that they
    /// stand in.
    pub(crate) fn tokens_longer(&self, left: usize, most: usize) -> impl Iterator<Item = &u32> {
        let lengths = self.lengths.get_or_init(|| {
            let ids = (0u32..).take(self.len);
            let mut lengths: Vec<(usize, u32)> = ids
                .filter(|&id| self.in_trie(id) == id)
                .map(|id| (strings::characters(self.token_bytes(id)), id))
                .filter(|&(length, _)| length > 0)
                .collect();
            lengths.sort_unstable();
            lengths
        });
        let from = lengths.partition_point(|&(length, _)| length <= left);
        let to = lengths.partition_point(|&(length, _)| length <= most);
        let longer = lengths.get(from..to).unwrap_or(&[]);
        longer.iter().map(|(_, id)| id)
    }

    /// Clears the bits of private ids.
    pub(crate) fn clear_private(&self, engine: &mut [u32]) {
        clear_from(engine, self.len);
    }

    /// Writes the bits of `engine` (ids of the trie, no private ones) into `mask` (ids of the logits): twins and stop ids added.
    /// `mask` has [`logits`](Self::logits) bits.
    pub(crate) fn export(&self, engine: &[u32], may_end: bool, mask: &mut [u32]) {
        let words = engine.len().min(mask.len());
        let (head, tail) = mask.split_at_mut(words);
        if let Some(source) = engine.get(..words) {
            head.copy_from_slice(source);
        }
        tail.fill(0);
        for &(first, twin) in &self.twins {
            if bit(mask, first) {
                set_bit(mask, twin);
            }
        }
        if may_end {
            for &id in &self.stop_ids {
                set_bit(mask, id);
            }
        }
    }
}

impl fmt::Debug for Vocabulary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Vocabulary")
            .field("identity", &self.identity)
            .field("len", &self.len)
            .field("logits", &self.logits)
            .field("stop_ids", &self.stop_ids)
            .field("twins", &self.twins.len())
            .finish_non_exhaustive()
    }
}

/// Whether `token`'s bit is set; false outside the mask.
pub(crate) fn bit(mask: &[u32], token: u32) -> bool {
    mask.get(word_of(token))
        .is_some_and(|word| word >> (token % 32) & 1 == 1)
}

/// Sets `token`'s bit, where the mask has one.
pub(crate) fn set_bit(mask: &mut [u32], token: u32) {
    if let Some(word) = mask.get_mut(word_of(token)) {
        *word |= 1 << (token % 32);
    }
}

/// Clears `token`'s bit, where the mask has one.
pub(crate) fn clear_bit(mask: &mut [u32], token: u32) {
    if let Some(word) = mask.get_mut(word_of(token)) {
        *word &= !(1 << (token % 32));
    }
}

/// The tokens whose bits are set, in order.
pub(crate) fn set_tokens(mask: &[u32]) -> impl Iterator<Item = u32> + '_ {
    (0u32..).zip(mask).flat_map(|(at, &word)| {
        let mut left = word;
        std::iter::from_fn(move || {
            if left == 0 {
                return None;
            }
            let low = left.trailing_zeros();
            left &= left - 1;
            Some(at.saturating_mul(32).saturating_add(low))
        })
    })
}

/// The tokens whose bits are set, where they are at most `limit`. A mask is mostly empty or mostly full, so words are counted
/// before bits are listed.
pub(crate) fn few_set_tokens(mask: &[u32], limit: usize) -> Option<Vec<u32>> {
    let mut left = limit;
    let mut tokens = Vec::new();
    for (at, &word) in (0u32..).zip(mask) {
        if word == 0 {
            continue;
        }
        left = left.checked_sub(usize::try_from(word.count_ones()).ok()?)?;
        tokens.extend(set_tokens(&[word]).map(|bit| at.saturating_mul(32).saturating_add(bit)));
    }
    Some(tokens)
}

fn word_of(token: u32) -> usize {
    usize::try_from(token / 32).unwrap_or(usize::MAX)
}

/// Clears every bit from id `from` on.
fn clear_from(mask: &mut [u32], from: usize) {
    for (at, word) in mask.iter_mut().enumerate().skip(from / 32) {
        if at == from / 32 {
            *word &= (1u32 << (from % 32)) - 1;
        } else {
            *word = 0;
        }
    }
}

fn control_word(name: &str) -> Vec<u8> {
    let mut word = vec![TokTrie::SPECIAL_TOKEN_MARKER];
    word.extend_from_slice(name.as_bytes());
    word
}

fn id_of(index: usize) -> Result<u32> {
    u32::try_from(index).map_err(|_| vocabulary_error("more ids than 32 bits count"))
}

fn vocabulary_error(message: impl Into<String>) -> GrammarError {
    GrammarError::new(GrammarErrorKind::Vocabulary, message)
}

fn check_table(tokens: &[TokenEntry], stop_ids: &[u32], logits: usize) -> Result<()> {
    let len = tokens.len();
    if len == 0 || len > MAX_TOKENS {
        return Err(vocabulary_error(format!(
            "the table has {len} ids; it must have 1 to {MAX_TOKENS}"
        )));
    }
    if logits < len {
        return Err(vocabulary_error(format!(
            "the logits have {logits} values; the table has {len} ids"
        )));
    }
    for &id in stop_ids {
        if usize::try_from(id).map_or(true, |id| id >= len) {
            return Err(vocabulary_error(format!(
                "stop id {id} is outside the table of {len} ids"
            )));
        }
    }
    for (id, entry) in tokens.iter().enumerate() {
        let bytes = match entry {
            TokenEntry::Text(bytes) => bytes.len(),
            TokenEntry::Control(name) => name.len() + 1,
            TokenEntry::Unused => 0,
        };
        if bytes > MAX_TOKEN_BYTES {
            return Err(vocabulary_error(format!(
                "token {id} has {bytes} bytes; the limit is {MAX_TOKEN_BYTES}"
            )));
        }
    }
    Ok(())
}

/// The engine's view of the tokenizer. It calls itself non-canonical: masks then allow every spelling of a text, and forced
/// text is this crate's business.
struct Env {
    trie: TokTrie,
    encode: Option<Encode>,
}

impl TokenizerEnv for Env {
    fn tok_trie(&self) -> &TokTrie {
        &self.trie
    }

    fn tokenize_bytes(&self, bytes: &[u8]) -> Vec<TokenId> {
        match (&self.encode, std::str::from_utf8(bytes)) {
            (Some(encode), Ok(text)) => encode(text),
            _ => self.trie.greedy_tokenize(bytes),
        }
    }

    fn tokenize_is_canonical(&self) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(tokens: &[&str], stop_ids: &[u32], logits: usize) -> TokenTable {
        TokenTable {
            identity: "test".into(),
            tokens: tokens
                .iter()
                .map(|t| TokenEntry::Text(t.as_bytes().to_vec()))
                .collect(),
            stop_ids: stop_ids.to_vec(),
            logits,
            encode: None,
        }
    }

    #[test]
    fn a_table_that_contradicts_itself_is_refused_with_the_numbers() {
        for (table, says) in [
            (table(&[], &[], 0), "0 ids"),
            (table(&["a"], &[1], 1), "stop id 1"),
            (table(&["a", "b"], &[], 1), "1 values"),
            (table(&["x".repeat(2000).as_str()], &[], 1), "2000 bytes"),
        ] {
            let e = Vocabulary::new(table).unwrap_err();
            assert_eq!(e.kind(), GrammarErrorKind::Vocabulary);
            assert!(e.message().contains(says), "{e}");
        }
    }

    #[test]
    fn twins_follow_and_private_ids_never_leave() {
        let vocabulary = Vocabulary::new(table(&["a", "b", "a", "</s>"], &[3], 70)).unwrap();
        let mut mask = vec![u32::MAX; 3];
        let mut engine = vec![u32::MAX; 40];
        clear_bit(&mut engine, 2);
        vocabulary.clear_private(&mut engine);
        vocabulary.export(&engine, true, &mut mask);
        assert_eq!(mask, [0b1111, 0, 0]);
        engine[0] = 0b0010;
        vocabulary.export(&engine, false, &mut mask);
        assert_eq!(mask, [0b0010, 0, 0]);
        assert_eq!(vocabulary.token_bytes(2), b"a");
        assert_eq!(vocabulary.token_bytes(3), b"");
        assert_eq!(vocabulary.token_bytes(4), b"");
        assert_eq!(vocabulary.byte_token(b'a'), Some(0));
        assert!(vocabulary.byte_token(b'z').unwrap() > 3);
        assert_eq!(vocabulary.byte_token(0xff), None);
    }

    #[test]
    fn set_tokens_lists_bits_in_order() {
        let mut mask = vec![0; 2];
        for token in [0, 5, 31, 32, 63] {
            set_bit(&mut mask, token);
        }
        assert_eq!(set_tokens(&mask).collect::<Vec<_>>(), [0, 5, 31, 32, 63]);
        assert_eq!(few_set_tokens(&mask, 5).unwrap(), [0, 5, 31, 32, 63]);
        assert_eq!(few_set_tokens(&mask, 4), None);
    }

    #[test]
    fn a_vocabulary_is_shared_by_identity_while_held() {
        let first = Vocabulary::shared("shared-test", || table(&["a"], &[], 1)).unwrap();
        let again = Vocabulary::shared("shared-test", || table(&["b"], &[], 1)).unwrap();
        assert!(Arc::ptr_eq(&first, &again));
        drop((first, again));
        let fresh = Vocabulary::shared("shared-test", || table(&["b"], &[], 1)).unwrap();
        assert_eq!(fresh.token_bytes(0), b"b");
    }
}
