//! `<|tool_calls|><|tool_call:begin|>0<|tool_call:name|>f<|tool_call:args|>{…}<|tool_call:end|>…`: Solar
//! Open.

use super::shape::named::{Head, NamedCalls, NamedParser, Section};
use super::spelling::{OBJECT, Spelling};
use super::{CallParser, Opener, ToolFormat};

static CALLS: NamedCalls = NamedCalls {
    section: Some(Section { opens: &["<|tool_calls|>"], closes: &["<|calls|>"] }),
    begins: &["<|tool_call:begin|>"],
    separators: &["<|tool_call:args|>"],
    ends: &["<|tool_call:end|>"],
    read,
};

/// An id, which may be missing, and a name.
fn read(text: &str) -> Option<Head> {
    let (id, name) = text.split_once("<|tool_call:name|>")?;
    Some(Head { id: Some(id.trim().to_owned()), ..Head::name(name)? })
}

pub(super) static FORMAT: Solar = Solar;

pub(super) struct Solar;

impl ToolFormat for Solar {
    fn name(&self) -> &'static str {
        "solar"
    }

    fn fits(&self, template: &str) -> bool {
        template.contains("<|tool_call:begin|>")
    }

    fn openers(&self) -> &'static [Opener] {
        const OPENERS: [Opener; 2] =
            [Opener::token("<|tool_calls|>"), Opener::token("<|tool_call:begin|>")];
        &OPENERS
    }

    fn parser(&self, _opener: usize) -> Box<dyn CallParser> {
        Box::new(NamedParser::new(&CALLS))
    }

    fn markers(&self) -> &'static [&'static str] {
        &["<|tool_call:name|>", "<|tool_call:args|>", "<|tool_call:end|>", "<|calls|>"]
    }

    fn spelling(&self, _knows: &dyn Fn(&str) -> bool) -> Spelling {
        Spelling {
            before: "<|tool_calls|>",
            begin: "<|tool_call:begin|>\u{1}<|tool_call:name|>",
            middle: "<|tool_call:args|>",
            end: "<|tool_call:end|>",
            between: Some(""),
            ..OBJECT
        }
    }
}
