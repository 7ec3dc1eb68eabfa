//! Bodies that must be refused: a plain JSON 400 that names the field, stream or not, never a
//! stream that breaks and never a 500.

use std::time::{Duration, Instant};

use hearth_server::{App, Settings};
use serde_json::{Value, json};

use crate::client::{CHAT, PLAIN, chat, plain, post, send, with};
use crate::script::Script;

fn app() -> App {
    Script::says(&["Two", " ducks"]).app()
}

/// `raw` replaces the value of `field` in a good body, for tokens that are no JSON.
async fn check_raw(app: &App, path: &str, good: Value, field: &str, raw: &str) {
    for stream in [false, true] {
        let mut body = with(good.clone(), json!({"stream": stream}));
        body[field] = "<raw>".into();
        let body = body.to_string().replace("\"<raw>\"", raw);
        let error = send(app, "POST", path, body).await.error(400);
        let param = error["param"].as_str().unwrap_or_default();
        let named = param == field || param.starts_with(&format!("{field}."));
        let named = named || param.starts_with(&format!("{field}["));
        assert!(named, "{path} {field}={raw}: {error}");
        assert_eq!(error["type"], "invalid_request_error");
    }
}

/// Case V01, on the routes of OpenAI.
#[tokio::test]
async fn values_out_of_range_are_named() {
    let app = app();
    let both: &[(&str, &str)] = &[
        ("temperature", "NaN"),
        ("temperature", "\"NaN\""),
        ("temperature", "-0.1"),
        ("temperature", "2.5"),
        ("temperature", "Infinity"),
        ("temperature", "1e999"),
        ("top_p", "0"),
        ("top_p", "1.2"),
        ("top_k", "-2"),
        ("top_k", "1.5"),
        ("min_p", "-0.01"),
        ("xtc_threshold", "0.6"),
        ("repetition_penalty", "0"),
        ("presence_penalty", "9"),
        ("frequency_penalty", "-2.1"),
        ("max_tokens", "0"),
        ("max_tokens", "-5"),
        ("max_completion_tokens", "0"),
        ("n", "0"),
        ("n", "17"),
        ("n", "\"2\""),
        ("seed", "1.5"),
        ("stop", "\"\""),
        ("stop", "[\"a\", 7]"),
        ("stop", "7"),
        ("logit_bias", "{\"x\": 1}"),
        ("logit_bias", "{\"5\": 101}"),
        ("logit_bias", "[]"),
        ("stream_options", "{\"include_usage\": \"yes\"}"),
        ("model", "7"),
    ];
    for (field, raw) in both {
        check_raw(&app, CHAT, chat(json!({})), field, raw).await;
        check_raw(&app, PLAIN, plain(json!({})), field, raw).await;
    }
    assert_eq!(
        post(&app, CHAT, &chat(json!({"stream": "yes"}))).await.error(400)["param"],
        "stream"
    );
}

