//! `/v1/messages`: what reaches the model, and the shape of what comes back, as Anthropic's API
//! reference and the types of its SDKs have them.

use std::time::Duration;

use serde_json::{Value, json};

use crate::client::{CHAT, MESSAGES, Reply, chat, message, post, send, with};
use crate::script::{Script, Speech};

async fn ducks(more: Value) -> Reply {
    post(&Script::says(&["Two", " ducks"]).app(), MESSAGES, &message(more)).await
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
    let count = |name: &str| usage[name].as_u64().unwrap_or(0);
    let n = count("input_tokens") + count("cache_read_input_tokens") + count("prompt_tokens");
    heard.lock().unwrap()[..n as usize].to_vec()
}

#[tokio::test]
async fn a_whole_message_has_the_shape_of_the_api() {
    let reply = ducks(json!({})).await;
    assert_eq!(reply.headers["request-id"], reply.headers["x-request-id"]);
    let reply = reply.ok();
    assert!(reply["id"].as_str().unwrap().starts_with("msg_"));
    let shape = [
        ("type", json!("message")),
        ("role", json!("assistant")),
        ("model", json!("toy/model")),
        ("content", json!([{"type": "text", "text": "Two ducks"}])),
        ("stop_reason", json!("end_turn")),
        ("stop_sequence", Value::Null),
    ];
    for (key, value) in shape {
        assert_eq!(reply[key], value, "{key}");
    }
    assert_eq!(reply["usage"]["output_tokens"], 3);
    assert!(reply["usage"]["input_tokens"].as_u64().unwrap() > 0);
    assert_eq!(reply["usage"]["cache_creation_input_tokens"], 0);
    assert_eq!(reply["usage"]["cache_read_input_tokens"], 0);
    assert_eq!(ducks(json!({"max_tokens": 1})).await.ok()["stop_reason"], "max_tokens");
}

#[tokio::test]
async fn a_stream_has_the_events_in_the_order_of_the_api() {
    let whole = ducks(json!({})).await.ok();
    let events = ducks(json!({"stream": true})).await.events();
    let names: Vec<&str> = events.iter().map(|(name, _)| name.as_str()).collect();
    let wanted = [
        "message_start",
        "content_block_start",
        "content_block_delta",
        "content_block_delta",
        "content_block_stop",
        "message_delta",
        "message_stop",
    ];
    assert_eq!(names, wanted);
    assert!(events.iter().all(|(name, event)| event["type"] == *name));
    let start = &events[0].1["message"];
    assert_eq!((&start["content"], &start["stop_reason"]), (&json!([]), &Value::Null));
    assert_eq!(start["usage"]["input_tokens"], whole["usage"]["input_tokens"]);
    assert_eq!(start["usage"]["output_tokens"], 0);
    let opening = json!({"type": "content_block_start", "index": 0,
                         "content_block": {"type": "text", "text": ""}});
    assert_eq!(events[1].1, opening);
    let deltas = [&events[2].1, &events[3].1].map(|event| event["delta"]["text"].as_str().unwrap());
    assert_eq!(deltas, ["Two", " ducks"]);
    assert_eq!(events[4].1, json!({"type": "content_block_stop", "index": 0}));
    let delta = json!({"stop_reason": "end_turn", "stop_sequence": null});
    assert_eq!((&events[5].1["delta"], &events[5].1["usage"]), (&delta, &whole["usage"]));
}

#[tokio::test]
async fn the_stop_sequence_that_came_is_named() {
    let more = json!({"stop_sequences": ["cat", "o d", "duck"]});
    let whole = ducks(more.clone()).await.ok();
    assert_eq!(whole["content"], json!([{"type": "text", "text": "Tw"}]));
    let ending = json!({"stop_reason": "stop_sequence", "stop_sequence": "o d"});
    for (key, value) in ending.as_object().unwrap() {
        assert_eq!(&whole[key], value);
    }
    let events = ducks(with(more, json!({"stream": true}))).await.events();
    assert_eq!(events[events.len() - 2].1["delta"], ending);
}

#[tokio::test]
async fn a_long_prompt_is_kept_alive_by_pings_after_the_start() {
    let (mut script, gate) = Script::says(&["Two"]).gated();
    script.settings.keep_alive = Duration::from_millis(10);
    let app = script.app();
    let open = tokio::spawn(async move {
        tokio::time::sleep(Duration::from_millis(100)).await;
        gate.open();
    });
    let events = post(&app, MESSAGES, &message(json!({"stream": true}))).await.events();
    open.await.unwrap();
    let names: Vec<&str> = events.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names[..2], ["message_start", "ping"]);
    assert_eq!(names.iter().filter(|name| **name == "message_start").count(), 1);
    assert_eq!(events[1].1, json!({"type": "ping"}));
}

