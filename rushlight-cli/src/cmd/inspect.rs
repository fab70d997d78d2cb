//! `rushlight inspect`: what a model is, from its headers and configuration. Loads no weights.

use std::path::Path;

use clap::Args;
use rushlight::asset::config::{AttentionKind, RopeScaling};
use rushlight::asset::{Checkpoint, Config, GenerationDefaults, Store};
use rushlight::ir::graph::{Signature, StateKind};
use rushlight::session::Text;
use rushlight::text::Capabilities;
use rushlight::{SessionError, SessionErrorKind, Summary};
use serde_json::{Map, Value, json};

use crate::failure::Failure;
use crate::load::Kv;
use crate::output::{Out, size, thousands};
use crate::report::piece;

#[derive(Args, Debug)]
pub(crate) struct InspectArgs {
    /// A .gguf file, a checkpoint directory, or the name of a model in the store
    #[arg(value_name = "MODEL", required_unless_present = "named")]
    model: Option<String>,
    /// The same, as the other subcommands take it
    #[arg(
        long = "model",
        short = 'm',
        value_name = "MODEL",
        conflicts_with = "model",
        id = "named"
    )]
    named: Option<String>,
    /// Positions to tell the memory for [default: the model's own context]
    #[arg(long, value_name = "N")]
    context: Option<usize>,
    /// Element type of cached keys and values to tell the memory for
    #[arg(long, value_name = "DTYPE", value_enum, default_value_t)]
    kv_dtype: Kv,
    /// Also list everything that the file says about itself
    #[arg(long)]
    metadata: bool,
}

pub(crate) fn run(args: &InspectArgs, out: &Out) -> Result<(), Failure> {
    let model = args.model.as_ref().or(args.named.as_ref());
    // The command line has one of the two.
    let model = model.ok_or_else(|| Failure::request("give a model"))?;
    let path = Store::locate(model)?;
    let checkpoint = Checkpoint::open(&path)?;
    let context = args.context.unwrap_or(checkpoint.config.context);
    if context == 0 || context > checkpoint.config.context {
        return Err(Failure::request(format!(
            "context is {context}; it must be from 1 to {}, the model's own",
            checkpoint.config.context
        )));
    }
    let about = About {
        // Fails where the architecture is not known or does not fit; the rest can be told anyhow.
        summary: Summary::of(&checkpoint),
        text: Text::open(&checkpoint.tokenizer),
        checkpoint,
        path: &path,
        context,
        kv: args.kv_dtype,
    };
    if out.is_json() {
        out.json(&about.json(args.metadata))
    } else {
        about.print(args.metadata, out)
    }
}

struct About<'a> {
    path: &'a Path,
    checkpoint: Checkpoint,
    summary: Result<Summary, SessionError>,
    text: Result<Option<Text>, SessionError>,
    context: usize,
    kv: Kv,
}

