//! `<|inner_prefix|>…<|inner_suffix|>`: Apertus.

use super::{Place, Reasoning, Tags};

pub(super) static SYNTAX: Reasoning = Reasoning::Tags(Tags {
    name: "apertus",
    fits: |template| template.contains("<|inner_prefix|>"),
    opens: &["<|inner_prefix|>"],
    closes: &["<|inner_suffix|>"],
    place: Place::Anywhere,
    noise: &[],
    ending: "<|inner_suffix|>",
});
