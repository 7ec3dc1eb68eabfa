//! What is particular about the calls of some families: how they may be written, and what they leave out.

use hearth_text::{End, Opening, Syntax};
use serde_json::{Value, json};

use crate::calls::{ARGUMENTS, formats, paris, weather};
use crate::{Case, tool};

/// Command R's action is a line of its own, with or without a fence, and nothing else is one.
#[test]
fn command_may_write_its_action_in_several_ways() {
    let case = Case::new("followed by a json-formatted list of actions", &weather());
    let call = format!("{{\"tool_name\": \"get_weather\", \"parameters\": {ARGUMENTS}}}");
    let time = ("get_time", json!({}));
    for text in [
        format!("Action: ```json\n[{call}]\n```"),
        format!("Action:```json\n[{call}]```"),
        format!("Action:\n```json\n[{call}]```"),
        format!("Action: [{call}]"),
        format!("Action: ```json\n{call}\n```"),
        format!("Action: ```json\n[{call}]"),
    ] {
        case.check(&text, "", "", &[paris()]);
        case.check(&format!("Plan: look.\n{text}"), "", "Plan: look.", &[paris()]);
    }
    let both = format!("Action: ```json\n[{call}, {{\"tool_name\": \"get_time\"}}]```\nDone.");
    case.check(&both, "", "Done.", &[paris(), time]);
    for text in [
        format!("My Action: ```json\n[{call}]```"),
        "Action: take an umbrella.".to_owned(),
        "Action: ```json\n[{\"tool_name\": \"directly_answer\", \"parameters\": {}}]```".to_owned(),
        "Action: ```json\n[]```".to_owned(),
        "Action:".to_owned(),
    ] {
        case.check(&text, "", &text, &[]);
    }
}

/// Apertus' calls are read whole: all of them are calls, or none is.
#[test]
fn apertus_names_calls_by_their_key() {
    let case = Case::new("<|tools_prefix|>", &weather());
    let of = |calls: &str| format!("<|tools_prefix|>{calls}<|tools_suffix|>");
    let weather = format!("\"get_weather\": {ARGUMENTS}");
    let time = ("get_time", json!({}));
    case.check(
        &of(&format!("[{{{weather}}}, {{\"get_time\": {{}}}}]")),
        "",
        "",
        &[paris(), time.clone()],
    );
    case.check(&of(&format!("[{{{weather}, \"get_time\": {{}}}}]")), "", "", &[paris(), time]);
    case.check(&format!("<|tools_prefix|>[{{{weather}}}]"), "", "", &[paris()]);
    case.check(&format!("{}\nDone.", of(&format!("[{{{weather}}}]"))), "", "Done.", &[paris()]);
    for calls in [
        "[]",
        "[{}]",
        "{}",
        "[{\"get_time\": 3}]",
        "[{\"get_time\": {\"a\": 1e999}}]",
        "[{\"get_time\": {}}",
        "[{\"\": {}}]",
    ] {
        case.check(&of(calls), "", calls, &[]);
        let more = format!("[{{{weather}}}, {{\"get_time\": [1]}}]");
        case.check(&of(&more), "", &more, &[]);
    }
    let mut cut = case;
    cut.end = End::Cut;
    let text = format!("[{{{weather}}}]");
    cut.check(&format!("<|tools_prefix|>{text}"), "", &text, &[]);
}

/// GigaChat 3 calls in a turn of its own, with what begins the turn or without it.
#[test]
fn gigachat_may_begin_a_turn() {
    let call = format!("{{\"name\": \"get_weather\", \"arguments\": {ARGUMENTS}}}");
    for head in [
        "<|function_call|>",
        "function call<|role_sep|>\n",
        "<|message_sep|>\n\nfunction call<|role_sep|>\n",
        "<|message_sep|>\n\nfunction call<|role_sep|>",
    ] {
        for template in ["<|function_call|>", "function call<|role_sep|>"] {
            let case = Case::new(template, &weather());
            case.check(&format!("{head}{call}"), "", "", &[paris()]);
            case.check(&format!("I look.{head}{call}<|message_sep|>"), "", "I look.", &[paris()]);
            case.check("Yes<|message_sep|>", "", "Yes", &[]);
        }
    }
}

