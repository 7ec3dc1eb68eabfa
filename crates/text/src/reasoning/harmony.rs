//! Channels: `<|channel|>analysis<|message|>…<|end|><|start|>assistant<|channel|>final<|message|>…`, as
//! gpt-oss writes them. Messages to `functions.NAME` are calls; the format of those is
//! `tools/harmony.rs`.

use super::Reasoning;
use crate::reply::Opening;

/// Thoughts, answer and calls as messages with headers.
pub(crate) struct Channels {
    pub(crate) name: &'static str,
    pub(crate) fits: fn(&str) -> bool,
    /// Begins a message's header.
    pub(crate) start: &'static str,
    /// Ends the header.
    pub(crate) message: &'static str,
    /// What ends a message, [`Channels::start`] included.
    pub(crate) ends: &'static [&'static str],
    /// Where a message with this header belongs.
    pub(crate) read: fn(&str) -> Channel,
    /// What the rest of a header may begin with.
    pub(crate) heads: &'static [&'static str],
    pub(crate) markers: &'static [&'static str],
    /// What ends thoughts that take too long.
    pub(crate) ending: &'static str,
    /// The rest of the header of a message of thoughts, and of the answer's.
    pub(crate) thinking: &'static str,
    pub(crate) answer: &'static str,
    /// Ends a message that others follow.
    pub(crate) end: &'static str,
    /// Begins one.
    pub(crate) next: &'static str,
}

/// Where a message belongs.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Channel {
    Reasoning,
    Text,
    /// It is a call's arguments.
    Call(String),
}

pub(super) static SYNTAX: Reasoning = Reasoning::Channels(Channels {
    name: "harmony",
    fits: |template| template.contains("<|channel|>") && template.contains("<|message|>"),
    start: "<|start|>",
    message: "<|message|>",
    ends: &["<|end|>", "<|call|>", "<|return|>", "<|start|>", "<|channel|>"],
    read,
    heads: &["<|channel|>", "<|start|>", "<|message|>", "<|constrain|>", " to=", "assistant"],
    markers: &[
        "<|start|>",
        "<|end|>",
        "<|message|>",
        "<|channel|>",
        "<|constrain|>",
        "<|call|>",
        "<|return|>",
    ],
    ending: "<|end|><|start|>assistant<|channel|>final<|message|>",
    thinking: "<|channel|>analysis<|message|>",
    answer: "<|channel|>final<|message|>",
    end: "<|end|>",
    next: "<|start|>assistant",
});

impl Channels {
    /// A prompt ends with `<|start|>assistant`, or inside of a message.
    pub(super) fn opening(&self, prompt: &str) -> Opening {
        let Some(at) = prompt.rfind(self.start) else { return Opening::Header(String::new()) };
        let last = &prompt[at + self.start.len()..];
        match last.split_once(self.message) {
            None => Opening::Header(last.to_owned()),
            Some((_, body)) if self.ends.iter().any(|end| body.contains(end)) => {
                Opening::Header(String::new())
            }
            Some((header, _)) => match (self.read)(header) {
                Channel::Reasoning => Opening::Thoughts,
                Channel::Text | Channel::Call(_) => Opening::Free,
            },
        }
    }
}

/// `assistant<|channel|>commentary to=functions.f <|constrain|>json`, or with the recipient before the
/// channel.
fn read(header: &str) -> Channel {
    let words = header.replace("<|channel|>", " ").replace("<|constrain|>", " ");
    let recipient = words.split_whitespace().find_map(|word| word.strip_prefix("to="));
    match recipient.filter(|name| !matches!(*name, "user" | "assistant" | "all")) {
        Some(name) => Channel::Call(name.strip_prefix("functions.").unwrap_or(name).to_owned()),
        None if words.split_whitespace().any(|word| word == "analysis") => Channel::Reasoning,
        None => Channel::Text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers() {
        let call = || Channel::Call("get_price".to_owned());
        for (header, channel) in [
            ("assistant<|channel|>analysis", Channel::Reasoning),
            ("assistant<|channel|>final", Channel::Text),
            ("<|channel|>commentary", Channel::Text),
            ("<|channel|>commentary to=functions.get_price <|constrain|>json", call()),
            ("assistant to=functions.get_price<|channel|>commentary json", call()),
            ("<|channel|>analysis to=python code", Channel::Call("python".to_owned())),
        ] {
            assert_eq!(read(header), channel, "{header}");
        }
    }

    #[test]
    fn prompts_end_in_a_header_or_in_a_message() {
        let Reasoning::Channels(channels) = &SYNTAX else { panic!() };
        let header = |text: &str| Opening::Header(text.to_owned());
        assert_eq!(channels.opening("<|end|><|start|>assistant"), header("assistant"));
        let thinking = "<|end|><|start|>assistant<|channel|>analysis<|message|>";
        assert_eq!(channels.opening(thinking), Opening::Thoughts);
        let thought = format!("{thinking}none<|end|>");
        assert_eq!(channels.opening(&thought), header(""));
    }
}
