//! What may come next: the engine's mask, without what guards and the token budget exclude.

use llguidance::api::StopReason;

use super::{Matcher, Next, StringMask, internal, push_all};
use crate::budget::{Budget, Way, Zone};
use crate::close;
use crate::error::Result;
use crate::lower::GuardStep;
use crate::strings::StringPlace;
use crate::vocabulary::{bit, clear_bit, few_set_tokens, set_bit, set_tokens};

/// A guarded mask with at most this many tokens is checked token by token, so that a choice which a guard has narrowed to
/// nothing is found before it is sampled.
const GUARDED_CHOICES: usize = 64;
/// Masks after up to so many tokens are kept for the next sequence of the same grammar.
const MEMO_TOKENS: usize = 32;

impl Matcher {
    /// What may come next, computed once a position.
    pub(super) fn next(&mut self) -> Result<&Next> {
        if self.next.is_none() {
            let made = self.compute_next()?;
            self.next = Some(made);
        }
        match &self.next {
            Some(next) => Ok(next),
            None => Err(internal("the mask was lost")),
        }
    }

    pub(super) fn compute_next(&mut self) -> Result<Next> {
        let grammar = self.grammar.clone();
        let memo = (self.tokens.len() <= MEMO_TOKENS).then(|| grammar.memo());
        let (mut mask, mut may_end) = match memo.and_then(|memo| memo.get(&self.tokens)) {
            Some(known) => known,
            None => {
                let made = self.compute_mask()?;
                if let Some(memo) = memo {
                    memo.keep(&self.tokens, &made);
                }
                made
            }
        };
        let position = self.tokens.len();
        for &(at, token) in &self.excluded {
            if at == position {
                clear_bit(&mut mask, token);
            }
        }
        if !self.doomed.is_empty() {
            self.clear_doomed(&mut mask);
        }
        if !self.guards.is_empty() {
            may_end &= self.guards_finish();
            self.clear_guarded(&mut mask);
        }
        let has_token = mask.iter().any(|&word| word != 0);
        Ok(Next {
            mask,
            may_end,
            has_token,
        })
    }

    /// The grammar's own mask, and whether the text may end.
    fn compute_mask(&mut self) -> Result<(Vec<u32>, bool)> {
        let Some((start, left)) = self.bounded_string()? else {
            return self.engine_mask();
        };
        if let Some(known) = &self.string_mask
            && known.start == start
            && known.left >= left
        {
            let mut mask = known.mask.clone();
            for &token in self.vocabulary().tokens_longer(left, known.left) {
                clear_bit(&mut mask, token);
            }
            return Ok((mask, false));
        }
        let (mask, may_end) = self.engine_mask()?;
        self.string_mask = Some(StringMask {
            start,
            left,
            mask: mask.clone(),
        });
        Ok((mask, may_end))
    }

    /// Where the string starts that the text stands in, and how many characters it may still have, where nothing else is said
    /// about it.
    fn bounded_string(&mut self) -> Result<Option<(usize, usize)>> {
        let place = self.places.last().and_then(StringPlace::inside);
        let Some((start, chars)) = place else {
            return Ok(None);
        };
        let lexeme = self.engine(|parser| {
            let parser = &mut parser.parser;
            // With bytes forced ahead of the tokens, the lexer stands elsewhere.
            if !parser.currently_forced_bytes().is_empty() {
                return Ok::<_, String>(None);
            }
            Ok(parser.with_recognizer(|r| {
                let mut possible = r.lexer().possible_lexemes(r.lexer_state()).iter();
                let only = possible.next().filter(|_| possible.next().is_none());
                only.map(|lexeme| lexeme.as_usize())
            }))
        })?;
        let left = lexeme.and_then(|lexeme| self.grammar.strings().left(lexeme, chars));
        Ok(left.map(|left| (start, left)))
    }

