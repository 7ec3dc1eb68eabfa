//! Bodies of all dialects with something wrong in them, anywhere: the answer is one, or a typed refusal,
//! and the server goes on. The fuzz target `bodies` is made of this too.

use hearth_server::App;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use serde_json::{Value, json};

use crate::client::{CHAT, MESSAGES, PLAIN, chat, plain, post, send};
use crate::script::Script;

/// Good bodies with much in them, and where they go.
fn bodies() -> Vec<(&'static str, Value)> {
    let parameters = json!({"type": "object", "required": ["a"], "properties": {
        "a": {"type": "string", "pattern": "^x+$"}, "b": {"$ref": "#/$defs/n"}},
        "$defs": {"n": {"type": ["integer", "null"], "minimum": 1}}});
    let function = json!({"name": "f", "description": "d", "parameters": parameters});
    let tools = json!([{"type": "function", "function": function}]);
    let call = json!({"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{\"a\": \"x\"}"}});
    let turns = json!([
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "Hi"}]},
        {"role": "assistant", "content": null, "reasoning_content": "Hm.", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "3"},
    ]);
    let schema = json!({"type": "json_schema", "json_schema": {"name": "q", "strict": true, "schema":
        {"type": "object", "properties": {"n": {"enum": [1, "a"]}}, "required": ["n"], "additionalProperties": false}}});
    vec![
        (
            CHAT,
            json!({"model": "toy", "messages": turns, "tools": tools, "tool_choice": "auto",
            "stream": true, "stream_options": {"include_usage": true}, "temperature": 0.5,
            "max_tokens": 8, "stop": ["x", "yy"], "n": 2, "logit_bias": {"5": -1}, "seed": 3}),
        ),
        (
            CHAT,
            json!({"model": "toy", "messages": [{"role": "user", "content": "Hi"}],
            "response_format": schema, "logprobs": true, "top_logprobs": 2, "max_completion_tokens": 8,
            "chat_template_kwargs": {"enable_thinking": false}, "reasoning_effort": "low"}),
        ),
        (
            PLAIN,
            json!({"model": "toy", "prompt": ["a", "b"], "max_tokens": 4, "echo": false,
            "logprobs": 1, "top_p": 0.9, "top_k": 5, "min_p": 0.1, "stop": "z"}),
        ),
        (
            MESSAGES,
            json!({"model": "toy", "max_tokens": 8, "system": [{"type": "text", "text": "S",
            "cache_control": {"type": "ephemeral"}}], "messages": [
                {"role": "user", "content": "Hi"},
                {"role": "assistant", "content": [{"type": "thinking", "thinking": "t", "signature": "s"},
                    {"type": "tool_use", "id": "t1", "name": "f", "input": {"a": "x"}}]},
                {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1",
                    "content": [{"type": "text", "text": "3"}]}]}],
            "tools": [{"name": "f", "input_schema": parameters}], "tool_choice": {"type": "auto"},
            "thinking": {"type": "enabled", "budget_tokens": 1024}, "stop_sequences": ["q"], "stream": true}),
        ),
        (
            "/v1/messages/count_tokens",
            json!({"model": "toy", "messages": [{"role": "user", "content": "Hi"}]}),
        ),
        (
            "/v1/responses",
            json!({"model": "toy", "instructions": "I", "max_output_tokens": 16, "input": [
                {"role": "user", "content": [{"type": "input_text", "text": "Hi"}]},
                {"type": "reasoning", "id": "r", "summary": [{"type": "summary_text", "text": "t"}]},
                {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"},
                {"type": "function_call_output", "call_id": "c1", "output": "3"}],
            "tools": [{"type": "function", "name": "f", "parameters": parameters}],
            "text": {"format": {"type": "text"}}, "reasoning": {"effort": "low"}, "store": false, "stream": true}),
        ),
        (
            "/api/chat",
            json!({"model": "toy", "messages": [{"role": "user", "content": "Hi"},
                {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "f", "arguments": {"a": "x"}}}]},
                {"role": "tool", "tool_name": "f", "content": "3"}],
            "tools": tools, "format": "json", "think": false, "keep_alive": "5m",
            "options": {"temperature": 0.1, "num_predict": 8, "num_ctx": 64, "stop": ["x"]}}),
        ),
        (
            "/api/generate",
            json!({"model": "toy", "prompt": "Hi", "system": "S", "stream": false,
            "options": {"num_predict": 4, "repeat_penalty": 1.1}}),
        ),
        ("/tokenize", json!({"model": "toy", "prompt": "Hi", "add_special_tokens": true})),
        ("/detokenize", json!({"model": "toy", "tokens": [5, 6]})),
        ("/v1/chat/completions/render", chat(json!({"tools": tools}))),
    ]
}

/// Stands for a whole number that no value holds.
const LONG: &str = "@long@";

/// Something that does not belong there.
fn wrong() -> impl Strategy<Value = Value> {
    let deep = (0..200).fold(json!(1), |value, _| json!([value]));
    let huge = "a".repeat(70_000);
    select(vec![
        json!(null),
        json!(true),
        json!(-1),
        json!(0),
        json!(1e308),
        json!(u64::MAX),
        json!(i64::MIN),
        json!(""),
        json!("\u{0}\u{ffff}🦜<|im_end|>"),
        json!("{{ 1/0 }}{% for x in y %}"),
        json!(huge),
        json!(LONG),
        json!([]),
        json!({}),
        json!([null, [[]], {"": {}}]),
        json!({"type": "text"}),
        json!({"$ref": "#"}),
        json!({"allOf": [{"$ref": "#"}], "properties": {"a": false}}),
        json!({"type": "string", "pattern": "(a*)*(b|"}),
        deep,
    ])
}

