//! `<|think|>…<|end|><|begin|>assistant<|content|>…`: Solar Open.

use super::{Place, Reasoning, Tags};

pub(super) static SYNTAX: Reasoning = Reasoning::Tags(Tags {
    name: "solar",
    fits: |template| template.contains("<|think|>") && template.contains("<|tool_call:begin|>"),
    opens: &["<|think|>"],
    closes: &["<|end|>"],
    place: Place::Anywhere,
    noise: &["<|begin|>assistant", "<|begin|>", "<|content|>", "<|flush|>"],
    ending: "<|end|><|begin|>assistant<|content|>",
});
