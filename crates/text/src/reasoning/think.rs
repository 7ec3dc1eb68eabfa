//! `<think>…</think>`: Qwen 3, DeepSeek R1 and V3, GLM 4.5, MiniMax, Kimi K2, Nemotron, SmolLM 3 and
//! most others. Finetunes write it whatever their template says, so it is the syntax of all that have
//! no other.

use super::{Place, Reasoning, Tags};

pub(super) static SYNTAX: Reasoning = Reasoning::Tags(Tags {
    name: "think",
    fits: |_| true,
    opens: &["<think>"],
    closes: &["</think>"],
    place: Place::Start,
    noise: &["<|begin_of_box|>", "<|end_of_box|>"],
    ending: "\n</think>\n\n",
});
