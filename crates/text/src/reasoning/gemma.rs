//! `<|channel>thought\n…<channel|>`: Gemma 4.

use super::{Place, Reasoning, Tags};

pub(super) static SYNTAX: Reasoning = Reasoning::Tags(Tags {
    name: "gemma",
    fits: |template| template.contains("<|channel>"),
    opens: &["<|channel>thought\n"],
    closes: &["<channel|>"],
    place: Place::Anywhere,
    noise: &["<|channel>"],
    ending: "\n<channel|>",
});
