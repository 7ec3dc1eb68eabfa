//! `<think:opensource>…</think:opensource>`: Hunyuan 3.

use super::{Place, Reasoning, Tags};

pub(super) static SYNTAX: Reasoning = Reasoning::Tags(Tags {
    name: "hunyuan_v3",
    fits: |template| template.contains("':opensource'"),
    opens: &["<think:opensource>"],
    closes: &["</think:opensource>"],
    place: Place::Anywhere,
    noise: &[],
    ending: "</think:opensource>",
});
