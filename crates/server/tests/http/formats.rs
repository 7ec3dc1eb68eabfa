//! Answers in a format: enforced whatever the model says, in streams and whole, or refused before the
//! first byte.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::client::{CHAT, PLAIN, chat, deltas, plain, post};
use crate::script::{Script, Speech};

/// A model that finds every token about as likely as any other.
fn noise() -> Script {
    let mut script = Script::says(&["{\"", "\":", "\", \"", "}]", "true", " \n", "unit", "12"]);
    script.speech = Speech::Anything;
    script.defaults.temperature = 1.0;
    script
}

fn recipe() -> Value {
    json!({"type": "object", "additionalProperties": false, "required": ["unit", "n"],
           "properties": {"unit": {"enum": ["g", "ml"]}, "n": {"type": "integer", "minimum": 3,
                          "maximum": 12}, "ok": {"type": "boolean"}}})
}

fn as_schema(schema: Value) -> Value {
    json!({"type": "json_schema", "json_schema": {"name": "s", "schema": schema}})
}

#[track_caller]
fn check_recipe(text: &str) {
    let value: Value = serde_json::from_str(text).unwrap_or_else(|e| panic!("{e}: {text}"));
    let map = value.as_object().unwrap();
    assert!(map.keys().all(|key| ["unit", "n", "ok"].contains(&key.as_str())), "{text}");
    assert!(["g", "ml"].contains(&value["unit"].as_str().unwrap()), "{text}");
    assert!((3..=12).contains(&value["n"].as_i64().unwrap()), "{text}");
    assert!(value.get("ok").is_none_or(Value::is_boolean), "{text}");
}

#[tokio::test]
async fn schemas_are_enforced_in_every_way_to_ask() {
    let app = noise().app();
    for seed in 0..5 {
        for more in [
            json!({"response_format": as_schema(recipe())}),
            json!({"guided_json": recipe()}),
            json!({"guided_json": recipe().to_string()}),
            json!({"structured_outputs": {"json": recipe()}}),
        ] {
            let seeded = |body: Value| crate::client::with(body, json!({"seed": seed}));
            let body = seeded(chat(more.clone()));
            let reply = post(&app, CHAT, &body).await.ok();
            let text = reply["choices"][0]["message"]["content"].as_str().unwrap();
            check_recipe(text);
            assert_eq!(reply["choices"][0]["finish_reason"], "stop");
            // The same as a stream, and with the probabilities of its tokens.
            let streamed = crate::client::with(body.clone(), json!({"stream": true}));
            let frames = post(&app, CHAT, &streamed).await.frames();
            assert_eq!(deltas(&frames, 0).concat(), text);
            let scored = crate::client::with(body, json!({"logprobs": true}));
            let reply = post(&app, CHAT, &scored).await.ok();
            assert_eq!(reply["choices"][0]["message"]["content"], text);
            let more = crate::client::with(more, json!({"max_tokens": 500}));
            let reply = post(&app, PLAIN, &seeded(plain(more))).await.ok();
            check_recipe(reply["choices"][0]["text"].as_str().unwrap());
        }
    }
}

#[tokio::test]
async fn prose_is_no_answer_where_a_format_is_asked_for() {
    let app = || Script::says(&["Sure", ", here", " you", " are"]).app();
    let text = async |more: Value| {
        let reply = post(&app(), CHAT, &chat(more)).await.ok();
        assert_eq!(reply["choices"][0]["finish_reason"], "stop", "{reply}");
        reply["choices"][0]["message"]["content"].as_str().unwrap().to_owned()
    };
    let choices = ["ja", "nein"];
    for more in
        [json!({"guided_choice": choices}), json!({"structured_outputs": {"choice": choices}})]
    {
        let said = text(more).await;
        assert!(choices.contains(&said.as_str()), "{said}");
    }
    assert_eq!(text(json!({"guided_regex": "[0-9]{4}"})).await.len(), 4);
    assert_eq!(
        text(json!({"guided_grammar": "start: \"(\" (\"a\" | \"b\") \")\""})).await.len(),
        3
    );
    let said = text(json!({"response_format": as_schema(json!({"const": [1, null]}))})).await;
    assert_eq!(serde_json::from_str::<Value>(&said).unwrap(), json!([1, null]));
}

#[tokio::test]
async fn an_object_is_cut_where_the_tokens_end() {
    let app = noise().app();
    let more = json!({"response_format": {"type": "json_object"}, "max_tokens": 1});
    let reply = post(&app, CHAT, &chat(more)).await.ok();
    assert_eq!(reply["choices"][0]["finish_reason"], "length");
    assert!(reply["choices"][0]["message"]["content"].as_str().unwrap().starts_with('{'));
}

#[tokio::test]
async fn several_answers_are_each_in_the_format() {
    let app = noise().app();
    let more = json!({"response_format": as_schema(recipe()), "n": 8, "seed": 3});
    let reply = post(&app, CHAT, &chat(more)).await.ok();
    let texts = |i: usize| reply["choices"][i]["message"]["content"].as_str().unwrap().to_owned();
    (0..8).for_each(|i| check_recipe(&texts(i)));
    // Each is what it is alone.
    for i in 0..8 {
        let alone = json!({"response_format": as_schema(recipe()), "seed": 3 + i});
        let reply = post(&app, CHAT, &chat(alone)).await.ok();
        assert_eq!(reply["choices"][0]["message"]["content"], texts(i));
    }
}

