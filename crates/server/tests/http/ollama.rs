//! `/api/…`: what reaches the model and what comes back, as Ollama's API reference and the types of its
//! libraries have them.

use std::time::Duration;

use serde_json::{Value, json};

use crate::client::{CHAT, PLAIN, Reply, chat, plain, post, send, with};
use crate::script::{Script, Speech};

const OLLAMA: &str = "/api/chat";
const GENERATE: &str = "/api/generate";

fn ask(more: Value) -> Value {
    with(json!({"model": "toy", "messages": [{"role": "user", "content": "Hi"}]}), more)
}

fn prompt(more: Value) -> Value {
    with(json!({"model": "toy", "prompt": "Hi"}), more)
}

async fn ducks(path: &str, body: Value) -> Reply {
    post(&Script::says(&["Two", " ducks"]).app(), path, &body).await
}

#[track_caller]
fn lines(reply: &Reply) -> Vec<Value> {
    assert_eq!(reply.status, 200, "{}", reply.text());
    assert_eq!(reply.headers["content-type"], "application/x-ndjson");
    assert!(reply.text().ends_with('\n'));
    reply.text().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[tokio::test]
async fn answers_are_streams_unless_asked_otherwise() {
    for (path, body, text) in
        [(OLLAMA, ask(json!({})), "/message/content"), (GENERATE, prompt(json!({})), "/response")]
    {
        let streamed = lines(&ducks(path, body.clone()).await);
        let text_of = |line: &Value| line.pointer(text).unwrap().as_str().unwrap().to_owned();
        let texts: Vec<String> = streamed.iter().map(text_of).collect();
        assert_eq!(texts, ["Two", " ducks", ""]);
        let (last, rest) = streamed.split_last().unwrap();
        assert!(rest.iter().all(|line| line["done"] == false && line.get("done_reason").is_none()));
        assert!(streamed.iter().all(|line| line["model"] == "toy"));
        let time = last["created_at"].as_str().unwrap();
        assert!(time.len() == 20 && time.starts_with("20") && time.ends_with('Z'), "{time}");
        let whole = ducks(path, with(body.clone(), json!({"stream": false}))).await.ok();
        assert_eq!(text_of(&whole), "Two ducks");
        for end in [last, &whole] {
            assert_eq!((&end["done"], &end["done_reason"]), (&json!(true), &json!("stop")));
            assert_eq!(end["eval_count"], 3);
            assert_eq!(end["prompt_eval_count"], whole["prompt_eval_count"]);
            for name in ["total_duration", "load_duration", "prompt_eval_duration", "eval_duration"]
            {
                assert!(end[name].is_u64(), "{name}: {end}");
            }
            assert!(end["total_duration"].as_u64() >= end["eval_duration"].as_u64());
        }
        let short = with(body, json!({"options": {"num_predict": 1}}));
        assert_eq!(lines(&ducks(path, short).await).last().unwrap()["done_reason"], "length");
    }
}

#[tokio::test]
async fn prompts_are_those_of_openais_form() {
    let tokens = async |path: &str, body: Value| {
        let mut script = Script::says(&["ok"]);
        script.template = Some(
            "{%- for m in messages -%}<{{ m.role }}>{{ m.reasoning_content }}|{{ m.content }}\
             {%- for c in m.tool_calls or [] -%}[{{ c.id }} {{ c.function.name }}\
             {{ c.function.arguments | tojson }}]{%- endfor -%}{{ m.tool_call_id }}{%- endfor -%}",
        );
        let heard = script.heard.clone();
        let reply = post(&script.app(), path, &with(body, json!({"stream": false}))).await.ok();
        let n = reply["prompt_eval_count"].as_u64().or(reply["usage"]["prompt_tokens"].as_u64());
        heard.lock().unwrap()[..n.unwrap() as usize].to_vec()
    };
    let ours = ask(json!({"messages": [
        {"role": "system", "content": "Be brief."}, {"role": "user", "content": "Feed"},
        {"role": "assistant", "content": "", "thinking": "Two.", "tool_calls": [
            {"function": {"name": "feed", "arguments": {"n": 2}}},
            {"function": {"name": "rest", "arguments": {}}}]},
        {"role": "tool", "tool_name": "feed", "content": "fed"},
        {"role": "tool", "tool_name": "rest", "content": "rested"},
    ]}));
    let call = |id: &str, name: &str, arguments: &str| json!({"id": id, "type": "function", "function": {"name": name, "arguments": arguments}});
    let theirs = chat(json!({"messages": [
        {"role": "system", "content": "Be brief."}, {"role": "user", "content": "Feed"},
        {"role": "assistant", "content": "", "reasoning_content": "Two.",
         "tool_calls": [call("call_0", "feed", "{\"n\": 2}"), call("call_1", "rest", "{}")]},
        {"role": "tool", "tool_call_id": "call_0", "name": "feed", "content": "fed"},
        {"role": "tool", "tool_call_id": "call_1", "name": "rest", "content": "rested"},
    ]}));
    assert_eq!(tokens(OLLAMA, ours).await, tokens(CHAT, theirs).await);
    let both =
        json!([{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}]);
    let ours = tokens(GENERATE, prompt(json!({"system": "Be brief."}))).await;
    assert_eq!(ours, tokens(CHAT, chat(json!({"messages": both}))).await);
    let ours = tokens(GENERATE, prompt(json!({"raw": true}))).await;
    assert_eq!(ours, tokens(PLAIN, plain(json!({"prompt": "Hi"}))).await);
}

/// Ollama's options do what OpenAI's fields do.
#[tokio::test]
async fn options_are_honoured() {
    let noise = || {
        let mut script = Script::says(&[]);
        script.speech = Speech::Noise;
        script.app()
    };
    let options = json!({"seed": 7, "temperature": 0.9, "top_k": 40, "top_p": 0.9, "min_p": 0.001,
                         "repeat_penalty": 1.3, "presence_penalty": 0.5, "frequency_penalty": 0.5,
                         "num_predict": 30, "stop": ["zzzz"], "num_ctx": 2048, "num_thread": 3,
                         "mirostat": 0, "tfs_z": 1.0, "typical_p": 1, "repeat_last_n": 64});
    let ours = ask(json!({"stream": false, "options": options}));
    let ours = post(&noise(), OLLAMA, &ours).await.ok();
    let theirs = chat(json!({"seed": 7, "temperature": 0.9, "top_k": 40, "top_p": 0.9,
                             "min_p": 0.001, "repetition_penalty": 1.3, "presence_penalty": 0.5,
                             "frequency_penalty": 0.5, "max_tokens": 30, "stop": ["zzzz"]}));
    let theirs = post(&noise(), CHAT, &theirs).await.ok();
    assert_eq!(ours["message"]["content"], theirs["choices"][0]["message"]["content"]);
    assert_eq!(ours["eval_count"], 30);
    for free in [-1, 0, -2] {
        let body = ask(json!({"options": {"num_predict": free}}));
        assert_eq!(lines(&ducks(OLLAMA, body).await).last().unwrap()["done_reason"], "stop");
    }
}

#[tokio::test]
async fn names_come_with_and_without_a_tag() {
    let app = Script::says(&["Two"]).app();
    for name in ["toy", "toy:latest", "toy/model", "toy/model:latest", "default"] {
        let reply = post(&app, OLLAMA, &ask(json!({"model": name, "stream": false}))).await.ok();
        assert_eq!(reply["model"], name);
        post(&app, "/api/show", &json!({"model": name})).await.ok();
    }
    let unknown = post(&app, OLLAMA, &ask(json!({"model": "toy:7b"}))).await;
    assert_eq!(unknown.status, 404);
    assert!(unknown.json()["error"].as_str().unwrap().contains("toy:7b"));
}

#[tokio::test]
async fn models_are_told_as_ollama_does() {
    let app = Script::says(&["Two"]).app();
    let tags = send(&app, "GET", "/api/tags", "").await.ok();
    let model = &tags["models"][0];
    assert_eq!((&model["name"], &model["model"]), (&json!("toy/model:latest"), &model["name"]));
    let digest = model["digest"].as_str().unwrap();
    assert!(digest.len() == 64 && digest.bytes().all(|byte| byte.is_ascii_hexdigit()));
    assert_eq!(model["modified_at"], "2026-09-21T14:13:20Z");
    assert!(model["size"].is_u64() && model["details"]["families"].is_array());
    let loaded = send(&app, "GET", "/api/ps", "").await.ok();
    assert_eq!(
        (&loaded["models"][0]["digest"], &loaded["models"][0]["size_vram"]),
        (&model["digest"], &json!(0))
    );
    let shown = post(&app, "/api/show", &json!({"model": "toy"})).await.ok();
    assert_eq!(shown["capabilities"], json!(["completion"]));
    let architecture = shown["model_info"]["general.architecture"].as_str().unwrap();
    assert_eq!(shown["model_info"][format!("{architecture}.context_length")], 4096);
    assert!(shown["template"].as_str().unwrap().contains("im_start"));
    let version = send(&app, "GET", "/api/version", "").await.ok();
    assert!(version["version"].as_str().unwrap().split('.').count() == 3);
    for (method, path) in [
        ("POST", "/api/pull"),
        ("POST", "/api/create"),
        ("POST", "/api/embed"),
        ("POST", "/api/embeddings"),
        ("DELETE", "/api/delete"),
    ] {
        let reply = send(&app, method, path, "{\"model\":\"x\"}").await;
        assert_eq!(reply.status, 400, "{path}");
        assert!(reply.json()["error"].as_str().unwrap().contains("not supported"), "{path}");
    }
    assert_eq!(send(&app, "HEAD", "/", "").await.status, 200);
    let missing = send(&app, "GET", "/api/nothing", "").await;
    assert!(missing.status == 404 && missing.json()["error"].is_string());
}

#[tokio::test]
async fn nothing_to_answer_loads() {
    let app = Script::says(&["Two"]).app();
    for (path, text) in [(OLLAMA, "/message/content"), (GENERATE, "/response")] {
        let reply = post(&app, path, &json!({"model": "toy"})).await.ok();
        assert_eq!(
            (&reply["done"], &reply["done_reason"], reply.pointer(text)),
            (&json!(true), &json!("load"), Some(&json!("")))
        );
    }
    let loaded = || app.chat.pool().list()[0].status.name();
    assert_eq!(loaded(), "loaded");
}

/// No client can take away what nobody could bring back.
#[tokio::test]
async fn a_model_that_cannot_be_loaded_again_stays() {
    let app = Script::says(&["Two"]).app();
    let messages = json!([{"role": "user", "content": "Hi"}]);
    let body = json!({"model": "toy", "messages": messages, "stream": false, "keep_alive": 0});
    for _ in 0..3 {
        assert_eq!(post(&app, OLLAMA, &body).await.ok()["message"]["content"], "Two");
    }
    let reply = post(&app, GENERATE, &json!({"model": "toy", "keep_alive": 0})).await;
    assert_eq!(reply.status, 409, "{}", reply.text());
    let reply = send(&app, "POST", "/v1/models/toy/unload", "").await;
    assert_eq!(reply.error(409)["code"], "model_fixed");
    assert_eq!(post(&app, OLLAMA, &body).await.ok()["message"]["content"], "Two");
}

#[tokio::test]
async fn waiting_and_breaking_are_lines_too() {
    let (mut script, gate) = Script::says(&["Two"]).gated();
    script.settings.keep_alive = Duration::from_millis(10);
    let app = script.app();
    let open = tokio::spawn(async move {
        tokio::time::sleep(Duration::from_millis(100)).await;
        gate.open();
    });
    let waited = lines(&post(&app, OLLAMA, &ask(json!({}))).await);
    open.await.unwrap();
    assert_eq!((&waited[0]["message"]["content"], &waited[0]["done"]), (&json!(""), &json!(false)));
    let mut script = Script::says(&["Two"]);
    script.speech = Speech::Breaks { at: 1 };
    let broken = lines(&post(&script.app(), OLLAMA, &ask(json!({}))).await);
    assert!(broken.last().unwrap()["error"].is_string(), "{broken:?}");
}

#[tokio::test]
async fn bad_bodies_are_refused() {
    let app = Script::says(&["Two"]).app();
    let user = |more: Value| json!([with(json!({"role": "user", "content": "x"}), more)]);
    let cases = [
        ("options.temperature", json!({"temperature": 2.5})),
        ("options.temperature", json!({"temperature": "NaN"})),
        ("options.top_p", json!({"top_p": 0})),
        ("options.num_predict", json!({"num_predict": 1.5})),
        ("options.repeat_penalty", json!({"repeat_penalty": 0})),
        ("options.mirostat", json!({"mirostat": 1})),
        ("options.stop", json!({"stop": [""]})),
        ("options", json!([])),
        ("messages", json!("Hi")),
        ("messages[0].role", json!([{"role": "wizard"}])),
        ("messages[0].images", user(json!({"images": ["AAAA"]}))),
        ("messages[0].tool_calls[0].function", user(json!({"tool_calls": [{}]}))),
        ("tools[0].function", json!([{"type": "function"}])),
        ("format", json!("xml")),
        ("format", json!(7)),
        ("think", json!(7)),
        ("keep_alive", json!("soon")),
        ("keep_alive", json!([])),
        ("logprobs", json!(true)),
        ("stream", json!("yes")),
        ("prompt", json!(7)),
        ("suffix", json!("end")),
        ("context", json!([1, 2])),
        ("images", json!(["AAAA"])),
        ("template", json!("{{ .Prompt }}")),
    ];
    for (path, value) in cases {
        let field = path.split(['.', '[']).next().unwrap();
        let of_prompts = ["prompt", "suffix", "context", "images", "template"];
        let url = if of_prompts.contains(&field) { GENERATE } else { OLLAMA };
        let mut body = if url == OLLAMA { ask(json!({})) } else { prompt(json!({})) };
        body[field] = value;
        let reply = post(&app, url, &body).await;
        assert_eq!(reply.status, 400, "{path}: {}", reply.text());
        let error = reply.json()["error"].as_str().unwrap().to_owned();
        assert!(error.contains(path.rsplit('.').next().unwrap()), "{path}: {error}");
    }
    for url in [OLLAMA, GENERATE, "/api/show"] {
        let deep = format!("{{\"options\":{}{}}}", "[".repeat(3000), "]".repeat(3000));
        assert_eq!(send(&app, "POST", url, deep).await.status, 400);
    }
}
