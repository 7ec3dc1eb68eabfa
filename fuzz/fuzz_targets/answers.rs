//! Reads any bytes as the answer of a model of any family, in any pieces. What is asserted is in the tests of
//! the `text` crate, which do the same with a bounded number of bytes. CONTRIBUTING.md has the command.

#![no_main]

extern crate text as hearth_text;

#[path = "../../crates/text/tests/anything/mod.rs"]
mod anything;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| anything::answer(data));
