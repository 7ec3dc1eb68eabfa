//! An agent's next turn: the call that the model made and its result come back, as each dialect writes
//! them, and what was computed for the turn before is found again.

use std::sync::Mutex;

use engine::TokenId;
use hearth_server::App;
use serde_json::{Value, json};

use crate::client::{CHAT, MESSAGES, chat, message, send, with};
use crate::script::Script;

/// As models of the Qwen kind have it: calls are rendered as they were said.
const TOOLS: &str = "{% for t in tools %}{{ t | tojson }}\n{% endfor %}{% for m in messages %}<|im_start|>{{ m.role }}\n\
    {{ m.content }}{% for c in m.tool_calls %}<tool_call>\n{\"name\": \"{{ c.function.name }}\", \"arguments\": \
    {{ c.function.arguments | tojson }}}\n</tool_call>{% endfor %}<|im_end|>\n{% endfor %}\
    {% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";
const CALL: &str = "<tool_call>\n{\"name\": \"feed\", \"arguments\": {\"n\": 2}}\n</tool_call>";
/// The same with a number that 64 bits do not hold.
const LONG: &str = "<tool_call>\n{\"name\": \"feed\", \"arguments\": {\"n\": 123456789012345678901234567890}}\n</tool_call>";
const DIGITS: &str = "123456789012345678901234567890";
/// What these clients hold in place of it: a number that no double is either.
const HELD: u64 = 9_007_199_254_740_993;
const RESPONSES: &str = "/v1/responses";
const OLLAMA: &str = "/api/chat";

fn parameters() -> Value {
    json!({"type": "object", "properties": {"n": {"type": "integer", "default": HELD}}})
}

fn function() -> Value {
    json!([{"type": "function", "function": {"name": "feed", "parameters": parameters()}}])
}

/// Asks as a client does whose numbers have all their digits.
async fn say(app: &App, path: &str, body: &Value) -> Value {
    let held = HELD.to_string();
    let reply = send(app, "POST", path, body.to_string().replace(&held, DIGITS)).await;
    assert_eq!(reply.status, 200, "{path} {}", reply.text());
    serde_json::from_str(&reply.text().replace(DIGITS, &held)).unwrap()
}

/// What the model was given, without what it said itself.
fn given(heard: &Mutex<Vec<TokenId>>) -> String {
    let heard = heard.lock().unwrap();
    let byte = |&token: &TokenId| u8::try_from(token.checked_sub(4)?).ok();
    String::from_utf8_lossy(&heard.iter().filter_map(byte).collect::<Vec<u8>>()).into_owned()
}

/// A turn, what the next one makes of its answer, and where the answers say how long their prompts were
/// and how much of them was found; both are added up.
struct Turn {
    path: &'static str,
    first: Value,
    next: fn(&Value, &Value) -> Value,
    prompt: &'static [&'static str],
    cached: &'static str,
}

fn turns() -> Vec<Turn> {
    let input = json!([{"role": "user", "content": "Feed them"}]);
    let tool = json!([{"type": "function", "name": "feed", "parameters": parameters()}]);
    vec![
        Turn {
            path: CHAT,
            first: chat(json!({"tools": function()})),
            next: |first, reply| {
                let said = &reply["choices"][0]["message"];
                let id = &said["tool_calls"][0]["id"];
                let result = json!({"role": "tool", "tool_call_id": id, "content": "fed"});
                with(first.clone(), json!({"messages": [first["messages"][0], said, result]}))
            },
            prompt: &["/usage/prompt_tokens"],
            cached: "/usage/prompt_tokens_details/cached_tokens",
        },
        Turn {
            path: MESSAGES,
            first: message(json!({"tools": [{"name": "feed", "input_schema": parameters()}]})),
            next: |first, reply| {
                let said = json!({"role": "assistant", "content": reply["content"]});
                let id = &reply["content"][0]["id"];
                let result = json!([{"type": "tool_result", "tool_use_id": id, "content": "fed"}]);
                let result = json!({"role": "user", "content": result});
                with(first.clone(), json!({"messages": [first["messages"][0], said, result]}))
            },
            prompt: &["/usage/input_tokens", "/usage/cache_read_input_tokens"],
            cached: "/usage/cache_read_input_tokens",
        },
        Turn {
            path: RESPONSES,
            first: json!({"model": "toy", "input": input, "tools": tool}),
            next: |first, reply| {
                let said = &reply["output"][0];
                let id = &said["call_id"];
                let result =
                    json!({"type": "function_call_output", "call_id": id, "output": "fed"});
                with(first.clone(), json!({"input": [first["input"][0], said, result]}))
            },
            prompt: &["/usage/input_tokens"],
            cached: "/usage/input_tokens_details/cached_tokens",
        },
        Turn {
            path: RESPONSES,
            first: json!({"model": "toy", "input": input, "tools": tool}),
            next: |first, reply| {
                let id = &reply["output"][0]["call_id"];
                let result =
                    json!({"type": "function_call_output", "call_id": id, "output": "fed"});
                let earlier = &reply["id"];
                with(first.clone(), json!({"input": [result], "previous_response_id": earlier}))
            },
            prompt: &["/usage/input_tokens"],
            cached: "/usage/input_tokens_details/cached_tokens",
        },
    ]
}

