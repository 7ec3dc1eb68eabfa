//! `/v1/responses`: what reaches the model, the order of events, and answers that are kept, as
//! OpenAI's API reference and the types of its SDKs have them.

use std::time::Duration;

use serde_json::{Value, json};

use crate::client::{CHAT, Reply, chat, post, send, with};
use crate::script::{Script, Speech};

const RESPONSES: &str = "/v1/responses";

fn ask(more: Value) -> Value {
    with(json!({"model": "toy", "input": "Hi"}), more)
}

async fn ducks(more: Value) -> Reply {
    post(&Script::says(&["Two", " ducks"]).app(), RESPONSES, &ask(more)).await
}

/// The tokens that a body of some path becomes.
async fn heard(path: &str, template: Option<&'static str>, body: &Value) -> Vec<u32> {
    let mut script = Script::says(&["ok"]);
    if template.is_some() {
        script.template = template;
    }
    let heard = script.heard.clone();
    let reply = post(&script.app(), path, body).await.ok();
    let usage = &reply["usage"];
    let n = usage["input_tokens"].as_u64().or(usage["prompt_tokens"].as_u64()).unwrap();
    heard.lock().unwrap()[..n as usize].to_vec()
}

#[tokio::test]
async fn a_whole_answer_has_the_shape_of_the_api() {
    let reply = ducks(json!({"metadata": {"k": "v"}, "temperature": 0.5})).await.ok();
    assert!(reply["id"].as_str().unwrap().starts_with("resp_"));
    let item = &reply["output"][0];
    let part = json!({"type": "output_text", "text": "Two ducks", "annotations": [],
                      "logprobs": []});
    assert_eq!(
        (&item["type"], &item["role"], &item["status"], &item["content"]),
        (&json!("message"), &json!("assistant"), &json!("completed"), &json!([part]))
    );
    let shape = [
        ("object", json!("response")),
        ("status", json!("completed")),
        ("model", json!("toy/model")),
        ("error", Value::Null),
        ("incomplete_details", Value::Null),
        ("metadata", json!({"k": "v"})),
        ("temperature", json!(0.5)),
        ("tools", json!([])),
        ("tool_choice", json!("auto")),
        ("parallel_tool_calls", json!(true)),
        ("store", json!(true)),
    ];
    for (key, value) in shape {
        assert_eq!(reply[key], value, "{key}");
    }
    let usage = &reply["usage"];
    assert_eq!(usage["output_tokens"], 3);
    assert_eq!(usage["total_tokens"].as_u64(), Some(usage["input_tokens"].as_u64().unwrap() + 3));
    assert_eq!(usage["input_tokens_details"]["cached_tokens"], 0);
    assert_eq!(usage["output_tokens_details"]["reasoning_tokens"], 0);
    let cut = ducks(json!({"max_output_tokens": 1})).await.ok();
    assert_eq!(cut["status"], "incomplete");
    assert_eq!(cut["incomplete_details"], json!({"reason": "max_output_tokens"}));
    assert_eq!(cut["output"][0]["status"], "incomplete");
}

/// Case V07: the events of a message.
#[tokio::test]
async fn events_are_numbered_and_in_order() {
    let events = ducks(json!({"stream": true})).await.events();
    let names: Vec<&str> = events.iter().map(|(name, _)| name.as_str()).collect();
    let wanted = [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
        "response.output_text.delta",
        "response.output_text.delta",
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.completed",
    ];
    assert_eq!(names, wanted);
    for (at, (name, event)) in events.iter().enumerate() {
        assert_eq!((&event["type"], &event["sequence_number"]), (&json!(name), &json!(at)));
    }
    let first = &events[0].1["response"];
    assert_eq!((&first["status"], &first["output"]), (&json!("in_progress"), &json!([])));
    assert_eq!(events[2].1["item"]["status"], "in_progress");
    assert_eq!(events[2].1["item"]["content"], json!([]));
    assert_eq!(events[6].1["text"], "Two ducks");
    assert!(events[3..8].iter().all(|(_, event)| {
        event["item_id"] == events[2].1["item"]["id"]
            && (&event["output_index"], &event["content_index"]) == (&json!(0), &json!(0))
    }));
    let last = &events[9].1["response"];
    assert_eq!(last["output"][0], events[8].1["item"]);
    // The same as the whole answer, but for what names it.
    let mut whole = ducks(json!({})).await.ok();
    for name in ["id", "created_at"] {
        whole[name] = last[name].clone();
    }
    whole["output"][0]["id"] = last["output"][0]["id"].clone();
    assert_eq!(&whole, last);
    let cut = ducks(json!({"stream": true, "max_output_tokens": 1})).await.events();
    assert_eq!(cut.last().unwrap().0, "response.incomplete");
}

