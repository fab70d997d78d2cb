//! The literal spellings that models' chat protocols are made of.
//!
//! A file's own marks are not enough to know which tokens steer a model: Qwen's `<think>` and `<tool_call>` and
//! DeepSeek's `<｜User｜>` are added tokens *not* marked special. Whatever their mark, an added token with one of
//! these spellings (or of one of these shapes) is a control token: it is never made from message text.

/// A pair of spellings between which a model reasons.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReasoningMarkers {
    /// Begins the reasoning.
    pub open: &'static str,
    /// Ends it.
    pub close: &'static str,
}

/// Reasoning markers known to be written inside an assistant message by some model family.
pub const REASONING: &[ReasoningMarkers] = &[
    ReasoningMarkers {
        open: "<think>",
        close: "</think>",
    },
    ReasoningMarkers {
        open: "◁think▷",
        close: "◁/think▷",
    },
    ReasoningMarkers {
        open: "<|START_THINKING|>",
        close: "<|END_THINKING|>",
    },
    ReasoningMarkers {
        open: "[THINK]",
        close: "[/THINK]",
    },
    ReasoningMarkers {
        open: "<seed:think>",
        close: "</seed:think>",
    },
    ReasoningMarkers {
        open: "<reasoning>",
        close: "</reasoning>",
    },
];

/// Tool, turn and modality markers that some vocabulary adds without marking them special.
const PROTOCOL: &[&str] = &[
    "<tool_call>",
    "</tool_call>",
    "<tool_calls>",
    "</tool_calls>",
    "<tool_response>",
    "</tool_response>",
    "<tools>",
    "</tools>",
    "<tool_sep>",
    "<tool>",
    "</tool>",
    "<minimax:tool_call>",
    "</minimax:tool_call>",
    "<seed:tool_call>",
    "</seed:tool_call>",
    "<arg_key>",
    "</arg_key>",
    "<arg_value>",
    "</arg_value>",
    "<start_of_turn>",
    "<end_of_turn>",
    "<turn|>",
    "<start_function_call>",
    "<end_function_call>",
    "<start_function_response>",
    "<end_function_response>",
    "<start_function_declaration>",
    "<end_function_declaration>",
    "<start_of_image>",
    "<end_of_image>",
    "<image_soft_token>",
    "<escape>",
    "[INST]",
    "[/INST]",
    "[SYSTEM_PROMPT]",
    "[/SYSTEM_PROMPT]",
    "[AVAILABLE_TOOLS]",
    "[/AVAILABLE_TOOLS]",
    "[TOOL_RESULTS]",
    "[/TOOL_RESULTS]",
    "[TOOL_CALLS]",
    "[TOOL_CONTENT]",
    "[CALL_ID]",
    "[ARGS]",
    "[IMG]",
    "[IMG_BREAK]",
    "[IMG_END]",
    "[PREFIX]",
    "[MIDDLE]",
    "[SUFFIX]",
    "<mask>",
    "[MASK]",
    "[gMASK]",
    "[sMASK]",
    "<sop>",
    "<eop>",
];

/// Spellings at which a turn is over, in every family known; they stop generation where the vocabulary holds them
/// as control tokens. Not markers by themselves: in Gemma's vocabulary `</s>` is the HTML tag, and ordinary text.
const TURN_ENDS: &[&str] = &[
    "<|im_end|>",
    "<|endoftext|>",
    "<|end_of_text|>",
    "<|end_of_turn|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<|eot|>",
    "<|eom|>",
    "<|end|>",
    "<|return|>",
    "<|call|>",
    "<|END_OF_TURN_TOKEN|>",
    "<|endofturn|>",
    "<|im_sep_end|>",
    "<end_of_turn>",
    "<turn|>",
    "<eos>",
    "</s>",
    "<EOT>",
    "<|EOT|>",
    "<｜end▁of▁sentence｜>",
    "<end_of_utterance>",
    "<|role_end|>",
    "[EOT]",
];

