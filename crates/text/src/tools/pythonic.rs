//! `<|tool_call_start|>[f(a="x", n=2)]<|tool_call_end|>`: LFM 2 and 2.5.

use super::shape::python::{PythonCalls, PythonParser};
use super::spelling::{PYTHON, Spelling};
use super::{CallParser, Opener, ToolFormat};

static CALLS: PythonCalls =
    PythonCalls { opens: &["<|tool_call_start|>"], closes: &["<|tool_call_end|>"] };

pub(super) static FORMAT: Pythonic = Pythonic;

pub(super) struct Pythonic;

impl ToolFormat for Pythonic {
    fn name(&self) -> &'static str {
        "pythonic"
    }

    fn fits(&self, template: &str) -> bool {
        // The templates of 2.5 that show no tag differ from others by how they list the tools.
        ["<|tool_list_start|>", "<|tool_call_start|>", "\"List of tools: [\" -%}"]
            .iter()
            .any(|words| template.contains(words))
    }

    fn openers(&self) -> &'static [Opener] {
        const OPENERS: [Opener; 1] = [Opener::token("<|tool_call_start|>")];
        &OPENERS
    }

    fn parser(&self, _opener: usize) -> Box<dyn CallParser> {
        Box::new(PythonParser::new(&CALLS))
    }

    fn markers(&self) -> &'static [&'static str] {
        &["<|tool_call_end|>"]
    }

    fn spelling(&self, _knows: &dyn Fn(&str) -> bool) -> Spelling {
        Spelling { before: "<|tool_call_start|>[", after: "]<|tool_call_end|>", ..PYTHON }
    }
}
