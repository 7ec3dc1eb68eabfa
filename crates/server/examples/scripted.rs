//! A server without a model, for checks of clients: real routes and a real engine over a device that
//! finds every token about equally likely. `cargo run -p hearth-server --example scripted -- 8123`.

#[path = "../tests/http/script.rs"]
#[allow(dead_code, reason = "the tests use more of it")]
mod script;

use hearth_server::{DEFAULT_ADDRESS, serve};
use script::{Script, Speech};
use tokio::net::TcpListener;

#[tokio::main]
async fn main() -> std::io::Result<()> {
    let mut script = Script::says(&[]);
    script.speech = Speech::Noise;
    script.defaults.temperature = 1.0;
    let mut address = DEFAULT_ADDRESS;
    if let Some(port) = std::env::args().nth(1).and_then(|port| port.parse().ok()) {
        address.set_port(port);
    }
    let listener = TcpListener::bind(address).await?;
    println!("http://{}", listener.local_addr()?);
    serve(listener, script.app(), std::future::pending()).await;
    Ok(())
}
