//! Cutting text into the words that byte-level BPE merges within.
//!
//! A GGUF file names its cuts (`tokenizer.ggml.pre`); the table below gives each name's patterns as the model's own
//! `tokenizer.json` has them. Each pattern is applied to every piece that the ones before it left: a match is a
//! piece, and so is the text between two matches.

//!
//! Nearly every pattern looks ahead in one place only: `\s+(?!\S)|\s+`, which leaves the last of several white space
//! characters to the word after them. That is done here by hand, so that the rest is a regular expression proper and
//! is matched in linear time. A backtracking matcher gives up on a megabyte of spaces.

use std::ops::Range;

use crate::error::{Result, TextError, TextErrorKind};

/// Steps of backtracking that one search may take; a pattern that needs more is a pattern made to hang.
const BACKTRACK_LIMIT: usize = 16 << 20;

/// The one place where patterns look ahead, at their end.
const LOOK_AHEAD: &str = r"\s+(?!\S)|\s+";

/// GPT-2's pattern, which `ByteLevel` with `use_regex` applies.
pub(crate) const GPT2: &str =
    r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";

const LLAMA3: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const QWEN2: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const QWEN35: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const GPT4O: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const TEKKEN: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+";
// The file writes `?+` and `++`; what follows each can match nothing that it gives back.
const BAILING: &str = r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+";
const SEED_CODER: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1}| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+";
const UFAKZEKA: &str =
    r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const DEEPSEEK3_WORDS: &str = r##"[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"##;
const BLOOM: &str = r" ?[^(\s|.,!?…。，、।۔،)]+";
const CJK: &str = "[一-龥぀-ゟ゠-ヿ]+";
/// Every maximal run of newlines, and everything between.
const LINES: &str = r"[^\n]+|[\n]+";

/// A pre-tokenizer that a GGUF file may name.
#[derive(Debug)]
pub(crate) struct Named {
    names: &'static [&'static str],
    patterns: &'static [&'static str],
    /// A word that is a token is taken whole, whatever the merges say.
    pub(crate) ignore_merges: bool,
    /// The family puts BOS first unless the file says otherwise.
    pub(crate) add_bos: bool,
    /// Words are byte-level characters; else UTF-8 with `▁` for a space.
    pub(crate) byte_level: bool,
}

const PLAIN: Named = Named {
    names: &[],
    patterns: &[],
    ignore_merges: false,
    add_bos: false,
    byte_level: true,
};

const TABLE: &[Named] = &[
    Named {
        names: &["default"],
        patterns: &[r"[\p{P}\$\+<=>\^~\|]+", GPT2, r"\p{N}+", r"[0-9][0-9][0-9]"],
        ..PLAIN
    },
    Named {
        names: &[
            "llama-bpe",
            "llama3",
            "llama-v3",
            "falcon3",
            "falcon-h1",
            "pixtral",
            "midm-2.0",
            "lfm2",
            "jina-v5-nano",
        ],
        patterns: &[LLAMA3],
        ignore_merges: true,
        add_bos: true,
        ..PLAIN
    },
    Named {
        names: &["dbrx", "smaug-bpe", "glm4", "chatglm-bpe"],
        patterns: &[LLAMA3],
        ..PLAIN
    },
    Named {
        names: &[
            "qwen2",
            "stablelm2",
            "deepseek-r1-qwen",
            "hunyuan",
            "megrez",
            "kormo",
            "f2llmv2",
            "solar-open",
            "grok-2",
        ],
        patterns: &[QWEN2],
        ..PLAIN
    },
    Named {
        names: &["qwen35"],
        patterns: &[QWEN35],
        ..PLAIN
    },
    Named {
        names: &[
            "smollm",
            "starcoder",
            "refact",
            "command-r",
            "codeshell",
            "exaone",
            "minerva-7b",
            "mellum2",
        ],
        patterns: &[r"\p{N}", GPT2],
        ..PLAIN
    },
    Named {
        names: &[
            "gpt-2",
            "gpt2",
            "phi-2",
            "mpt",
            "olmo",
            "jais",
            "trillion",
            "exaone4",
            "granite-docling",
            "gigachat",
            "a.x-4.0",
            "mellum",
            "modern-bert",
            "jina-es",
            "jina-de",
            "jina-v2-es",
            "jina-v2-de",
            "jina-v1-en",
            "jina-v2-code",
            "roberta-bpe",
        ],
        patterns: &[GPT2],
        ..PLAIN
    },
    Named {
        names: &["falcon"],
        patterns: &[r"[\p{P}\$\+<=>\^~\|`]+", GPT2, r"[0-9][0-9][0-9]"],
        ..PLAIN
    },
    Named {
        names: &["deepseek-coder"],
        patterns: &[
            r"[\r\n]",
            r"\s?\p{L}+",
            r"\s?\p{P}+",
            "[一-龥ࠀ-一가-퟿]+",
            r"\p{N}",
        ],
        ..PLAIN
    },
    Named {
        names: &["deepseek-v3", "hunyuan-dense", "joyai-llm"],
        patterns: &[r"\p{N}{1,3}", CJK, DEEPSEEK3_WORDS],
        ..PLAIN
    },
    Named {
        names: &[
            "gpt-4o",
            "o200k",
            "llama4",
            "kanana2",
            "talkie",
            "minimax-m2",
        ],
        patterns: &[GPT4O],
        ..PLAIN
    },
    Named {
        names: &["tekken"],
        patterns: &[TEKKEN],
        ignore_merges: true,
        add_bos: true,
        ..PLAIN
    },
    Named {
        names: &["bailingmoe", "bailingmoe2", "llada-moe"],
        patterns: &[BAILING],
        ..PLAIN
    },
    Named {
        names: &["seed-coder"],
        patterns: &[SEED_CODER],
        ..PLAIN
    },
    Named {
        names: &["ufakzeka"],
        patterns: &[UFAKZEKA],
        ..PLAIN
    },
    Named {
        names: &["poro-chat", "bloom", "gpt3-finnish"],
        patterns: &[BLOOM],
        ..PLAIN
    },
    Named {
        names: &["viking"],
        patterns: &[BLOOM, r"\p{N}"],
        ..PLAIN
    },
    Named {
        names: &["laguna"],
        patterns: &[LINES, QWEN2],
        ..PLAIN
    },
    Named {
        names: &["gemma4"],
        patterns: &[LINES],
        byte_level: false,
        ..PLAIN
    },
];