    /// The engine's own mask, and whether the text may end.
    fn engine_mask(&mut self) -> Result<(Vec<u32>, bool)> {
        let grammar = self.grammar.clone();
        let vocabulary = grammar.vocabulary();
        let made = self.engine_at_start(|parser| {
            if parser.stop_reason() == StopReason::NoExtensionBias {
                return Ok(Some((Vec::new(), false)));
            }
            if grammar.is_endless(parser) {
                return Ok(None);
            }
            match parser.compute_mask() {
                Ok(set) => {
                    let mut mask = Vec::from(set);
                    let may_end = bit(&mask, vocabulary.end());
                    vocabulary.clear_private(&mut mask);
                    Ok(Some((mask, may_end)))
                }
                // Nothing may follow: for this crate a state like any other, which a rollback leaves.
                Err(_) if parser.stop_reason() == StopReason::NoExtensionBias => {
                    Ok(Some((Vec::new(), false)))
                }
                Err(e) => Err(e),
            }
        })?;
        made.ok_or_else(|| self.endless())
    }

    /// Clears the tokens that lead to what was refused before.
    fn clear_doomed(&self, mask: &mut [u32]) {
        let vocabulary = self.grammar.vocabulary();
        for doomed in &self.doomed {
            let Some(rest) = doomed.strip_prefix(self.text.as_slice()) else {
                continue;
            };
            let led: Vec<u32> = set_tokens(mask)
                .filter(|&token| vocabulary.token_bytes(token).starts_with(rest))
                .collect();
            led.into_iter().for_each(|token| clear_bit(mask, token));
        }
    }

    /// Clears the tokens that a guard would refuse, where few enough are set to try them all.
    pub(super) fn clear_guarded(&mut self, mask: &mut [u32]) {
        let Some(choices) = few_set_tokens(mask, GUARDED_CHOICES) else {
            return;
        };
        let grammar = self.grammar.clone();
        for token in choices {
            let bytes = grammar.vocabulary().token_bytes(token);
            if !self.guards.iter().any(|guard| guard.may_refuse(bytes)) {
                continue;
            }
            let before = self.text.len();
            if self.push_guards(token).is_some() {
                clear_bit(mask, token);
            } else {
                for guard in &mut self.guards {
                    guard.truncate(before);
                }
            }
        }
    }

    /// Keeps only the tokens on the way to the end, where that is all there is room for.
    pub(super) fn narrow_to_budget(&mut self) -> Result<()> {
        let Some(budget) = &self.budget else {
            return Ok(());
        };
        let position = self.tokens.len();
        if !budget.may_be_strict(position) {
            return Ok(());
        }
        let left = budget.left(position);
        if left == 0 {
            // Whoever counts tokens ends it, and says so.
            return Ok(());
        }
        let mut way = self.completion()?;
        if let Some(old) = way.take_if(|way| way.is_old && way.tokens >= left) {
            way = Some(self.renewed(old, position)?);
        }
        let (Some(way), Some(budget)) = (way, &self.budget) else {
            return Ok(());
        };
        if !budget.is_strict(position, way.tokens) {
            return Ok(());
        }
        self.next()?;
        let grammar = self.grammar.clone();
        let vocabulary = grammar.vocabulary();
        let Some(next) = &mut self.next else {
            return Ok(());
        };
        if way.text.is_empty() {
            // It may end, so it does.
            self.counts.curtailed += u64::from(next.has_token);
            next.mask.fill(0);
            next.has_token = false;
            return Ok(());
        }
        let mut kept = vec![0; next.mask.len()];
        let mut has_token = false;
        for token in close::tokens_along(vocabulary, &way.text, left) {
            let token = vocabulary.in_trie(token);
            if bit(&next.mask, token) {
                set_bit(&mut kept, token);
                has_token = true;
            }
        }
        if has_token {
            self.counts.curtailed += u64::from(next.mask != kept);
            next.mask = kept;
        }
        Ok(())
    }

