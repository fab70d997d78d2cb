//! Answers one question, streaming.
//!
//! `cargo run --release --example answer -- MODEL "Why is the sky blue?"`

use std::io::Write;

use rushlight::prelude::*;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(model), Some(question)) = (arguments.next(), arguments.next()) else {
        return Err("usage: answer MODEL QUESTION".into());
    };
    let model = rushlight::load(&model)?;
    let mut session = Session::new(model, None)?;
    let mut out = std::io::stdout();
    for event in session.stream_blocking(&question, &GenerationOptions::default())? {
        match event? {
            Event::Text(piece) => {
                write!(out, "{piece}")?;
                out.flush()?;
            }
            Event::Finished(response) => {
                let rate = response.timings.decode_rate().unwrap_or(0.0);
                writeln!(
                    out,
                    "\n({} tokens, {rate:.1} a second)",
                    response.usage.completion
                )?;
            }
            _ => {}
        }
    }
    Ok(())
}
