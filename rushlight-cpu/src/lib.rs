//! The CPU backend of rushlight.
