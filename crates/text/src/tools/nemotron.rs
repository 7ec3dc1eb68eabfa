//! `<TOOLCALL>[{"name": "f", "arguments": {…}}]</TOOLCALL>`: Nemotron Nano 2 and Llama Nemotron.
//! Nemotron 3 writes what Qwen 3 Coder does.

use super::shape::json::{Arguments, JsonCalls, JsonParser};
use super::spelling::{OBJECT, Spelling};
use super::{CallParser, Opener, ToolFormat};

static CALLS: JsonCalls = JsonCalls {
    opens: &["<TOOLCALL>"],
    closes: &["</TOOLCALL>"],
    separators: &[],
    arguments: Arguments::Optional,
};

pub(super) static FORMAT: Nemotron = Nemotron;

pub(super) struct Nemotron;

impl ToolFormat for Nemotron {
    fn name(&self) -> &'static str {
        "nemotron"
    }

    fn fits(&self, template: &str) -> bool {
        template.contains("<TOOLCALL>")
    }

    fn openers(&self) -> &'static [Opener] {
        const OPENERS: [Opener; 1] = [Opener::tag("<TOOLCALL>")];
        &OPENERS
    }

    fn parser(&self, _opener: usize) -> Box<dyn CallParser> {
        Box::new(JsonParser::new(&CALLS))
    }

    fn tags(&self) -> &'static [&'static str] {
        &["</TOOLCALL>"]
    }

    fn spelling(&self, _knows: &dyn Fn(&str) -> bool) -> Spelling {
        Spelling { before: "<TOOLCALL>[", after: "]</TOOLCALL>", ..OBJECT }
    }
}
