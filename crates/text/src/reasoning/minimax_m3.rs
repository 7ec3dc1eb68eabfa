//! `<mm:think>…</mm:think>`: MiniMax M3. An answer without thoughts may begin with the closing tag.

use super::{Place, Reasoning, Tags};

pub(super) static SYNTAX: Reasoning = Reasoning::Tags(Tags {
    name: "minimax_m3",
    fits: |template| template.contains("<mm:think>"),
    opens: &["<mm:think>"],
    closes: &["</mm:think>"],
    place: Place::Anywhere,
    noise: &[],
    ending: "</mm:think>",
});
