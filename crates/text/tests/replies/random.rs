//! Whatever a model writes: no panic, no hang, nothing invented, the same however it is cut.

use std::time::Duration;

use hearth_text::{End, Opening};
use proptest::prelude::*;
use serde_json::json;

use crate::cases::{CODER, HARMONY, HERMES, LLAMA};
use crate::{Case, tool};

const TEMPLATES: [&str; 25] = [
    HERMES,
    CODER,
    LLAMA,
    HARMONY,
    "<arg_key>",
    "[TOOL_CALLS][THINK]",
    "<|tool_calls_section_begin|>",
    "<｜tool▁calls▁begin｜>```json",
    "<｜tool▁calls▁begin｜>",
    "<|tool_call><|channel>",
    "<start_function_call>",
    "<|tool_call_start|>",
    "<|START_ACTION|><|START_THINKING|>",
    "<|tools_prefix|><|inner_prefix|>",
    "<|function_call|><|role_sep|>",
    "<|tool_call:begin|><|think|>",
    "<TOOLCALL>",
    "<|tool_call|>",
    "<minimax:tool_call>",
    "<seed:tool_call><seed:think>",
    "｜DSML｜",
    ">>>all",
    "followed by a json-formatted list of actions",
    "<|open|>think<|sep|>",
    "]<]minimax[>[<mm:think>",
];

