//! Every reasoning syntax, and where thoughts begin and end.

use hearth_text::{Opening, Syntax};
use serde_json::json;

use crate::cases::{HARMONY, HERMES};
use crate::{Case, tool};

#[test]
fn every_syntax_is_cut() {
    for (name, template, text) in [
        ("think", "<think>", "<think>\nTwo halves.\n</think>\n\nOne."),
        ("mistral", "[THINK]", "[THINK]Two halves.[/THINK]One."),
        (
            "hunyuan_v3",
            "set HYTK = ':opensource'",
            "<think:opensource>Two halves.</think:opensource>One.",
        ),
        ("seed", "<seed:think>", "<seed:think>Two halves.</seed:think>One."),
        (
            "cohere",
            "<|START_THINKING|>",
            "<|START_THINKING|>Two halves.<|END_THINKING|><|START_RESPONSE|>One.<|END_RESPONSE|>",
        ),
        ("gemma", "<|channel>", "<|channel>thought\nTwo halves.\n<channel|>One."),
        ("hunyuan", "<think><answer>", "<think>\nTwo halves.\n</think>\n<answer>\nOne.\n</answer>"),
        (
            "apriel",
            "[BEGIN FINAL RESPONSE]",
            "Here are my reasoning steps:\nTwo halves.\n[BEGIN FINAL RESPONSE]\nOne.[END FINAL RESPONSE]",
        ),
        ("apertus", "<|inner_prefix|>", "<|inner_prefix|>Two halves.<|inner_suffix|>One."),
        ("minimax_m3", "<mm:think>", "<mm:think>Two halves.</mm:think>One."),
        (
            "solar",
            "<|think|><|tool_call:begin|>",
            "<|think|>Two halves.<|end|><|begin|>assistant<|content|>One.",
        ),
    ] {
        assert_eq!(Syntax::of(template).reasoning_name(), name);
        Case::new(template, &[]).check(text, "Two halves.", "One.", &[]);
        Case::new(template, &[tool("f", json!({}))]).check(text, "Two halves.", "One.", &[]);
    }
    assert_eq!(Syntax::of(HARMONY).reasoning_name(), "harmony");
}

#[test]
fn prompts_say_where_an_answer_begins() {
    for (template, prompt, opening) in [
        (HERMES, "user\n<think> hm\nassistant\n", Opening::Free),
        (HERMES, "assistant\n<think>", Opening::Thoughts),
        (HERMES, "assistant\n<think>\n", Opening::Thoughts),
        (HERMES, "<|assistant|></think>", Opening::Answer),
        ("<seed:think>", "assistant\n<seed:think>\n", Opening::Thoughts),
        ("<|channel>", "<|turn>model\n<|channel>thought\n<channel|>", Opening::Answer),
        (HARMONY, "<|start|>assistant", Opening::Header("assistant".to_owned())),
    ] {
        assert_eq!(Syntax::of(template).opening(prompt), opening, "{prompt}");
    }
}

/// Only what stands before the answer is a thought.
#[test]
fn a_tag_in_the_answer_is_text() {
    let case = Case::new(HERMES, &[]);
    for text in ["Use <think> tags.", "  indented\n", "<thin", "a </think> b", "<think"] {
        case.check(text, "", text, &[]);
    }
    case.check("<think>a <think> b</think>c </think>", "a <think> b", "c </think>", &[]);
    case.check("\n<think></think>\n\nx", "", "x", &[]);
}

/// A model that forgets to close its thoughts before the call it ends with.
#[test]
fn a_call_may_end_the_thoughts() {
    let mut case = Case::new(HERMES, &[tool("f", json!({}))]);
    case.opening = Opening::Thoughts;
    let call = "<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>";
    case.check(&format!("Need f.\n{call}\n"), "Need f.", "", &[("f", json!({}))]);
    case.check(
        &format!("Need f.\n{call}\n{call}"),
        "Need f.",
        "",
        &[("f", json!({})), ("f", json!({}))],
    );
    let thought = format!("Maybe\n{call}\nor not.");
    case.check(&format!("{thought}</think>\n{call}"), &thought, "", &[("f", json!({}))]);
    let broken = "Maybe <tool_call>{\"name\": \"f\", \"arguments\": {";
    case.check(&format!("{broken}</think>No."), broken, "No.", &[]);
    let mut kimi = Case::new("<|tool_calls_section_begin|>", &[tool("f", json!({}))]);
    kimi.opening = Opening::Thoughts;
    let text = "Need f.<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0\
        <|tool_call_argument_begin|>{}<|tool_call_end|><|tool_calls_section_end|>";
    kimi.check(text, "Need f.", "", &[("f", json!({}))]);
}
