//! One answer of thoughts, text and calls in every dialect: whole and streamed say the same, in the
//! order that each API has for it.

use serde_json::{Value, json};

use crate::client::{MESSAGES, message, post, with};
use crate::script::Script;

const HERMES: &str = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n\
    {% endfor %}{# <think> <tool_call>{{ tool_call.name }}</tool_call> #}<|im_start|>assistant\n";

/// `Hm.` is thought, `Two.` said, then `feed` is called twice.
const ANSWER: &[&str] = &[
    "<th",
    "ink>Hm.</think>\n\nTwo.",
    "\n<tool_call>\n{\"name\":\"feed\",",
    " \"arguments\":{\"n\":2}}\n</tool_call>\n<tool_call>",
    "\n{\"name\":\"feed\",\"arguments\":{\"n\":3}}\n</tool_call> ",
];

fn app() -> hearth_server::App {
    let mut script = Script::says(ANSWER);
    script.template = Some(HERMES);
    script.app()
}

#[tokio::test]
async fn anthropics_blocks_come_in_order() {
    let tools = json!([{"name": "feed", "input_schema": {"type": "object"}}]);
    let body = message(json!({"tools": tools, "seed": 1}));
    let whole = post(&app(), MESSAGES, &body).await.ok();
    assert_eq!(whole["stop_reason"], "tool_use");
    let blocks = whole["content"].as_array().unwrap();
    let kinds: Vec<&str> = blocks.iter().map(|block| block["type"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["thinking", "text", "tool_use", "tool_use"]);
    assert_eq!((&blocks[0]["thinking"], &blocks[1]["text"]), (&json!("Hm."), &json!("Two.")));
    assert!(!blocks[0]["signature"].as_str().unwrap().is_empty());
    assert_eq!((&blocks[2]["input"], &blocks[3]["input"]), (&json!({"n": 2}), &json!({"n": 3})));
    assert_ne!(blocks[2]["id"], blocks[3]["id"]);

    let events = post(&app(), MESSAGES, &with(body, json!({"stream": true}))).await.events();
    let mut built: Vec<Value> = Vec::new();
    let mut open = None;
    for (name, event) in &events {
        let index = event["index"].as_u64();
        match name.as_str() {
            "content_block_start" => {
                assert_eq!((open, index), (None, Some(built.len() as u64)));
                open = index;
                built.push(event["content_block"].clone());
            }
            "content_block_delta" => {
                assert_eq!(index, open);
                let (delta, block) = (&event["delta"], built.last_mut().unwrap());
                let (from, to) = match delta["type"].as_str().unwrap() {
                    "text_delta" => ("text", "text"),
                    "thinking_delta" => ("thinking", "thinking"),
                    "signature_delta" => ("signature", "signature"),
                    "input_json_delta" => ("partial_json", "json"),
                    other => panic!("{other}"),
                };
                let text = block[to].as_str().unwrap_or_default().to_owned();
                block[to] = (text + delta[from].as_str().unwrap()).into();
            }
            "content_block_stop" => {
                assert_eq!(index, open);
                open = None;
                let block = built.last_mut().unwrap().as_object_mut().unwrap();
                if let Some(input) = block.remove("json") {
                    let input = serde_json::from_str(input.as_str().unwrap()).unwrap();
                    block.insert("input".to_owned(), input);
                }
            }
            _ => {}
        }
    }
    assert_eq!(json!(built), whole["content"]);
    assert_eq!(events[events.len() - 2].1["delta"]["stop_reason"], "tool_use");
}

/// Arguments reach every client digit by digit, as text and as objects, whole and streamed, and objects are on
/// one line where lines are counted.
#[tokio::test]
async fn digits_stay_as_they_are() {
    const DIGITS: &str = "123456789012345678901234567890";
    let says = [
        "<tool_call>{\"name\": \"feed\", \"arguments\": {\n \"n\":\n ",
        DIGITS,
        ", \"s\": \"a  b\"}}</tool_call>",
    ];
    let mut script = Script::says(&says);
    script.template = Some(HERMES);
    let app = script.app();
    let parameters = json!({"type": "object", "properties": {"n": {"type": "integer"}}});
    let function = json!({"name": "feed", "parameters": parameters});
    let tools = json!([{"type": "function", "function": function}]);
    let user = json!([{"role": "user", "content": "Hi"}]);
    for (path, body) in [
        ("/v1/chat/completions", json!({"messages": user, "tools": tools})),
        (
            "/v1/responses",
            json!({"input": "Hi", "tools": [
            {"type": "function", "name": "feed", "parameters": parameters}]}),
        ),
        (
            MESSAGES,
            json!({"messages": user, "max_tokens": 99, "tools": [
            {"name": "feed", "input_schema": parameters}]}),
        ),
        ("/api/chat", json!({"messages": user, "tools": tools})),
    ] {
        for stream in [false, true] {
            let body = with(body.clone(), json!({"model": "toy", "stream": stream}));
            let reply = post(&app, path, &body).await;
            assert_eq!(reply.status, 200, "{path}: {}", reply.text());
            assert!(reply.text().contains(DIGITS), "{path} {stream}: {}", reply.text());
            assert!(reply.text().contains("a  b"), "{path} {stream}: {}", reply.text());
            if path == "/api/chat" {
                let lines = reply.text().lines().map(serde_json::from_str::<Value>);
                let lines: Vec<Value> = lines.collect::<Result<_, _>>().unwrap();
                let called = lines.iter().find(|line| line["message"]["tool_calls"].is_array());
                let call = &called.unwrap()["message"]["tool_calls"][0]["function"];
                assert_eq!(
                    (&call["name"], &call["arguments"]["s"]),
                    (&json!("feed"), &json!("a  b"))
                );
            }
        }
    }
}

/// Case V07.
#[tokio::test]
async fn responses_are_items_that_do_not_mix() {
    let function = |kind: &str, name: &str| json!({"type": kind, "name": name});
    for (tools, kind, name, namespace, wanted) in [
        (
            json!([function("function", "feed")]),
            "function_call",
            "arguments",
            Value::Null,
            json!("{\"n\":2}"),
        ),
        (
            json!([function("custom", "feed")]),
            "custom_tool_call",
            "input",
            Value::Null,
            json!("{\"n\":2}"),
        ),
    ] {
        let body = json!({"model": "toy", "input": "Hi", "tools": tools, "seed": 1});
        let whole = post(&app(), "/v1/responses", &body).await.ok();
        let items = whole["output"].as_array().unwrap();
        let kinds: Vec<&str> = items.iter().map(|item| item["type"].as_str().unwrap()).collect();
        assert_eq!(kinds, ["reasoning", "message", kind, kind]);
        assert_eq!(items[0]["content"], json!([{"type": "reasoning_text", "text": "Hm."}]));
        assert_eq!(items[1]["content"][0]["text"], "Two.");
        assert_eq!((&items[2]["name"], &items[2]["namespace"]), (&json!("feed"), &namespace));
        let parsed =
            |value: &Value| -> Value { serde_json::from_str(value.as_str().unwrap()).unwrap() };
        assert_eq!(parsed(&items[2][name]), parsed(&wanted));
        assert_ne!(items[2]["call_id"], items[3]["call_id"]);
        assert!(items.iter().all(|item| item["status"] == "completed"));

        let body = with(body, json!({"stream": true}));
        let events = post(&app(), "/v1/responses", &body).await.events();
        let mut open: Option<Value> = None;
        let mut deltas = String::new();
        for (at, (kind, event)) in events.iter().enumerate() {
            assert_eq!(event["sequence_number"], at);
            match kind.rsplit('.').next().unwrap() {
                "added" if kind.contains("item") => {
                    assert!(open.is_none(), "{event}");
                    assert_eq!(event["item"]["status"], "in_progress");
                    open = Some(event["item"]["id"].clone());
                    deltas.clear();
                }
                "delta" => deltas += event["delta"].as_str().unwrap(),
                "done" if kind.contains("output_item") => {
                    assert_eq!(open.take().unwrap(), event["item"]["id"]);
                    assert_eq!(event["item"]["status"], "completed");
                }
                "done" if !kind.contains("part") => {
                    let all =
                        ["text", "arguments", "input"].iter().find_map(|n| event[*n].as_str());
                    assert_eq!(all.unwrap(), deltas);
                }
                _ => {}
            }
            if let Some(id) = event.get("item_id") {
                assert_eq!(Some(id), open.as_ref());
            }
        }
        let last = &events.last().unwrap().1["response"];
        let nameless = |items: &Value| {
            let mut items = items.clone();
            items.as_array_mut().unwrap().iter_mut().for_each(|item| item["id"] = Value::Null);
            items
        };
        assert_eq!(nameless(&last["output"]), nameless(&whole["output"]));
    }
}

#[tokio::test]
async fn a_namespace_comes_back_as_the_client_wrote_it() {
    let mut script = Script::says(&[
        "<tool_call>\n{\"name\":\"mcp__notes__add\",\"arguments\":{}}\n</tool_call>",
    ]);
    script.template = Some(HERMES);
    let tool = json!({"type": "function", "name": "add"});
    let body = json!({"model": "toy", "input": "Hi",
                      "tools": [{"type": "namespace", "name": "mcp__notes", "tools": [tool]}]});
    let whole = post(&script.app(), "/v1/responses", &body).await.ok();
    let call = &whole["output"][0];
    assert_eq!(
        (&call["type"], &call["namespace"], &call["name"]),
        (&json!("function_call"), &json!("mcp__notes"), &json!("add"))
    );
}

/// A call that is cut off is announced nowhere as complete.
#[tokio::test]
async fn a_call_that_is_cut_off_is_not_one_to_be_made() {
    let body = json!({"model": "toy", "input": "Hi", "max_output_tokens": 3, "stream": true,
                      "tools": [{"type": "function", "name": "feed"}]});
    let events = post(&app(), "/v1/responses", &body).await.events();
    assert!(events.iter().all(|(name, _)| name != "response.function_call_arguments.done"));
    let (name, last) = events.last().unwrap();
    assert_eq!(
        (name.as_str(), &last["response"]["status"]),
        ("response.incomplete", &json!("incomplete"))
    );
    let tools = json!([{"name": "feed", "input_schema": {"type": "object"}}]);
    let body = message(json!({"tools": tools, "max_tokens": 3}));
    assert_eq!(post(&app(), MESSAGES, &body).await.ok()["stop_reason"], "max_tokens");
}

#[tokio::test]
async fn ollamas_lines_hold_whole_calls() {
    let tool = json!({"type": "function",
                      "function": {"name": "feed", "parameters": {"type": "object"}}});
    let body = json!({"model": "toy", "messages": [{"role": "user", "content": "Hi"}],
                      "tools": [tool], "options": {"seed": 1}});
    let whole = post(&app(), "/api/chat", &with(body.clone(), json!({"stream": false}))).await.ok();
    let message = &whole["message"];
    assert_eq!((&message["thinking"], &message["content"]), (&json!("Hm."), &json!("Two.")));
    let calls = message["tool_calls"].as_array().unwrap();
    let arguments = |call: &Value| call["function"]["arguments"].clone();
    assert_eq!(calls.iter().map(arguments).collect::<Vec<_>>(), [json!({"n": 2}), json!({"n": 3})]);
    assert_eq!(
        (&calls[1]["function"]["index"], &calls[1]["function"]["name"]),
        (&json!(1), &json!("feed"))
    );
    let reply = post(&app(), "/api/chat", &body).await;
    let mut streamed = json!({"thinking": "", "content": "", "tool_calls": []});
    for line in reply.text().lines() {
        let line: Value = serde_json::from_str(line).unwrap();
        for name in ["thinking", "content"] {
            let more = line["message"][name].as_str().unwrap_or_default();
            streamed[name] = (streamed[name].as_str().unwrap().to_owned() + more).into();
        }
        let calls = line["message"]["tool_calls"].as_array().into_iter().flatten().cloned();
        streamed["tool_calls"].as_array_mut().unwrap().extend(calls);
    }
    for name in ["thinking", "content", "tool_calls"] {
        assert_eq!(streamed[name], message[name], "{name}");
    }
}
