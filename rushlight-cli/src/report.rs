//! How an answer went, for programs and for people.

use rushlight::text::Tokenizer;
use rushlight::{Response, StopReason};
use serde_json::{Map, Value, json};

use crate::output::counted;

/// The object that `--json` gives for an answer.
pub(crate) fn answer(response: &Response) -> Map<String, Value> {
    let sequence = match &response.stop {
        StopReason::StopSequence(text) => Some(text),
        _ => None,
    };
    let (usage, timings) = (response.usage, response.timings);
    let mut object = Map::new();
    let fields = [
        ("text", json!(response.text)),
        ("tokens", json!(response.tokens)),
        ("finish_reason", json!(response.stop.name())),
        ("stop_sequence", json!(sequence)),
        (
            "usage",
            json!({
                "prompt_tokens": usage.prompt,
                "cached_tokens": usage.cached,
                "completion_tokens": usage.completion,
            }),
        ),
        ("diverged_at", json!(response.reuse.diverged_at)),
        (
            "seconds",
            json!({
                "prefill": timings.prefill.as_secs_f64(),
                "decode": timings.decode.as_secs_f64(),
            }),
        ),
        (
            "tokens_per_second",
            json!({
                "prefill": timings.prefill_rate(),
                "decode": timings.decode_rate(),
            }),
        ),
        ("seed", json!(response.seed)),
        (
            "grammar",
            json!(response.constraint.map(|counts| json!({
                "masks": counts.masks,
                "forced_tokens": counts.forced,
                "excluded_tokens": counts.excluded,
                "rewound_tokens": counts.rewound,
                "curtailed_tokens": counts.curtailed,
                "spelling_disagreements": counts.disagreements,
                "mask_wait_seconds": timings.mask.as_secs_f64(),
            }))),
        ),
    ];
    for (name, value) in fields {
        object.insert(name.to_owned(), value);
    }
    object
}

/// One line on how an answer went; `seed` is told where it mattered.
pub(crate) fn summary(response: &Response, seed: Option<u64>) -> String {
    let usage = response.usage;
    let rate = |rate: Option<f64>| {
        rate.map(|rate| format!(" at {rate:.1}/s"))
            .unwrap_or_default()
    };
    let kept = if usage.cached > 0 {
        format!(", {} kept", usage.cached)
    } else {
        String::new()
    };
    let diverged = match response.reuse.diverged_at {
        Some(at) => format!(", diverged at token {at},"),
        None => String::new(),
    };
    let curtailed = match response.constraint {
        Some(counts) if counts.curtailed > 0 => ", in time for the limit on tokens",
        _ => "",
    };
    format!(
        "prompt {}{kept}{diverged}{} · answer {}{} · {}{curtailed}{}",
        counted(usage.prompt, "token"),
        rate(response.timings.prefill_rate()),
        counted(usage.completion, "token"),
        rate(response.timings.decode_rate()),
        ending(&response.stop),
        seed.map(|seed| format!(" · seed {seed}"))
            .unwrap_or_default(),
    )
}

/// A token's text in one line: escaped, and bytes that are no character by themselves as `\xNN`.
pub(crate) fn piece(tokenizer: &Tokenizer, id: u32) -> String {
    let mut text = String::new();
    for chunk in tokenizer.token_bytes(id).unwrap_or_default().utf8_chunks() {
        text.extend(chunk.valid().chars().flat_map(|c| {
            // A quote needs no escape where none delimits the piece.
            let plain = !c.is_control() && c != '\\';
            let escaped = (!plain).then(|| c.escape_default());
            escaped.into_iter().flatten().chain(plain.then_some(c))
        }));
        for byte in chunk.invalid() {
            text.push_str(&format!("\\x{byte:02x}"));
        }
    }
    text
}

fn ending(stop: &StopReason) -> String {
    match stop {
        StopReason::Eos => "the model ended".to_owned(),
        StopReason::MaxTokens => "stopped at --max-tokens".to_owned(),
        StopReason::StopSequence(text) => format!("stopped at {text:?}"),
        StopReason::Grammar => "the grammar ended".to_owned(),
        StopReason::Context => "the context is full".to_owned(),
        other => other.name().to_owned(),
    }
}
