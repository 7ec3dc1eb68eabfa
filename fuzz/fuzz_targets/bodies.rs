//! Sends any bytes as requests of every dialect to a server whose model plays a script: an answer or a typed
//! refusal, never a 500. What is asserted is in the tests of the `server` crate, which do the same with a
//! bounded number of bytes. CONTRIBUTING.md has the command.

#![no_main]
#![allow(dead_code, unused_imports, reason = "the tests use more of it")]

#[path = "../../crates/server/tests/http/client.rs"]
mod client;
#[path = "../../crates/server/tests/http/hostile.rs"]
mod hostile;
#[path = "../../crates/server/tests/http/script.rs"]
mod script;

use std::sync::OnceLock;

use hearth_server::App;
use libfuzzer_sys::fuzz_target;
use tokio::runtime::{Builder, Runtime};

/// One server gets everything.
static SERVER: OnceLock<(Runtime, App)> = OnceLock::new();

fuzz_target!(|data: &[u8]| {
    let (runtime, app) = SERVER.get_or_init(|| {
        let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
        let app = runtime.block_on(async { script::Script::says(&["Two", " ducks"]).app() });
        (runtime, app)
    });
    let (path, body) = hostile::of_bytes(data);
    runtime.block_on(hostile::check(app, path, body));
});
