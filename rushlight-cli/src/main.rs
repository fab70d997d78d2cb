//! The rushlight command line.
fn main() {}