#[tokio::test]
async fn waiting_and_breaking_are_events_too() {
    let (mut script, gate) = Script::says(&["Two"]).gated();
    script.settings.keep_alive = Duration::from_millis(10);
    let app = script.app();
    let open = tokio::spawn(async move {
        tokio::time::sleep(Duration::from_millis(100)).await;
        gate.open();
    });
    let events = post(&app, RESPONSES, &ask(json!({"stream": true}))).await.events();
    open.await.unwrap();
    let names: Vec<&str> = events.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names[..3], ["response.created", "response.in_progress", "response.in_progress"]);
    assert_eq!(names.iter().filter(|name| **name == "response.created").count(), 1);

    let mut script = Script::says(&["Two"]);
    script.speech = Speech::Breaks { at: 1 };
    let events = post(&script.app(), RESPONSES, &ask(json!({"stream": true}))).await.events();
    let [.., (error, told), (failed, last)] = &events[..] else { panic!("{events:?}") };
    assert_eq!((error.as_str(), failed.as_str()), ("error", "response.failed"));
    assert_eq!(told["code"], "engine_error");
    assert_eq!(last["response"]["status"], "failed");
    assert!(last["response"]["error"]["message"].is_string());
    for (at, (_, event)) in events.iter().enumerate() {
        assert_eq!(event["sequence_number"], at);
    }
}

const TOOLS: &str = "{%- for t in tools or [] -%}[{{ t.function.name }}:\
    {{ t.function.parameters | tojson }}]{%- endfor -%}\
    {%- for m in messages -%}<{{ m.role }}>{{ m.reasoning_content }}|{{ m.content }}\
    {%- for c in m.tool_calls or [] -%}[{{ c.id }} {{ c.function.name }}\
    {{ c.function.arguments | tojson }}]{%- endfor -%}{{ m.tool_call_id }}{%- endfor -%}";

