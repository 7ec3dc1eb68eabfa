//! `<think>…</think><answer>…</answer>`: Hunyuan A13B and others of Tencent's.

use super::{Place, Reasoning, Tags};

pub(super) static SYNTAX: Reasoning = Reasoning::Tags(Tags {
    name: "hunyuan",
    fits: |template| template.contains("<think>") && template.contains("<answer>"),
    opens: &["<think>"],
    closes: &["</think>"],
    place: Place::Start,
    noise: &["<answer>\n", "\n</answer>", "<answer>", "</answer>"],
    ending: "\n</think>\n",
});