impl Named {
    /// The pre-tokenizer of that name.
    pub(crate) fn of(name: &str) -> Result<&'static Self> {
        TABLE
            .iter()
            .find(|named| named.names.contains(&name))
            .ok_or_else(|| {
                let known: Vec<&str> = TABLE
                    .iter()
                    .flat_map(|named| named.names)
                    .copied()
                    .collect();
                TextError::unsupported(format!(
                    "unknown pre-tokenizer {name:?}; known are {}",
                    known.join(", ")
                ))
            })
    }

    pub(crate) fn cuts(&self) -> Result<Cuts> {
        Cuts::new(self.patterns)
    }
}

/// Patterns that cut text into words, one after another.
#[derive(Debug, Default)]
pub(crate) struct Cuts(Vec<Cut>);

#[derive(Debug)]
enum Cut {
    /// Matched in linear time.
    Linear {
        regex: regex::Regex,
        /// Set if the pattern ended in [`LOOK_AHEAD`], of which `regex` has `\s+` only: the alternatives before it.
        before: Option<regex::Regex>,
    },
    /// A pattern that looks around elsewhere.
    Backtracking(fancy_regex::Regex),
}

impl Cuts {
    pub(crate) fn new<S: AsRef<str>>(patterns: &[S]) -> Result<Self> {
        patterns
            .iter()
            .map(|pattern| Cut::new(pattern.as_ref()))
            .collect::<Result<_>>()
            .map(Self)
    }

    /// Cuts a text into words; together they are the text.
    pub(crate) fn apply<'t>(&self, text: &'t str) -> Result<Vec<&'t str>> {
        let mut words = vec![text];
        for cut in &self.0 {
            let mut smaller = Vec::with_capacity(words.len() * 2);
            for word in words {
                cut.apply(word, &mut smaller)?;
            }
            words = smaller;
        }
        Ok(words)
    }
}

impl Cut {
    fn new(pattern: &str) -> Result<Self> {
        let compile = |pattern: &str| regex::Regex::new(pattern).ok();
        let linear = match pattern.strip_suffix(LOOK_AHEAD) {
            None => compile(pattern).map(|regex| (regex, None)),
            Some(before) => compile(&format!(r"{before}\s+")).and_then(|regex| {
                let before = compile(before.strip_suffix('|')?)?;
                Some((regex, Some(before)))
            }),
        };
        if let Some((regex, before)) = linear {
            return Ok(Self::Linear { regex, before });
        }
        fancy_regex::RegexBuilder::new(pattern)
            .backtrack_limit(BACKTRACK_LIMIT)
            .build()
            .map(Self::Backtracking)
            .map_err(|error| {
                TextError::malformed(format!(
                    "the pre-tokenizer's pattern {pattern:?} does not compile"
                ))
                .caused_by(error)
            })
    }

    fn apply<'t>(&self, word: &'t str, words: &mut Vec<&'t str>) -> Result<()> {
        let mut done = 0;
        match self {
            Self::Linear { regex, before } => {
                while let Some(found) = regex.find_at(word, done) {
                    let left = before
                        .as_ref()
                        .map_or(0, |before| left_to_next_word(before, word, found.range()));
                    let end = found.end() - left;
                    if found.is_empty() {
                        // No pattern in use matches nothing; one that does cuts nothing.
                        break;
                    }
                    push(words, &word[done..found.start()]);
                    push(words, &word[found.start()..end]);
                    done = end;
                }
            }
            Self::Backtracking(regex) => {
                for found in regex.find_iter(word) {
                    let found = found.map_err(|error| {
                        TextError::new(
                            TextErrorKind::TooLarge,
                            format!(
                                "the pre-tokenizer's pattern {:?} gave up on a text of {} bytes",
                                regex.as_str(),
                                word.len()
                            ),
                        )
                        .caused_by(error)
                    })?;
                    push(words, &word[done..found.start()]);
                    push(words, &word[found.range()]);
                    done = found.end();
                }
            }
        }
        push(words, &word[done..]);
        Ok(())
    }
}

