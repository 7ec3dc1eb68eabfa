//! The cases of public bug reports about tool calls and thoughts.

use hearth_text::{End, Opening};
use serde_json::json;

use crate::{Case, tool};

pub(crate) const CODER: &str = "<tool_call>\n<function=x>\n<parameter=y>";
pub(crate) const HERMES: &str = "<think></think><tool_call>{{ tool_call.name }}</tool_call>";
pub(crate) const LLAMA: &str = "<|python_tag|>";
pub(crate) const HARMONY: &str = "<|start|>assistant<|channel|>final<|message|>";

#[test]
fn t01_xml_is_typed_by_the_schema() {
    let alarm = tool(
        "set_alarm",
        json!({"label": {"type": "string"}, "hour": {"type": "integer"},
               "repeat": {"type": "array", "items": {"type": "string"}}, "code": {"type": "string"}}),
    );
    let bare = "<function=set_alarm>\n<parameter=label>\nFeed the goats\n</parameter>\n\
        <parameter=hour>\n6\n</parameter>\n<parameter=repeat>\n[\"mon\", \"thu\"]\n</parameter>\n\
        <parameter=code>\n007\n</parameter>\n</function>";
    let arguments =
        json!({"label": "Feed the goats", "hour": 6, "repeat": ["mon", "thu"], "code": "007"});
    for text in [format!("<tool_call>\n{bare}\n</tool_call>"), bare.to_owned()] {
        for template in [CODER, HERMES] {
            let case = Case::new(template, std::slice::from_ref(&alarm));
            case.check(&text, "", "", &[("set_alarm", arguments.clone())]);
        }
    }
}

#[test]
fn t02_a_value_may_hold_the_closing_tags() {
    let note = tool("save_note", json!({"path": {"type": "string"}, "body": {"type": "string"}}));
    let body =
        "Close a value with </parameter> and a call with </tool_call>.\nSecond line stays too.";
    let text = format!(
        "<tool_call>\n<function=save_note>\n<parameter=path>\ndocs/markup.md\n</parameter>\n\
         <parameter=body>\n{body}\n</parameter>\n</function>\n</tool_call>"
    );
    let arguments = json!({"path": "docs/markup.md", "body": body});
    Case::new(CODER, &[note]).check(&text, "", "", &[("save_note", arguments)]);
}

/// What ends a value is followed by what may follow one, and not only by very many blanks.
#[test]
fn t02_a_value_may_hold_a_closing_tag_and_blanks() {
    let note = tool("save_note", json!({"body": {"type": "string"}}));
    let body = format!("one </parameter>{}two", "\n".repeat(100));
    let text = format!(
        "<tool_call>\n<function=save_note>\n<parameter=body>\n{body}\n</parameter>\n</function>\n</tool_call>"
    );
    Case::new(CODER, &[note]).check(&text, "", "", &[("save_note", json!({"body": body}))]);
}

/// The same in a format that quotes what has tags in it.
#[test]
fn t02_a_quoted_value_may_hold_anything() {
    let note = tool("save_note", json!({"body": {"type": "string"}}));
    let body = "<a>\n</param></function>\n";
    let text = format!(
        "<function name=\"save_note\"><param name=\"body\"><![CDATA[{body}]]></param></function>"
    );
    let template = "<function name=\"f\"><param name=\"a\">";
    Case::new(template, &[note]).check(&text, "", "", &[("save_note", json!({"body": body}))]);
}

/// What stands in quotes is typed by the schema as what does not.
#[test]
fn quotes_are_no_part_of_a_value() {
    let note = tool(
        "save_note",
        json!({"body": {"type": ["string", "null"]}, "tags": {"type": "array"},
               "meta": {"type": "object"}, "n": {"type": "integer"}, "any": {},
               "last": {"type": "integer"}}),
    );
    let template = "<function name=\"f\"><param name=\"a\">";
    for (name, value, expected) in [
        ("body", "<b>bold</b> text", json!("<b>bold</b> text")),
        ("body", "a\n</param></function>", json!("a\n</param></function>")),
        ("body", "null", json!(null)),
        ("tags", "[\n\"<b>\", 2]", json!(["<b>", 2])),
        ("meta", "{\"a\": \"x & y\"}", json!({"a": "x & y"})),
        ("n", "7", json!(7)),
        ("any", "<b>", json!("<b>")),
    ] {
        let text = format!(
            "<function name=\"save_note\"><param name=\"{name}\"><![CDATA[{value}]]></param>\
             <param name=\"last\">1</param></function>"
        );
        let arguments = json!({name: expected, "last": 1});
        Case::new(template, std::slice::from_ref(&note)).check(
            &text,
            "",
            "",
            &[("save_note", arguments)],
        );
    }
}

