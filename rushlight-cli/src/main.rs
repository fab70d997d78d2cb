//! The `rushlight` program: local language models from the command line.
#![forbid(unsafe_code)]

mod atomic;
mod cmd;
mod failure;
mod input;
mod interrupt;
mod load;
mod npy;
mod output;
mod progress;
mod prompt;
mod report;
mod sampling;
mod source;

fn main() -> std::process::ExitCode {
    cmd::main()
}