#[tokio::test]
async fn what_breaks_in_mid_stream_is_an_error_event() {
    let mut script = Script::says(&["Two"]);
    script.speech = Speech::Breaks { at: 1 };
    let events = post(&script.app(), MESSAGES, &message(json!({"stream": true}))).await.events();
    let (name, event) = events.last().unwrap();
    assert_eq!((name.as_str(), &event["type"]), ("error", &json!("error")));
    assert_eq!(event["error"]["type"], "api_error");
}

/// The same conversation, as blocks and as strings, is the prompt that OpenAI's form gives.
#[tokio::test]
async fn blocks_reach_the_template_like_openais_messages() {
    const TOOLS: &str = "{%- for t in tools or [] -%}[{{ t.function.name }}:\
        {{ t.function.description }}:{{ t.function.parameters | tojson }}]{%- endfor -%}\
        {%- for m in messages -%}<{{ m.role }}>{{ m.reasoning_content }}|{{ m.content }}\
        {%- for c in m.tool_calls or [] -%}[{{ c.id }} {{ c.function.name }}\
        {{ c.function.arguments | tojson }}]{%- endfor -%}{{ m.tool_call_id }}{%- endfor -%}";
    let schema = json!({"type": "object", "properties": {"n": {"type": "integer"}}});
    let ours = message(json!({
        "system": [{"type": "text", "text": "x-anthropic-billing-header: cch=1a2b3;"},
                   {"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}],
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "Feed"},
                                         {"type": "text", "text": "them"}]},
            {"role": "assistant", "content": [
                {"type": "thinking", "thinking": "Two.", "signature": "x"},
                {"type": "redacted_thinking", "data": "AAAA"},
                {"type": "text", "text": "Now."},
                {"type": "tool_use", "id": "t1", "name": "feed", "input": {"n": 2}},
                {"type": "tool_use", "id": "t2", "name": "feed", "input": {}}]},
            {"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": "t1", "content": "fed"},
                {"type": "tool_result", "tool_use_id": "t2", "is_error": true,
                 "content": [{"type": "text", "text": "not"}, {"type": "text", "text": "fed"}]},
                {"type": "text", "text": "And?"}]},
        ],
        "tools": [{"name": "feed", "description": "Feeds", "input_schema": schema,
                   "cache_control": {"type": "ephemeral"}}, {"name": "rest", "type": "custom"}],
    }));
    let empty = json!({"type": "object", "properties": {}});
    let call = |id: &str, arguments: &str| {
        json!({"id": id, "type": "function",
               "function": {"name": "feed", "arguments": arguments}})
    };
    let theirs = chat(json!({
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "Feed\nthem"},
            {"role": "assistant", "content": "Now.", "reasoning_content": "Two.",
             "tool_calls": [call("t1", "{\"n\": 2}"), call("t2", "")]},
            {"role": "tool", "tool_call_id": "t1", "content": "fed"},
            {"role": "tool", "tool_call_id": "t2", "content": "not\nfed"},
            {"role": "user", "content": "And?"},
        ],
        "tools": [
            {"type": "function",
             "function": {"name": "feed", "description": "Feeds", "parameters": schema}},
            {"type": "function", "function": {"name": "rest", "parameters": empty}},
        ],
    }));
    let tokens = heard(MESSAGES, Some(TOOLS), &ours).await;
    assert_eq!(tokens, heard(CHAT, Some(TOOLS), &theirs).await);
    let count = format!("{MESSAGES}/count_tokens");
    let mut script = Script::says(&["ok"]);
    script.template = Some(TOOLS);
    let counted = post(&script.app(), &count, &ours).await.ok();
    assert_eq!(counted, json!({"input_tokens": tokens.len()}));
}

/// Only the hash in a billing line differs, which no prompt holds.
#[tokio::test]
async fn billing_lines_change_nothing() {
    let line = |hash: &str| {
        format!("x-anthropic-billing-header: cc_version=9.9.9.abc; cc_entrypoint=cli; cch={hash};")
    };
    let blocks = |hash: &str| json!([{"type": "text", "text": line(hash)}, {"type": "text", "text": "You plan picnics."}]);
    let one = heard(MESSAGES, None, &message(json!({"system": blocks("1a2b3")}))).await;
    let two = heard(MESSAGES, None, &message(json!({"system": blocks("ffff0")}))).await;
    let text = format!("{}\nYou plan picnics.", line("1a2b3"));
    let three = heard(MESSAGES, None, &message(json!({"system": text}))).await;
    assert_eq!((&one, &one), (&two, &three));
    let said = message(json!({"messages": [{"role": "user", "content": line("1a2b3")}]}));
    let bare = message(json!({"messages": [{"role": "user", "content": ""}]}));
    let bare = heard(MESSAGES, None, &bare).await.len();
    assert_eq!(heard(MESSAGES, None, &said).await.len(), bare + line("1a2b3").len());
}

