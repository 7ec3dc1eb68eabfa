//! `<tool_call>\n{"name": "f", "arguments": {…}}\n</tool_call>`: Hermes, Qwen 2.5 and 3, SmolLM 3,
//! Granite 4 and most others; also what is taken where a template shows no format of its own.

use super::shape::json::{Arguments, JsonCalls, JsonParser};
use super::shape::xml::XmlParser;
use super::spelling::{OBJECT, Spelling};
use super::{CallParser, Opener, ToolFormat, qwen_coder};

static CALLS: JsonCalls = JsonCalls {
    opens: &["<tool_call>", "<tool_calls>"],
    closes: &["</tool_call>", "</tool_calls>"],
    separators: &["{", ",", ";"],
    arguments: Arguments::Optional,
};

/// The same without tags, as the whole answer. Qwen 2.5 Coder puts it into a fence.
static BARE: JsonCalls = JsonCalls {
    opens: &["```json"],
    closes: &["</tool_call>", "```"],
    separators: &["{", ",", ";"],
    arguments: Arguments::Required,
};

pub(super) static FORMAT: Hermes = Hermes;

pub(super) struct Hermes;

impl ToolFormat for Hermes {
    fn name(&self) -> &'static str {
        "hermes"
    }

    fn fits(&self, template: &str) -> bool {
        template.contains("<tool_call>") || template.contains("<tool_calls>")
    }

    fn openers(&self) -> &'static [Opener] {
        const OPENERS: [Opener; 5] = [
            Opener::tag("<tool_call>"),
            Opener::tag("<tool_calls>"),
            Opener::line("<function="),
            Opener::bare("{"),
            Opener::bare("```json"),
        ];
        &OPENERS
    }

    fn parser(&self, opener: usize) -> Box<dyn CallParser> {
        match opener {
            // Finetunes mix the two ways to write what is in the tags.
            0 => Box::new(qwen_coder::Either::new(&CALLS)),
            1 => Box::new(JsonParser::new(&CALLS)),
            2 => Box::new(XmlParser::new(&qwen_coder::CALLS)),
            _ => Box::new(JsonParser::new(&BARE)),
        }
    }

    fn tags(&self) -> &'static [&'static str] {
        &["</tool_call>", "</tool_calls>"]
    }

    fn spelling(&self, _knows: &dyn Fn(&str) -> bool) -> Spelling {
        Spelling {
            begin: "<tool_call>\n{\"name\": \"",
            end: "}\n</tool_call>",
            between: Some("\n"),
            ..OBJECT
        }
    }
}
