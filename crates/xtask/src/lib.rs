//! Holds the workspace to its own rules.
//!
//! The rules are tests (`tests/tidy.rs`), so that nothing but `cargo test` has to be remembered.
//! There is no code here that the program needs.