/// Solar's section has an end, which may be missing, and so may those of calls.
#[test]
fn solar_may_leave_out_ends() {
    let case = Case::new("<|tool_call:begin|>", &weather());
    let call = |name: &str, arguments: &str, end: &str| {
        format!("<|tool_call:begin|>a1<|tool_call:name|>{name}<|tool_call:args|>{arguments}{end}")
    };
    let time = ("get_time", json!({}));
    for (opens, end, closes) in [
        ("<|tool_calls|>", "<|tool_call:end|>", "<|calls|>"),
        ("<|tool_calls|>\n", "<|tool_call:end|>\n", "\n<|calls|>\n"),
        ("", "<|tool_call:end|>", ""),
        ("<|tool_calls|>", "", "<|calls|>"),
    ] {
        let calls = [call("get_weather", ARGUMENTS, end), call("get_time", "{}", end)];
        let text = format!("{opens}{}{closes}", calls.concat());
        case.check(&text, "", "", &[paris(), time.clone()]);
        case.check(&format!("I look.\n{text}"), "", "I look.", &[paris(), time.clone()]);
        assert_eq!(case.any_cut(&text).calls[1].0, "a1");
    }
    case.check("Yes<|calls|>", "", "Yes", &[]);
}

/// MiniMax M2's values are as they are written, line breaks too, and a tag that is no call is text.
#[test]
fn minimax_keeps_values_as_they_are() {
    let case = Case::new("<minimax:tool_call>", &weather());
    let call = |city: &str| {
        format!(
            "<invoke name=\"get_weather\">\n<parameter name=\"city\">{city}</parameter>\n</invoke>"
        )
    };
    for city in ["\nParis\n", " 75 ", "[1]", "a </parameter> b", ""] {
        let text = format!("<minimax:tool_call>\n{}\n</minimax:tool_call>", call(city));
        case.check(&text, "", "", &[("get_weather", json!({"city": city}))]);
    }
    case.check(&call("x"), "", "", &[("get_weather", json!({"city": "x"}))]);
    let untyped =
        "<minimax:tool_call><invoke name=\"get_time\"><parameter name=\"zone\">5</parameter>";
    case.check(untyped, "", "", &[("get_time", json!({"zone": "5"}))]);
    let text = format!("It is {}", call("x"));
    case.check(&text, "", &text, &[]);
    case.check("Yes</minimax:tool_call>", "", "Yes", &[]);
}

/// Kimi K3 answers in sections; values are what they say they are.
#[test]
fn kimi_k3_speaks_in_sections() {
    let template = "<|open|>think<|sep|><|open|>tools<|sep|>";
    let argument = |key: &str, kind: &str, value: &str| {
        format!(
            "<|open|>argument key=\"{key}\" type=\"{kind}\"<|sep|>{value}<|close|>argument<|sep|>"
        )
    };
    let arguments = [
        argument("id", "string", "007"),
        argument("days", "number", "1e2"),
        argument("tags", "array", "[\"a\", null]"),
        argument("on", "boolean", "true"),
    ];
    let call = format!(
        "<|open|>tools<|sep|><|open|>call tool=\"get_weather\" index=\"1\"<|sep|>{}\
         <|close|>call<|sep|><|open|>call tool=\"get_time\" index=\"2\"<|sep|><|close|>call<|sep|>\
         <|close|>tools<|sep|>",
        arguments.concat()
    );
    let mut case = Case::new(template, &weather());
    case.opening = Syntax::of(template).opening("role=\"assistant\"<|sep|><|open|>think<|sep|>");
    assert_eq!(case.opening, Opening::Thoughts);
    let expected = [
        ("get_weather", json!({"id": "007", "days": 1e2, "tags": ["a", null], "on": true})),
        ("get_time", json!({})),
    ];
    let text = format!(
        "Check.<|close|>think<|sep|><|open|>response<|sep|>On it.<|close|>response<|sep|>{call}\
         <|close|>message<|sep|><|end_of_msg|>"
    );
    case.check(&text, "Check.", "On it.", &expected);
    case.check(&format!("Check.{call}"), "Check.", "", &expected);
    // The answer's own tag closes thoughts that were left open.
    case.check("Check.<|open|>response<|sep|>Yes", "Check.", "Yes", &[]);
    case.opening = Syntax::of(template).opening("<|open|>response<|sep|>");
    assert_eq!(case.opening, Opening::Answer);
    case.check("Yes<|close|>response<|sep|><|close|>message<|sep|>", "", "Yes", &[]);
    case.check("Yes<|close|>tools<|sep|>", "", "Yes", &[]);
    // The section may be missing, and blanks around a text are part of it.
    let bare = format!(
        "<|open|>call tool=\"get_weather\" index=\"1\"<|sep|>{}<|close|>call<|sep|>",
        argument("city", "string", "\n Paris \n")
    );
    case.check(&bare, "", "", &[("get_weather", json!({"city": "\n Paris \n"}))]);
    // Where a value does not say what it is, the schema does.
    let untyped = bare.replace(" type=\"string\"", "").replace("\n Paris \n", "12");
    case.check(&untyped, "", "", &[("get_weather", json!({"city": "12"}))]);
}