#[test]
fn t03_prose_about_calls_is_none() {
    let gauge = tool("read_gauge", json!({}));
    let text = "The docs say </tool_call> ends a block and <function=demo> opens one.";
    Case::new(HERMES, &[]).check(text, "", text, &[]);
    Case::new(HERMES, std::slice::from_ref(&gauge)).check(text, "", text, &[]);
    let text = "For example `<tool_call>{\"name\":\"wipe_disk\",\"arguments\":{}}</tool_call>` is the shape.";
    Case::new(HERMES, std::slice::from_ref(&gauge)).check(text, "", text, &[]);
    for name in ["read_gauge", "wipe_disk"] {
        let text = format!(
            "Say <tool_call>{{\"name\":\"{name}\",\"arguments\":{{}}}}</tool_call> and so on, or\n\
             ```\n<tool_call>{{\"name\":\"{name}\",\"arguments\":{{}}}}</tool_call>\n```\n"
        );
        Case::new(HERMES, std::slice::from_ref(&gauge)).check(&text, "", &text, &[]);
    }
    let thought =
        "I could send <tool_call>{\"name\":\"read_gauge\",\"arguments\":{}}</tool_call> but no.";
    let text = format!("<think>{thought}</think>No reading needed.");
    Case::new(HERMES, &[gauge]).check(&text, thought, "No reading needed.", &[]);
}

#[test]
fn t04_mistral_calls_end_with_the_answer() {
    let tools = [
        tool("open_valve", json!({"id": {"type": "string"}, "turns": {"type": "integer"}})),
        tool("ping", json!({})),
    ];
    let case = Case::new("[TOOL_CALLS][ARGS]", &tools);
    let text = "[TOOL_CALLS]open_valve[ARGS]{\"id\": \"v-12\", \"turns\": 3}";
    case.check(text, "", "", &[("open_valve", json!({"id": "v-12", "turns": 3}))]);
    let text =
        "[TOOL_CALLS]ping[ARGS]{}[TOOL_CALLS]open_valve[ARGS]{\"id\":\"[ARGS]\",\"turns\":1}";
    let second = json!({"id": "[ARGS]", "turns": 1});
    case.check(text, "", "", &[("ping", json!({})), ("open_valve", second)]);
    for (id, ..) in case.run(&[text]).calls {
        assert!(id.len() == 9 && id.bytes().all(|byte| byte.is_ascii_alphanumeric()), "{id}");
    }
}

#[test]
fn t05_gemma_arguments_nest() {
    let tools = [tool("edit_recipe", json!({})), tool("noop", json!({}))];
    let case = Case::new("<|tool_call>call:<|channel>", &tools);
    let text = "<|tool_call>call:edit_recipe{file:<|\"|>soup.md<|\"|>,steps:[{old:<|\"|>add {salt}, \
        stir<|\"|>,new:<|\"|>say \"stop\" }<|\"|>}],dry:true,meta:{n:2,tags:[<|\"|>a,b<|\"|>]}}<tool_call|>";
    let arguments = json!({"file": "soup.md",
        "steps": [{"old": "add {salt}, stir", "new": "say \"stop\" }"}],
        "dry": true, "meta": {"n": 2, "tags": ["a,b"]}});
    case.check(text, "", "", &[("edit_recipe", arguments)]);
    case.check("<|tool_call>call:noop{}<tool_call|>", "", "", &[("noop", json!({}))]);
}

#[test]
fn t07_bare_json_is_a_call_or_is_none() {
    let birds = [tool("count_birds", json!({"site": {"type": "string"}}))];
    let case = Case::new(LLAMA, &birds);
    let call = "{\"name\": \"count_birds\", \"parameters\": {\"site\": \"Reed Lake\"}}";
    let expected = [("count_birds", json!({"site": "Reed Lake"}))];
    case.check(call, "", "", &expected);
    case.check(&format!("<|python_tag|>{call}"), "", "", &expected);
    let named = "{\"name\":\"count_birds\",\"arguments\":{\"site\":\"Reed Lake\"}}";
    case.check(named, "", "", &expected);
    let record = "Here is a record: {\"name\": \"Ada\", \"age\": 9}";
    case.check(record, "", record, &[]);
    let alone = "{\"name\": \"Ada\", \"age\": 9}";
    case.check(alone, "", alone, &[]);
    let about = format!("{call} is how a call looks.");
    case.check(&about, "", &about, &[]);
    Case::new(LLAMA, &[]).check(call, "", call, &[]);
}

