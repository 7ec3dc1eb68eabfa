//! `<|open|>think<|sep|>…<|close|>think<|sep|><|open|>response<|sep|>…`: Kimi K3. The answer stands between
//! tags of its own, and what opens it ends the thoughts too.

use super::{Place, Reasoning, Tags};

pub(super) static SYNTAX: Reasoning = Reasoning::Tags(Tags {
    name: "kimi_k3",
    fits: |template| template.contains("<|open|>") && template.contains("<|sep|>"),
    opens: &["<|open|>think<|sep|>"],
    closes: &["<|close|>think<|sep|>", "<|open|>response<|sep|>"],
    place: Place::Anywhere,
    noise: &[
        "<|close|>response<|sep|>",
        "<|close|>message<|sep|>",
        "<|end_of_msg|>",
        "<|open|>",
        "<|close|>",
        "<|sep|>",
    ],
    ending: "<|close|>think<|sep|><|open|>response<|sep|>",
});
