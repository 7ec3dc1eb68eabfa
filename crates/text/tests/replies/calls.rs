//! Every tool format: its published form, and the slips that models make with it.

use hearth_text::{End, Opening, Syntax};
use serde_json::{Value, json};

use crate::cases::{CODER, HERMES, LLAMA};
use crate::{Case, tool};

pub(crate) fn weather() -> Vec<Value> {
    let properties = json!({"city": {"type": "string"}, "days": {"type": "integer"}});
    vec![tool("get_weather", properties), tool("get_time", json!({}))]
}

pub(crate) fn paris() -> (&'static str, Value) {
    ("get_weather", json!({"city": "Paris", "days": 3}))
}

pub(crate) const ARGUMENTS: &str = r#"{"city": "Paris", "days": 3}"#;

/// Name of the format, what its templates show, and a call in it.
pub(crate) fn formats() -> Vec<(&'static str, &'static str, String)> {
    let json = format!(r#"{{"name": "get_weather", "arguments": {ARGUMENTS}}}"#);
    let parameter =
        |open: &str, close: &str| format!("{open}city\">Paris{close}\n{open}days\">3{close}");
    vec![
        ("hermes", HERMES, format!("<tool_call>\n{json}\n</tool_call>")),
        (
            "qwen_coder",
            CODER,
            "<tool_call>\n<function=get_weather>\n<parameter=city>\nParis\n</parameter>\n\
             <parameter=days>\n3\n</parameter>\n</function>\n</tool_call>"
                .to_owned(),
        ),
        (
            "seed",
            "<seed:tool_call>",
            "<seed:tool_call>\n<function=get_weather>\n<parameter=city>Paris</parameter>\n\
             <parameter=days>3</parameter>\n</function>\n</seed:tool_call>"
                .to_owned(),
        ),
        (
            "minimax",
            "<minimax:tool_call>",
            format!(
                "<minimax:tool_call>\n<invoke name=\"get_weather\">\n{}\n</invoke>\n</minimax:tool_call>",
                parameter("<parameter name=\"", "</parameter>")
            ),
        ),
        (
            "minimax_m3",
            "]<]minimax[>[",
            "]<]minimax[>[<tool_call>\n]<]minimax[>[<invoke name=\"get_weather\">\
             ]<]minimax[>[<city>Paris]<]minimax[>[</city>]<]minimax[>[<days>3]<]minimax[>[</days>\
             ]<]minimax[>[</invoke>\n]<]minimax[>[</tool_call>"
                .to_owned(),
        ),
        (
            "deepseek_dsml",
            "｜DSML｜",
            "<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"get_weather\">\n\
             <｜DSML｜parameter name=\"city\" string=\"true\">Paris</｜DSML｜parameter>\n\
             <｜DSML｜parameter name=\"days\" string=\"false\">3</｜DSML｜parameter>\n\
             </｜DSML｜invoke>\n</｜DSML｜function_calls>"
                .to_owned(),
        ),
        (
            "glm",
            "<arg_key>",
            "<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Paris</arg_value>\n\
             <arg_key>days</arg_key>\n<arg_value>3</arg_value>\n</tool_call>"
                .to_owned(),
        ),
        (
            "kimi",
            "<|tool_calls_section_begin|>",
            format!(
                "<|tool_calls_section_begin|><|tool_call_begin|>functions.get_weather:0\
                 <|tool_call_argument_begin|>{ARGUMENTS}<|tool_call_end|><|tool_calls_section_end|>"
            ),
        ),
        (
            "deepseek",
            "<｜tool▁calls▁begin｜>```json",
            format!(
                "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>get_weather\n```json\n\
                 {ARGUMENTS}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>"
            ),
        ),
        (
            "deepseek_v31",
            "<｜tool▁calls▁begin｜>",
            format!(
                "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>get_weather<｜tool▁sep｜>{ARGUMENTS}\
                 <｜tool▁call▁end｜><｜tool▁calls▁end｜>"
            ),
        ),
        ("mistral", "[TOOL_CALLS]", format!("[TOOL_CALLS] [{json}]")),
        ("mistral", "[TOOL_CALLS]", format!("[TOOL_CALLS]get_weather{ARGUMENTS}")),
        (
            "mistral",
            "[TOOL_CALLS]",
            format!("[TOOL_CALLS]get_weather[CALL_ID]abcdefghi[ARGS]{ARGUMENTS}"),
        ),
        (
            "gemma",
            "<|tool_call>",
            "<|tool_call>call:get_weather{city:<|\"|>Paris<|\"|>,days:3}<tool_call|>".to_owned(),
        ),
        (
            "gemma",
            "<start_function_call>",
            "<start_function_call>call:get_weather{city:<escape>Paris<escape>,days:3}<end_function_call>"
                .to_owned(),
        ),
        (
            "pythonic",
            "<|tool_call_start|>",
            "<|tool_call_start|>[get_weather(city=\"Paris\", days=3)]<|tool_call_end|>".to_owned(),
        ),
        (
            "cohere",
            "<|START_ACTION|>",
            format!(
                "<|START_ACTION|>[\n    {{\"tool_call_id\": \"0\", \"tool_name\": \"get_weather\", \
                 \"parameters\": {ARGUMENTS}}}\n]<|END_ACTION|>"
            ),
        ),
        (
            "hunyuan",
            "set HYTK = ':opensource'",
            "<tool_calls:opensource>\n<tool_call:opensource>get_weather<tool_sep:opensource>\n\
             <arg_key:opensource>city</arg_key:opensource>\n\
             <arg_value:opensource>Paris</arg_value:opensource>\n\
             <arg_key:opensource>days</arg_key:opensource>\n\
             <arg_value:opensource>3</arg_value:opensource>\n</tool_call:opensource>\n\
             </tool_calls:opensource>"
                .to_owned(),
        ),
        (
            "longcat",
            "<longcat_tool_call>",
            "<longcat_tool_call>get_weather\n<longcat_arg_key>city</longcat_arg_key>\n\
             <longcat_arg_value>Paris</longcat_arg_value>\n<longcat_arg_key>days</longcat_arg_key>\n\
             <longcat_arg_value>3</longcat_arg_value>\n</longcat_tool_call>"
                .to_owned(),
        ),
        (
            "minicpm",
            "<function name=\"f\"><param name=\"a\">",
            "<function name=\"get_weather\"><param name=\"city\">Paris</param>\
             <param name=\"days\">3</param></function>"
                .to_owned(),
        ),
        (
            "minicpm",
            "<function name=\"f\"><param name=\"a\">",
            "<function name=\"get_weather\"><param name=\"city\"><![CDATA[Paris]]></param>\
             <param name=\"days\">3</param></function>"
                .to_owned(),
        ),
        (
            "apertus",
            "<|tools_prefix|>",
            format!("<|tools_prefix|>[{{\"get_weather\": {ARGUMENTS}}}]<|tools_suffix|>"),
        ),
        ("gigachat", "<|function_call|>", format!("<|function_call|>{json}")),
        (
            "gigachat",
            "<|message_sep|>\n\nfunction call<|role_sep|>\n",
            format!("<|message_sep|>\n\nfunction call<|role_sep|>\n{json}"),
        ),
        (
            "solar",
            "<|tool_call:begin|>",
            format!(
                "<|tool_calls|><|tool_call:begin|>0<|tool_call:name|>get_weather<|tool_call:args|>\
                 {ARGUMENTS}<|tool_call:end|>"
            ),
        ),
        ("nemotron", "<TOOLCALL>", format!("<TOOLCALL>[{json}]</TOOLCALL>")),
        ("granite", "<|tool_call|>", format!("<|tool_call|>[{json}]")),
        ("granite", "<|tool_call|>", format!("<|tool_call|>[{json}]<|/tool_call|>")),
        (
            "functionary",
            "<function=example_function_name>",
            format!("<function=get_weather>{ARGUMENTS}</function>"),
        ),
        (
            "functionary_v32",
            ">>>all",
            format!(">>>get_weather\n{ARGUMENTS}"),
        ),
        (
            "command",
            "Write \\'Action:\\' followed by a json-formatted list of actions",
            format!(
                "Action: ```json\n[\n    {{\n        \"tool_name\": \"get_weather\",\n        \
                 \"parameters\": {ARGUMENTS}\n    }}\n]```"
            ),
        ),
        (
            "kimi_k3",
            "<|open|>tools<|sep|>",
            "<|open|>tools<|sep|><|open|>call tool=\"get_weather\" index=\"1\"<|sep|>\
             <|open|>argument key=\"city\" type=\"string\"<|sep|>Paris<|close|>argument<|sep|>\
             <|open|>argument key=\"days\" type=\"number\"<|sep|>3<|close|>argument<|sep|>\
             <|close|>call<|sep|><|close|>tools<|sep|>"
                .to_owned(),
        ),
        ("functools", "functools[", format!("functools[{json}]")),
        ("xlam", "[BEGIN OF FORMAT INSTRUCTION]", format!("[{json}]")),
        ("xlam", "[BEGIN OF FORMAT INSTRUCTION]", format!("```json\n[{json}]\n```")),
        ("llama", LLAMA, "[get_weather(city='Paris', days=3)]".to_owned()),
        ("llama", LLAMA, format!("<function=get_weather>{ARGUMENTS}</function>")),
    ]
}

#[test]
fn every_format_is_read() {
    for (name, template, text) in formats() {
        assert_eq!(Syntax::of(template).tools_name(), name);
        let case = Case::new(template, &weather());
        case.check(&text, "", "", &[paris()]);
        case.check(&format!("{text}\n"), "", "", &[paris()]);
    }
}

/// Where the schema wants a text, one that begins like an element, or is one, is a text.
#[test]
fn texts_may_begin_with_an_element() {
    for (name, template, call) in formats() {
        for city in ["<b>bold</b> text", "<b>bold</b>", "<item>1</item>", "<city>x</city>y"] {
            let whole = Case::new(template, &weather()).any_cut(&call.replacen("Paris", city, 1));
            let [(_, _, arguments, true)] = &whole.calls[..] else { panic!("{name}: {whole:?}") };
            let arguments: Value = serde_json::from_str(arguments).unwrap();
            assert_eq!(arguments, json!({"city": city, "days": 3}), "{name}");
        }
    }
}

/// Text before and after a call is content, the blanks around the call are nobody's.
#[test]
fn text_stays_around_calls() {
    for (_, template, text) in
        formats().into_iter().filter(|(name, ..)| !matches!(*name, "llama" | "xlam"))
    {
        let case = Case::new(template, &weather());
        case.check(&format!("Let me look.\n\n{text}"), "", "Let me look.", &[paris()]);
    }
    let case = Case::new(HERMES, &weather());
    let text = format!("A\n{}\nB", formats()[0].2);
    case.check(&text, "", "AB", &[paris()]);
}

#[test]
fn without_tools_nothing_is_a_call() {
    for (name, template, text) in formats() {
        if !matches!(name, "gemma" | "cohere" | "kimi_k3") {
            Case::new(template, &[]).check(&text, "", &text, &[]);
        }
    }
}

/// Two calls, whatever the format.
#[test]
fn calls_in_parallel() {
    for (name, template, text) in formats() {
        let twice = match name {
            "kimi" | "deepseek" | "deepseek_v31" => continue,
            "xlam" => continue,
            "llama" if text.starts_with('[') => {
                "[get_weather(city='Paris', days=3), get_weather(city='Paris', days=3)]".to_owned()
            }
            _ => format!("{text}\n{text}"),
        };
        let case = Case::new(template, &weather());
        case.check(&twice, "", "", &[paris(), paris()]);
        let whole = case.run(&[&twice]);
        assert!(
            whole.calls[0].0 != whole.calls[1].0
                || text.contains("CALL_ID")
                || matches!(name, "cohere" | "solar")
        );
    }
    let list = format!(
        "[{{\"name\": \"get_weather\", \"arguments\": {ARGUMENTS}}}, \
                        {{\"name\": \"get_time\", \"arguments\": {{}}}}]"
    );
    for (template, text) in [
        (HERMES, format!("<tool_call>{list}</tool_call>")),
        ("[TOOL_CALLS]", format!("[TOOL_CALLS]{list}")),
        ("<|tool_call|>", format!("<|tool_call|>{list}")),
    ] {
        Case::new(template, &weather()).check(&text, "", "", &[paris(), ("get_time", json!({}))]);
    }
    let bare = format!(
        "{{\"name\": \"get_weather\", \"parameters\": {ARGUMENTS}}}; \
                        {{\"name\": \"get_time\", \"parameters\": {{}}}}"
    );
    Case::new(LLAMA, &weather()).check(&bare, "", "", &[paris(), ("get_time", json!({}))]);
}

/// What models leave out or get wrong.
#[test]
fn slips_are_forgiven_where_the_tool_is_known() {
    let call = format!(r#"{{"name": "get_weather", "arguments": {ARGUMENTS}}}"#);
    let quoted = Value::from(ARGUMENTS);
    for text in [
        format!("<tool_call>\n{call}"),
        format!("<tool_call>\n{}", call.trim_end_matches('}')),
        format!("<tool_call>\n{call}}}\n</tool_call>"),
        format!("<tool_call>{{\"arguments\": {ARGUMENTS}, \"name\": \"get_weather\"}}</tool_call>"),
        format!("<tool_call>{{\"name\": \"get_weather\", \"arguments\": {quoted}}}</tool_call>"),
        format!("<tool_call>{{\"type\": \"function\", \"function\": {call}}}</tool_call>"),
        format!("<tool_call>\n{{{call}}}\n</tool_call>"),
        call.clone(),
        format!("{call}\n</tool_call>"),
        format!("```json\n{call}\n```"),
        "<tool_call><function=get_weather><parameter=city>Paris</parameter><parameter=days>3\
         </parameter></function></tool_call>"
            .to_owned(),
        "<function=get_weather>\n<parameter=city>\nParis\n</parameter>\n<parameter=days>\n3".to_owned(),
        "<tool_call>\n<function=get_weather>\n<parameter=city>\nParis\n</parameter>\n<parameter=days>\n\
         3\n</parameter>\n</tool_call>"
            .to_owned(),
    ] {
        Case::new(HERMES, &weather()).check(&text, "", "", &[paris()]);
    }
    let none = "<tool_call>\n{\"name\": \"get_time\"}\n</tool_call>";
    Case::new(HERMES, &weather()).check(none, "", "", &[("get_time", json!({}))]);
    let none = "<tool_call>\n<function=get_time>\n</function>\n</tool_call>";
    Case::new(CODER, &weather()).check(none, "", "", &[("get_time", json!({}))]);
    Case::new("<arg_key>", &weather()).check(
        "<tool_call>get_time</tool_call>",
        "",
        "",
        &[("get_time", json!({}))],
    );
}

/// The last value's end is left out, a slip of small models: it is where the call's end is, be there blanks
/// after it or not, be the value a text that goes on to the client or not.
#[test]
fn the_end_of_the_last_value_may_be_left_out() {
    let ends = [
        "</parameter>",
        "</｜DSML｜parameter>",
        "</arg_value>",
        "</arg_value:opensource>",
        "</longcat_arg_value>",
        "</param>",
    ];
    let mut seen = 0;
    for (name, template, call) in formats() {
        for end in ends.into_iter().filter(|end| call.contains(end)) {
            let (before, after) = call.rsplit_once(end).unwrap();
            for text in [format!("{before}{after}"), format!("{before}{after}\n")] {
                let whole = Case::new(template, &weather()).any_cut(&text);
                let [(_, _, arguments, true)] = &whole.calls[..] else {
                    panic!("{name}: {whole:?}")
                };
                let arguments: Value = serde_json::from_str(arguments).unwrap();
                assert_eq!(arguments, paris().1, "{name}: {text:?}");
            }
            seen += 1;
        }
    }
    assert_eq!(seen, 9, "formats with values between tags");
    let begin = "<tool_call>\n<function=get_weather>\n<parameter=city>\n";
    for (rest, city) in [
        ("Paris\n</function>\n</tool_call>\n", "Paris"),
        ("Paris</function></tool_call>", "Paris"),
        ("Paris\n</tool_call>", "Paris"),
        // What goes on is a text that speaks of such tags.
        ("</function> ends it\n</parameter>\n</function>\n</tool_call>", "</function> ends it"),
        ("a</tool_call>\n</parameter>\n</function>\n</tool_call>\n", "a</tool_call>"),
        ("</function>\n</tool_call> b\n</function>\n</tool_call>", "</function>\n</tool_call> b"),
    ] {
        let whole = Case::new(CODER, &weather()).any_cut(&format!("{begin}{rest}"));
        let [(_, _, arguments, true)] = &whole.calls[..] else { panic!("{rest:?}: {whole:?}") };
        let arguments: Value = serde_json::from_str(arguments).unwrap();
        assert_eq!(arguments, json!({ "city": city }), "{rest:?}");
    }
}

#[test]
fn unknown_names_and_broken_calls_are_text() {
    let case = Case::new(HERMES, &weather());
    for text in [
        "<tool_call>\n{\"name\": \"rm\", \"arguments\": {}}\n</tool_call>",
        "<tool_call>\n{\"title\": \"get_weather\"}\n</tool_call>",
        "<tool_call>",
        "<tool_call>\n",
        "<tool_call> is a tag",
        "<function=rm>\n</function>",
        "see <function=get_time> there",
        "{\"name\": \"get_weather\"}",
        "{\"name\": \"get_weather\", \"arguments\": ",
        "```json\n{\"name\": \"get_time\", \"arguments\": {}}\n```\nis a call.",
        "A call:\n```json\n{\"name\": \"get_time\", \"arguments\": {}}\n```",
        "```json\n{\"name\": \"get_time\"}\n```",
        "{\"name\": \"get_time\", \"arguments\": {}, \"response\": \"noon\"}",
        "`",
        "{",
    ] {
        case.check(text, "", text, &[]);
    }
}

/// Control characters that a model writes raw in a JSON string.
#[test]
fn arguments_are_valid_json() {
    let text =
        "<tool_call>{\"name\": \"get_weather\", \"arguments\": {\"city\": \"a\n\tb\"}}</tool_call>";
    let expected = json!({"city": "a\n\tb"});
    Case::new(HERMES, &weather()).check(text, "", "", &[("get_weather", expected)]);
}

#[test]
fn a_cut_call_is_not_complete() {
    for (template, text) in [
        (HERMES, "<tool_call>{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Par"),
        (HERMES, "<tool_call>{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Paris\"}"),
        (CODER, "<tool_call>\n<function=get_weather>\n<parameter=city>\nPar"),
        (CODER, "<tool_call>\n<function=get_weather>\n<parameter=ci"),
        (CODER, "<tool_call>\n<function=get_weather>\n<parameter=city>\nParis\n</parameter>\n<par"),
        (
            CODER,
            "<tool_call>\n<function=get_weather>\n<parameter=city>\nParis\n</parameter>\n</func",
        ),
        ("[TOOL_CALLS]", "[TOOL_CALLS]get_weather[ARGS]{\"city\": \"Par"),
    ] {
        let mut case = Case::new(template, &weather());
        case.end = End::Cut;
        let whole = case.any_cut(text);
        assert_eq!(whole.content, "", "{text}");
        assert_eq!(whole.calls.len(), 1, "{text}");
        assert!(!whole.calls[0].3, "{text}");
    }
    // Closed before the cut is complete.
    let mut case = Case::new(HERMES, &weather());
    case.end = End::Cut;
    case.check(&formats()[0].2, "", "", &[paris()]);
    case.opening = Opening::Answer;
    case.check("<tool_call>{\"na", "", "<tool_call>{\"na", &[]);
}

/// Texts go on to the client while they arrive.
#[test]
fn long_arguments_stream() {
    use hearth_text::{Part, Splitter, Tools};
    for (template, head) in [
        (
            "]<]minimax[>[",
            "]<]minimax[>[<tool_call>\n]<]minimax[>[<invoke name=\"get_weather\">]<]minimax[>[<city>_",
        ),
        (HERMES, "<tool_call>{\"name\": \"get_weather\", \"arguments\": {\"city\": \""),
        (CODER, "<tool_call>\n<function=get_weather>\n<parameter=city>\n"),
    ] {
        let tools = Tools::new(&weather());
        let mut splitter = Splitter::new(Syntax::of(template), Opening::Free, tools, 0);
        splitter.push(head);
        assert_eq!(splitter.push("Par"), [Part::Arguments("Par".to_owned())]);
        assert_eq!(splitter.push("is"), [Part::Arguments("is".to_owned())]);
    }
}

/// Integers that no number of a machine can hold come to the client digit by digit, whoever typed them.
#[test]
fn digits_stay_as_they_are() {
    // The longer one is more than any double.
    let many = "7".repeat(400);
    for digits in ["-123456789012345678901234567890", &many] {
        for (name, template, text) in formats() {
            let written =
                text.replace(">3<", &format!(">{digits}<")).replace(": 3", &format!(": {digits}"));
            let written = written.replace("days:3", &format!("days:{digits}"));
            let written = written.replace("days=3", &format!("days={digits}"));
            let written = written.replace("\n3\n", &format!("\n{digits}\n"));
            let written = written.replace("<days>3", &format!("<days>{digits}"));
            assert_ne!(written, text, "{name}");
            let case = Case::new(template, &weather());
            let whole =
                if digits.len() > 100 { case.run(&[&written]) } else { case.any_cut(&written) };
            assert!(whole.calls[0].3, "{name} {whole:?}");
            let rest = whole.calls[0].2.replace([' ', '\n'], "");
            assert_eq!(rest, format!("{{\"city\":\"Paris\",\"days\":{digits}}}"), "{name}");
        }
    }
}

/// A second call that is none leaves the first one what it is.
#[test]
fn a_call_of_an_unknown_tool_is_text_after_one_that_is_known() {
    let case = Case::new("<function=example_function_name>", &weather());
    let unknown = "<function=wipe_disk>{}</function>";
    let text = format!("<function=get_weather>{ARGUMENTS}</function>\n{unknown}");
    let whole = case.any_cut(&text);
    assert_eq!(whole.calls.len(), 1, "{whole:?}");
    assert_eq!(whole.content.trim(), unknown);
}

/// What stands behind the inner object belongs to the same call.
#[test]
fn calls_may_have_their_kind_at_the_end() {
    let call = format!(
        r#"{{"function": {{"name": "get_weather", "arguments": {ARGUMENTS}}}, "type": "function"}}"#
    );
    let text = format!("<TOOLCALL>[{call}, {call}]</TOOLCALL>");
    Case::new("<TOOLCALL>", &weather()).check(&text, "", "", &[paris(), paris()]);
}

/// What the model calls its calls is what the result will refer to.
#[test]
fn ids_are_the_models_own_where_it_gives_one() {
    for (name, template, text) in formats() {
        let id = match name {
            "kimi" => "functions.get_weather:0",
            "cohere" | "solar" => "0",
            "mistral" if text.contains("[CALL_ID]") => "abcdefghi",
            _ => continue,
        };
        let whole = Case::new(template, &weather()).any_cut(&text);
        assert_eq!(whole.calls[0].0, id, "{name}");
    }
    // Solar's may be missing, and are made then.
    let text = formats().into_iter().find(|(name, ..)| *name == "solar").unwrap().2;
    let text = text.replace("<|tool_call:begin|>0", "<|tool_call:begin|>");
    let whole = Case::new("<|tool_call:begin|>", &weather()).any_cut(&text);
    assert!(whole.calls[0].0.starts_with("call_") && whole.calls[0].0.len() == 29, "{whole:?}");
}

/// Lines may end as they do on Windows, and a call may end right after its name.
#[test]
fn lines_may_end_otherwise() {
    let case = Case::new(CODER, &weather());
    let coder = formats().into_iter().find(|(name, ..)| *name == "qwen_coder").unwrap().2;
    case.check(&coder.replace('\n', "\r\n"), "", "", &[paris()]);
    // A call without arguments ends with its name, whether or not anything follows.
    let mut case = Case::new("<arg_key>", &weather());
    case.end = End::Cut;
    case.check("<tool_call>get_time</tool_call>", "", "", &[("get_time", json!({}))]);
}
