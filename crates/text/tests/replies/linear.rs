//! The work that an answer makes grows with its length and no faster, whatever a model writes: the bytes
//! that the reader looks at are counted, not the time it takes.

use hearth_text::{End, Opening, Splitter, Syntax, Tools};

use crate::calls::{formats, weather};
use crate::cases::{HARMONY, HERMES};

/// Bytes looked at while this is read a character at a time.
fn work(template: &str, opening: &Opening, end: End, text: &str) -> u64 {
    let tools = Tools::new(&weather());
    let mut splitter = Splitter::new(Syntax::of(template), opening.clone(), tools, 7);
    let mut letters = [0; 4];
    for letter in text.chars() {
        splitter.push(letter.encode_utf8(&mut letters));
    }
    splitter.finish(end);
    splitter.bytes_looked_at()
}

/// Twice the text is at most twice the work, and some for what is looked at once.
#[track_caller]
fn check(template: &str, head: &str, unit: &str) {
    const N: usize = 1500;
    let times = N.div_ceil(unit.len());
    for (opening, end) in [(Opening::Free, End::Model), (Opening::Thoughts, End::Cut)] {
        let of = |times| {
            let text = head.to_owned() + &unit.repeat(times);
            work(template, &opening, end, &text)
        };
        let (once, twice) = (of(times), of(2 * times));
        assert!(
            twice <= 2 * once + once / 4 + 8192,
            "{once}, then {twice}: {template} {opening:?} {end:?} {head:?} and many {unit:?}"
        );
    }
}

/// Places in a call where something else may begin.
fn places(call: &str) -> Vec<usize> {
    let all: Vec<usize> = call
        .char_indices()
        .filter(|(_, letter)| !letter.is_alphanumeric())
        .map(|(at, letter)| at + letter.len_utf8())
        .collect();
    let step = all.len().div_ceil(8).max(1);
    all.into_iter().step_by(step).chain([call.len()]).collect()
}

#[test]
fn work_grows_with_the_length() {
    for (_, template, call) in formats() {
        for place in places(&call) {
            let (head, tail) = call.split_at(place);
            check(template, "", head);
            check(template, "x ", &format!("{head}\n"));
            for unit in ["\n", "a", "\"", "{", "[", "<"] {
                check(template, head, unit);
            }
            if !tail.is_empty() {
                check(template, head, tail);
            }
        }
    }
}

#[test]
fn work_grows_with_the_length_in_channels_and_thoughts() {
    for unit in
        ["<|channel|>", "<|start|>assistant", "<|message|>", "<|channel|>analysis<|message|>a"]
    {
        check(HARMONY, "", unit);
        check(
            HARMONY,
            "<|channel|>commentary to=functions.get_time <|constrain|>json<|message|>",
            unit,
        );
    }
    for unit in ["<think>", "</think>", "<think>\n<tool_call>{", "\n<tool_call>x", "</think>\n\n"] {
        check(HERMES, "", unit);
        check(HERMES, "<think>", unit);
    }
}
