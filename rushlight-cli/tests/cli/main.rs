//! The `rushlight` program as a process: its arguments, its output, its exit codes.

mod answers;
mod bad_files;
mod bad_requests;
mod chat;
mod measures;
mod program;
mod published;
mod text;
