//! Sessions over a local language model.
