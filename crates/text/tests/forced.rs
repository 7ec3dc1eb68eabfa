//! Calls that a model must make: in every format whatever the grammar lets it write is read back as calls
//! of the request's tools, with arguments that a validator which is not ours finds right.

mod common;
mod schemas;
mod speaking;

use common::numbers;
use hearth_text::grammar::{Asked, Calls, Duty, Format, Number, Part as At, Run};
use hearth_text::{End, Opening, Part, Splitter, Syntax, Tools};
use proptest::prelude::*;
use schemas::{closed, judge, parameters};
use serde_json::{Value, json};
use speaking::Speaker;

/// What a format's templates show, its control tokens, and a call as it is published: of `get_weather`
/// with a text and a number.
struct Spelled {
    template: &'static str,
    control: &'static [&'static str],
    published: String,
}

const ARGUMENTS: &str = r#"{"city": "Paris", "days": 3}"#;

fn formats() -> Vec<Spelled> {
    let json = format!(r#"{{"name": "get_weather", "arguments": {ARGUMENTS}}}"#);
    let spelled = |template, control, published: &str| Spelled {
        template,
        control,
        published: published.to_owned(),
    };
    vec![
        spelled(
            "<tool_call>",
            &["<tool_call>", "</tool_call>"],
            &format!("<tool_call>\n{json}\n</tool_call>"),
        ),
        spelled(
            "<function=x><parameter=y>",
            &["<tool_call>", "</parameter>"],
            "<tool_call>\n<function=get_weather>\n<parameter=city>\nParis\n</parameter>\n\
             <parameter=days>\n3\n</parameter>\n</function>\n</tool_call>",
        ),
        spelled(
            "<seed:tool_call>",
            &["<seed:tool_call>", "</seed:tool_call>"],
            "<seed:tool_call>\n<function=get_weather>\n<parameter=city>Paris</parameter>\n\
             <parameter=days>3</parameter>\n</function>\n</seed:tool_call>",
        ),
        spelled(
            "<minimax:tool_call>",
            &["<minimax:tool_call>", "</minimax:tool_call>"],
            "<minimax:tool_call>\n<invoke name=\"get_weather\">\n<parameter name=\"city\">Paris</parameter>\n\
             <parameter name=\"days\">3</parameter>\n</invoke>\n</minimax:tool_call>",
        ),
        spelled(
            "]<]minimax[>[",
            &["]<]minimax[>["],
            "]<]minimax[>[<tool_call>\n]<]minimax[>[<invoke name=\"get_weather\">\
             ]<]minimax[>[<city>Paris]<]minimax[>[</city>]<]minimax[>[<days>3]<]minimax[>[</days>\
             ]<]minimax[>[</invoke>\n]<]minimax[>[</tool_call>",
        ),
        spelled(
            "｜DSML｜",
            &["｜DSML｜"],
            "<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"get_weather\">\n\
             <｜DSML｜parameter name=\"city\" string=\"true\">Paris</｜DSML｜parameter>\n\
             <｜DSML｜parameter name=\"days\" string=\"false\">3</｜DSML｜parameter>\n\
             </｜DSML｜invoke>\n</｜DSML｜function_calls>",
        ),
        spelled(
            "<arg_key>",
            &[
                "<tool_call>",
                "<arg_key>",
                "</arg_key>",
                "<arg_value>",
                "</arg_value>",
                "</tool_call>",
            ],
            "<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Paris</arg_value>\n\
             <arg_key>days</arg_key>\n<arg_value>3</arg_value>\n</tool_call>",
        ),
        spelled(
            "<|tool_calls_section_begin|>",
            &[
                "<|tool_calls_section_begin|>",
                "<|tool_call_begin|>",
                "<|tool_call_argument_begin|>",
                "<|tool_call_end|>",
                "<|tool_calls_section_end|>",
            ],
            &format!(
                "<|tool_calls_section_begin|><|tool_call_begin|>functions.get_weather:0\
                 <|tool_call_argument_begin|>{ARGUMENTS}<|tool_call_end|><|tool_calls_section_end|>"
            ),
        ),
        spelled(
            "<｜tool▁calls▁begin｜>```json",
            &[
                "<｜tool▁calls▁begin｜>",
                "<｜tool▁call▁begin｜>",
                "<｜tool▁sep｜>",
                "<｜tool▁call▁end｜>",
                "<｜tool▁calls▁end｜>",
            ],
            &format!(
                "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>get_weather\n```json\n\
                 {ARGUMENTS}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>"
            ),
        ),
        spelled(
            "<｜tool▁calls▁begin｜>",
            &[
                "<｜tool▁calls▁begin｜>",
                "<｜tool▁call▁begin｜>",
                "<｜tool▁sep｜>",
                "<｜tool▁call▁end｜>",
                "<｜tool▁calls▁end｜>",
            ],
            &format!(
                "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>get_weather<｜tool▁sep｜>{ARGUMENTS}\
                 <｜tool▁call▁end｜><｜tool▁calls▁end｜>"
            ),
        ),
        spelled("[TOOL_CALLS]", &["[TOOL_CALLS]"], &format!("[TOOL_CALLS][{json}]")),
        spelled(
            "[TOOL_CALLS]",
            &["[TOOL_CALLS]", "[ARGS]"],
            &format!("[TOOL_CALLS]get_weather[ARGS]{ARGUMENTS}"),
        ),
        spelled(
            "<|tool_call>",
            &["<|tool_call>", "<tool_call|>", "<|\"|>"],
            "<|tool_call>call:get_weather{city:<|\"|>Paris<|\"|>,days:3}<tool_call|>",
        ),
        spelled(
            "<start_function_call>",
            &["<start_function_call>", "<end_function_call>", "<escape>"],
            "<start_function_call>call:get_weather{city:<escape>Paris<escape>,days:3}<end_function_call>",
        ),
        spelled(
            "<|tool_call_start|>",
            &["<|tool_call_start|>", "<|tool_call_end|>"],
            "<|tool_call_start|>[get_weather(city=\"Paris\", days=3)]<|tool_call_end|>",
        ),
        spelled(
            "[func_name1(params_name1=params_value1)]",
            &[],
            "[get_weather(city=\"Paris\", days=3)]",
        ),
        spelled(
            "<|START_ACTION|>",
            &["<|START_ACTION|>", "<|END_ACTION|>"],
            &format!(
                "<|START_ACTION|>[\n    {{\"tool_call_id\": \"0\", \"tool_name\": \"get_weather\", \
                 \"parameters\": {ARGUMENTS}}}\n]<|END_ACTION|>"
            ),
        ),
        spelled(
            "set HYTK = ':opensource'",
            &[
                "<tool_calls:opensource>",
                "</tool_calls:opensource>",
                "<tool_call:opensource>",
                "</tool_call:opensource>",
                "<tool_sep:opensource>",
            ],
            "<tool_calls:opensource>\n<tool_call:opensource>get_weather<tool_sep:opensource>\n\
             <arg_key:opensource>city</arg_key:opensource>\n\
             <arg_value:opensource>Paris</arg_value:opensource>\n\
             <arg_key:opensource>days</arg_key:opensource>\n\
             <arg_value:opensource>3</arg_value:opensource>\n</tool_call:opensource>\n\
             </tool_calls:opensource>",
        ),
        spelled(
            "<longcat_tool_call>",
            &["<longcat_tool_call>", "</longcat_tool_call>"],
            "<longcat_tool_call>get_weather\n<longcat_arg_key>city</longcat_arg_key>\n\
             <longcat_arg_value>Paris</longcat_arg_value>\n<longcat_arg_key>days</longcat_arg_key>\n\
             <longcat_arg_value>3</longcat_arg_value>\n</longcat_tool_call>",
        ),
        spelled(
            "<function name=\"f\"><param name=\"a\">",
            &[],
            "<function name=\"get_weather\"><param name=\"city\">Paris</param>\
             <param name=\"days\">3</param></function>",
        ),
        spelled(
            "<|tools_prefix|>",
            &["<|tools_prefix|>", "<|tools_suffix|>"],
            &format!("<|tools_prefix|>[{{\"get_weather\": {ARGUMENTS}}}]<|tools_suffix|>"),
        ),
        spelled("<|function_call|>", &["<|function_call|>"], &format!("<|function_call|>{json}")),
        spelled(
            "function call<|role_sep|>",
            &["<|role_sep|>"],
            &format!("function call<|role_sep|>\n{json}"),
        ),
        spelled(
            "<|tool_call:begin|>",
            &[
                "<|tool_calls|>",
                "<|tool_call:begin|>",
                "<|tool_call:name|>",
                "<|tool_call:args|>",
                "<|tool_call:end|>",
            ],
            &format!(
                "<|tool_calls|><|tool_call:begin|>0<|tool_call:name|>get_weather<|tool_call:args|>\
                 {ARGUMENTS}<|tool_call:end|>"
            ),
        ),
        spelled("<TOOLCALL>", &[], &format!("<TOOLCALL>[{json}]</TOOLCALL>")),
        spelled("<|tool_call|>", &["<|tool_call|>"], &format!("<|tool_call|>[{json}]")),
        spelled(
            "<function=example_function_name>",
            &[],
            &format!("<function=get_weather>{ARGUMENTS}</function>"),
        ),
        spelled(">>>all", &[], &format!("get_weather\n{ARGUMENTS}")),
        spelled(
            "followed by a json-formatted list of actions",
            &[],
            &format!(
                "Action: ```json\n[\n    {{\n        \"tool_name\": \"get_weather\",\n        \
                 \"parameters\": {ARGUMENTS}\n    }}\n]```"
            ),
        ),
        spelled(
            "<|open|>tools<|sep|>",
            &["<|open|>", "<|close|>", "<|sep|>"],
            "<|open|>tools<|sep|><|open|>call tool=\"get_weather\" index=\"1\"<|sep|>\
             <|open|>argument key=\"city\" type=\"string\"<|sep|>Paris<|close|>argument<|sep|>\
             <|open|>argument key=\"days\" type=\"number\"<|sep|>3<|close|>argument<|sep|>\
             <|close|>call<|sep|><|close|>tools<|sep|>",
        ),
        spelled("functools[", &[], &format!("functools[{json}]")),
        spelled("[BEGIN OF FORMAT INSTRUCTION]", &[], &format!("[{json}]")),
        spelled(
            "<|python_tag|>",
            &["<|python_tag|>"],
            &format!(r#"{{"name": "get_weather", "parameters": {ARGUMENTS}}}"#),
        ),
        spelled(
            "<|start|>assistant<|channel|>final<|message|>",
            &["<|start|>", "<|end|>", "<|message|>", "<|channel|>", "<|constrain|>"],
            &format!(
                "<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>{ARGUMENTS}"
            ),
        ),
    ]
}

fn tool(name: &str, parameters: Value) -> Value {
    json!({"type": "function", "function": {"name": name, "parameters": parameters}})
}

/// Where the prompt of such a model ends.
fn opening(template: &str) -> (Syntax, Opening) {
    let syntax = Syntax::of(template);
    let end = if template == ">>>all" { ">>>" } else { "<|start|>assistant" };
    (syntax, syntax.opening(end))
}

fn forced(speaker: &Speaker, template: &str, tools: &[Value], number: Number) -> Run {
    let (syntax, opening) = opening(template);
    let asked = Asked {
        format: &Format::Free,
        calls: Duty::Must(Calls { tools, only: None, number }),
        voice: Some((syntax, &opening)),
        template,
    };
    let made = speaker.grammars.of_answer(&asked);
    made.unwrap_or_else(|fault| panic!("{template}: {fault:?}")).expect("calls restrict").start()
}

/// The calls in an answer, and no text.
fn read(template: &str, tools: &[Value], text: &str) -> Vec<(String, Value)> {
    let (syntax, opening) = opening(template);
    let mut splitter = Splitter::new(syntax, opening, Tools::new(tools), 7);
    let mut parts = splitter.push(text);
    parts.extend(splitter.finish(End::Model));
    let mut calls: Vec<(String, String)> = Vec::new();
    let mut n_ended = 0;
    for part in parts {
        match part {
            Part::Text { text: said, .. } => panic!("{template}: {said:?} is text in {text:?}"),
            Part::Reasoning(_) => {}
            Part::Begun { name, .. } => calls.push((name, String::new())),
            Part::Arguments(more) => calls.last_mut().unwrap().1 += &more,
            Part::Ended => n_ended += 1,
        }
    }
    assert_eq!(n_ended, calls.len(), "{template}: {text:?}");
    let value =
        |text: String| serde_json::from_str(&text).unwrap_or_else(|e| panic!("{e}: {text}"));
    calls.into_iter().map(|(name, arguments)| (name, value(arguments))).collect()
}

/// Whether a text can be written, to its end.
fn accepts(speaker: &Speaker, mut run: Run, text: &str) -> bool {
    let tokens = speaker.spell(text);
    let mut all = tokens.iter();
    let goes_on = all.all(|id| {
        let good = run.allowed().is_ok_and(|allowed| allowed.contains(*id));
        run.push(*id);
        good
    });
    goes_on && run.allowed().is_ok_and(|allowed| allowed.contains(speaker.stops[0]))
}

/// Something that may be written, at random; `None` if it comes to no end.
fn written(speaker: &Speaker, mut run: Run, seed: u64) -> Option<String> {
    // What ends texts: no random letters would ever spell it.
    const ENDS: [&str; 20] = [
        "]<]minimax[>[</item>",
        "]<]minimax[>[</a>",
        "]<]minimax[>[</size>",
        "]<]minimax[>[</the_name>",
        "]<]minimax[>[</x-y>",
        "]<]minimax[>[</n.1>",
        "<|close|>argument<|sep|>",
        "\n</parameter>\n",
        "</parameter>\n",
        "</｜DSML｜parameter>\n",
        "</arg_value>\n",
        "<|\"|>",
        "<escape>",
        "</arg_value:opensource>\n",
        "</longcat_arg_value>\n",
        "</param>",
        "null",
        "<|end|>",
        "\"",
        "}",
    ];
    let mut below = numbers(seed);
    let mut said: Vec<u8> = Vec::new();
    let mut planned: Vec<u32> = Vec::new();
    for n in 0..1500 {
        let allowed = run
            .allowed()
            .unwrap_or_else(|error| panic!("{error} after {:?}", String::from_utf8_lossy(&said)));
        let all: Vec<u32> =
            (0..speaker.n_vocab as u32).filter(|id| allowed.contains(*id)).collect();
        let ends = all.contains(&speaker.stops[0]);
        if all == speaker.stops || (ends && (n > 40 || below(2) == 0)) {
            return Some(String::from_utf8(said).expect("text is UTF-8"));
        }
        if planned.is_empty() && below(100) < 8 + n / 4 {
            planned = speaker.spell(ENDS[below(ENDS.len())]);
            planned.reverse();
        }
        let good = |id: &u32| all.contains(id) && *id != speaker.stops[0];
        let token = match planned.pop().filter(good) {
            Some(token) => token,
            None => {
                planned.clear();
                let plain: Vec<u32> =
                    all.iter().copied().filter(|id| speaker.is_plain(*id)).collect();
                let pool = if plain.is_empty() || below(8) == 0 { &all } else { &plain };
                let pool: Vec<u32> = pool.iter().copied().filter(good).collect();
                pool[below(pool.len())]
            }
        };
        run.push(token);
        said.extend(speaker.bytes(token));
    }
    None
}

#[test]
fn what_is_published_can_be_written() {
    let weather = json!({"type": "object", "required": ["city", "days"], "properties":
        {"city": {"type": "string"}, "days": {"type": "integer"}}});
    let tools = [tool("other", json!({"type": "object"})), tool("get_weather", weather)];
    for Spelled { template, control, published } in formats() {
        for control in [control, &[]] {
            // Which of its two ways a model takes is told by its control tokens.
            let names = ["[ARGS]", "<start_function_call>", "<|function_call|>"];
            if control.is_empty() && names.iter().any(|name| published.contains(name)) {
                continue;
            }
            let speaker = Speaker::letters_and(control);
            let run = |number| forced(&speaker, template, &tools, number);
            assert!(
                accepts(&speaker, run(Number::One), &published),
                "{template} {control:?} {published}"
            );
            assert!(accepts(&speaker, run(Number::Several), &published), "{template}");
            let calls = read(template, &tools, &published);
            assert_eq!(calls, [("get_weather".to_owned(), json!({"city": "Paris", "days": 3}))]);
            let wrong = published.replace("days", "date").replace("Paris", "3");
            assert!(!accepts(&speaker, run(Number::One), &wrong), "{template} {wrong}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, ..ProptestConfig::default() })]

    #[test]
    fn whatever_is_written_is_read_back(parameters in parameters(), seed in any::<u64>()) {
        let tools = [tool("get_it", parameters.clone()), tool("ping", json!({}))];
        let judge = judge(&closed(&parameters));
        for (i, Spelled { template, control, .. }) in formats().into_iter().enumerate() {
            let control = if seed >> i & 1 == 0 { control } else { &[] };
            let speaker = Speaker::letters_and(control);
            let number = if seed >> (i + 1) & 1 == 0 { Number::One } else { Number::Several };
            let run = forced(&speaker, template, &tools, number);
            let Some(text) = written(&speaker, run, seed) else { continue };
            let calls = read(template, &tools, &text);
            prop_assert!(!calls.is_empty(), "{template}: {text:?}");
            for (name, arguments) in calls {
                let is_right = match name.as_str() {
                    "get_it" => judge.is_valid(&arguments),
                    name => name == "ping" && arguments == json!({}),
                };
                prop_assert!(is_right, "{template}: {text:?} gives {arguments} for {parameters}");
            }
        }
    }
}

/// Texts between tags are held to their schema to the letter, and are such that they are read as texts.
#[test]
fn texts_between_tags_are_what_the_schema_says() {
    let template = "<function=x><parameter=y>";
    let speaker = Speaker::letters();
    let check = |schema: Value, good: &[&str], bad: &[&str]| {
        let parameters = json!({"properties": {"a": schema}, "required": ["a"]});
        let tools = [tool("f", parameters)];
        for (text, expected) in
            good.iter().map(|text| (text, true)).chain(bad.iter().map(|text| (text, false)))
        {
            let text = format!(
                "<tool_call>\n<function=f>\n<parameter=a>\n{text}\n</parameter>\n</function>\n</tool_call>"
            );
            let run = forced(&speaker, template, &tools, Number::One);
            assert_eq!(accepts(&speaker, run, &text), expected, "{schema} {text}");
        }
    };
    let string = |pattern: &str| json!({"type": "string", "pattern": pattern});
    check(string("^a+$"), &["a", "aaa"], &["", "ab", "ba"]);
    check(string("a$"), &["a", "xa"], &["ab"]);
    check(string("^a"), &["a", "ab"], &["ba"]);
    check(string("^(a|b)$|c"), &["a", "b", "acb"], &["ab"]);
    check(
        json!({"type": "string", "minLength": 2, "maxLength": 3}),
        &["ab", "abc"],
        &["a", "abcd"],
    );
    check(json!({"type": "string"}), &["", "a\n", "x </parameter"], &["x</parameter>y", "x\r"]);
    let list = json!({"type": ["array", "string"], "items": {"type": "integer"}});
    check(list, &["[1]", "a [1]", "x"], &["[\"a\"]", "[1", " [x]", "'a'", "(1)", "5", "True"]);
    check(
        json!({"type": ["string", "null"], "minLength": 9}),
        &["null", "123456789"],
        &["nul", "x"],
    );
}

/// Objects and lists are written as MiniMax M3 does where the schema says what is in them, and as JSON
/// where it does not.
#[test]
fn what_is_nested_is_elements() {
    const N: &str = "]<]minimax[>[";
    let parameters = json!({"type": "object", "required": ["steps"], "properties": {
        "steps": {"type": "array", "minItems": 1, "maxItems": 2, "items": {"$ref": "#/$defs/step"}},
        "free": {"type": "object"}, "either": {"type": ["array", "null"], "items": {"type": "integer"}}},
        "$defs": {"step": {"type": "object", "required": ["old"], "properties": {
            "old": {"type": "string", "pattern": "^[a-z ]*$"}, "sizes": {"type": "array", "items": {"type": "integer"}},
            "next": {"$ref": "#/$defs/step"}}}}});
    let tools = [tool("f", parameters)];
    let step = |old: &str, more: &str| format!("@<item>@<old>{old}@</old>{more}@</item>");
    for speaker in [Speaker::letters(), Speaker::letters_and(&[N])] {
        let check = |body: String, expected: Option<Value>| {
            let text = format!("@<tool_call>\n@<invoke name=\"f\">{body}@</invoke>\n@</tool_call>")
                .replace('@', N);
            let run = forced(&speaker, N, &tools, Number::One);
            assert_eq!(accepts(&speaker, run, &text), expected.is_some(), "{text}");
            if let Some(arguments) = expected {
                assert_eq!(read(N, &tools, &text), [("f".to_owned(), arguments)]);
            }
        };
        let one = step("a b", "@<sizes>@<item>1@</item>@<item>-2@</item>@</sizes>");
        check(
            format!("@<steps>{one}@</steps>"),
            Some(json!({"steps": [{"old": "a b", "sizes": [1, -2]}]})),
        );
        let next = step("", "@<sizes>@</sizes>@<next>@<old>x@</old>@</next>");
        check(
            format!(
                "@<steps>{one}{next}@</steps>@<free>{{\"a\": [1]}}@</free>@<either>[3]@</either>"
            ),
            Some(
                json!({"steps": [{"old": "a b", "sizes": [1, -2]}, {"old": "", "sizes": [], "next": {"old": "x"}}],
                        "free": {"a": [1]}, "either": [3]}),
            ),
        );
        check("@<steps>@</steps>".to_owned(), None);
        check(format!("@<steps>{one}{one}{one}@</steps>"), None);
        check(format!("@<steps>{}@</steps>", step("A", "")), None);
        check(format!("@<steps>{}@</steps>", step("a", "@<sizes>[1]@</sizes>")), None);
        check(format!("@<steps>{}@</steps>", step("a", "@<other>1@</other>")), None);
        check("@<steps>@<item>@</item>@</steps>".to_owned(), None);
        check("@<steps>[{\"old\": \"a\"}]@</steps>".to_owned(), None);
    }
}

#[test]
fn what_cannot_stand_by_itself_is_named() {
    let speaker = Speaker::letters();
    let fault = |template: &str, parameters: Value| {
        let (syntax, opening) = opening(template);
        let tools = [tool("f", parameters)];
        let calls = Duty::Must(Calls { tools: &tools, only: None, number: Number::One });
        let asked =
            Asked { format: &Format::Free, calls, voice: Some((syntax, &opening)), template };
        match speaker.grammars.of_answer(&asked) {
            Ok(_) => panic!("{tools:?} is taken"),
            Err(fault) => {
                assert_eq!(fault.part, At::Tools);
                fault.error.path
            }
        }
    };
    let either = json!({"anyOf": [{"properties": {"a": true}}, {"properties": {"b": true}}]});
    let spaced = json!({"properties": {"a b": {"type": "string"}}});
    let pattern = json!({"properties": {"a": {"type": "string", "pattern": "a(^b)"}}});
    let xml = "<function=x><parameter=y>";
    assert_eq!(fault(xml, either), "[0].function.parameters.anyOf");
    assert_eq!(fault(xml, spaced.clone()), "[0].function.parameters.properties.a b");
    assert_eq!(fault("<|tool_call_start|>", spaced), "[0].function.parameters.properties.a b");
    assert_eq!(fault(xml, pattern), "[0].function.parameters.properties.a.pattern");
}

/// Answers in channels are held to a format too, in the channel of the answer.
#[test]
fn a_format_is_the_answers_channel() {
    let template = "<|start|>assistant<|channel|>final<|message|>";
    let speaker = Speaker::letters_and(&["<|start|>", "<|end|>", "<|message|>", "<|channel|>"]);
    let syntax = Syntax::of(template);
    let format = Format::JsonSchema {
        schema: json!({"type": "object", "properties": {"n": {"const": 7}}, "required": ["n"]}),
        strictness: hearth_text::grammar::Strictness::Closed,
    };
    let accepts = |prompt: &str, text: &str| {
        let opening = syntax.opening(prompt);
        let voice = Some((syntax, &opening));
        let asked = Asked { format: &format, calls: Duty::Never, voice, template };
        let run = speaker.grammars.of_answer(&asked).unwrap().unwrap().start();
        accepts(&speaker, run, text)
    };
    let start = "<|start|>user<|message|>x<|end|><|start|>assistant";
    let (thought, next) = ("<|channel|>analysis<|message|>Well.<|end|>", "<|start|>assistant");
    let answer = "<|channel|>final<|message|>{\"n\":7}";
    for (prompt, text, expected) in [
        (start.to_owned(), answer.to_owned(), true),
        (start.to_owned(), format!("{thought}{next}{answer}"), true),
        (start.to_owned(), thought.to_owned(), false),
        (start.to_owned(), "<|channel|>final<|message|>Well.".to_owned(), false),
        (start.to_owned(), "{\"n\":7}".to_owned(), false),
        (
            format!("{start}<|channel|>analysis<|message|>"),
            format!("Hm.<|end|>{next}{answer}"),
            true,
        ),
        (format!("{start}{thought}"), format!("{next}{answer}"), true),
        (format!("{start}<|channel|>final<|message|>"), "{\"n\":7}".to_owned(), true),
    ] {
        assert_eq!(accepts(&prompt, &text), expected, "{prompt} {text}");
    }
}
