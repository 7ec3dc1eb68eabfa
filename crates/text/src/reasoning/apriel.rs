//! Thoughts without an opening tag, then `[BEGIN FINAL RESPONSE]…[END FINAL RESPONSE]`: ServiceNow's
//! Apriel. Its prompts end with the words that lead into the thoughts.

use super::{Place, Reasoning, Tags};

pub(super) static SYNTAX: Reasoning = Reasoning::Tags(Tags {
    name: "apriel",
    fits: |template| template.contains("[BEGIN FINAL RESPONSE]"),
    opens: &["Here are my reasoning steps:"],
    closes: &["[BEGIN FINAL RESPONSE]"],
    place: Place::Start,
    noise: &["[END FINAL RESPONSE]", "<|end|>"],
    ending: "\n[BEGIN FINAL RESPONSE]\n",
});