fn words() -> impl Strategy<Value = String> {
    let words = [
        "<think>",
        "</think>",
        "<tool_call>",
        "</tool_call>",
        "<function=f>",
        "</function>",
        "<parameter=a>",
        "</parameter>",
        "{\"name\": \"f\", ",
        "\"arguments\": {",
        "\"a\": 1",
        "}",
        "}}",
        "{",
        "[",
        "]",
        "\"",
        "\\",
        "[TOOL_CALLS]",
        "[ARGS]",
        "f",
        "g",
        "\n",
        "\n\n",
        " ",
        "`",
        "```",
        "<arg_key>",
        "</arg_key>",
        "<arg_value>",
        "</arg_value>",
        "<|tool_call_begin|>",
        "<|tool_calls_section_begin|>",
        "<|tool_call_argument_begin|>",
        "<|tool_call_end|>",
        "functions.f:0",
        "<｜tool▁calls▁begin｜>",
        "<｜tool▁call▁begin｜>",
        "<｜tool▁sep｜>",
        "<|channel|>",
        "<|message|>",
        "<|start|>",
        "<|end|>",
        "analysis",
        "commentary to=functions.f",
        "<|tool_call>",
        "<tool_call|>",
        "call:f{",
        "<|\"|>",
        "a:",
        ",",
        "f(a=",
        "[f(a=1)]",
        ")",
        "<|python_tag|>",
        "<|tool_call_start|>",
        "é🦜",
        "<|START_ACTION|>",
        "<|tools_prefix|>",
        "[{\"f\": {}}]",
        "<|tools_suffix|>",
        "<|inner_prefix|>",
        "<|inner_suffix|>",
        "<|function_call|>",
        "function call",
        "<|role_sep|>",
        "<|tool_calls|>",
        "<|tool_call:begin|>0<|tool_call:name|>f",
        "<|tool_call:args|>",
        "<|tool_call:end|>",
        "<minimax:tool_call>",
        "<invoke name=\"f\">",
        "</invoke>",
        "<seed:tool_call>",
        "<TOOLCALL>",
        "<|tool_call|>",
        "<｜DSML｜invoke name=\"f\">",
        ">>>",
        ">>>f\n",
        "all\n",
        "Action: ```json\n",
        "<|open|>tools<|sep|>",
        "<|open|>call tool=\"f\" index=\"1\"<|sep|>",
        "<|open|>argument key=\"a\" type=\"string\"<|sep|>",
        "<|close|>argument<|sep|>",
        "<|close|>call<|sep|>",
        "<|close|>tools<|sep|>",
        "<|open|>response<|sep|>",
        "<|close|>think<|sep|>",
        "<|open|>json type=\"object\"<|sep|>",
        "<|close|>json<|sep|>",
        "]<]minimax[>[",
        "]<]minimax[>[<tool_call>",
        "]<]minimax[>[<invoke name=\"f\">",
        "]<]minimax[>[<a>",
        "]<]minimax[>[<item>",
        "]<]minimax[>[</item>",
        "]<]minimax[>[</a>",
        "]<]minimax[>[</invoke>",
        "]<]minimax[>[</tool_call>",
        "<mm:think>",
        "</mm:think>",
        "[THINK]",
        "[/THINK]",
        "<|channel>thought\n",
        "<channel|>",
        ";",
        "text",
    ];
    proptest::collection::vec(proptest::sample::select(words.to_vec()), 0..40)
        .prop_map(|words| words.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn any_answer_is_cut_the_same(
        text in prop_oneof![9 => words(), 1 => any::<String>()],
        template in proptest::sample::select(TEMPLATES.to_vec()),
        opening in prop_oneof![Just(Opening::Free), Just(Opening::Thoughts), Just(Opening::Answer),
                               Just(Opening::Begun), Just(Opening::Header(String::new()))],
        end in prop_oneof![Just(End::Model), Just(End::Cut)],
        has_tools in any::<bool>(),
        cuts in proptest::collection::vec(any::<prop::sample::Index>(), 0..8),
    ) {
        let tools = [tool("f", json!({"a": {"type": "string"}}))];
        let is_header = matches!(opening, Opening::Header(_));
        let is_odd = is_header != (template == HARMONY)
            || (opening == Opening::Begun && template != ">>>all");
        let opening = if is_odd { Opening::Free } else { opening };
        let tools = if has_tools { tools.to_vec() } else { Vec::new() };
        let case = Case { template, opening, tools, end };
        let whole = case.run(&[&text]);
        let single: Vec<String> = text.chars().map(String::from).collect();
        let single: Vec<&str> = single.iter().map(String::as_str).collect();
        prop_assert_eq!(&case.run(&single), &whole);
        let mut places: Vec<usize> = cuts.iter().map(|cut| cut.index(text.len() + 1))
            .filter(|&at| text.is_char_boundary(at)).collect();
        places.sort_unstable();
        let (mut pieces, mut from) = (Vec::new(), 0);
        for at in places.into_iter().chain([text.len()]) {
            pieces.push(&text[from..at]);
            from = at;
        }
        prop_assert_eq!(&case.run(&pieces), &whole);
        for (_, name, arguments, complete) in &whole.calls {
            prop_assert!(has_tools && !name.is_empty());
            prop_assert!(!complete || !arguments.is_empty());
        }
    }
}

/// Long answers made to be scanned again and again. Anything that grows with the square of the length
/// takes hours here.
#[test]
fn long_answers_take_linear_time() {
    let n = 200_000;
    let (send, done) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let tools = [tool("f", json!({"a": {"type": "string"}}))];
        for (template, head, unit) in [
            (HERMES, "", "<tool_call>"),
            (HERMES, "", "\n"),
            (HERMES, "", "`<tool_call>{"),
            (HERMES, "", "\n<function=f>\n<parameter=a>"),
            (HERMES, "<think>", "<tool_call>{\"name\":\"f\",\"arguments\":{"),
            (HERMES, "<think>", "\n<tool_call>x"),
            (HERMES, "<tool_call>{\"name\":\"f\",\"arguments\":{\"a\":\"", "</tool_call>"),
            (HERMES, "<tool_call>", "["),
            (HERMES, "<tool_call>{\"name\":\"f\",\"arguments\":{\"a\":", "{\"a\":"),
            (CODER, "<tool_call>\n<function=f>\n<parameter=a>\n", "</parameter> "),
            (CODER, "<tool_call>\n<function=f>\n<parameter=a>\n", "</parameter>\n"),
            (LLAMA, "", "[f(a="),
            ("<|tool_call>", "<|tool_call>call:f{", "a:{"),
            ("<|tool_call_start|>", "<|tool_call_start|>[f(a=", "['''"),
            (HARMONY, "", "<|channel|>"),
            (
                "]<]minimax[>[",
                "]<]minimax[>[<invoke name=\"f\">]<]minimax[>[<a>",
                "]<]minimax[>[</invoke>",
            ),
            (
                "]<]minimax[>[",
                "]<]minimax[>[<invoke name=\"f\">]<]minimax[>[<b>",
                "]<]minimax[>[<i>x",
            ),
        ] {
            let text = head.to_owned() + &unit.repeat(n / unit.len());
            let case = Case::new(template, &tools);
            let pieces: Vec<&str> = (0..text.len()).map(|at| &text[at..=at]).collect();
            let whole = case.run(&[&text]);
            assert_eq!(case.run(&pieces), whole, "{head}{unit}");
        }
        send.send(()).unwrap();
    });
    // A guard against hanging for ever, not a measure.
    assert!(done.recv_timeout(Duration::from_secs(300)).is_ok());
}
