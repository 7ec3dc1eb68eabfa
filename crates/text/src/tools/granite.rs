//! `<|tool_call|>[{"name": "f", "arguments": {…}}]`: Granite 3, and Phi 4 Mini, which also closes it.

use super::shape::json::{Arguments, JsonCalls, JsonParser};
use super::spelling::{OBJECT, Spelling};
use super::{CallParser, Opener, ToolFormat};

static CALLS: JsonCalls = JsonCalls {
    opens: &["<|tool_call|>"],
    closes: &["<|/tool_call|>"],
    separators: &["{", ","],
    arguments: Arguments::Optional,
};

pub(super) static FORMAT: Granite = Granite;

pub(super) struct Granite;

impl ToolFormat for Granite {
    fn name(&self) -> &'static str {
        "granite"
    }

    fn fits(&self, template: &str) -> bool {
        template.contains("<|tool_call|>")
    }

    fn openers(&self) -> &'static [Opener] {
        const OPENERS: [Opener; 1] = [Opener::token("<|tool_call|>")];
        &OPENERS
    }

    fn parser(&self, _opener: usize) -> Box<dyn CallParser> {
        Box::new(JsonParser::new(&CALLS))
    }

    fn markers(&self) -> &'static [&'static str] {
        &["<|/tool_call|>"]
    }

    fn spelling(&self, _knows: &dyn Fn(&str) -> bool) -> Spelling {
        Spelling { before: "<|tool_call|>[", after: "]", ..OBJECT }
    }
}
