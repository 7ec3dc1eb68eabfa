//! What a text or a chat becomes: the same tokens that an answer would be computed from.

use serde_json::{Value, json};

use crate::client::{CHAT, chat, post, send, with};
use crate::script::{BOS, CHATML, Script};

fn letters(text: &str) -> Vec<u32> {
    text.bytes().map(|byte| u32::from(byte) + 4).collect()
}

#[tokio::test]
async fn texts_become_tokens_and_back() {
    let app = Script::says(&["ok"]).app();
    let text = "a \u{e9}\u{1f99c}";
    let told = post(&app, "/tokenize", &json!({"model": "toy", "prompt": text})).await.ok();
    let tokens = [vec![BOS], letters(text)].concat();
    let wanted = json!({"count": tokens.len(), "max_model_len": 4096, "tokens": tokens,
                        "token_strs": null});
    assert_eq!(told, wanted);
    let bare = json!({"prompt": text, "add_special_tokens": false, "return_token_strs": true});
    let told = post(&app, "/tokenize", &bare).await.ok();
    assert_eq!(told["tokens"], json!(letters(text)));
    let strings = &told["token_strs"];
    assert_eq!((&strings[0], &strings[1]), (&json!("a"), &json!("\u{120}")));
    let back = post(&app, "/detokenize", &json!({"tokens": tokens})).await.ok();
    assert_eq!(back, json!({"prompt": format!("<s>{text}")}));
    assert_eq!(post(&app, "/detokenize", &json!({"tokens": []})).await.ok()["prompt"], "");
}

#[tokio::test]
async fn chats_are_shown_as_the_model_sees_them() {
    let app = Script::says(&["ok"]).app();
    let tokens = post(&app, "/tokenize", &chat(json!({}))).await.ok();
    let usage = post(&app, CHAT, &chat(json!({}))).await.ok()["usage"].clone();
    assert_eq!(tokens["count"], usage["prompt_tokens"]);
    let shown = post(&app, "/v1/chat/completions/render", &chat(json!({}))).await.ok();
    assert_eq!(shown["prompt"], "<s><|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n");
    assert_eq!((&shown["tokens"], &shown["count"]), (&tokens["tokens"], &tokens["count"]));
    assert!(CHATML.starts_with("<s>"));
}

#[tokio::test]
async fn bad_bodies_are_refused() {
    let app = Script::says(&["ok"]).app();
    let good = |path: &str| match path {
        "/tokenize" => json!({"prompt": "x"}),
        _ => json!({"tokens": [5]}),
    };
    let cases: [(&str, &str, Value); 8] = [
        ("/tokenize", "prompt", json!(7)),
        ("/tokenize", "add_special_tokens", json!("yes")),
        ("/tokenize", "model", json!(7)),
        ("/detokenize", "tokens", json!("x")),
        ("/detokenize", "tokens", Value::Null),
        ("/detokenize", "tokens[0]", json!([-1])),
        ("/detokenize", "tokens[1]", json!([5, 999_999])),
        ("/detokenize", "model", json!("")),
    ];
    for (path, param, value) in cases {
        let mut body = good(path);
        body[param.split('[').next().unwrap()] = value;
        assert_eq!(post(&app, path, &body).await.error(400)["param"], param);
    }
    let more = with(chat(json!({})), json!({"add_generation_prompt": false}));
    assert_eq!(post(&app, "/tokenize", &more).await.error(400)["param"], "add_generation_prompt");
    assert_eq!(post(&app, "/tokenize", &json!({})).await.error(400)["param"], "messages");
    let unknown = post(&app, "/detokenize", &json!({"tokens": [], "model": "x"})).await;
    unknown.error(404);
    send(&app, "GET", "/tokenize", "").await.error(405);
}