impl About<'_> {
    fn json(&self, metadata: bool) -> Value {
        let (checkpoint, config) = (&self.checkpoint, &self.checkpoint.config);
        let formats = checkpoint.weights.by_format().into_iter().map(|share| {
            json!({
                "format": share.format.to_string(),
                "bytes": share.bytes,
                "tensors": share.tensors,
            })
        });
        let skipped = checkpoint.weights.skipped().iter();
        let skipped = skipped.map(|tensor| json!({"tensor": tensor.name, "reason": tensor.reason}));
        let mut object = json!({
            "path": self.path,
            "files": checkpoint.source.files,
            "container": checkpoint.source.container.to_string(),
            "file_bytes": checkpoint.source.file_bytes,
            "name": checkpoint.source.name,
            "architecture": config.architecture,
            "runs": self.summary.is_ok(),
            "refusal": self.summary.as_ref().err().map(ToString::to_string),
            "parameters": checkpoint.parameter_count(),
            "weight_bytes": checkpoint.weights.total_bytes(),
            "formats": formats.collect::<Vec<_>>(),
            "skipped": skipped.collect::<Vec<_>>(),
            "config": config_json(config),
            "tokenizer": self.tokenizer_json(),
            "template": self.template_json(),
            "generation": generation_json(&checkpoint.generation),
            "functions": null,
            "memory": null,
        });
        if let Ok(summary) = &self.summary {
            let states = summary.state_bytes(self.context, self.kv.into());
            object["functions"] = json!([function_json(&summary.signature)]);
            object["memory"] = json!({
                "context": self.context,
                "weights": summary.weight_bytes,
                "states": states,
                "total": summary.weight_bytes.saturating_add(states),
            });
        }
        if metadata {
            let pairs = checkpoint.source.metadata.iter().cloned();
            object["metadata"] = Value::Object(pairs.collect::<Map<_, _>>());
        }
        object
    }

    fn tokenizer_json(&self) -> Value {
        let kind = self.checkpoint.tokenizer.kind();
        match &self.text {
            Ok(Some(text)) => {
                let tokenizer = text.tokenizer();
                json!({
                    "kind": kind,
                    "ids": tokenizer.vocab_size(),
                    "bos": tokenizer.bos(),
                    "add_bos": tokenizer.add_bos(),
                    "eos": tokenizer.eos(),
                    "stop_ids": tokenizer.stop_ids(),
                })
            }
            Ok(None) => Value::Null,
            Err(error) => json!({"kind": kind, "refusal": error.to_string()}),
        }
    }

    fn template_json(&self) -> Value {
        let template = match &self.text {
            Ok(Some(text)) => text.template(),
            _ => return Value::Null,
        };
        let Ok(template) = template else {
            return Value::Null;
        };
        let can = template.capabilities();
        json!({
            "names": template.names().collect::<Vec<_>>(),
            "system": can.system,
            "tools": can.tools,
            "tool_calls": can.tool_calls.is_some(),
            "tool_results": can.tool_results,
            "content_parts": can.content_parts,
            "reasoning_content": can.reasoning_content,
            "thinking_switch": can.thinking_switch,
        })
    }

    fn print(&self, metadata: bool, out: &Out) -> Result<(), Failure> {
        let row =
            |label: &str, value: String| out.line(format_args!("{}{value}", out.label(label)));
        let (checkpoint, config) = (&self.checkpoint, &self.checkpoint.config);
        let source = &checkpoint.source;
        row(
            "file",
            format!(
                "{}  {}, {}",
                self.path.display(),
                source.container,
                size(source.file_bytes)
            ),
        )?;
        if let Some(name) = &source.name {
            row("name", printable(name))?;
        }
        match &self.summary {
            Ok(_) => row("architecture", printable(&config.architecture))?,
            Err(error) => {
                row("architecture", printable(&config.architecture))?;
                row("", format!("cannot be run: {error}"))?;
            }
        }
        row("parameters", thousands(checkpoint.parameter_count()))?;
        self.print_formats(out)?;
        row(
            "context",
            format!("{} tokens", thousands(config.context as u64)),
        )?;
        for line in dimensions(config) {
            row(line.0, line.1)?;
        }
        for line in self.text_lines() {
            row(line.0, line.1)?;
        }
        if let Some(defaults) = generation_line(&checkpoint.generation) {
            row("sampling", defaults)?;
        }
        if let Ok(summary) = &self.summary {
            for line in function_lines(&summary.signature) {
                row(line.0, line.1)?;
            }
            let states = summary.state_bytes(self.context, self.kv.into());
            row(
                "memory",
                format!(
                    "{} at {} tokens: weights {}, states {}",
                    size(summary.weight_bytes.saturating_add(states)),
                    thousands(self.context as u64),
                    size(summary.weight_bytes),
                    size(states),
                ),
            )?;
        }
        if metadata {
            for (key, value) in &source.metadata {
                out.line(format_args!("{} = {value}", printable(key)))?;
            }
        }
        Ok(())
    }

    fn print_formats(&self, out: &Out) -> Result<(), Failure> {
        let weights = &self.checkpoint.weights;
        let total = weights.total_bytes();
        for (i, share) in weights.by_format().iter().enumerate() {
            out.line(format_args!(
                "{}{:<8} {:>8}  {:>5.1} %  {} tensors",
                out.label(if i == 0 { "formats" } else { "" }),
                share.format.to_string(),
                size(share.bytes),
                100.0 * share.bytes as f64 / total.max(1) as f64,
                share.tensors,
            ))?;
        }
        for tensor in weights.skipped() {
            let name = printable(&tensor.name);
            out.line(format_args!(
                "{}{name}: {}",
                out.label("left out"),
                tensor.reason
            ))?;
        }
        Ok(())
    }

    fn text_lines(&self) -> Vec<(&'static str, String)> {
        let kind = printable(self.checkpoint.tokenizer.kind());
        let text = match &self.text {
            Ok(Some(text)) => text,
            Ok(None) => return vec![("tokenizer", "none".to_owned())],
            Err(error) => {
                return vec![
                    ("tokenizer", kind),
                    ("", format!("cannot be used: {error}")),
                ];
            }
        };
        let tokenizer = text.tokenizer();
        let spelled = |id: u32| format!("{} ({id})", piece(tokenizer, id));
        let bos = match tokenizer.bos() {
            Some(id) if tokenizer.add_bos() => format!("begins with {}", spelled(id)),
            _ => "begins with nothing".to_owned(),
        };
        let stops: Vec<String> = tokenizer.stop_ids().into_iter().map(spelled).collect();
        let template = match text.template() {
            Ok(template) => takes(&template.capabilities()),
            Err(error) if *error.kind() == SessionErrorKind::NoTemplate => {
                "none: the model goes on with raw text".to_owned()
            }
            Err(error) => error.to_string(),
        };
        vec![
            (
                "tokenizer",
                format!(
                    "{kind}, {} ids, {bos}, ends with {}",
                    thousands(tokenizer.vocab_size() as u64),
                    list(&stops),
                ),
            ),
            ("template", template),
        ]
    }
}

