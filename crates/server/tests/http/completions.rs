//! Plain prompts: all their forms, echo, spaces, and the older form of log probabilities.

use serde_json::{Value, json};

use crate::client::{PLAIN, deltas, plain, post};
use crate::script::Script;

async fn lid(more: Value) -> Value {
    post(&Script::says(&[" amber", " and"]).app(), PLAIN, &plain(more)).await.ok()
}

#[tokio::test]
async fn the_first_space_is_kept() {
    let reply = lid(json!({})).await;
    assert_eq!(reply["object"], "text_completion");
    assert_eq!(reply["choices"][0]["text"], " amber and");
    let app = Script::says(&[" amber", " and"]).app();
    let frames = post(&app, PLAIN, &plain(json!({"stream": true}))).await.frames();
    assert_eq!(deltas(&frames, 0), [" amber", " and"]);
    assert!(frames.iter().all(|frame| frame["object"] == "text_completion"));
}

#[tokio::test]
async fn prompts_come_in_four_forms() {
    let ids = json!([84, 104, 105]);
    for (prompt, n_choices, n_tokens) in [
        (json!("ab"), 1, 3),
        (json!(["ab", "abc"]), 2, 7),
        (ids.clone(), 1, 3),
        (json!([ids, [9, 10]]), 2, 5),
    ] {
        let reply = lid(json!({"prompt": prompt})).await;
        let choices = reply["choices"].as_array().unwrap();
        assert_eq!(choices.len(), n_choices);
        assert!(choices.iter().all(|choice| choice["text"] == " amber and"));
        assert_eq!(reply["usage"]["prompt_tokens"], n_tokens);
    }
    let reply = lid(json!({"prompt": ["ab", "cd"], "n": 2, "best_of": 2})).await;
    let index = |choice: &Value| choice["index"].as_u64().unwrap();
    let indices: Vec<u64> = reply["choices"].as_array().unwrap().iter().map(index).collect();
    assert_eq!((indices, &reply["usage"]["prompt_tokens"]), (vec![0, 1, 2, 3], &json!(6)));
}

#[tokio::test]
async fn echo_puts_the_prompt_first() {
    assert_eq!(lid(json!({"echo": true})).await["choices"][0]["text"], "The lid is amber and");
    let ids = json!({"echo": true, "prompt": [76, 109]});
    assert_eq!(lid(ids).await["choices"][0]["text"], "Hi amber and");
    let app = Script::says(&[" amber"]).app();
    let body = plain(json!({"echo": true, "stream": true}));
    assert_eq!(deltas(&post(&app, PLAIN, &body).await.frames(), 0), ["The lid is", " amber"]);
}

#[tokio::test]
async fn log_probabilities_come_as_parallel_lists() {
    let reply = lid(json!({"logprobs": 1})).await;
    let scores = &reply["choices"][0]["logprobs"];
    assert_eq!(scores["tokens"], json!([" amber", " and"]));
    assert_eq!(scores["text_offset"], json!([0, 6]));
    assert!(scores["top_logprobs"][0][" amber"].as_f64().unwrap() > -1e-4);
    assert_eq!(scores["token_logprobs"].as_array().unwrap().len(), 2);
    assert!(lid(json!({})).await["choices"][0]["logprobs"].is_null());
}

#[tokio::test]
async fn the_default_length_is_that_of_openai() {
    let pieces: Vec<String> = (0..40).map(|i| format!("p{i} ")).collect();
    let pieces: Vec<&str> = pieces.iter().map(String::as_str).collect();
    let reply = post(&Script::says(&pieces).app(), PLAIN, &plain(json!({}))).await.ok();
    assert_eq!(reply["usage"]["completion_tokens"], 16);
}
