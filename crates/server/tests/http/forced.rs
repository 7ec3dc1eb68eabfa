//! Calls that a model must make, whatever it would rather say; and formats beside tools and thoughts.

use serde_json::{Value, json};

use crate::client::{CHAT, MESSAGES, chat, message, post, with};
use crate::script::{CHATML, Script, Speech};

fn tool(name: &str, parameters: Value) -> Value {
    json!({"type": "function", "function": {"name": name, "parameters": parameters}})
}

fn tools() -> Value {
    let weather = json!({"type": "object", "required": ["city"], "properties": {
        "city": {"type": "string", "maxLength": 12}, "unit": {"enum": ["c", "f"]}}});
    let add = json!({"type": "object", "required": ["a", "b"], "properties": {
        "a": {"type": "integer"}, "b": {"type": "integer"}}});
    json!([tool("weather", weather), tool("add", add),
           {"type": "function", "function": {"name": "ping"}}])
}

fn anything() -> Script {
    let mut script = Script::says(&["<tool_call>", "{\"", "\": ", "}\n", "weather"]);
    script.speech = Speech::Anything;
    script.defaults.temperature = 1.0;
    script
}

#[track_caller]
fn check_call(call: &Value) -> String {
    let name = call["function"]["name"].as_str().unwrap_or_else(|| panic!("{call}"));
    let arguments: Value =
        serde_json::from_str(call["function"]["arguments"].as_str().unwrap()).unwrap();
    let map = arguments.as_object().unwrap();
    let has = |keys: &[&str]| map.keys().all(|key| keys.contains(&key.as_str()));
    match name {
        "weather" => {
            assert!(has(&["city", "unit"]), "{arguments}");
            assert!(arguments["city"].as_str().unwrap().chars().count() <= 12);
            let unit = &arguments["unit"];
            assert!(unit.is_null() || unit == "c" || unit == "f", "{arguments}");
        }
        "add" => {
            // They may have very many digits.
            let whole = |key: &str| arguments[key].as_f64().is_some_and(|n| n.fract() == 0.0);
            assert!(has(&["a", "b"]) && whole("a") && whole("b"), "{arguments}");
        }
        "ping" => assert!(map.is_empty(), "{arguments}"),
        _ => panic!("{call}"),
    }
    name.to_owned()
}

#[tokio::test]
async fn required_tools_are_called() {
    let app = anything().app();
    let mut names = Vec::new();
    for seed in 0..12 {
        let more = json!({"tools": tools(), "tool_choice": "required", "seed": seed});
        let one = json!({"parallel_tool_calls": false});
        for (body, most) in [(more.clone(), 1000), (with(more, one), 1)] {
            let reply = post(&app, CHAT, &chat(body.clone())).await.ok();
            let choice = &reply["choices"][0];
            if choice["finish_reason"] == "length" {
                continue;
            }
            let calls =
                choice["message"]["tool_calls"].as_array().unwrap_or_else(|| panic!("{reply}"));
            assert!((1..=most).contains(&calls.len()), "{reply}");
            names.extend(calls.iter().map(check_call));
            assert_eq!(choice["finish_reason"], "tool_calls");
            assert_eq!(choice["message"]["content"], Value::Null);
            let frames =
                post(&app, CHAT, &chat(with(body, json!({"stream": true})))).await.frames();
            let last =
                frames.iter().rev().find(|frame| !frame["choices"][0]["finish_reason"].is_null());
            assert_eq!(last.unwrap()["choices"][0]["finish_reason"], "tool_calls");
        }
    }
    for name in ["weather", "add", "ping"] {
        assert!(names.iter().any(|called| called == name), "{names:?}");
    }
}