/// What a template takes besides prompts and answers.
fn takes(can: &Capabilities) -> String {
    let takes: Vec<String> = [
        (can.system, "instructions"),
        (can.tools, "tools"),
        (can.tool_calls.is_some(), "tool calls"),
        (can.tool_results, "tool results"),
        (can.content_parts, "content parts"),
        (can.reasoning_content, "reasoning"),
        (can.thinking_switch, "a switch for thinking"),
    ]
    .into_iter()
    .filter(|(can, _)| *can)
    .map(|(_, name)| name.to_owned())
    .collect();
    format!(
        "takes {}",
        if takes.is_empty() {
            "prompts only".to_owned()
        } else {
            list(&takes)
        }
    )
}

fn dimensions(config: &Config) -> Vec<(&'static str, String)> {
    let sliding = |kind: &AttentionKind| matches!(kind, AttentionKind::Sliding { .. });
    let windows = config.attention.iter().filter(|kind| sliding(kind)).count();
    let window = config.attention.iter().find_map(|kind| match kind {
        AttentionKind::Sliding { window } => Some(*window),
        AttentionKind::Full => None,
    });
    let attention = match window {
        Some(window) => format!(", {windows} of them seeing the last {window} tokens"),
        None => String::new(),
    };
    vec![
        ("layers", format!("{}{attention}", config.layers)),
        (
            "heads",
            format!(
                "{} for queries, {} for keys and values, {} wide",
                config.heads, config.kv_heads, config.head_dim
            ),
        ),
        (
            "width",
            format!(
                "{}, feed-forward {}",
                config.hidden_size, config.intermediate_size
            ),
        ),
        (
            "vocabulary",
            format!(
                "{} rows, head {}",
                thousands(config.vocab_size as u64),
                if config.tied_head {
                    "tied to the embedding"
                } else {
                    "of its own"
                },
            ),
        ),
        ("rope", rope(config)),
    ]
}

fn rope(config: &Config) -> String {
    let scaling = match &config.rope.scaling {
        RopeScaling::None => String::new(),
        RopeScaling::Linear { factor } => format!(", linear × {factor}"),
        RopeScaling::Llama3 { factor, .. } => format!(", llama3 × {factor}"),
        RopeScaling::Yarn { factor, .. } => format!(", yarn × {factor}"),
        RopeScaling::Factors { .. } => ", the file's own factors".to_owned(),
    };
    let sliding = config.sliding_rope.as_ref();
    let sliding = sliding.map(|rope| format!("; in sliding layers θ {}", rope.theta));
    format!(
        "θ {}{scaling}{}",
        config.rope.theta,
        sliding.unwrap_or_default()
    )
}

