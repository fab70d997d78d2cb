//! LLM-sized operations, graphs, architectures and the backend traits.
