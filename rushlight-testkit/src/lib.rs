//! Fakes, goldens and table runners for rushlight's tests.