/// Case V06. What Codex sends: tools of every kind, and all items of an earlier turn.
#[tokio::test]
async fn items_and_tools_reach_the_template_like_a_chats() {
    let empty = json!({"type": "object", "properties": {}});
    let ours = ask(json!({
        "instructions": "Be brief.",
        "input": [
            {"type": "message", "role": "developer",
             "content": [{"type": "input_text", "text": "Answer only in French."}]},
            {"role": "user", "content": "List"},
            {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": null,
             "content": [{"type": "reasoning_text", "text": "I will."}]},
            {"type": "message", "role": "assistant", "id": "msg_1", "status": "completed",
             "content": [{"type": "output_text", "text": "Now.", "annotations": []}]},
            {"type": "function_call", "call_id": "c9", "name": "shell_run",
             "arguments": "{\"cmd\": [\"ls\"]}", "id": "fc_1", "status": "completed"},
            {"type": "custom_tool_call", "call_id": "c10", "name": "apply_patch", "input": "*** x"},
            {"type": "function_call", "call_id": "c11", "namespace": "mcp__notes",
             "name": "add_note", "arguments": ""},
            {"type": "web_search_call", "id": "ws_1", "status": "completed"},
            {"type": "function_call_output", "call_id": "c9",
             "output": [{"type": "input_text", "text": "done"}]},
            {"type": "custom_tool_call_output", "call_id": "c10", "output": "patched"},
            {"type": "function_call_output", "call_id": "c11", "output": "noted"},
        ],
        "tools": [
            {"type": "function", "name": "shell_run", "strict": false, "parameters": empty},
            {"type": "namespace", "name": "mcp__notes",
             "tools": [{"type": "function", "name": "add_note", "parameters": empty}]},
            {"type": "web_search"}, {"type": "image_generation"},
            {"type": "custom", "name": "apply_patch"}, {"type": "local_shell"},
        ],
        "include": ["reasoning.encrypted_content"], "store": false, "prompt_cache_key": "k",
        "reasoning": {"effort": "medium", "summary": "auto"}, "text": {"verbosity": "low"},
    }));
    let function = |name: &str, parameters: &Value| json!({"type": "function", "function": {"name": name, "parameters": parameters}});
    let call = |id: &str, name: &str, arguments: &str| json!({"id": id, "type": "function", "function": {"name": name, "arguments": arguments}});
    let text = json!({"type": "object", "properties": {"input": {"type": "string"}},
                      "required": ["input"]});
    let theirs = chat(json!({
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "developer", "content": "Answer only in French."},
            {"role": "user", "content": "List"},
            {"role": "assistant", "content": "Now.", "reasoning_content": "I will.", "tool_calls": [
                call("c9", "shell_run", "{\"cmd\": [\"ls\"]}"),
                call("c10", "apply_patch", "{\"input\": \"*** x\"}"),
                call("c11", "mcp__notes__add_note", "{}")]},
            {"role": "tool", "tool_call_id": "c9", "content": "done"},
            {"role": "tool", "tool_call_id": "c10", "content": "patched"},
            {"role": "tool", "tool_call_id": "c11", "content": "noted"},
        ],
        "tools": [function("shell_run", &empty), function("mcp__notes__add_note", &empty),
                  function("apply_patch", &text)],
        "reasoning_effort": "medium",
    }));
    let tokens = heard(RESPONSES, Some(TOOLS), &ours).await;
    assert_eq!(tokens, heard(CHAT, Some(TOOLS), &theirs).await);
    ducks(json!({"input": [], "max_output_tokens": 1})).await.ok();
    ducks(json!({"input": null})).await.ok();
}

