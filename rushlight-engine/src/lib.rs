//! Sequences, plans, the generation loop and sampling.
