//! What the makers of a model want never to come does not come, whatever is asked for and in which dialect.

use engine::Suppressed;
use serde_json::{Value, json};

use crate::client::{CHAT, MESSAGES, PLAIN, chat, message, plain, post, with};
use crate::script::{Script, Speech};

/// The token of a letter.
fn letter(byte: u8) -> u32 {
    4 + u32::from(byte)
}

/// A model to which all tokens are alike, and that may only say `xyxyxy…`: nothing but the two letters, not
/// the second one first, and none of them twice in a row.
fn app() -> hearth_server::App {
    let mut script = Script::says(&["Two"]);
    script.speech = Speech::Anything;
    script.defaults.temperature = 1.0;
    let [x, y] = [b'x', b'y'].map(letter);
    script.suppressed = Suppressed {
        always: (0..=letter(255) + 1).filter(|id| ![x, y].contains(id)).collect(),
        first: vec![y],
        sequences: vec![vec![x, x], vec![y, y]],
    };
    script.app()
}

/// All that a reply says, in either form.
fn said(reply: &str) -> String {
    fn collect(value: &Value, out: &mut String) {
        match value {
            Value::String(text) if text.chars().all(|c| "xyz".contains(c)) => out.push_str(text),
            Value::Array(list) => list.iter().for_each(|value| collect(value, out)),
            Value::Object(map) => map.values().for_each(|value| collect(value, out)),
            _ => {}
        }
    }
    let mut out = String::new();
    for line in reply.lines() {
        let line = line.strip_prefix("data: ").unwrap_or(line);
        if let Ok(value) = serde_json::from_str(line) {
            collect(&value, &mut out);
        }
    }
    out
}

#[tokio::test]
async fn no_dialect_brings_it_back() {
    let app = app();
    let user = json!([{"role": "user", "content": "Hi"}]);
    let bodies = [
        (CHAT, chat(json!({"max_tokens": 8}))),
        (PLAIN, plain(json!({"max_tokens": 8}))),
        (MESSAGES, message(json!({"max_tokens": 8}))),
        ("/v1/responses", json!({"model": "toy", "input": "Hi", "max_output_tokens": 8})),
        ("/api/chat", json!({"model": "toy", "messages": user, "options": {"num_predict": 8}})),
        ("/api/generate", json!({"model": "toy", "prompt": "Hi", "options": {"num_predict": 8}})),
    ];
    for (path, body) in bodies {
        for temperature in [0, 1] {
            let body = match path.starts_with("/api") {
                true => {
                    let options = json!({"num_predict": 8, "temperature": temperature});
                    with(body.clone(), json!({"options": options}))
                }
                false => with(body.clone(), json!({"temperature": temperature})),
            };
            for stream in [false, true] {
                let reply = post(&app, path, &with(body.clone(), json!({"stream": stream}))).await;
                assert_eq!(reply.status, 200, "{path}: {}", reply.text());
                let said = said(reply.text());
                // Events that close an answer say it again.
                assert_eq!(&said[..8], "xyxyxyxy", "{path} {temperature} {stream}");
                assert_eq!(said, "xyxyxyxy".repeat(said.len() / 8), "{path}");
            }
        }
    }
}

#[tokio::test]
async fn no_setting_brings_it_back() {
    let app = app();
    let z = letter(b'z').to_string();
    for more in [
        json!({"logit_bias": {z: 100}}),
        json!({"n": 4, "seed": 7}),
        json!({"guided_regex": "[xyz]{9}"}),
        json!({"repetition_penalty": 2.0, "frequency_penalty": 2.0, "presence_penalty": -2.0}),
        json!({"top_k": 1}),
        json!({"top_p": 0.01, "min_p": 1.0}),
        json!({"ignore_eos": true}),
    ] {
        for temperature in [0.0, 2.0] {
            let settings = json!({"max_tokens": 8, "temperature": temperature, "logprobs": true});
            let reply = post(&app, CHAT, &with(chat(settings), more.clone())).await.ok();
            for choice in reply["choices"].as_array().unwrap() {
                assert_eq!(choice["message"]["content"], "xyxyxyxy", "{more} {temperature}");
                assert_eq!(choice["logprobs"]["content"].as_array().unwrap().len(), 8);
            }
        }
    }
    // What must come and may not come ends the answer with an error.
    let body = chat(json!({"guided_regex": "xyz{3}", "max_tokens": 8}));
    let error = post(&app, CHAT, &body).await.error(500);
    assert!(error["message"].as_str().unwrap().contains("no token is allowed"), "{error}");
}