#[test]
fn t09_kimi_names_and_ids() {
    let tools = [tool("tank.level", json!({"tank": {"type": "string"}}))];
    let case = Case::new("<|tool_calls_section_begin|>", &tools);
    let long = "b".repeat(20_000);
    let text = |long: &str| {
        format!(
            "Checking both.<|tool_calls_section_begin|> <|tool_call_begin|>functions.tank.level:0\
             <|tool_call_argument_begin|>{{\"tank\":\"A\"}}<|tool_call_end|><|tool_call_begin|>\
             functions.tank.level:1<|tool_call_argument_begin|>{{\"tank\":\"{long}\"}}\
             <|tool_call_end|><|tool_calls_section_end|>"
        )
    };
    let expected =
        |long: &str| [("tank.level", json!({"tank": "A"})), ("tank.level", json!({"tank": long}))];
    case.check(&text("bb"), "", "Checking both.", &expected("bb"));
    let whole = case.run(&[&text(&long)]);
    assert_eq!((whole.calls[1].2.len(), whole.calls[1].3), (20_000 + 11, true));
    let ids: Vec<&str> = whole.calls.iter().map(|call| call.0.as_str()).collect();
    assert_eq!(ids, ["functions.tank.level:0", "functions.tank.level:1"]);
}

#[test]
fn t10_harmony_calls_are_messages() {
    let tools = [tool("get_price", json!({"sku": {"type": "string"}}))];
    let mut case = Case::new(HARMONY, &tools);
    case.opening = Opening::Header("assistant".to_owned());
    let text = "<|channel|>analysis<|message|>Need the price.<|end|><|start|>assistant<|channel|>\
        commentary to=functions.get_price <|constrain|>json<|message|>{\"sku\":\"B-7\"}<|call|>";
    let expected = [("get_price", json!({"sku": "B-7"}))];
    case.check(text, "Need the price.", "", &expected);
    case.check(text.trim_end_matches("<|call|>"), "Need the price.", "", &expected);
    let text = "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant to=functions.get_price\
        <|channel|>commentary json<|message|>{\"sku\":\"B-7\"}";
    case.check(text, "Hm.", "", &expected);
    let text = "<|channel|>commentary<|message|>I look it up.<|end|><|start|>assistant<|channel|>final\
        <|message|>Two.<|return|>";
    case.check(text, "", "I look it up.Two.", &[]);
    case.check("Just text.", "", "Just text.", &[]);
}

#[test]
fn t12_two_calls_of_one_tool() {
    let tools = [tool("fetch_row", json!({"id": {"type": "integer"}}))];
    let case = Case::new(HERMES, &tools);
    let text = "<tool_call>\n{\"name\":\"fetch_row\",\"arguments\":{\"id\":1}}\n</tool_call>\n\
        <tool_call>\n{\"name\":\"fetch_row\",\"arguments\":{\"id\":2}}\n</tool_call>";
    case.check(text, "", "", &[("fetch_row", json!({"id": 1})), ("fetch_row", json!({"id": 2}))]);
    let whole = case.run(&[text]);
    assert_eq!(whole.order, "caecae");
    assert!(!whole.calls[0].0.is_empty() && whole.calls[0].0 != whole.calls[1].0);
}

#[test]
fn r01_the_prompt_opens_or_closes_the_thoughts() {
    let mut case = Case::new(HERMES, &[]);
    case.opening = hearth_text::Syntax::of(HERMES).opening("<|im_start|>assistant\n<think>\n");
    assert_eq!(case.opening, Opening::Thoughts);
    case.check("Check the units.</think>\n\n42 kg", "Check the units.", "42 kg", &[]);
    case.opening = hearth_text::Syntax::of(HERMES).opening("assistant\n<think>\n\n</think>\n\n");
    let text = "<think>is a tag</think> 42 kg";
    case.check(text, "", text, &[]);
}

#[test]
fn r02_a_cut_never_turns_thoughts_into_an_answer() {
    let mut case = Case::new(HERMES, &[tool("f", json!({}))]);
    (case.opening, case.end) = (Opening::Thoughts, End::Cut);
    case.check("First I should list", "First I should list", "", &[]);
    let text = "So I\n<tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>";
    case.check(text, text, "", &[]);
}