/// Kimi K3 may also write all arguments as one object, as its templates do with arguments that are a text.
#[test]
fn kimi_k3_may_write_an_object() {
    let case = Case::new("<|open|>tools<|sep|>", &weather());
    let call = |name: &str, object: &str| {
        format!("<|open|>call tool=\"{name}\" index=\"1\"<|sep|>{object}<|close|>call<|sep|>")
    };
    let object =
        |json: &str| format!("<|open|>json type=\"object\"<|sep|>{json}<|close|>json<|sep|>");
    let nested =
        r#"{"city": "a<|close|>call<|sep|>\"}", "days": 12345678901234567890123, "x": [{}]}"#;
    let text = format!(
        "<|open|>tools<|sep|>{}{}{}<|close|>tools<|sep|>",
        call("get_weather", &object(ARGUMENTS)),
        call("get_time", &object("{}")),
        call("get_weather", &object(&format!("\n{nested}\n"))),
    );
    let whole = case.any_cut(&text);
    assert!(whole.content.is_empty() && whole.calls.iter().all(|call| call.3), "{whole:?}");
    let arguments: Vec<&str> = whole.calls.iter().map(|call| call.2.trim()).collect();
    assert_eq!(arguments, [ARGUMENTS, "{}", nested]);
    // Its end may be left out, and nothing but an object is one.
    let open = format!("<|open|>json type=\"object\"<|sep|>{ARGUMENTS}");
    case.check(&call("get_weather", &open), "", "", &[paris()]);
    for broken in ["", "[1]", "{\"city\": ", "nothing"] {
        let whole = case.any_cut(&call("get_weather", &object(broken)));
        assert!(whole.calls.iter().all(|call| !call.3), "{whole:?}");
    }
    let mut cut = case.clone();
    cut.end = End::Cut;
    let whole =
        cut.any_cut("<|open|>call tool=\"get_weather\" index=\"1\"<|sep|><|open|>json type");
    assert!(whole.calls.len() == 1 && !whole.calls[0].3, "{whole:?}");
}

