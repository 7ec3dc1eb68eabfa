//! How models spell what they think. A syntax is one file and one line; where it applies is told by
//! the chat template. How text is cut by it is `reply/splitter.rs`.

mod apertus;
mod apriel;
mod cohere;
mod gemma;
mod harmony;
mod hunyuan;
mod hunyuan_v3;
mod kimi_k3;
mod minimax_m3;
mod mistral;
mod seed;
mod solar;
mod think;

use crate::reply::Opening;

pub(crate) use harmony::{Channel, Channels};

/// In this order the first that fits is taken; the last one fits always.
static ALL: [&Reasoning; 13] = [
    &harmony::SYNTAX,
    &kimi_k3::SYNTAX,
    &minimax_m3::SYNTAX,
    &gemma::SYNTAX,
    &mistral::SYNTAX,
    &seed::SYNTAX,
    &cohere::SYNTAX,
    &hunyuan::SYNTAX,
    &hunyuan_v3::SYNTAX,
    &apriel::SYNTAX,
    &apertus::SYNTAX,
    &solar::SYNTAX,
    &think::SYNTAX,
];

/// The syntax of a template.
pub(crate) fn of(template: &str) -> &'static Reasoning {
    ALL.into_iter().find(|syntax| syntax.fits(template)).unwrap_or(&think::SYNTAX)
}

/// How thoughts are told from the answer.
pub(crate) enum Reasoning {
    /// They stand between tags.
    Tags(Tags),
    /// Everything stands in channels that have headers.
    Channels(Channels),
}

/// Thoughts between tags.
pub(crate) struct Tags {
    pub(crate) name: &'static str,
    pub(crate) fits: fn(&str) -> bool,
    pub(crate) opens: &'static [&'static str],
    pub(crate) closes: &'static [&'static str],
    pub(crate) place: Place,
    /// Tags around the answer that are no part of it.
    pub(crate) noise: &'static [&'static str],
    /// What ends thoughts that take too long.
    pub(crate) ending: &'static str,
}

/// Where an opening tag is one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Place {
    /// Only before the answer: later it is something that the answer is about.
    Start,
    /// Anywhere: it is a control token.
    Anywhere,
}

impl Reasoning {
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Reasoning::Tags(tags) => tags.name,
            Reasoning::Channels(channels) => channels.name,
        }
    }

    fn fits(&self, template: &str) -> bool {
        match self {
            Reasoning::Tags(tags) => (tags.fits)(template),
            Reasoning::Channels(channels) => (channels.fits)(template),
        }
    }

    /// What a prompt's tail opens or closes.
    pub(crate) fn opening(&self, prompt: &str) -> Opening {
        let tail = prompt.trim_end();
        let ends = |tags: &[&str]| tags.iter().any(|tag| tail.ends_with(tag.trim_end()));
        match self {
            Reasoning::Tags(tags) if ends(tags.closes) => Opening::Answer,
            Reasoning::Tags(tags) if ends(tags.opens) => Opening::Thoughts,
            Reasoning::Tags(_) => Opening::Free,
            Reasoning::Channels(channels) => channels.opening(prompt),
        }
    }

    /// All tags that may be control tokens.
    pub(crate) fn markers(&self) -> Vec<&'static str> {
        match self {
            Reasoning::Tags(tags) => {
                let all = [tags.opens, tags.closes, tags.noise];
                all.into_iter().flatten().map(|tag| tag.trim()).collect()
            }
            Reasoning::Channels(channels) => channels.markers.to_vec(),
        }
    }
}
