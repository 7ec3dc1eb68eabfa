//! Thoughts and tool calls as OpenAI's clients get them, whole and streamed: cases from public bug
//! reports, played by a script.

use serde_json::{Value, json};

use crate::client::{CHAT, MESSAGES, chat, message, post, with};
use crate::script::Script;

const HERMES: &str = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n\
    {% endfor %}{# <think> <tool_call>{{ tool_call.name }}</tool_call> #}<|im_start|>assistant\n";
const THINKING: &str = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n\
    {% endfor %}<|im_start|>assistant\n<think>\n{{ '\n</think>\n\n' if enable_thinking is false }}";
const MISTRAL: &str = "{{ messages[0].content }}{# [TOOL_CALLS] [ARGS] #}";
const HARMONY: &str = "{{ messages[0].content }}{# <|channel|> <|message|> #}<|start|>assistant";

/// What a client that follows OpenAI's description makes of an answer.
#[derive(Debug, Default, PartialEq)]
struct Answer {
    reasoning: String,
    content: String,
    /// Id, name and arguments.
    calls: Vec<(String, String, String)>,
    reason: String,
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

impl Answer {
    fn of_whole(reply: &Value) -> Answer {
        let choice = &reply["choices"][0];
        let message = &choice["message"];
        assert_eq!(message["reasoning"], message["reasoning_content"]);
        let calls = message["tool_calls"].as_array().map(Vec::as_slice).unwrap_or_default();
        assert!(!calls.is_empty() || message.get("tool_calls").is_none());
        assert_eq!(
            message["content"].is_null(),
            !calls.is_empty() && message["content"] == Value::Null
        );
        let call = |call: &Value| {
            assert_eq!(call["type"], "function");
            let function = &call["function"];
            (text(&call["id"]), text(&function["name"]), text(&function["arguments"]))
        };
        Answer {
            reasoning: text(&message["reasoning_content"]),
            content: text(&message["content"]),
            calls: calls.iter().map(call).collect(),
            reason: text(&choice["finish_reason"]),
        }
    }

    fn of_stream(frames: &[Value]) -> Answer {
        let mut answer = Answer::default();
        assert_eq!(frames[0]["choices"][0]["delta"]["role"], "assistant");
        for frame in frames {
            let choice = &frame["choices"][0];
            let delta = &choice["delta"];
            answer.reasoning += &text(&delta["reasoning_content"]);
            answer.content += &text(&delta["content"]);
            for call in delta["tool_calls"].as_array().into_iter().flatten() {
                let index = call["index"].as_u64().unwrap() as usize;
                let function = &call["function"];
                if call.get("id").is_some() {
                    assert_eq!(index, answer.calls.len(), "calls come in order");
                    assert_eq!(call["type"], "function");
                    assert_eq!(function["arguments"], "");
                    let (id, name) = (text(&call["id"]), text(&function["name"]));
                    answer.calls.push((id, name, String::new()));
                } else {
                    assert_eq!(index + 1, answer.calls.len(), "a call ends before the next");
                    assert!(call.get("type").is_none() && function.get("name").is_none());
                    answer.calls[index].2 += &text(&function["arguments"]);
                }
            }
            if let Some(reason) = choice["finish_reason"].as_str() {
                assert_eq!(answer.reason, "", "one reason");
                answer.reason = reason.to_owned();
            }
        }
        answer
    }

    fn arguments(&self) -> Vec<(&str, Value)> {
        let parsed = |(_, name, arguments): &'_ (String, String, String)| {
            (name.clone(), serde_json::from_str(arguments).unwrap())
        };
        let all = self.calls.iter().map(parsed).zip(&self.calls);
        all.map(|((_, arguments), (_, name, _))| (name.as_str(), arguments)).collect()
    }
}

fn tools(names: &[&str]) -> Value {
    let tool = |name: &&str| {
        let parameters = json!({"type": "object", "properties": {}});
        json!({"type": "function", "function": {"name": name, "parameters": parameters}})
    };
    names.iter().map(tool).collect()
}

/// The answer to a request, which must be the same whole and streamed.
async fn ask(template: &'static str, pieces: &[&str], more: Value) -> Answer {
    let app = || {
        let mut script = Script::says(pieces);
        script.template = Some(template);
        script.app()
    };
    let body = chat(with(json!({"seed": 5}), more));
    let whole = Answer::of_whole(&post(&app(), CHAT, &body).await.ok());
    let streamed = with(body, json!({"stream": true}));
    assert_eq!(Answer::of_stream(&post(&app(), CHAT, &streamed).await.frames()), whole);
    whole
}

#[tokio::test]
async fn mistral_calls_end_with_the_answer() {
    let pieces = [
        "[TOOL_CALLS]",
        "open",
        "_valve",
        "[AR",
        "GS]",
        "{\"",
        "id\": \"v-12\"",
        ", \"turns\": 3}",
    ];
    let answer = ask(MISTRAL, &pieces, json!({"tools": tools(&["open_valve"])})).await;
    assert_eq!((answer.content.as_str(), answer.reason.as_str()), ("", "tool_calls"));
    assert_eq!(answer.arguments(), [("open_valve", json!({"id": "v-12", "turns": 3}))]);
}

const PRICE: [&str; 12] = [
    "<|channel|>",
    "analysis",
    "<|message|>",
    "Need the",
    " price.",
    "<|end|><|start|>",
    "assistant<|channel|>comm",
    "entary to=functions.",
    "get_price <|con",
    "strain|>json<|mess",
    "age|>{\"sku\":",
    "\"B-7\"}<|call|>",
];

#[tokio::test]
async fn harmony_channels_are_told_apart() {
    let answer = ask(HARMONY, &PRICE, json!({"tools": tools(&["get_price"])})).await;
    assert_eq!(answer.reasoning, "Need the price.");
    assert_eq!((answer.content.as_str(), answer.reason.as_str()), ("", "tool_calls"));
    assert_eq!(answer.arguments(), [("get_price", json!({"sku": "B-7"}))]);
}

const ROWS: [&str; 7] = [
    "<tool_call>\n{\"name\":\"fetch",
    "_row\",\"arguments\":{\"id\":1}}\n</tool",
    "_call>\n<tool",
    "_call>\n{\"name\":\"fetch_r",
    "ow\",\"arguments\":{\"id\":",
    "2}}\n",
    "</tool_call>",
];

#[tokio::test]
async fn two_calls_of_one_tool() {
    let answer = ask(HERMES, &ROWS, json!({"tools": tools(&["fetch_row"])})).await;
    let expected = [("fetch_row", json!({"id": 1})), ("fetch_row", json!({"id": 2}))];
    assert_eq!(answer.arguments(), expected);
    assert_eq!(answer.reason, "tool_calls");
    assert!(answer.calls[0].0 != answer.calls[1].0 && !answer.calls[0].0.is_empty());
    // Another seed, other ids.
    let other = ask(HERMES, &ROWS, json!({"tools": tools(&["fetch_row"]), "seed": 6})).await;
    assert_ne!(other.calls[0].0, answer.calls[0].0);
    // The same seed in another turn, too.
    let messages = json!([{"role": "user", "content": "Go on"}]);
    let more = json!({"tools": tools(&["fetch_row"]), "messages": messages});
    assert_ne!(ask(HERMES, &ROWS, more).await.calls[0].0, answer.calls[0].0);
    // No tools, no calls.
    let more = json!({"tools": tools(&["fetch_row"]), "tool_choice": "none"});
    let text = ask(HERMES, &ROWS, more).await;
    assert_eq!((text.content, text.reason.as_str()), (ROWS.concat(), "stop"));
}

#[tokio::test]
async fn one_call_if_no_more_are_wanted() {
    let more = json!({"tools": tools(&["fetch_row"]), "parallel_tool_calls": false});
    let answer = ask(HERMES, &ROWS, more).await;
    assert_eq!(answer.arguments(), [("fetch_row", json!({"id": 1}))]);
    assert_eq!(answer.reason, "tool_calls");
}

#[tokio::test]
async fn prose_about_calls_is_none() {
    let text =
        "For example `<tool_call>{\"name\":\"wipe_disk\",\"arguments\":{}}</tool_call>` is it.";
    let answer = ask(HERMES, &[text], json!({"tools": tools(&["read_gauge"])})).await;
    assert_eq!((answer.content.as_str(), answer.reason.as_str()), (text, "stop"));
    assert_eq!(answer.calls, []);
}

const UNITS: [&str; 6] = ["Check the ", "units.", "</th", "ink>", "\n\n", "42 kg"];

#[tokio::test]
async fn the_prompt_opens_the_thoughts() {
    let answer = ask(THINKING, &UNITS, json!({})).await;
    assert_eq!((answer.reasoning.as_str(), answer.content.as_str()), ("Check the units.", "42 kg"));
    for off in [
        json!({"enable_thinking": false}),
        json!({"reasoning_effort": "none"}),
        json!({"thinking": {"type": "disabled"}}),
        json!({"chat_template_kwargs": {"enable_thinking": false}}),
    ] {
        let answer = ask(THINKING, &UNITS, off).await;
        assert_eq!((answer.reasoning.as_str(), answer.content), ("", UNITS.concat()));
    }
}

/// Some templates have a word where others have a switch.
#[tokio::test]
async fn the_wish_to_think_reaches_templates_that_have_a_mode() {
    const MODE: &str = "{{ messages[0].content }}{% if thinking_mode is defined and thinking_mode == \"disabled\" %}\
        <think></think>{% elif thinking_mode is defined and thinking_mode == \"enabled\" %}<think>{% endif %}";
    for (more, reasoning) in [
        (json!({}), ""),
        (json!({"enable_thinking": false}), ""),
        (json!({"reasoning_effort": "none"}), ""),
        (json!({"enable_thinking": true}), "Check the units."),
        (json!({"thinking": {"type": "enabled"}}), "Check the units."),
        (
            json!({"enable_thinking": true, "chat_template_kwargs": {"thinking_mode": "disabled"}}),
            "",
        ),
    ] {
        let answer = ask(MODE, &UNITS, more.clone()).await;
        assert_eq!(answer.reasoning, reasoning, "{more}");
        let content = if reasoning.is_empty() { UNITS.concat() } else { "42 kg".to_owned() };
        assert_eq!(answer.content, content, "{more}");
    }
}

#[tokio::test]
async fn a_cut_never_turns_thoughts_into_an_answer() {
    let answer = ask(THINKING, &["First I", " should", " list"], json!({"max_tokens": 3})).await;
    assert_eq!(answer.reasoning, "First I should list");
    assert_eq!((answer.content.as_str(), answer.reason.as_str()), ("", "length"));
}

#[tokio::test]
async fn stop_strings_and_scores_are_of_the_answer() {
    let app = || {
        let mut script = Script::says(&UNITS);
        script.template = Some(THINKING);
        script.app()
    };
    let body = chat(json!({"stop": ["units", " kg"], "logprobs": true}));
    let reply = post(&app(), CHAT, &body).await.ok();
    let choice = &reply["choices"][0];
    assert_eq!(choice["message"]["reasoning_content"], "Check the units.");
    assert_eq!(choice["message"]["content"], "42");
    let reply = post(&app(), CHAT, &chat(json!({"logprobs": true}))).await.ok();
    let scores = &reply["choices"][0]["logprobs"]["content"];
    let tokens: Vec<&Value> = scores.as_array().unwrap().iter().map(|s| &s["token"]).collect();
    assert_eq!(tokens, ["42 kg"]);
    // The closing tag is written while thinking; end-of-text is the eighth token.
    let details = &reply["usage"]["completion_tokens_details"];
    assert_eq!(
        (&details["reasoning_tokens"], &reply["usage"]["completion_tokens"]),
        (&json!(4), &json!(7))
    );
}

#[tokio::test]
async fn a_call_that_is_cut_says_so() {
    let more = json!({"tools": tools(&["fetch_row"]), "max_tokens": 5});
    let answer = ask(HERMES, &ROWS, more).await;
    assert_eq!((answer.calls.len(), answer.reason.as_str()), (2, "length"));
    assert_eq!(answer.calls[1].2, "{\"id\":");
    // Nothing but the end of the text is missing.
    let more = json!({"tools": tools(&["fetch_row"]), "max_tokens": 7});
    assert_eq!(ask(HERMES, &ROWS, more).await.reason, "tool_calls");
}

const LONG: [&str; 6] = ["First I", " think", " of", " everything", ".</think>", "Done."];

/// The tokens of the closing tag are letters, since the toy vocabulary has no token for it. After
/// them the script begins anew.
#[tokio::test]
async fn thoughts_end_when_their_budget_is_used_up() {
    for wish in [
        json!({"thinking_budget": 2}),
        json!({"thinking": {"type": "enabled", "budget_tokens": 2}}),
        json!({"reasoning": {"max_tokens": 2}}),
    ] {
        let max_tokens = 2 + "\n</think>\n\n".len() + 1;
        let answer = ask(THINKING, &LONG, with(wish, json!({"max_tokens": max_tokens}))).await;
        assert_eq!(answer.reasoning, "First I think");
        assert_eq!((answer.content.as_str(), answer.reason.as_str()), ("First I", "length"));
    }
    let answer = ask(THINKING, &LONG, json!({"thinking_budget": 0, "max_tokens": 12})).await;
    assert_eq!((answer.reasoning.as_str(), answer.content.as_str()), ("", "First I"));
    let answer = ask(THINKING, &LONG, json!({"thinking_budget": 100})).await;
    assert_eq!(answer.reasoning, "First I think of everything.");
    assert_eq!((answer.content.as_str(), answer.reason.as_str()), ("Done.", "stop"));
}

/// The events of a stream of `/v1/messages`: types and, of deltas, what they add.
async fn messages(template: &'static str, pieces: &[&str], more: Value) -> Vec<(String, String)> {
    let mut script = Script::says(pieces);
    script.template = Some(template);
    let body = message(with(json!({"stream": true}), more));
    let events = post(&script.app(), MESSAGES, &body).await.events();
    let mut said: Vec<(String, String)> = Vec::new();
    for (name, data) in events {
        let (kind, more) = match name.as_str() {
            "content_block_start" => (text(&data["content_block"]["type"]), String::new()),
            "content_block_delta" => {
                let delta = &data["delta"];
                let more = ["thinking", "text", "partial_json"].map(|key| text(&delta[key]));
                (text(&delta["type"]), more.concat())
            }
            "message_delta" => ("stop".to_owned(), text(&data["delta"]["stop_reason"])),
            _ => continue,
        };
        match said.last_mut() {
            Some((last, all)) if *last == kind && name == "content_block_delta" => *all += &more,
            _ => said.push((kind, more)),
        }
    }
    said.retain(|(kind, _)| kind != "signature_delta");
    said
}

/// Anthropic's clients get the same as blocks.
#[tokio::test]
async fn messages_have_blocks_for_thoughts_and_calls() {
    let of = |said: &[(&str, &str)]| {
        said.iter().map(|(kind, text)| ((*kind).to_owned(), (*text).to_owned())).collect::<Vec<_>>()
    };
    let tool = json!([{"name": "get_price", "input_schema": {"type": "object"}}]);
    let said = messages(HARMONY, &PRICE, json!({"tools": tool})).await;
    let expected = [
        ("thinking", ""),
        ("thinking_delta", "Need the price."),
        ("tool_use", ""),
        ("input_json_delta", "{\"sku\":\"B-7\"}"),
        ("stop", "tool_use"),
    ];
    assert_eq!(said, of(&expected));
    let pieces = ["First I", " should", " list"];
    let said = messages(THINKING, &pieces, json!({"max_tokens": 3})).await;
    let expected =
        [("thinking", ""), ("thinking_delta", "First I should list"), ("stop", "max_tokens")];
    assert_eq!(said, of(&expected));
}
