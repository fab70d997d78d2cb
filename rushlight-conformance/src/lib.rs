//! The reference interpreter, and the suites every rushlight backend passes.