/// Case V01 and V03: what no chat can mean.
#[tokio::test]
async fn fields_of_chats_are_named() {
    let app = app();
    for (field, raw) in [
        ("messages", "[]"),
        ("messages", "null"),
        ("messages", "\"Hi\""),
        ("messages", r#"[{"content":"x"}]"#),
        ("messages", r#"[{"role":"wizard","content":"x"}]"#),
        ("messages", r#"[{"role":"user"}]"#),
        ("messages", r#"[{"role":"user","content":[]}]"#),
        (
            "messages",
            r#"[{"role":"user","content":[{"type":"image_url","image_url":{"url":"x"}}]}]"#,
        ),
        ("messages", r#"[{"role":"user","content":"\ud800"}]"#),
        ("top_logprobs", "25"),
        ("top_logprobs", "3"),
        ("logprobs", "5"),
        ("response_format", r#"{"type":"xml"}"#),
        ("response_format", r#"{"type":"json_schema","json_schema":{}}"#),
        ("response_format", r#"{"type":"json_schema","json_schema":{"name":"q","schema":42}}"#),
        ("tools", r#"[{"type":"function"}]"#),
        ("tools", r#"[{"type":"web_search"}]"#),
        ("tools", r#"[{"type":"function","function":{"name":"f","parameters":7}}]"#),
        (
            "response_format",
            r#"{"type":"json_schema","json_schema":{"name":"q","schema":{},"strict":1}}"#,
        ),
        ("guided_json", "7"),
        ("guided_json", "\"{\""),
        ("guided_json", "\"[]\""),
        ("guided_regex", "\"\""),
        ("guided_regex", "[]"),
        ("guided_choice", "[]"),
        ("guided_choice", "[\"\"]"),
        ("guided_choice", "[\"a\",1]"),
        ("guided_choice", "\"a\""),
        ("guided_grammar", "{}"),
        ("structured_outputs", "[]"),
        ("structured_outputs", r#"{"json":1}"#),
        ("structured_outputs", r#"{"choice":["a",1]}"#),
        ("structured_outputs", r#"{"regex":"a","choice":["a"]}"#),
        ("structured_outputs", r#"{"structural_tag":"x"}"#),
        ("tool_choice", "\"required\""),
        ("tool_choice", r#"{"type":"function","function":{"name":"f"}}"#),
        ("tool_choice", r#"{"type":"function"}"#),
        ("tool_choice", r#"{"function":{"name":"f"}}"#),
        ("tool_choice", r#"{"type":"custom","custom":{"name":"f"}}"#),
        ("tool_choice", r#"{"type":"allowed_tools"}"#),
        (
            "tool_choice",
            r#"{"type":"allowed_tools","allowed_tools":{"mode":"required","tools":[]}}"#,
        ),
        (
            "tool_choice",
            r#"{"type":"allowed_tools","allowed_tools":{"tools":[{"type":"function","function":{"name":"g"}}]}}"#,
        ),
        ("tool_choice", "\"maybe\""),
        ("tool_choice", "[]"),
        ("parallel_tool_calls", "\"no\""),
        ("modalities", r#"["text","audio"]"#),
        ("audio", r#"{"voice":"x"}"#),
        ("functions", r#"[{"name":"f"}]"#),
        ("chat_template_kwargs", "[]"),
    ] {
        check_raw(&app, CHAT, chat(json!({})), field, raw).await;
    }
}

#[tokio::test]
async fn fields_of_completions_are_named() {
    let app = app();
    for (field, raw) in [
        ("prompt", "null"),
        ("prompt", "[]"),
        ("prompt", "[-1]"),
        ("prompt", "[\"a\", 1]"),
        ("prompt", "{}"),
        ("suffix", "\"end\""),
        ("best_of", "2"),
        ("logprobs", "21"),
        ("logprobs", "true"),
    ] {
        check_raw(&app, PLAIN, plain(json!({})), field, raw).await;
    }
    let echo = plain(json!({"echo": true, "logprobs": 1}));
    assert_eq!(post(&app, PLAIN, &echo).await.error(400)["param"], "echo");
}

/// Case V01: what must not be refused.
#[tokio::test]
async fn what_is_legal_is_accepted() {
    let app = app();
    for more in [
        json!({"temperature": 0}),
        json!({"max_completion_tokens": 5}),
        json!({"something_new": {"deep": [1, 2]}}),
        json!({"tools": []}),
        json!({"messages": [{"role": "user", "content": [{"type": "text", "text": "a"},
                                                          {"type": "text", "text": "b"}]}]}),
        json!({"response_format": {"type": "text"}}),
        json!({"tool_choice": "none", "tools": [{"type": "function", "function": {"name": "f"}}]}),
        json!({"stop": null, "seed": null, "n": 1.0, "top_k": -1, "stream": false}),
        json!({"seed": -1}),
        json!({"model": "default"}),
    ] {
        assert_eq!(
            post(&app, CHAT, &chat(more.clone())).await.ok()["model"],
            "toy/model",
            "{more}"
        );
    }
}

/// Case V05.
#[tokio::test]
async fn deep_bodies_are_refused_at_once() {
    let app = app();
    let nest = |open: &str, close: &str, n: usize| open.repeat(n) + &close.repeat(n);
    let schema =
        |n| format!("{}{{}}{}", r#"{"type":"object","properties":{"a":"#.repeat(n), "}}".repeat(n));
    let tool = |n| {
        format!(r#"[{{"type":"function","function":{{"name":"f","parameters":{}}}}}]"#, schema(n))
    };
    let format = format!(
        r#"{{"type":"json_schema","json_schema":{{"name":"s","schema":{}}}}}"#,
        schema(1000)
    );
    let body = |fields: String| {
        format!(
            r#"{{"model":"toy","prompt":"a","messages":[{{"role":"user","content":"a"}}],{fields}}}"#
        )
    };
    const OTHERS: [&str; 7] = [
        "/v1/messages",
        "/v1/messages/count_tokens",
        "/v1/responses",
        "/api/chat",
        "/api/generate",
        "/api/show",
        "/tokenize",
    ];
    for path in [CHAT, PLAIN].iter().chain(&OTHERS) {
        for fields in [
            format!("\"tools\":{}", nest("[", "]", 3000)),
            format!("\"x\":{}", nest("[", "]", 10_000)),
            format!("\"x\":{}", nest("{\"a\":", "}", 10_000).replace(":}", ":1}")),
            format!("\"tools\":{}", tool(1000)),
            format!("\"response_format\":{format}"),
        ] {
            let started = Instant::now();
            let reply = send(&app, "POST", path, body(fields)).await;
            assert_eq!(reply.status, 400, "{path} {}", reply.text());
            assert!(reply.text().contains("120 deep"), "{path} {}", reply.text());
            assert!(started.elapsed() < Duration::from_secs(1));
        }
    }
    for path in [CHAT, PLAIN] {
        send(&app, "POST", path, body(format!("\"tools\":{}", tool(40)))).await.ok();
    }
}

#[tokio::test]
async fn broken_bodies_are_refused() {
    let app = app();
    for body in
        [&b""[..], b"{", b"[]", b"7", b"{\"model\":\"\xff\"}", b"{\"n\":1,\"n\":1}", b"{} x"]
    {
        send(&app, "POST", CHAT, body.to_vec()).await.error(400);
    }
}

#[tokio::test]
async fn a_body_that_is_too_large_is_refused() {
    let mut script = Script::says(&["Two"]);
    script.settings = Settings { max_body_bytes: 1000, ..Settings::default() };
    let app = script.app();
    let long = chat(json!({"user": "x".repeat(1000)}));
    let error = post(&app, CHAT, &long).await.error(413);
    assert_eq!(error["code"], "body_too_large");
    post(&app, CHAT, &chat(json!({}))).await.ok();
    assert_eq!(Settings::default().max_body_bytes, 8 * 1024 * 1024);
}

/// Case V12.
#[tokio::test]
async fn prompts_that_fill_the_context_are_refused_with_numbers() {
    let script = || {
        let mut script = Script::says(&["one", "two", "three", "four", "five", "six"]);
        script.limits.context = 64;
        script.app()
    };
    for stream in [false, true] {
        let app = script();
        for n in [90, 64] {
            // One token is the beginning of sequence.
            let body = plain(json!({"prompt": "a".repeat(n - 1), "stream": stream}));
            let error = post(&app, PLAIN, &body).await.error(400);
            assert_eq!(error["code"], "context_length_exceeded");
            let message = error["message"].as_str().unwrap();
            assert!(message.contains("64") && message.contains(&n.to_string()), "{message}");
        }
        let messages = json!([{"role": "user", "content": "a".repeat(80)}]);
        let error = post(&app, CHAT, &chat(json!({"messages": messages}))).await.error(400);
        assert_eq!(
            (&error["code"], &error["param"]),
            (&"context_length_exceeded".into(), &"messages".into())
        );
    }
    let body = plain(json!({"prompt": "a".repeat(59), "max_tokens": 32}));
    let reply = post(&script(), PLAIN, &body).await.ok();
    assert_eq!(reply["choices"][0]["finish_reason"], "length");
    assert_eq!(reply["choices"][0]["text"], "onetwothreefour");
    assert_eq!(reply["usage"]["prompt_tokens"], 60);
}

#[tokio::test]
async fn token_ids_outside_the_vocabulary_are_refused() {
    let app = app();
    for more in [json!({"prompt": [5, 999_999]}), json!({"logit_bias": {"999999": 1}})] {
        let error = post(&app, PLAIN, &plain(more.clone())).await.error(400);
        assert_eq!(&error["param"], more.as_object().unwrap().keys().next().unwrap());
    }
}

#[tokio::test]
async fn unknown_names_are_answered_in_the_same_form() {
    let app = app();
    let error = post(&app, CHAT, &chat(json!({"model": "gpt-9"}))).await.error(404);
    assert_eq!(
        (&error["code"], &error["type"]),
        (&"model_not_found".into(), &"not_found_error".into())
    );
    assert!(error["message"].as_str().unwrap().contains("toy/model"), "{error}");
    assert_eq!(send(&app, "POST", "/v1/nothing", "").await.error(404)["code"], "route_not_found");
    assert_eq!(send(&app, "GET", CHAT, "").await.error(405)["code"], "method_not_allowed");
    send(&app, "GET", "/v1/models/other", "").await.error(404);
}

#[tokio::test]
async fn models_and_health_are_shown() {
    let app = app();
    let models = send(&app, "GET", "/v1/models", "").await.ok();
    assert_eq!(models["data"][0]["id"], "toy/model");
    assert_eq!(models["data"][0]["max_model_len"], 4096);
    for name in ["toy/model", "toy", "default"] {
        let path = format!("/v1/models/{name}");
        assert_eq!(send(&app, "GET", &path, "").await.ok()["id"], "toy/model");
    }
    assert_eq!(send(&app, "GET", "/", "").await.ok()["status"], "ok");
    let head = send(&app, "HEAD", "/", "").await;
    assert!(head.status == 200 && head.body.is_empty());
    let health = send(&app, "GET", "/health", "").await.ok();
    assert_eq!(health["models"][0]["running"], 0);
}

#[tokio::test]
async fn a_model_without_a_template_only_completes() {
    let mut script = Script::says(&["Two"]);
    script.template = None;
    let app = script.app();
    assert_eq!(post(&app, CHAT, &chat(json!({}))).await.error(400)["code"], "no_chat_template");
    post(&app, PLAIN, &plain(json!({}))).await.ok();
}