fn function_lines(signature: &Signature) -> Vec<(&'static str, String)> {
    let mut lines = vec![(
        "functions",
        format!(
            "{}: tokens [T, 1] u32 below {} → logits [O, {}] f32",
            signature.function,
            thousands(signature.vocab as u64),
            thousands(signature.logits as u64),
        ),
    )];
    // States that are alike but for their layer share a line.
    let mut groups: Vec<(String, usize)> = Vec::new();
    for state in &signature.states {
        let kind = match state.kind {
            StateKind::Kv => "kv, every position".to_owned(),
            StateKind::Window { tokens } => format!("window, the last {tokens} positions"),
        };
        let kind = format!("{kind}, [{}, {}] each", state.kv_heads, state.head_dim);
        match groups.iter_mut().find(|(known, _)| *known == kind) {
            Some((_, count)) => *count += 1,
            None => groups.push((kind, 1)),
        }
    }
    for (i, (kind, count)) in groups.into_iter().enumerate() {
        lines.push((
            if i == 0 { "states" } else { "" },
            format!("{count} × {kind}"),
        ));
    }
    lines
}

fn function_json(signature: &Signature) -> Value {
    let states = signature.states.iter().map(|state| {
        let (kind, window) = match state.kind {
            StateKind::Kv => ("kv", None),
            StateKind::Window { tokens } => ("window", Some(tokens)),
        };
        json!({
            "name": state.name,
            "kind": kind,
            "window": window,
            "kv_heads": state.kv_heads,
            "head_dim": state.head_dim,
        })
    });
    json!({
        "name": signature.function,
        "inputs": [{"name": "tokens", "dtype": "u32", "shape": ["T", 1], "below": signature.vocab}],
        "outputs": [{"name": "logits", "dtype": "f32", "shape": ["O", signature.logits]}],
        "states": states.collect::<Vec<_>>(),
        "context": signature.context,
    })
}

/// By way of text, where an f32 is 1e-5 and not the f64 nearest to it.
fn config_json(config: &Config) -> Value {
    let text = serde_json::to_string(config);
    text.and_then(|text| serde_json::from_str(&text))
        .unwrap_or_default()
}

fn generation_json(defaults: &GenerationDefaults) -> Value {
    let short = |value: Option<f32>| value.and_then(|value| value.to_string().parse::<f64>().ok());
    json!({
        "eos_token_ids": defaults.eos_token_ids,
        "stop_strings": defaults.stop_strings,
        "do_sample": defaults.do_sample,
        "temperature": short(defaults.temperature),
        "top_k": defaults.top_k,
        "top_p": short(defaults.top_p),
        "min_p": short(defaults.min_p),
        "repetition_penalty": short(defaults.repetition_penalty),
    })
}

fn generation_line(defaults: &GenerationDefaults) -> Option<String> {
    let parts = [
        defaults
            .do_sample
            .filter(|sample| !sample)
            .map(|_| "greedy".to_owned()),
        defaults
            .temperature
            .map(|value| format!("temperature {value}")),
        defaults.top_k.map(|value| format!("top-k {value}")),
        defaults.top_p.map(|value| format!("top-p {value}")),
        defaults.min_p.map(|value| format!("min-p {value}")),
        defaults
            .repetition_penalty
            .map(|value| format!("repetition penalty {value}")),
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    (!parts.is_empty()).then(|| list(&parts))
}

fn list(words: &[String]) -> String {
    if words.is_empty() {
        return "nothing".to_owned();
    }
    words.join(", ")
}

/// A name from a file, which cannot move the cursor.
fn printable(name: &str) -> String {
    name.chars()
        .flat_map(|c| {
            let control = c.is_control();
            let escaped = control.then(|| c.escape_default());
            escaped.into_iter().flatten().chain((!control).then_some(c))
        })
        .collect()
}
