//! `<|channel|>commentary to=functions.f <|constrain|>json<|message|>{…}<|call|>`: gpt-oss. Headers are
//! read by `reasoning/harmony.rs`; here is the body.

use super::shape::named::{Head, NamedCalls, NamedParser};
use super::spelling::{OBJECT, Spelling};
use super::{CallParser, Opener, Step, Stop, ToolFormat};
use crate::reply::calls::CallWriter;
use crate::reply::cursor::Cursor;

static CALLS: NamedCalls = NamedCalls {
    section: None,
    begins: &[],
    separators: &[],
    ends: &["<|call|>"],
    read: Head::name,
};

pub(super) static FORMAT: Harmony = Harmony;

pub(super) struct Harmony;

impl ToolFormat for Harmony {
    fn name(&self) -> &'static str {
        "harmony"
    }

    fn fits(&self, template: &str) -> bool {
        template.contains("<|channel|>") && template.contains("<|message|>")
    }

    // A header opens a call, not a tag.
    fn openers(&self) -> &'static [Opener] {
        &[]
    }

    fn parser(&self, _opener: usize) -> Box<dyn CallParser> {
        Box::new(NamedParser::new(&CALLS))
    }

    fn spelling(&self, _knows: &dyn Fn(&str) -> bool) -> Spelling {
        Spelling {
            begin: "<|channel|>commentary to=functions.",
            middle: " <|constrain|>json<|message|>",
            end: "",
            // The token that ends a call ends the turn.
            between: None,
            ..OBJECT
        }
    }
}

/// The body of a message to a tool.
pub(super) struct Body {
    /// Until the call has begun.
    name: Option<String>,
    arguments: NamedParser,
}

impl Body {
    pub(super) fn new(name: String) -> Body {
        Body { name: Some(name), arguments: NamedParser::arguments(&CALLS) }
    }
}

impl CallParser for Body {
    fn step(&mut self, input: &mut Cursor, out: &mut CallWriter<'_>) -> Result<Step, Stop> {
        if let Some(name) = self.name.take() {
            out.begin(&name, None)?;
        }
        self.arguments.step(input, out)
    }
}