fn number(reply: &Value, path: &str) -> u64 {
    reply.pointer(path).and_then(Value::as_u64).unwrap_or_else(|| panic!("{path}: {reply}"))
}

fn script(call: &str) -> Script {
    let mut script = Script::says(&[call]);
    script.template = Some(TOOLS);
    script
}

#[tokio::test]
async fn the_next_turn_finds_all_of_the_one_before() {
    for (call, turn) in
        [CALL, LONG].iter().flat_map(|call| turns().into_iter().map(move |t| (call, t)))
    {
        let Turn { path, first, next, prompt, cached } = turn;
        let script = script(call);
        let heard = script.heard.clone();
        let app = script.app();
        let reply = say(&app, path, &first).await;
        let length = |reply: &Value| prompt.iter().map(|path| number(reply, path)).sum::<u64>();
        let second = say(&app, path, &next(&first, &reply)).await;
        assert_eq!(number(&second, cached), length(&reply), "{path}");
        assert!(length(&second) > length(&reply) + 20, "{path}");
        let given = given(&heard);
        assert!(given.contains(call), "{path} {given}");
        assert!(given.contains(&format!("\"default\": {DIGITS}")), "{path} {given}");
        // This dialect's answers repeat the tools.
        if path == RESPONSES {
            assert_eq!(reply["tools"][0]["parameters"], parameters());
            let id = reply["id"].as_str().unwrap();
            let kept = send(&app, "GET", &format!("{path}/{id}"), "").await;
            assert!(kept.text().contains(&format!("\"default\":{DIGITS}")), "{}", kept.text());
            let streamed = with(first, json!({"stream": true})).to_string();
            let streamed = streamed.replace(&HELD.to_string(), DIGITS);
            let streamed = send(&app, "POST", path, streamed).await;
            assert!(streamed.text().contains(&format!("\"default\":{DIGITS}")));
        }
    }
}

/// Ollama's answers do not say what was found: what reaches the device does.
#[tokio::test]
async fn so_does_ollamas() {
    for call in [CALL, LONG] {
        let script = script(call);
        let heard = script.heard.clone();
        let app = script.app();
        let first = json!({"model": "toy", "messages": [{"role": "user", "content": "Hi"}],
                           "tools": function(), "stream": false});
        let reply = say(&app, OLLAMA, &first).await;
        let before = heard.lock().unwrap().len();
        let result = json!({"role": "tool", "tool_name": "feed", "content": "fed"});
        let messages = json!([first["messages"][0], reply["message"], result]);
        let second = say(&app, OLLAMA, &with(first, json!({"messages": messages}))).await;
        let computed = heard.lock().unwrap().len() - before;
        let n = |reply: &Value| reply["prompt_eval_count"].as_u64().unwrap() as usize;
        // What is new of the prompt, and the one token of the call before its end.
        assert_eq!(computed, n(&second) - n(&reply) + 1);
        let given = given(&heard);
        assert!(given.contains(call), "{given}");
        assert!(given.contains(&format!("\"default\": {DIGITS}")), "{given}");
    }
}