/// A model of each of these families, by what its chat template has in it.
#[tokio::test]
async fn every_family_is_held_to_its_own_form() {
    let harmony = "{% for m in messages %}<|start|>{{ m.role }}<|channel|>final<|message|>{{ m.content }}\
                   <|end|>{% endfor %}<|start|>assistant";
    let functionary = format!("{{# >>>all #}}{CHATML}>>>");
    let marked = [
        "<|tools_prefix|>",
        "<|function_call|>",
        "<|tool_call:begin|>",
        "[func_name1(params_name1=params_value1)]",
        "followed by a json-formatted list of actions",
        "<|open|>tools<|sep|>",
    ];
    let marked = marked.map(|mark| format!("{{# {mark} #}}{CHATML}"));
    for template in marked.into_iter().chain([harmony.to_owned(), functionary]) {
        let mut script = anything();
        let template: &'static str = template.leak();
        script.template = Some(template);
        let app = script.app();
        let mut n_calls = 0;
        for seed in 0..3 {
            let more = json!({"tools": tools(), "tool_choice": "required", "seed": seed,
                              "max_tokens": 400});
            let reply = post(&app, CHAT, &chat(more.clone())).await.ok();
            let choice = &reply["choices"][0];
            if choice["finish_reason"] == "length" {
                continue;
            }
            let calls = choice["message"]["tool_calls"].as_array().cloned();
            let calls = calls.unwrap_or_else(|| panic!("{template}: {reply}"));
            assert_eq!(choice["message"]["content"], Value::Null, "{template}");
            for call in &calls {
                check_call(call);
                let id = call["id"].as_str().unwrap();
                if template.contains("<|tool_call:begin|>") {
                    assert!(id.parse::<u16>().is_ok(), "Solar numbers its calls: {id}");
                } else {
                    assert!(id.starts_with("call_") && id.len() == 29, "{id}");
                }
            }
            n_calls += calls.len();
            // The same in a stream, put together by index.
            let stream = json!({"stream": true});
            let frames = post(&app, CHAT, &chat(with(more, stream))).await.frames();
            let mut streamed = vec![[String::new(), String::new()]; calls.len()];
            let deltas = frames
                .iter()
                .filter_map(|frame| frame["choices"][0]["delta"]["tool_calls"].as_array());
            for delta in deltas.flatten() {
                let at = delta["index"].as_u64().unwrap() as usize;
                streamed[at][0] += delta["function"]["name"].as_str().unwrap_or_default();
                streamed[at][1] += delta["function"]["arguments"].as_str().unwrap_or_default();
            }
            let whole = calls.iter().map(|call| {
                ["name", "arguments"].map(|key| call["function"][key].as_str().unwrap().to_owned())
            });
            assert_eq!(streamed, whole.collect::<Vec<_>>(), "{template}");
            // And in Anthropic's form.
            let tools: Vec<Value> = tools()
                .as_array()
                .unwrap()
                .iter()
                .map(|tool| {
                    let function = &tool["function"];
                    let schema = function.get("parameters").cloned();
                    let schema = schema.unwrap_or_else(|| json!({"type": "object"}));
                    json!({"name": function["name"], "input_schema": schema})
                })
                .collect();
            let more = json!({"tools": tools, "tool_choice": {"type": "any"}, "seed": seed,
                              "max_tokens": 400});
            let reply = post(&app, MESSAGES, &message(more)).await.ok();
            if reply["stop_reason"] == "tool_use" {
                let blocks = reply["content"].as_array().unwrap();
                assert!(!blocks.is_empty(), "{template}: {reply}");
                assert!(blocks.iter().all(|block| block["type"] == "tool_use"), "{reply}");
            }
        }
        assert!(n_calls > 0, "{template}: nothing but cut answers");
    }
}

#[tokio::test]
async fn a_named_tool_is_called_once() {
    let app = anything().app();
    for (name, choice) in [
        ("add", json!({"type": "function", "function": {"name": "add"}})),
        ("ping", json!({"type": "function", "name": "ping"})),
    ] {
        for seed in 0..5 {
            let more = json!({"tools": tools(), "tool_choice": choice, "seed": seed});
            let reply = post(&app, CHAT, &chat(more)).await.ok();
            let calls = reply["choices"][0]["message"]["tool_calls"].as_array().unwrap();
            assert_eq!(calls.len(), 1, "{reply}");
            assert_eq!(check_call(&calls[0]), name);
        }
    }
    let allowed = json!({"type": "allowed_tools", "allowed_tools": {"mode": "required",
        "tools": [{"type": "function", "function": {"name": "ping"}}]}});
    let more = json!({"tools": tools(), "tool_choice": allowed, "parallel_tool_calls": false});
    let reply = post(&app, CHAT, &chat(more)).await.ok();
    assert_eq!(reply["choices"][0]["message"]["tool_calls"][0]["function"]["name"], "ping");
}

