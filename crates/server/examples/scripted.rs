//! A server without a model, for checks of clients: real routes and a real engine over a device that
//! plays a script. `cargo run -p hearth-server --example scripted -- 8123` says anything;
//! `… -- 8123 get_weather '{"city": "Paris"}'` calls that tool once, if it is offered any, and says some
//! hundred words when there is a result or no tool.

#[path = "../tests/http/script.rs"]
#[allow(dead_code, reason = "the tests use more of it")]
mod script;

use hearth_server::{DEFAULT_ADDRESS, serve};
use script::{Script, Speech};
use tokio::net::TcpListener;

/// Ends with `!` where the model is to call a tool. The comment says which syntax it has for that.
const AGENT: &str = "<s>{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n\
    {% endfor %}<|im_start|>assistant\n{# <tool_call>{{ tool_call.name }}</tool_call> #}\
    {% if tools and not (messages | selectattr('role', 'equalto', 'tool') | list) %}!{% endif %}";

#[tokio::main]
async fn main() -> std::io::Result<()> {
    let mut address = DEFAULT_ADDRESS;
    let mut args = std::env::args().skip(1);
    if let Some(port) = args.next().and_then(|port| port.parse().ok()) {
        address.set_port(port);
    }
    let script = match (args.next(), args.next()) {
        (Some(tool), Some(arguments)) => agent(&tool, &arguments),
        _ => noise(),
    };
    let listener = TcpListener::bind(address).await?;
    println!("http://{}", listener.local_addr()?);
    serve(listener, script.app(), std::future::pending()).await;
    Ok(())
}

fn noise() -> Script {
    let mut script = Script::says(&[]);
    script.speech = Speech::Noise;
    script.defaults.temperature = 1.0;
    script
}

fn agent(tool: &str, arguments: &str) -> Script {
    let call =
        format!("<tool_call>\n{{\"name\": \"{tool}\", \"arguments\": {arguments}}}\n</tool_call>");
    let words = (0..300).map(|n| format!("word{n} "));
    let pieces: Vec<String> = std::iter::once(call).chain(words).collect();
    let mut script = Script::says(&pieces.iter().map(String::as_str).collect::<Vec<_>>());
    script.template = Some(AGENT);
    script.speech = Speech::Agent;
    // What agents say of themselves and their tools is long.
    script.limits.context = 200_000;
    script
}