/// Whether an added token of this spelling steers the model, whatever its mark in the file.
pub fn is_protocol_marker(spelling: &str) -> bool {
    REASONING
        .iter()
        .any(|pair| pair.open == spelling || pair.close == spelling)
        || PROTOCOL.contains(&spelling)
        || is_bar_shaped(spelling)
        || is_unused_spelling(spelling)
}

/// `<|name|>`, `<｜name｜>`, `<|name>` and `<name|>`: the shape in which protocols spell their tokens.
fn is_bar_shaped(spelling: &str) -> bool {
    let Some(inner) = spelling
        .strip_prefix('<')
        .and_then(|rest| rest.strip_suffix('>'))
    else {
        return false;
    };
    let bar = |c| c == '|' || c == '｜';
    inner.chars().count() > 2
        && (inner.starts_with(bar) || inner.ends_with(bar))
        && !inner.contains(char::is_whitespace)
}

/// `<unused12>`, `[unused3]`, `<|reserved_special_token_7|>`, `<｜place▁holder▁no▁3｜>`: slots without a meaning.
pub fn is_unused_spelling(spelling: &str) -> bool {
    let inner = spelling
        .trim_start_matches(['<', '[', '|', '｜'])
        .trim_end_matches(['>', ']', '|', '｜']);
    if inner.len() + 2 > spelling.len() {
        return false;
    }
    let stem = inner.trim_end_matches(|c: char| c.is_ascii_digit());
    stem.len() < inner.len()
        && matches!(
            stem.trim_end_matches('_'),
            "unused"
                | "UNUSED"
                | "reserved"
                | "reserved_token"
                | "reserved_special_token"
                | "reserved_special"
                | "PAD"
                | "extra"
                | "place▁holder▁no▁"
                | "dummy"
        )
}

/// Which of a vocabulary's control tokens end a turn, given a way to look a control token up.
///
/// In OpenAI's Harmony format `<|end|>` only ends a message within a turn, and the turn ends at `<|return|>` or
/// `<|call|>`: where `<|return|>` exists, `<|end|>` does not stop generation.
pub fn turn_ends(control_id: impl Fn(&str) -> Option<u32>) -> Vec<u32> {
    let harmony = control_id("<|return|>").is_some();
    TURN_ENDS
        .iter()
        .filter(|spelling| !(harmony && **spelling == "<|end|>"))
        .filter_map(|spelling| control_id(spelling))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn knows_markers_by_list_and_by_shape() {
        for marker in [
            "<think>",
            "</tool_call>",
            "<｜User｜>",
            "<|fim_prefix|>",
            "<turn|>",
            "<|tool>",
            "<unused7>",
        ] {
            assert!(is_protocol_marker(marker), "{marker}");
        }
        for text in [
            "<table>",
            "\n\n",
            "▁▁",
            "<s>x",
            "<||>",
            "[multimodal]",
            "< | >",
            "h1",
            "</s>",
        ] {
            assert!(!is_protocol_marker(text), "{text}");
        }
    }

    #[test]
    fn unused_needs_a_number_and_brackets() {
        assert!(is_unused_spelling("<unused0>"));
        assert!(is_unused_spelling("<|reserved_special_token_59|>"));
        assert!(is_unused_spelling("<｜place▁holder▁no▁12｜>"));
        assert!(is_unused_spelling("[PAD151936]"));
        assert!(!is_unused_spelling("unused0"));
        assert!(!is_unused_spelling("<unused>"));
        assert!(!is_unused_spelling("<h1>"));
        assert!(!is_unused_spelling("<reserved"));
    }

    #[test]
    fn harmony_messages_do_not_end_turns() {
        let of = |known: &'static [&'static str]| {
            turn_ends(move |s| known.iter().position(|k| *k == s).map(|i| i as u32))
        };
        assert_eq!(of(&["<|end|>"]), [0]);
        assert_eq!(of(&["<|end|>", "<|return|>", "<|call|>"]), [1, 2]);
    }
}
