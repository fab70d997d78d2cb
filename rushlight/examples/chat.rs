//! A conversation, line by line, that shows how much of each turn did not have to be read again.
//!
//! `cargo run --release --example chat -- MODEL ["INSTRUCTIONS"]`

use std::io::{BufRead, Write};

use rushlight::prelude::*;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let model = arguments.next().ok_or("usage: chat MODEL [INSTRUCTIONS]")?;
    let model = rushlight::load(&model)?;
    let mut session = Session::new(model, arguments.next().as_deref())?;
    let mut out = std::io::stdout();
    for line in std::io::stdin().lock().lines() {
        let prompt = line?;
        if prompt.is_empty() {
            continue;
        }
        for event in session.stream_blocking(&prompt, &GenerationOptions::default())? {
            match event {
                Ok(Event::Text(piece)) => {
                    write!(out, "{piece}")?;
                    out.flush()?;
                }
                Ok(Event::Finished(response)) => {
                    let usage = response.usage;
                    writeln!(
                        out,
                        "\n({} of {} prompt tokens kept)",
                        usage.cached, usage.prompt
                    )?;
                }
                Ok(_) => {}
                // The conversation is as it was before this turn, and goes on.
                Err(error) => writeln!(out, "\n{error}")?,
            }
        }
    }
    Ok(())
}