#[tokio::test]
async fn a_late_system_message_is_taken() {
    let messages = json!([
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "Hello."},
        {"role": "system", "content": "Answer only in French."},
        {"role": "user", "content": [{"type": "text", "text": "And now?"}]},
    ]);
    let theirs = chat(json!({"messages": messages}));
    let ours = message(json!({"messages": messages}));
    assert_eq!(heard(MESSAGES, None, &ours).await, heard(CHAT, None, &theirs).await);
}

#[tokio::test]
async fn what_was_computed_before_is_counted_apart() {
    let app = Script::says(&["ok"]).app();
    let body = message(json!({"system": "long ".repeat(40)}));
    let first = post(&app, MESSAGES, &body).await.ok();
    let second = post(&app, MESSAGES, &body).await.ok();
    let count = |reply: &Value, name: &str| reply["usage"][name].as_u64().unwrap();
    let cached = count(&second, "cache_read_input_tokens");
    assert!(cached > 100, "{second}");
    assert_eq!(count(&second, "input_tokens") + cached, count(&first, "input_tokens"));
    assert_eq!(first["content"], second["content"]);
}

/// As Anthropic documents it: the answer goes on where the last message ends, which is not repeated, and
/// what is in it is never a control token.
#[tokio::test]
async fn a_begun_answer_goes_on() {
    let begun = |text: &str| {
        message(json!({"messages": [
            {"role": "user", "content": "Hi"},
            {"role": "assistant", "content": text},
        ]}))
    };
    let bare = heard(MESSAGES, None, &message(json!({}))).await;
    let letters = |text: &str| text.bytes().map(|byte| 4 + u32::from(byte)).collect::<Vec<_>>();
    for text in ["There are", "<|im_end|>", "("] {
        let tokens = heard(MESSAGES, None, &begun(text)).await;
        assert_eq!(tokens, [bare.clone(), letters(text)].concat(), "{text}");
    }
    for nothing in [
        begun(""),
        message(json!({"messages": [
            {"role": "user", "content": "Hi"}, {"role": "assistant", "content": []},
        ]})),
    ] {
        assert_eq!(heard(MESSAGES, None, &nothing).await, bare);
    }
    // A piece that begins with a blank keeps it, whole and streamed.
    let app = || Script::says(&[" two", " ducks"]).app();
    let whole = post(&app(), MESSAGES, &begun("There are")).await.ok();
    assert_eq!(whole["content"], json!([{"type": "text", "text": " two ducks"}]));
    let events =
        post(&app(), MESSAGES, &with(begun("There are"), json!({"stream": true}))).await.events();
    let text: String =
        events.iter().filter_map(|(_, event)| event["delta"]["text"].as_str()).collect();
    assert_eq!(text, " two ducks");
}

#[tokio::test]
async fn what_does_not_go_with_a_begun_answer_is_refused() {
    let answer = |content: Value, more: Value| {
        let messages =
            json!([{"role": "user", "content": "Hi"}, {"role": "assistant", "content": content}]);
        with(message(json!({"messages": messages})), more)
    };
    let call = json!([{"type": "tool_use", "id": "t1", "name": "feed", "input": {}}]);
    let thought = json!([{"type": "thinking", "thinking": "Hm.", "signature": "x"}]);
    let tools = json!([{"name": "feed", "input_schema": {"type": "object"}}]);
    let schema = json!({"format": {"type": "json_schema", "schema": {"type": "object"}}});
    let thinking = json!({"type": "enabled", "budget_tokens": 1024});
    for (body, part) in [
        (answer(json!("There "), json!({})), "whitespace"),
        (answer(call, json!({})), "messages[1].content"),
        (answer(thought, json!({})), "thoughts"),
        (
            answer(json!("I"), json!({"tools": tools, "tool_choice": {"type": "any"}})),
            "tool_choice",
        ),
        (answer(json!("I"), json!({"output_config": schema})), "output_config.format"),
        (answer(json!("I"), json!({"thinking": thinking})), "thinking"),
    ] {
        let error = post(&Script::says(&["Two"]).app(), MESSAGES, &body).await.error(400);
        assert!(error["message"].as_str().unwrap().contains(part), "{part}: {error}");
    }
    // A template that opens the thoughts by itself.
    let mut script = Script::says(&["Two"]);
    script.template =
        Some("{% for m in messages %}{{ m.content }}{% endfor %}<think>\n{# </think> #}");
    post(&script.app(), MESSAGES, &answer(json!("I"), json!({}))).await.error(400);
}