/// MiniMax M3 writes objects and lists as elements, which the schema tells apart.
#[test]
fn minimax_m3_nests_elements() {
    const N: &str = "]<]minimax[>[";
    let schema = json!({
        "title": {"type": "string"},
        "steps": {"type": "array", "items": {"$ref": "#/$defs/step"}},
        "sizes": {"type": "array", "items": {"type": "integer"}},
        "meta": {"type": "object", "properties": {"n": {"type": "number"}, "tag": {"type": "string"}},
                 "additionalProperties": {"type": "boolean"}},
        "code": {"type": ["string", "null"]},
        "either": {"type": ["string", "array"]},
        "pair": {"type": "array", "prefixItems": [{"type": "string"}, {"type": "integer"}]},
        "free": {},
    });
    let mut recipe = tool("edit", schema);
    recipe["function"]["parameters"]["$defs"] = json!({"step": {"type": "object", "properties": {
        "old": {"type": "string"}, "times": {"type": "integer"}, "item": {"type": "string"}}}});
    let case = Case::new(N, &[recipe, tool("noop", json!({}))]);
    let check = |body: &str, arguments: Value| {
        // `@` stands for the control token, which is before every tag.
        let body = body.replace('@', N);
        let text =
            format!("{N}<tool_call>\n{N}<invoke name=\"edit\">{body}{N}</invoke>\n{N}</tool_call>");
        case.check(&text, "", "", &[("edit", arguments)]);
    };
    check("", json!({}));
    check("@<title>007@</title>@<code>12@</code>", json!({"title": "007", "code": "12"}));
    check("@<code>null@</code>@<title>null@</title>", json!({"code": null, "title": "null"}));
    check("@<title>@</title>@<title> a\n b @</title>", json!({"title": " a\n b "}));
    check(
        "@<steps>@<item>@<old>5@</old>@<times>5@</times>@</item>@<item>@<item>x@</item>@</item>@</steps>",
        json!({"steps": [{"old": "5", "times": 5}, {"item": "x"}]}),
    );
    check(
        "@<meta>@<n>1.50@</n>@<tag>@</tag>@<on>true@</on>@</meta>",
        json!({"meta": {"n": 1.5, "tag": "", "on": true}}),
    );
    // Nothing is an empty list or object; JSON is read too.
    check("@<steps>@</steps>@<meta>@</meta>", json!({"steps": [], "meta": {}}));
    check(
        "@<sizes>[1, 2]@</sizes>@<meta>{\"n\": 2}@</meta>",
        json!({"sizes": [1, 2], "meta": {"n": 2}}),
    );
    // A list's elements may have other names, and each place of it a schema of its own.
    check("@<sizes>@<size>1@</size>@<size>2@</size>@</sizes>", json!({"sizes": [1, 2]}));
    check("@<pair>@<item>1@</item>@<item>2@</item>@</pair>", json!({"pair": ["1", 2]}));
    check("@<free>@<item>1@</item>@<b>2@</b>@</free>", json!({"free": {"item": 1, "b": 2}}));
    // Where a text is allowed, nothing is an empty one.
    check("@<either>@</either>", json!({"either": ""}));
    // Something that comes several times is a list.
    check("@<sizes>1@</sizes>@<sizes>2@</sizes>", json!({"sizes": [1, 2]}));
    check("@<meta>@<tag>a@</tag>@<tag>b@</tag>@</meta>", json!({"meta": {"tag": ["a", "b"]}}));
    // What no schema describes is told by its elements.
    check(
        "@<free>@<a>1@</a>@<b>@<item>x@</item>@<item>2@</item>@</b>@</free>@<other>yes@</other>",
        json!({"free": {"a": 1, "b": ["x", 2]}, "other": "yes"}),
    );
    // Text beside elements is neither a list nor an object: all of it stays text.
    check(
        "@<free>see @<b>x@</b> there@</free>",
        json!({"free": "see @<b>x@</b> there".replace('@', N)}),
    );
    check(
        "@<meta>@<tag>x@<tag>y@</tag>@</tag>@</meta>",
        json!({"meta": {"tag": "x@<tag>y@</tag>".replace('@', N)}}),
    );
    // Blanks between tags, and after the control token, are nobody's.
    check(
        "\n@ <sizes>\n @<item>1@</item>\n @\n</sizes>\n@<title>x@</title>\n",
        json!({"sizes": [1], "title": "x"}),
    );
    // A text may hold tags, its own end too.
    check(
        "@<title>@</title> ends @<b>it@</b>, @</invoke>\n@</tool_call> ends all@</title>@<sizes>@</sizes>",
        json!({"title": "@</title> ends @<b>it@</b>, @</invoke>\n@</tool_call> ends all".replace('@', N), "sizes": []}),
    );
    // Templates write it as it is, so that it is no object, whatever it begins with, in an object neither.
    for text in
        ["@<b>bold@</b> text", "@<b>bold@</b>", "\n@<item>1@</item>", "<b>1</b>", "@<b>", "@</b>"]
    {
        let expected = text.replace('@', N);
        check(&format!("@<title>{text}@</title>"), json!({"title": expected}));
        check(&format!("@<code>{text}@</code>"), json!({"code": expected}));
        check(&format!("@<meta>@<tag>{text}@</tag>@</meta>"), json!({"meta": {"tag": expected}}));
    }
    check(
        "@<meta>@<tag>x@</meta> y@</tag>@</meta>",
        json!({"meta": {"tag": "x@</meta> y".replace('@', N)}}),
    );
    // Digits stay as they are.
    let digits = "123456789012345678901234567890";
    let text = format!(
        "{N}<invoke name=\"edit\">{N}<sizes>{N}<item>{digits}{N}</item>{N}</sizes>{N}</invoke>"
    );
    assert_eq!(case.any_cut(&text).calls[0].2, format!("{{\"sizes\": [{digits}]}}"));
}