/// Every place in a value.
fn places(value: &Value, at: String, all: &mut Vec<String>) {
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                places(value, format!("{at}/{}", key.replace('~', "~0").replace('/', "~1")), all);
            }
        }
        Value::Array(list) => {
            for (i, value) in list.iter().enumerate() {
                places(value, format!("{at}/{i}"), all);
            }
        }
        _ => {}
    }
    if !at.is_empty() {
        all.push(at);
    }
}

/// What is done to a body.
#[derive(Clone, Debug)]
enum Harm {
    Put(Index, Value),
    Drop(Index),
    /// Into the text of the body, which is no JSON then most of the time.
    Cut(Index),
    Insert(Index, u8),
}

fn harm() -> impl Strategy<Value = Harm> {
    prop_oneof![
        6 => (any::<Index>(), wrong()).prop_map(|(at, value)| Harm::Put(at, value)),
        2 => any::<Index>().prop_map(Harm::Drop),
        1 => any::<Index>().prop_map(Harm::Cut),
        1 => (any::<Index>(), any::<u8>()).prop_map(|(at, byte)| Harm::Insert(at, byte)),
    ]
}

fn harmed(mut body: Value, harms: &[Harm]) -> Vec<u8> {
    for harm in harms {
        let mut all = Vec::new();
        places(&body, String::new(), &mut all);
        if all.is_empty() {
            break;
        }
        match harm {
            Harm::Put(at, value) => {
                if let Some(place) = body.pointer_mut(&all[at.index(all.len())]) {
                    *place = value.clone();
                }
            }
            Harm::Drop(at) => {
                let (parent, key) = all[at.index(all.len())].rsplit_once('/').unwrap();
                if let Some(Value::Object(map)) = body.pointer_mut(parent) {
                    map.remove(key);
                }
            }
            _ => {}
        }
    }
    let digits = "-123456789012345678901234567890";
    let mut text = body.to_string().replace(&format!("\"{LONG}\""), digits).into_bytes();
    for harm in harms {
        match harm {
            Harm::Cut(at) => text.truncate(at.index(text.len() + 1)),
            Harm::Insert(at, byte) => text.insert(at.index(text.len() + 1), *byte),
            _ => {}
        }
    }
    text
}

/// A request of any bytes: a good body in which they are written over what is there, or they themselves.
pub(crate) fn of_bytes(data: &[u8]) -> (&'static str, Vec<u8>) {
    let all = bodies();
    let Some((&first, rest)) = data.split_first() else { return (CHAT, Vec::new()) };
    let (path, body) = &all[usize::from(first) % all.len()];
    if first & 0x80 != 0 {
        return (*path, rest.to_vec());
    }
    let mut text = body.to_string().into_bytes();
    let mut rest = rest;
    while let [high, low, n_gone, n_new, more @ ..] = rest {
        let at = usize::from(*high) << 8 | usize::from(*low);
        let at = at % (text.len() + 1);
        let end = (at + usize::from(n_gone % 32)).min(text.len());
        let (new, more) = more.split_at(usize::from(n_new % 16).min(more.len()));
        text.splice(at..end, new.iter().copied());
        rest = more;
    }
    (*path, text)
}

pub(crate) async fn check(app: &App, path: &str, body: Vec<u8>) {
    let shown = String::from_utf8_lossy(&body).chars().take(2000).collect::<String>();
    let reply = send(app, "POST", path, body).await;
    let status = reply.status.as_u16();
    assert!(status < 500, "{path} {status} {}: {shown}", reply.text());
    if status != 200 {
        let error = reply.json()["error"].clone();
        let message = error["message"].as_str().or(error.as_str()).unwrap_or_default();
        assert!(!message.is_empty(), "{path} {status} {}: {shown}", reply.text());
    }
}

#[test]
fn whatever_is_sent_is_answered_or_refused() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let app = runtime.block_on(async { Script::says(&["Two", " ducks"]).app() });
    let mut refused = String::new();
    for (path, body) in bodies() {
        let reply = runtime.block_on(post(&app, path, &body));
        if reply.status != 200 {
            refused += &format!("{path}: {}\n", reply.text());
        }
    }
    assert_eq!(refused, "");
    let strategy = (any::<Index>(), proptest::collection::vec(harm(), 1..4));
    // One server gets all of them, so a failure would not be found again by its own body alone: they are
    // the same in every run.
    let rng_seed = proptest::test_runner::RngSeed::Fixed(7);
    proptest!(ProptestConfig { rng_seed, failure_persistence: None, ..ProptestConfig::with_cases(300) }, |((which, harms) in strategy)| {
        let all = bodies();
        let (path, body) = all[which.index(all.len())].clone();
        runtime.block_on(check(&app, path, harmed(body, &harms)));
    });
    let bytes = proptest::collection::vec(any::<u8>(), 0..60);
    let rng_seed = proptest::test_runner::RngSeed::Fixed(8);
    proptest!(ProptestConfig { rng_seed, failure_persistence: None, ..ProptestConfig::with_cases(200) }, |(bytes in bytes)| {
        let (path, body) = of_bytes(&bytes);
        runtime.block_on(check(&app, path, body));
    });
    let reply = runtime.block_on(post(&app, PLAIN, &plain(json!({})))).ok();
    assert_eq!(reply["choices"][0]["text"], "Two ducks");
}
