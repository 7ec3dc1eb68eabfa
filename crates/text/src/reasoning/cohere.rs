//! `<|START_THINKING|>…<|END_THINKING|>`: Cohere's Command R7B, Command A and later. The answer stands
//! between tags of its own.

use super::{Place, Reasoning, Tags};

pub(super) static SYNTAX: Reasoning = Reasoning::Tags(Tags {
    name: "cohere",
    fits: |template| template.contains("<|START_THINKING|>"),
    opens: &["<|START_THINKING|>"],
    closes: &["<|END_THINKING|>"],
    place: Place::Anywhere,
    noise: &["<|START_RESPONSE|>", "<|END_RESPONSE|>", "<|START_TEXT|>", "<|END_TEXT|>"],
    ending: "<|END_THINKING|>",
});