#[tokio::test]
async fn bad_bodies_are_refused_in_anthropics_form() {
    let app = Script::says(&["Two"]).app();
    let user = |content: Value| json!([{"role": "user", "content": content}]);
    let cases = [
        ("temperature", json!(2.5)),
        ("temperature", json!("NaN")),
        ("top_p", json!(0)),
        ("top_k", json!(1.5)),
        ("max_tokens", json!(0)),
        ("max_tokens", json!(-5)),
        ("stop_sequences", json!([""])),
        ("stop_sequences", json!([7])),
        ("stream", json!("yes")),
        ("system", json!(7)),
        ("system", json!([{"type": "image"}])),
        ("messages", json!([])),
        ("messages", json!("Hi")),
        ("messages[0].role", json!([{"role": "wizard", "content": "x"}])),
        ("messages[0].role", json!([{"role": "assistant", "content": "I"}])),
        ("messages[0].content", json!([{"role": "user"}])),
        ("messages[0].content", user(json!([]))),
        ("messages[0].content[0].type", user(json!([{"type": "image", "source": {}}]))),
        ("messages[0].content[0].text", user(json!([{"type": "text"}]))),
        ("messages[0].content[0].tool_use_id", user(json!([{"type": "tool_result"}]))),
        ("tools[0].name", json!([{"input_schema": {}}])),
        ("tools[0].input_schema", json!([{"name": "f", "input_schema": 7}])),
        ("tools[0].type", json!([{"type": "web_search_20250305", "name": "web_search"}])),
        ("tool_choice.type", json!({"type": "any"})),
        ("tool_choice.type", json!({"type": "maybe"})),
        ("tool_choice.name", json!({"type": "tool", "name": "absent"})),
        ("thinking.type", json!({"type": "sometimes"})),
        ("thinking.budget_tokens", json!({"type": "enabled", "budget_tokens": 0})),
        ("output_config.format.type", json!({"format": {"type": "xml"}})),
        ("container", json!("c")),
        ("mcp_servers", json!([{"url": "x"}])),
    ];
    for (path, value) in cases {
        let field = path.split(['.', '[']).next().unwrap();
        let mut body = message(json!({}));
        body[field] = value;
        for stream in [json!(false), json!(true)] {
            if field != "stream" {
                body["stream"] = stream;
            }
            let reply = post(&app, MESSAGES, &body).await;
            assert_eq!(reply.status, 400, "{path}: {}", reply.text());
            let error = reply.json();
            assert_eq!(
                (&error["type"], &error["error"]["type"]),
                (&json!("error"), &json!("invalid_request_error"))
            );
            assert!(error["error"]["message"].as_str().unwrap().contains(path), "{path}: {error}");
            assert_eq!(error["request_id"], reply.headers["request-id"].to_str().unwrap());
        }
    }
    let deep = format!("{{\"messages\":{}{}}}", "[".repeat(3000), "]".repeat(3000));
    for path in [MESSAGES.to_owned(), format!("{MESSAGES}/count_tokens")] {
        let error = send(&app, "POST", &path, deep.clone()).await;
        assert_eq!((error.status.as_u16(), &error.json()["type"]), (400, &json!("error")));
    }
    let unknown = post(&app, MESSAGES, &message(json!({"model": "claude-9"}))).await;
    assert_eq!(unknown.status, 404);
    assert_eq!(unknown.json()["error"]["type"], "not_found_error");
    let method = send(&app, "GET", MESSAGES, "").await;
    assert_eq!((method.status.as_u16(), &method.json()["type"]), (405, &json!("error")));
}

#[tokio::test]
async fn what_clients_send_besides_is_taken() {
    let more = json!({
        "metadata": {"user_id": "u"}, "service_tier": "auto", "betas": ["x-2025"],
        "context_management": {"edits": []}, "mcp_servers": [], "something_new": {"deep": [1]},
        "thinking": {"type": "enabled", "budget_tokens": 1024}, "tool_choice": {"type": "auto"},
        "output_config": {"effort": "low"}, "top_k": 5, "stop_sequences": ["zz"],
    });
    ducks(more).await.ok();
    let app = Script::says(&["Two"]).app();
    ducks(json!({"thinking": {"type": "adaptive"}, "temperature": 1})).await.ok();
    let path = format!("{MESSAGES}?beta=true");
    post(&app, &path, &message(json!({}))).await.ok();
}