#[tokio::test]
async fn an_answer_goes_on_from_a_kept_one() {
    let app = Script::says(&["Two", " ducks"]).app();
    let first = post(&app, RESPONSES, &ask(json!({"instructions": "Count."}))).await.ok();
    let id = first["id"].as_str().unwrap();
    let second = ask(json!({"input": "More?", "previous_response_id": id, "instructions": "Now."}));
    let second = post(&app, RESPONSES, &second).await.ok();
    assert_eq!(second["previous_response_id"], id);
    // Instructions are those of one answer alone.
    let messages = json!([
        {"role": "system", "content": "Now."}, {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "Two ducks"}, {"role": "user", "content": "More?"},
    ]);
    let same = post(&app, CHAT, &chat(json!({"messages": messages}))).await.ok();
    assert_eq!(second["usage"]["input_tokens"], same["usage"]["prompt_tokens"]);
    assert_eq!(same["usage"]["prompt_tokens_details"]["cache_miss"], Value::Null);

    let path = format!("{RESPONSES}/{}", second["id"].as_str().unwrap());
    assert_eq!(send(&app, "GET", &path, "").await.ok(), second);
    let items = send(&app, "GET", &format!("{path}/input_items?order=asc"), "").await.ok();
    let kinds: Vec<&str> =
        items["data"].as_array().unwrap().iter().map(|i| i["role"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["user", "assistant", "user"]);
    assert!(items["data"].as_array().unwrap().iter().all(|item| item["id"].is_string()));
    let latest = send(&app, "GET", &format!("{path}/input_items"), "").await.ok();
    assert_eq!(latest["first_id"], items["last_id"]);
    // Nothing is left to cancel.
    assert_eq!(send(&app, "POST", &format!("{path}/cancel"), "").await.ok(), second);
    assert_eq!(send(&app, "DELETE", &path, "").await.ok()["deleted"], true);
    for (method, end) in [("GET", ""), ("DELETE", ""), ("GET", "/input_items"), ("POST", "/cancel")]
    {
        let error = send(&app, method, &format!("{path}{end}"), "").await.error(404);
        assert_eq!(error["code"], "response_not_found");
    }
}

#[tokio::test]
async fn what_is_not_to_be_stored_is_not() {
    let app = Script::says(&["Two"]).app();
    for stream in [false, true] {
        let body = ask(json!({"store": false, "stream": stream}));
        let reply = post(&app, RESPONSES, &body).await;
        let id = match stream {
            true => reply.events()[0].1["response"]["id"].clone(),
            false => reply.ok()["id"].clone(),
        };
        let again = ask(json!({"previous_response_id": id}));
        let error = post(&app, RESPONSES, &again).await.error(404);
        assert_eq!(
            (&error["code"], &error["param"]),
            (&json!("previous_response_not_found"), &json!("previous_response_id"))
        );
    }
    let body = ask(json!({"stream": true}));
    let kept = post(&app, RESPONSES, &body).await.events()[0].1["response"]["id"].clone();
    post(&app, RESPONSES, &ask(json!({"previous_response_id": kept}))).await.ok();
}

#[tokio::test]
async fn bad_bodies_are_refused() {
    let app = Script::says(&["Two"]).app();
    let item = |item: Value| json!([item]);
    let cases = [
        ("temperature", json!(2.5)),
        ("temperature", json!("NaN")),
        ("top_p", json!(0)),
        ("presence_penalty", json!(9)),
        ("max_output_tokens", json!(0)),
        ("max_output_tokens", json!(-5)),
        ("input", json!(7)),
        ("input[0]", json!([7])),
        ("input[0].role", item(json!({"role": "wizard", "content": "x"}))),
        ("input[0].content", item(json!({"role": "user"}))),
        (
            "input[0].content[0].type",
            item(json!({"role": "user", "content": [{"type": "input_image"}]})),
        ),
        (
            "input[0].call_id",
            item(json!({"type": "function_call", "name": "f", "arguments": "{}"})),
        ),
        ("input[0].output", item(json!({"type": "function_call_output", "call_id": "c"}))),
        ("input[0].type", item(json!({"type": "item_reference", "id": "x"}))),
        ("tools[0].name", json!([{"type": "function"}])),
        ("tools[0].parameters", json!([{"type": "function", "name": "f", "parameters": 7}])),
        (
            "tools[0].tools[0].name",
            json!([{"type": "namespace", "name": "n", "tools": [{"type": "custom"}]}]),
        ),
        ("tool_choice", json!("required")),
        ("tool_choice", json!({"type": "function", "name": "absent"})),
        ("text.format.type", json!({"format": {"type": "xml"}})),
        (
            "text.format.schema",
            json!({"format": {"type": "json_schema", "name": "q", "schema": 42}}),
        ),
        ("background", json!(true)),
        ("truncation", json!("sometimes")),
        ("conversation", json!("c")),
        ("stream", json!("yes")),
        ("store", json!("yes")),
    ];
    for (path, value) in cases {
        let field = path.split(['.', '[']).next().unwrap();
        for stream in [false, true] {
            let mut body = ask(json!({"stream": stream}));
            body[field] = value.clone();
            let error = post(&app, RESPONSES, &body).await.error(400);
            assert_eq!(
                (&error["param"], &error["type"]),
                (&json!(path), &json!("invalid_request_error")),
                "{error}"
            );
        }
    }
    let deep = format!("{{\"input\":{}{}}}", "[".repeat(3000), "]".repeat(3000));
    assert_eq!(send(&app, "POST", RESPONSES, deep).await.error(400)["code"], "invalid_json");
}

/// As OpenAI documents `/v1/responses/input_tokens`: the fields of an answer, and how long it would be.
#[tokio::test]
async fn a_prompt_is_counted_without_an_answer() {
    let app = Script::says(&["Two"]).app();
    for more in [
        json!({}),
        json!({"instructions": "Be brief.", "tools": [
            {"type": "function", "name": "feed", "parameters": {"type": "object"}},
        ]}),
    ] {
        let answered = post(&app, RESPONSES, &ask(more.clone())).await.ok();
        let counted = post(&app, "/v1/responses/input_tokens", &ask(more)).await.ok();
        let n = &answered["usage"]["input_tokens"];
        assert_eq!(counted, json!({"object": "response.input_tokens", "input_tokens": n}));
    }
    let bad = post(&app, "/v1/responses/input_tokens", &ask(json!({"tools": 7}))).await;
    assert_eq!(bad.error(400)["param"], "tools");
}
