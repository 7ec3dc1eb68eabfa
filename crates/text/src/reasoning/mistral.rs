//! `[THINK]…[/THINK]`: Magistral and the reasoning models of Mistral after it.

use super::{Place, Reasoning, Tags};

pub(super) static SYNTAX: Reasoning = Reasoning::Tags(Tags {
    name: "mistral",
    fits: |template| template.contains("[THINK]"),
    opens: &["[THINK]"],
    closes: &["[/THINK]"],
    place: Place::Anywhere,
    noise: &[],
    ending: "[/THINK]",
});