/// What MiniMax M3 leaves out or does not close.
#[test]
fn minimax_m3_may_leave_out_ends() {
    const N: &str = "]<]minimax[>[";
    let case = Case::new(N, &weather());
    let head = format!("{N}<tool_call>\n{N}<invoke name=\"get_weather\">");
    let days = format!("{N}<days>3{N}</days>");
    for text in [
        format!("{head}{N}<city>Paris{N}</city>{days}{N}</tool_call>"),
        format!("{head}{N}<city>Paris{N}</city>{days}"),
        format!("{head}{days}{N}<city>Paris"),
        format!("{head}{days}{N}<city>Paris{N}</invoke>\n{N}</tool_call>\n"),
        format!("{head}{N}<city>Paris{N}</city>{N}<days>3{N}</invoke>\n{N}</tool_call>"),
        format!("{head}{N}<city>Paris{N}</city>{N}</city>{days}{N}</invoke>"),
    ] {
        case.check(&text, "", "", &[paris()]);
    }
    let mut cut = case.clone();
    cut.end = End::Cut;
    for text in [
        format!("{head}{N}<ci"),
        format!("{head}{N}<city>Par"),
        format!("{head}{N}<city>Paris{N}</ci"),
        format!("{head}{days}{N}<"),
        format!("{head}{days}{N}<city>Paris{N}</invoke>"),
        format!("{head}{N}<days>3{N}</invo"),
        head.clone(),
    ] {
        let whole = cut.any_cut(&text);
        assert!(whole.content.is_empty() && whole.calls.len() == 1, "{text} {whole:?}");
        assert!(!whole.calls[0].3, "{text} {whole:?}");
    }
    // An argument that was complete is shown, though the call is not.
    assert_eq!(cut.any_cut(&format!("{head}{days}")).calls[0].2, "{\"days\": 3");
    cut.check(&format!("{head}{N}<city>Paris{N}</city>{days}{N}</invoke>"), "", "", &[paris()]);
    let deep = format!("{head}{}", format!("{N}<a>").repeat(100));
    assert!(!case.any_cut(&deep).calls[0].3);
}

/// An answer without thoughts may begin with what closes them.
#[test]
fn minimax_m3_thinks_if_it_likes() {
    let template = "]<]minimax[>[ <mm:think></mm:think>";
    let mut case = Case::new(template, &weather());
    let call = formats().into_iter().find(|(name, ..)| *name == "minimax_m3").unwrap().2;
    case.check(&format!("<mm:think>Check.</mm:think>On it.{call}"), "Check.", "On it.", &[paris()]);
    case.check(&format!("</mm:think>On it.{call}"), "", "On it.", &[paris()]);
    case.opening = Syntax::of(template).opening("]~b]ai\n<mm:think>");
    assert_eq!(case.opening, Opening::Thoughts);
    case.check(&format!("Check.</mm:think>{call}"), "Check.", "", &[paris()]);
    case.check(&format!("Check.{call}"), "Check.", "", &[paris()]);
    case.opening = Syntax::of(template).opening("]~b]ai\n</mm:think>");
    assert_eq!(case.opening, Opening::Answer);
    case.check("Yes.", "", "Yes.", &[]);
}

/// Functionary's prompts end with the opener, and an answer says first whom it is for.
#[test]
fn a_prompt_may_have_begun_the_call() {
    let template = ">>>all";
    let mut case = Case::new(template, &weather());
    case.opening = Syntax::of(template).opening("<|end_header_id|>\n\n>>>");
    assert_eq!(case.opening, Opening::Begun);
    let call = format!("get_weather\n{ARGUMENTS}");
    case.check(&call, "", "", &[paris()]);
    case.check(&format!("{call}>>>get_time\n{{}}"), "", "", &[paris(), ("get_time", json!({}))]);
    case.check("all\nHello, world!\nWhat's up?", "", "Hello, world!\nWhat's up?", &[]);
    case.check(&format!("all\nI look it up.>>>{call}"), "", "I look it up.", &[paris()]);
    // Python's prompt is text, and so is an answer to nobody.
    let text = "In Python:\n>>> f(1)\n2\n>>>wipe_disk\n{}";
    case.check(&format!("all\n{text}"), "", text, &[]);
    case.check("Hello.\nYes", "", "Hello.\nYes", &[]);
    case.check("get_weather\nis a tool", "", "get_weather\nis a tool", &[]);
    case.check("all", "", "all", &[]);
    case.tools = Vec::new();
    case.check("all\nHello", "", "Hello", &[]);
    case.check(&call, "", &call, &[]);
}