/// Case S01: a schema is held to word by word, or refused by the word; no dialect answers without it.
#[tokio::test]
async fn s01_no_schema_is_let_go() {
    let app = noise().app();
    let node = json!({"type": "object", "required": ["name", "unit"], "additionalProperties": false,
        "properties": {"name": {"type": "string", "maxLength": 3}, "unit": {"$ref": "#/$defs/Unit"},
            "kids": {"type": "array", "maxItems": 1, "items": {"anyOf": [
                {"type": "string", "maxLength": 3}, {"$ref": "#/$defs/Node"}]}},
            "extra": true}});
    let schema = |node: &Value| json!({"$defs": {"Unit": {"enum": ["g", "ml"]}, "Node": node}, "$ref": "#/$defs/Node"});
    let bodies = |schema: &Value| {
        let named = json!({"type": "json_schema", "name": "s", "schema": schema});
        let user = json!([{"role": "user", "content": "Hi"}]);
        [
            (
                CHAT,
                chat(
                    json!({"response_format": as_schema(schema.clone()), "max_tokens": 9, "seed": 3}),
                ),
            ),
            (
                "/v1/responses",
                json!({"model": "toy", "input": "Hi", "text": {"format": named}, "max_output_tokens": 16}),
            ),
            (
                "/v1/messages",
                json!({"model": "toy", "messages": user, "max_tokens": 9,
                "output_config": {"format": {"type": "json_schema", "schema": schema}}}),
            ),
            (
                "/api/chat",
                json!({"model": "toy", "messages": user, "format": schema, "options": {"num_predict": 9}}),
            ),
        ]
    };
    for (path, body) in bodies(&schema(&node)) {
        let reply = post(&app, path, &body).await;
        assert_eq!(reply.status, 200, "{path}: {}", reply.text());
    }
    for (word, bad) in [
        ("pattern", json!({"type": "string", "pattern": "^(ok$"})),
        ("uniqueItems", json!({"type": "array", "uniqueItems": true})),
        ("$ref", json!({"$ref": "https://example.com/schema.json"})),
        ("$ref", json!({"$ref": "other.json#/a"})),
        ("$ref", json!({"$ref": "#/$defs/absent"})),
    ] {
        let mut wrong = node.clone();
        wrong["properties"]["extra"] = bad;
        for (path, body) in bodies(&schema(&wrong)) {
            for stream in [false, true] {
                let body = crate::client::with(body.clone(), json!({"stream": stream}));
                let reply = post(&app, path, &body).await;
                assert_eq!(reply.status, 400, "{path} {word}: {}", reply.text());
                assert!(reply.text().contains(word), "{path} {word}: {}", reply.text());
            }
        }
    }
}

#[tokio::test]
async fn what_cannot_be_enforced_is_refused_with_its_place() {
    let app = noise().app();
    let at = "response_format.json_schema.schema";
    let inside = |schema: Value| as_schema(json!({"type": "object", "properties": {"a": schema}}));
    let deep = (0..50).fold(json!(true), |schema, _| json!({"type": "array", "items": schema}));
    let cases = [
        (
            json!({"response_format": inside(json!({"pattern": "^(ok$"}))}),
            format!("{at}.properties.a.pattern"),
        ),
        (
            json!({"response_format": inside(json!({"uniqueItems": true}))}),
            format!("{at}.properties.a.uniqueItems"),
        ),
        (
            json!({"response_format": inside(json!({"$ref": "https://example.com/x"}))}),
            format!("{at}.properties.a.$ref"),
        ),
        (json!({"response_format": as_schema(json!({"not": {}}))}), format!("{at}.not")),
        (json!({"guided_json": {"type": "thing"}}), "guided_json.type".to_owned()),
        (json!({"guided_regex": "("}), "guided_regex".to_owned()),
        (json!({"guided_regex": "(".repeat(2000)}), "guided_regex".to_owned()),
        (json!({"guided_regex": "((a{1000}){1000}){1000}"}), "guided_regex".to_owned()),
        (json!({"guided_regex": "a".repeat(100_000)}), "guided_regex".to_owned()),
        (json!({"guided_grammar": "begin: \"a\""}), "guided_grammar".to_owned()),
        (json!({"guided_grammar": "root ::= \"a\""}), "guided_grammar".to_owned()),
        (
            json!({"guided_grammar": format!("start: {}", "(".repeat(5000))}),
            "guided_grammar".to_owned(),
        ),
        (json!({"guided_grammar": "start: start \"a\""}), "guided_grammar".to_owned()),
        (
            json!({"structured_outputs": {"grammar": "start: x"}}),
            "structured_outputs.grammar".to_owned(),
        ),
        (json!({"guided_json": {"enum": vec![1; 20_000]}}), "guided_json.enum".to_owned()),
        (json!({"ignore_eos": true, "guided_choice": ["a"]}), "ignore_eos".to_owned()),
    ];
    for stream in [false, true] {
        for (more, param) in &cases {
            let started = Instant::now();
            let body = chat(crate::client::with(more.clone(), json!({"stream": stream})));
            let reply = post(&app, CHAT, &body).await;
            assert_eq!(reply.status, 400, "{param} {stream}: {}", reply.text());
            assert_eq!(&reply.error(400)["param"], param);
            assert!(started.elapsed() < Duration::from_secs(10), "{param}");
        }
        let body = chat(json!({"guided_json": deep, "max_tokens": 2, "stream": stream}));
        assert_eq!(post(&app, CHAT, &body).await.status, 200);
    }
}
