//! `<seed:think>…</seed:think>`: Seed-OSS.

use super::{Place, Reasoning, Tags};

pub(super) static SYNTAX: Reasoning = Reasoning::Tags(Tags {
    name: "seed",
    fits: |template| template.contains("<seed:think>"),
    opens: &["<seed:think>"],
    closes: &["</seed:think>"],
    place: Place::Anywhere,
    noise: &[],
    ending: "</seed:think>",
});