/// Case V03: a call of a tool that the model was not shown is what it says.
#[tokio::test]
async fn none_leaves_no_tools_and_no_calls() {
    const SHOWN: &str = "{% for t in tools or [] %}[{{ t.function.name }}]{% endfor %}\
        {% for m in messages %}{{ m.content }}{% endfor %}\
        {# <tool_call>{{ tool_call.name }}</tool_call> #}";
    let call = "<tool_call>{\"name\":\"feed\",\"arguments\":{}}</tool_call>";
    let tools = json!([{"type": "function", "function": {"name": "feed"}}]);
    for (choice, shown) in [("none", false), ("auto", true)] {
        let mut script = Script::says(&[call]);
        script.template = Some(SHOWN);
        let heard = script.heard.clone();
        let app = script.app();
        let more = json!({"tools": tools, "tool_choice": choice});
        let reply = post(&app, CHAT, &chat(more)).await.ok();
        let prompt = heard.lock().unwrap().clone();
        assert_eq!(prompt.len() > "Hi".len() + 3, shown, "{choice} {prompt:?}");
        let choice = &reply["choices"][0];
        let calls = choice["message"]["tool_calls"].as_array().map_or(0, Vec::len);
        assert_eq!(calls, usize::from(shown), "{reply}");
        if !shown {
            assert_eq!(choice["message"]["content"], call);
            assert_eq!(choice["finish_reason"], "stop");
        }
    }
}

/// Case V03: (e).
#[tokio::test]
async fn prose_becomes_a_call_where_one_is_required() {
    let app = Script::says(&["Sure", ", here", " you", " are"]).app();
    let more = json!({"tools": [{"type": "function", "function": {"name": "feed"}}],
                      "tool_choice": "required", "parallel_tool_calls": false});
    let reply = post(&app, CHAT, &chat(more)).await.ok();
    let call = &reply["choices"][0]["message"]["tool_calls"][0]["function"];
    assert_eq!(call["name"], "feed", "{reply}");
    let arguments: Value = serde_json::from_str(call["arguments"].as_str().unwrap()).unwrap();
    assert_eq!(arguments, json!({}));
}

#[tokio::test]
async fn tools_that_cannot_be_enforced_are_named_where_they_must_be_called() {
    let app = anything().app();
    let odd = json!([
        tool("fine", json!({"type": "object"})),
        tool("odd", json!({"type": "object", "properties": {"a": {"not": {}}}}))
    ]);
    for stream in [false, true] {
        let more = json!({"tools": odd, "tool_choice": "required", "stream": stream});
        let error = post(&app, CHAT, &chat(more)).await.error(400);
        assert_eq!(error["param"], "tools[1].function.parameters.properties.a.not");
        assert_eq!(error["code"], "unsupported_tool_choice");
    }
    // Where nothing has to be called there is nothing to enforce.
    let more = json!({"tools": odd, "max_tokens": 3});
    post(&app, CHAT, &chat(more)).await.ok();
}

#[tokio::test]
async fn a_format_leaves_calls_possible() {
    let app = anything().app();
    let mut n_calls = 0;
    for seed in 0..20 {
        let more = json!({"tools": tools(), "seed": seed,
                          "guided_json": {"type": "object", "required": ["x"], "properties":
                              {"x": {"type": "integer"}}, "additionalProperties": false}});
        let reply = post(&app, CHAT, &chat(more)).await.ok();
        let choice = &reply["choices"][0];
        match choice["finish_reason"].as_str() {
            Some("tool_calls") => {
                n_calls += 1;
                choice["message"]["tool_calls"].as_array().unwrap().iter().for_each(|call| {
                    check_call(call);
                });
            }
            Some("stop") => {
                let text = choice["message"]["content"].as_str().unwrap();
                let value: Value = serde_json::from_str(text).unwrap();
                assert!(value["x"].is_i64(), "{text}");
            }
            _ => {}
        }
    }
    assert!((1..20).contains(&n_calls), "{n_calls}");
}

const THINKING: &str = "<s>{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n\
     {% endfor %}<|im_start|>assistant\n<think>\n";

#[tokio::test]
async fn a_format_begins_after_the_thoughts() {
    let mut script = Script::says(&["Let me see", ". It is 7", ".\n", "</think>", "\n\n"]);
    script.template = Some(THINKING);
    let app = script.app();
    let more = json!({"guided_json": {"type": "object", "required": ["n"], "properties":
                          {"n": {"const": 7}}, "additionalProperties": false}});
    let reply = post(&app, CHAT, &chat(more.clone())).await.ok();
    let message = &reply["choices"][0]["message"];
    let said: Value = serde_json::from_str(message["content"].as_str().unwrap()).unwrap();
    assert_eq!(said, json!({"n": 7}), "{reply}");
    let thoughts = message["reasoning_content"].as_str().unwrap();
    assert_eq!(thoughts.trim(), "Let me see. It is 7.");
    // Thoughts that are cut short end where they are told to, and the format begins.
    let more = with(more, json!({"thinking_budget": 1}));
    let reply = post(&app, CHAT, &chat(more)).await.ok();
    let message = &reply["choices"][0]["message"];
    let said: Value = serde_json::from_str(message["content"].as_str().unwrap()).unwrap();
    assert_eq!(said, json!({"n": 7}), "{reply}");
}
