//! Case V11, images: models here read text, so an image is refused by its kind, and what it names is neither
//! asked for over the network nor opened. The names of models in that case are in `edge.rs`.

use std::io::ErrorKind;
use std::net::TcpListener;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::client::{CHAT, MESSAGES, chat, message, post, with};
use crate::script::Script;

/// The ways to put an image into a request, and the field that is wrong about it.
fn bodies(url: &str) -> Vec<(&'static str, Value, &'static str)> {
    let user = |content: Value| json!({"messages": [{"role": "user", "content": content}]});
    let text = json!({"type": "text", "text": "What is it?"});
    let of_openai = json!({"type": "image_url", "image_url": {"url": url, "detail": "low"}});
    let of_responses = json!({"type": "input_image", "image_url": url});
    let of_anthropic = json!({"type": "image", "source": {"type": "url", "url": url}});
    let result = json!({"type": "tool_result", "tool_use_id": "t", "content": [of_anthropic]});
    let used = json!({"messages": [
        {"role": "user", "content": "Look."},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "f", "input": {}}]},
        {"role": "user", "content": [result]},
    ]});
    let items =
        json!([{"role": "user", "content": [{"type": "input_text", "text": "x"}, of_responses]}]);
    vec![
        (CHAT, chat(user(json!([text, of_openai]))), "messages[0].content[1].type"),
        (
            "/v1/chat/completions/render",
            chat(user(json!([of_openai]))),
            "messages[0].content[0].type",
        ),
        (MESSAGES, message(user(json!([text, of_anthropic]))), "messages[0].content[1].type"),
        (MESSAGES, message(used), "messages[2].content[0].content[0].type"),
        (
            "/v1/messages/count_tokens",
            message(user(json!([of_anthropic]))),
            "messages[0].content[0].type",
        ),
        ("/v1/responses", json!({"model": "toy", "input": items}), "input[0].content[1].type"),
        (
            "/api/chat",
            json!({"model": "toy", "messages": [{"role": "user", "content": "x", "images": [url]}]}),
            "messages[0].images",
        ),
        ("/api/generate", json!({"model": "toy", "prompt": "x", "images": [url]}), "images"),
    ]
}

#[tokio::test]
async fn v11_what_an_image_names_is_not_touched() {
    let app = Script::says(&["Two", " ducks"]).app();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let port = listener.local_addr().unwrap().port();
    let file = std::env::temp_dir().join(format!("hearth-image-{}", std::process::id()));
    std::fs::write(&file, b"\x89PNG\r\n\x1a\n").unwrap();
    let mut urls: Vec<String> = [
        "http://127.0.0.1:9/x.png",
        "http://169.254.169.254/a",
        "http://[::1]/",
        "http://[::ffff:10.0.0.1]/",
        "http://2130706433/",
        "http://0x7f.1/",
        "http://printer.local/",
        "https://example.com/a.png",
        "file:///etc/hosts",
        "/etc/hosts",
        "../../etc/hosts",
        "ftp://a/b",
        "data:image/png;base64,iVBORw0KGgo=",
        "",
    ]
    .map(str::to_owned)
    .to_vec();
    urls.extend(
        ["127.0.0.1", "localhost", "2130706433", "0x7f.1", "[::ffff:127.0.0.1]"]
            .map(|host| format!("http://{host}:{port}/x.png")),
    );
    urls.push(file.display().to_string());
    urls.push(format!("file://{}", file.display()));
    let mut told: Vec<Vec<String>> = Vec::new();
    for url in &urls {
        let mut answers = Vec::new();
        for (path, body, param) in bodies(url) {
            for stream in [false, true] {
                let started = Instant::now();
                let body = match path.contains("count") || path.contains("render") {
                    true => body.clone(),
                    false => with(body.clone(), json!({"stream": stream})),
                };
                let reply = post(&app, path, &body).await;
                assert_eq!(reply.status, 400, "{path} {url}: {}", reply.text());
                assert!(started.elapsed() < Duration::from_secs(1), "{path} {url}");
                assert_eq!(reply.headers["content-type"], "application/json");
                assert!(reply.text().contains(param), "{path} {url}: {}", reply.text());
                let error = reply.json()["error"].clone();
                let text = error["message"].as_str().or(error.as_str()).unwrap_or_default();
                answers.push(text.to_owned());
            }
        }
        told.push(answers);
    }
    // No client learns from an answer whether something is there.
    assert!(told.iter().all(|answers| answers == &told[0]), "{told:?}");
    let nobody = listener.accept().map(|_| ()).map_err(|error| error.kind());
    assert_eq!(nobody, Err(ErrorKind::WouldBlock));
    std::fs::remove_file(&file).unwrap();
    assert_eq!(post(&app, CHAT, &chat(json!({}))).await.status, 200);
}
