//! Which syntaxes a model answers in, by its chat template, and in which state a prompt leaves it.

use crate::reasoning::{self, Reasoning};
use crate::tools::{self, ToolFormat};

/// How a model spells thoughts and tool calls.
#[derive(Clone, Copy)]
pub struct Syntax {
    pub(crate) reasoning: &'static Reasoning,
    pub(crate) tools: &'static dyn ToolFormat,
}

impl std::fmt::Debug for Syntax {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} + {}", self.reasoning.name(), self.tools.name())
    }
}

/// What an answer begins with.
#[derive(Clone, Debug, PartialEq)]
pub enum Opening {
    /// Anything: the model decides whether it thinks first.
    Free,
    /// The prompt has opened the thoughts.
    Thoughts,
    /// The prompt has closed them: all is answer, whatever it looks like.
    Answer,
    /// The prompt has begun a channel's header, of which this is there.
    Header(String),
    /// The prompt has written what a call begins with, and what follows tells whether it is one.
    Begun,
}

impl Syntax {
    /// What fits a template's source.
    pub fn of(template: &str) -> Syntax {
        Syntax { reasoning: reasoning::of(template), tools: tools::of(template) }
    }

    /// Name of the reasoning syntax.
    pub fn reasoning_name(&self) -> &'static str {
        self.reasoning.name()
    }

    /// Name of the tool format.
    pub fn tools_name(&self) -> &'static str {
        self.tools.name()
    }

    /// The state in which a rendered prompt leaves the model.
    pub fn opening(&self, prompt: &str) -> Opening {
        match self.tools.begun_by(prompt) {
            true => Opening::Begun,
            false => self.reasoning.opening(prompt),
        }
    }

    /// What to write for the model so that its thoughts are over.
    pub fn end_of_thoughts(&self) -> &'static str {
        match self.reasoning {
            Reasoning::Tags(tags) => tags.ending,
            Reasoning::Channels(channels) => channels.ending,
        }
    }

    /// The same where a grammar says what comes then.
    pub fn end_of_held_thoughts(&self) -> String {
        match self.reasoning {
            Reasoning::Tags(tags) => tags.ending.to_owned(),
            Reasoning::Channels(channels) => [channels.end, channels.next].concat(),
        }
    }

    /// Tags that may be control tokens: the [`super::Splitter`] must see them, though they are no
    /// text. Those of calls only where there are tools.
    pub fn markers(&self, has_tools: bool) -> Vec<&'static str> {
        let mut markers = self.reasoning.markers();
        if has_tools {
            markers.extend(self.tools.openers().iter().map(|opener| opener.tag));
            markers.extend(self.tools.markers().iter().chain(self.tools.tags()));
        }
        markers
    }
}