    /// Whether the answer can still close in the tokens that are left. Looked at in the soft and hard zones, and now and
    /// then before.
    pub(super) fn fits_budget(&mut self) -> Result<bool> {
        let position = self.tokens.len();
        let Some(budget) = &self.budget else {
            return Ok(true);
        };
        if budget.zone(position) == Zone::Free && !budget.is_checkpoint(position) {
            return Ok(true);
        }
        let (zone, left) = (budget.zone(position), budget.left(position));
        let left_a_way = budget.has_left_the_way(position);
        Ok(match self.completion()? {
            Some(way) => {
                if let Some(budget) = &mut self.budget {
                    budget.seen(position, way.tokens);
                }
                way.tokens <= left
            }
            // This late, what is known is not given up.
            None => zone != Zone::Hard || !left_a_way,
        })
    }

    /// Whether the answer can close from here in the tokens that are left; then only tokens on the way are legal next.
    pub(super) fn keep_to_the_way(&mut self) -> Result<bool> {
        let position = self.tokens.len();
        let way = self.completion()?;
        let Some(budget) = &mut self.budget else {
            return Ok(false);
        };
        let fits = way.is_some_and(|way| way.tokens <= budget.left(position));
        if fits {
            budget.keep_to_the_way(position);
        }
        Ok(fits)
    }

    /// A short text that closes the answer from here; `None` where none was found.
    pub(super) fn completion(&mut self) -> Result<Option<Way>> {
        if let Some(known) = self.budget.as_ref().and_then(Budget::way) {
            return Ok(Some(known.clone()));
        }
        let position = self.tokens.len();
        if self.budget.as_ref().is_some_and(|b| !b.looks(position)) {
            return Ok(None);
        }
        let left = self.budget.as_ref().map_or(0, |b| b.left(position));
        let way = match self.earlier_way(position)? {
            Some(old) if old.tokens < left => Some(old),
            Some(old) => return Ok(Some(self.renewed(old, position)?)),
            None => self.find_way(position)?,
        };
        if let Some(budget) = &mut self.budget {
            match &way {
                Some(way) => budget.set_way(way.clone()),
                None => budget.lose_way(position),
            }
        }
        Ok(way)
    }

    /// `old`, or a shorter way where one is found, as the way from here.
    fn renewed(&mut self, old: Way, position: usize) -> Result<Way> {
        let found = self.find_way(position)?;
        let way = match found.filter(|way| way.tokens < old.tokens) {
            Some(shorter) => shorter,
            None => Way {
                is_old: false,
                ..old
            },
        };
        if let Some(budget) = &mut self.budget {
            budget.set_way(way.clone());
        }
        Ok(way)
    }

    fn find_way(&mut self, position: usize) -> Result<Option<Way>> {
        let grammar = self.grammar.clone();
        let text = if position == 0 {
            grammar.shortest().map(<[u8]>::to_vec)
        } else {
            let guards: Vec<_> = self.guards.iter().map(|g| g.fork()).collect();
            let before = std::mem::take(&mut self.text);
            let mut order = self.order;
            let way = self
                .engine(|parser| close::completion(parser, guards, &before, &grammar, &mut order));
            self.text = before;
            self.order = order;
            way?
        };
        Ok(text.map(|text| Way {
            tokens: close::token_count(self.vocabulary(), &text),
            text,
            is_old: false,
        }))
    }

