//! JSON Schema, compiled to a grammar and guards.
