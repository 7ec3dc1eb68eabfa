//! `<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{…}…`: Kimi
//! K2. The model counts its calls itself, and wants its own ids back.

use super::shape::named::{Head, NamedCalls, NamedParser, Section};
use super::spelling::{OBJECT, Spelling};
use super::{CallParser, Opener, ToolFormat};

static CALLS: NamedCalls = NamedCalls {
    section: Some(Section {
        opens: &["<|tool_calls_section_begin|>", "<|tool_call_section_begin|>"],
        closes: &["<|tool_calls_section_end|>", "<|tool_call_section_end|>"],
    }),
    begins: &["<|tool_call_begin|>"],
    separators: &["<|tool_call_argument_begin|>"],
    ends: &["<|tool_call_end|>"],
    read,
};

/// `functions.NAME:INDEX`; names may have dots and colons in them.
fn read(text: &str) -> Option<Head> {
    let id = text.trim();
    let name = id.strip_prefix("functions.").unwrap_or(id);
    let is_index = |index: &str| !index.is_empty() && index.bytes().all(|b| b.is_ascii_digit());
    let name = match name.rsplit_once(':') {
        Some((name, index)) if is_index(index) => name,
        _ => name,
    };
    Some(Head { id: Some(id.to_owned()), ..Head::name(name)? })
}

pub(super) static FORMAT: Kimi = Kimi;

pub(super) struct Kimi;

impl ToolFormat for Kimi {
    fn name(&self) -> &'static str {
        "kimi"
    }

    fn fits(&self, template: &str) -> bool {
        template.contains("<|tool_calls_section_begin|>")
    }

    fn openers(&self) -> &'static [Opener] {
        const OPENERS: [Opener; 3] = [
            Opener::token("<|tool_calls_section_begin|>"),
            Opener::token("<|tool_call_section_begin|>"),
            Opener::token("<|tool_call_begin|>"),
        ];
        &OPENERS
    }

    fn parser(&self, _opener: usize) -> Box<dyn CallParser> {
        Box::new(NamedParser::new(&CALLS))
    }

    fn markers(&self) -> &'static [&'static str] {
        &[
            "<|tool_calls_section_end|>",
            "<|tool_call_section_end|>",
            "<|tool_call_argument_begin|>",
            "<|tool_call_end|>",
        ]
    }

    fn spelling(&self, _knows: &dyn Fn(&str) -> bool) -> Spelling {
        Spelling {
            before: "<|tool_calls_section_begin|>",
            begin: "<|tool_call_begin|>functions.",
            middle: ":\u{1}<|tool_call_argument_begin|>",
            end: "<|tool_call_end|>",
            between: Some(""),
            after: "<|tool_calls_section_end|>",
            ..OBJECT
        }
    }
}