    /// The way to the end from an earlier position, where the answer may end after it from here too. It need not be the shortest
    /// one any more.
    fn earlier_way(&mut self, position: usize) -> Result<Option<Way>> {
        let Some(budget) = &self.budget else {
            return Ok(None);
        };
        let left = budget.left(position);
        let fits = |way: &&Way| way.tokens <= left;
        let Some(way) = budget.earlier().filter(fits).cloned() else {
            return Ok(None);
        };
        let mut guards: Vec<_> = self.guards.iter().map(|g| g.fork()).collect();
        if push_all(&mut guards, &way.text).is_some()
            || guards.iter().any(|g| g.finish() != GuardStep::Accept)
        {
            return Ok(None);
        }
        let vocabulary = self.grammar.vocabulary().clone();
        let bytes = way.text.iter().map(|&byte| vocabulary.byte_token(byte));
        let Some(mut tokens) = bytes.collect::<Option<Vec<u32>>>() else {
            return Ok(None);
        };
        tokens.push(vocabulary.end());
        let ends = self.engine(|parser| {
            // What counts tokens is not judged by bytes.
            if parser.parser.grammar().lexer_spec().has_max_tokens {
                return Ok(false);
            }
            let valid = parser
                .validate_tokens_raw(&tokens)
                .map_err(|e| e.to_string())?;
            Ok::<_, String>(valid == tokens.len())
        })?;
        Ok(ends.then_some(Way {
            is_old: true,
            ..way
        }))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::json_schema::SchemaOptions;
    use crate::{CancelToken, Compiler, GrammarSource, Limits, TokenEntry, TokenTable, Vocabulary};

    fn vocabulary() -> std::sync::Arc<Vocabulary> {
        let words = [
            "ab", "abc", "abcdefgh", "ab\"", "\"}", "\",\"", "\":\"", "\"a", "a\":\"x", "\\n",
            "x\\ty", "\\\"", "\\u0001", "é", "東京", "\"]", "[\"", "é\",", "\",\"abc", "   ", "\\",
        ];
        let bytes = (0..=255u8).map(|b| vec![b]);
        let tokens = bytes.chain(words.iter().map(|w| w.as_bytes().to_vec()));
        // Halves of characters, as tokenizers have them.
        let tokens = tokens.chain([vec![b'a', 0xe6, 0x9d], vec![0xb1, b'a']]);
        Vocabulary::new(TokenTable {
            identity: "words".into(),
            tokens: tokens.map(TokenEntry::Text).collect(),
            stop_ids: vec![0],
            logits: 320,
            encode: None,
        })
        .unwrap()
    }

    #[test]
    fn a_mask_told_from_another_of_its_string_is_the_engine_s() {
        let compiler = Compiler::new(vocabulary(), Limits::default(), SchemaOptions::default());
        let (mut told, mut seed) = (0, 1u64);
        for schema in [
            json!({"type": "string", "maxLength": 40}),
            json!({"type": "string", "minLength": 3, "maxLength": 9}),
            json!({"type": "array", "items": {"type": "string", "maxLength": 7}}),
            json!({"type": "object", "properties": {"a": {"type": "string", "maxLength": 12}, "ab": {"enum": ["ab", "x"]}},
                "additionalProperties": {"type": "string", "maxLength": 20}, "propertyNames": {"maxLength": 5}}),
            json!({"anyOf": [{"type": "string", "maxLength": 6}, {"enum": ["abcdefgh", "ab\"c"]}, {"type": "string", "pattern": "^ab"}]}),
        ] {
            let grammar = compiler
                .compile(&GrammarSource::JsonSchema(schema), &CancelToken::new())
                .unwrap();
            for _ in 0..40 {
                let mut m = grammar.matcher();
                for _ in 0..60 {
                    let was = m
                        .string_mask
                        .as_ref()
                        .map(|known| (known.start, known.left));
                    let here = m.bounded_string().unwrap();
                    let mask = m.compute_mask().unwrap();
                    assert_eq!(
                        mask,
                        m.engine_mask().unwrap(),
                        "{:?}",
                        String::from_utf8_lossy(&m.text)
                    );
                    told += usize::from(
                        matches!((was, here), (Some((a, more)), Some((b, less))) if a == b && more >= less),
                    );
                    // Guards take away more.
                    let legal: Vec<u32> = set_tokens(&m.next().unwrap().mask).collect();
                    if legal.is_empty() {
                        break;
                    }
                    seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    let token = legal[usize::try_from(seed >> 33).unwrap() % legal.len()];
                    m.accept(token).unwrap();
                    if seed % 7 == 0 {
                        m.rollback(1).unwrap();
                    }
                }
            }
        }
        assert!(told > 500, "{told}");
    }
}