/// How many bytes `\s+(?!\S)` would not have matched of what `\s+` did: the last of several characters, if a word
/// follows; none if the match is one of the alternatives before.
fn left_to_next_word(before: &regex::Regex, text: &str, found: Range<usize>) -> usize {
    let matched = &text[found.clone()];
    let Some(last) = matched.chars().next_back().filter(|c| c.is_whitespace()) else {
        return 0;
    };
    let several = matched.len() > last.len_utf8();
    let word_follows = text[found.end..]
        .chars()
        .next()
        .is_some_and(|c| !c.is_whitespace());
    // Cheap conditions first: only a match of nothing but white space is scanned.
    if several
        && word_follows
        && matched.chars().all(char::is_whitespace)
        && before
            .find_at(text, found.start)
            .is_none_or(|earlier| earlier.start() != found.start)
    {
        last.len_utf8()
    } else {
        0
    }
}

fn push<'t>(words: &mut Vec<&'t str>, word: &'t str) {
    if !word.is_empty() {
        words.push(word);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_named_pattern_compiles_and_loses_nothing() {
        let text = "Don't  stop\n\n 1234567 naïve 東京 🦀\t<b>x</b> \r\n ok!";
        for named in TABLE {
            let words = named.cuts().unwrap().apply(text).unwrap();
            assert_eq!(words.concat(), text, "{:?}", named.names);
            assert!(words.iter().all(|word| !word.is_empty()));
        }
    }

    #[test]
    fn words_are_cut_as_the_families_do() {
        let cut = |name: &str, text| {
            Named::of(name)
                .unwrap()
                .cuts()
                .unwrap()
                .apply(text)
                .unwrap()
        };
        assert_eq!(cut("smollm", "a 12  b"), ["a", " ", "1", "2", " ", " b"]);
        assert_eq!(cut("llama-bpe", "1234 I'LL"), ["123", "4", " I", "'LL"]);
        assert_eq!(cut("qwen2", "12\n\n x"), ["1", "2", "\n\n", " x"]);
        assert_eq!(cut("gpt-2", "we've  x"), ["we", "'ve", " ", " x"]);
        assert_eq!(cut("deepseek-v3", "東京x 1"), ["東京", "x", " ", "1"]);
    }

    #[test]
    fn an_unknown_name_lists_the_known_ones() {
        let error = Named::of("nonsense").unwrap_err();
        assert_eq!(error.kind(), TextErrorKind::Unsupported);
        assert!(error.message().contains("nonsense") && error.message().contains("qwen2"));
    }

    #[test]
    fn long_runs_are_cut_exactly() {
        for name in ["qwen2", "gpt-2", "smollm", "gpt-4o"] {
            let spaces = " ".repeat(3 << 20) + "x";
            let words = Named::of(name).unwrap().cuts().unwrap();
            let words = words.apply(&spaces).unwrap();
            assert_eq!(words.len(), 2, "{name}");
            assert_eq!(words[1], " x");
        }
    }

    #[test]
    fn patterns_that_look_around_elsewhere_still_cut() {
        let cuts = Cuts::new(&[r"\d{1,3}(?=(?:\d{3})*$)"]).unwrap();
        assert!(matches!(cuts.0[0], Cut::Backtracking(_)));
        assert_eq!(cuts.apply("a12345").unwrap(), ["a", "12", "345"]);
        assert!(Cuts::new(&["(["]).is_err());
    }

    /// The look-ahead done by hand is the look-ahead.
    #[test]
    fn linear_and_backtracking_matchers_agree() {
        let mut pairs = Vec::new();
        for pattern in TABLE.iter().flat_map(|named| named.patterns) {
            let linear = Cuts::new(&[pattern]).unwrap();
            assert!(matches!(linear.0[..], [Cut::Linear { .. }]), "{pattern}");
            let reference = fancy_regex::Regex::new(pattern).unwrap();
            pairs.push((linear, Cuts(vec![Cut::Backtracking(reference)]), pattern));
        }
        proptest::proptest!(|(text in "[ab1.é' \t\r\n\u{a0}\u{3000}s]{0,24}")| {
            for (linear, reference, pattern) in &pairs {
                proptest::prop_assert_eq!(
                    linear.apply(&text).unwrap(),
                    reference.apply(&text).unwrap(),
                    "{}", pattern
                );
            }
        });
    }
}
