//! The `rushlight` program as a process: its arguments, its output, its exit codes.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod answers;
mod bad_files;
mod bad_requests;
mod chat;
mod guided;
mod measures;
mod program;
mod published;
mod text;
