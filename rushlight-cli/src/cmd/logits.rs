//! `rushlight logits`: what follows token ids, number by number.

use std::io::{self, BufWriter, Write};

use clap::Args;
use rushlight::engine::sample::check_logits;
use serde_json::json;

use crate::failure::Failure;
use crate::load::LoadArgs;

/// The output is always JSON: `{"tokens": […], "width": W, "positions": [p, …], "logits": [[…], …]}`, a
/// row for each position; a logit of negative infinity is null.
#[derive(Args, Debug)]
pub(crate) struct LogitsArgs {
    #[command(flatten)]
    load: LoadArgs,
    /// Token ids, for example 1,2,3
    #[arg(long, value_name = "IDS", value_delimiter = ',', required = true)]
    tokens: Vec<u32>,
    /// The logits after every token instead of after the last
    #[arg(long)]
    all: bool,
}

pub(crate) fn run(args: &LogitsArgs) -> Result<(), Failure> {
    let model = args.load.load()?;
    let rows = if args.all { args.tokens.len() } else { 1 };
    let first = args.tokens.len().saturating_sub(rows);
    let positions: Vec<usize> = (first..args.tokens.len()).collect();
    let mut sequence = model.engine().sequence()?;
    // Rows are written as they come: all of a long prompt's can be gigabytes.
    let mut out = Rows {
        to: BufWriter::new(io::stdout().lock()),
        begin: format!(
            "{{\"tokens\":{},\"width\":{},\"positions\":{},\"logits\":[",
            json!(args.tokens),
            model.engine().vocab().width(),
            json!(positions),
        ),
        written: 0,
        failed: None,
    };
    model
        .engine()
        .score(&mut sequence, &args.tokens, rows, |_, row| {
            // Null stands for a probability of 0 and must not hide a logit that is none.
            check_logits(row)?;
            out.row(row);
            Ok(())
        })?;
    out.end()
}

struct Rows<W> {
    to: W,
    /// Written before the first row, so that a request that fails writes nothing.
    begin: String,
    written: usize,
    failed: Option<io::Error>,
}

impl<W: Write> Rows<W> {
    fn row(&mut self, row: &[f32]) {
        if self.failed.is_none() {
            self.failed = self.write(row).err();
        }
        self.written += 1;
    }

    fn write(&mut self, row: &[f32]) -> io::Result<()> {
        let before = if self.written == 0 { &self.begin } else { "," };
        self.to.write_all(before.as_bytes())?;
        for (i, logit) in row.iter().enumerate() {
            self.to.write_all(if i == 0 { b"[" } else { b"," })?;
            // Shortest for an f32, and null for an infinity, which JSON does not have.
            serde_json::to_writer(&mut self.to, logit)?;
        }
        self.to.write_all(b"]")
    }

    fn end(mut self) -> Result<(), Failure> {
        let end = match self.failed.take() {
            Some(error) => Err(error),
            None => self.to.write_all(b"]}\n").and_then(|()| self.to.flush()),
        };
        end.map_err(|error| Failure::output(&error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_one_json_document() {
        let mut rows = Rows {
            to: Vec::new(),
            begin: "{\"logits\":[".to_owned(),
            written: 0,
            failed: None,
        };
        rows.row(&[0.5, f32::NEG_INFINITY]);
        rows.row(&[-3.0, 0.1]);
        let bytes = {
            rows.to.write_all(b"]}").unwrap();
            rows.to
        };
        let text = String::from_utf8(bytes).unwrap();
        assert_eq!(text, "{\"logits\":[[0.5,null],[-3.0,0.1]]}");
    }
}
