//! `<tool_call>\n<function=f>\n<parameter=a>\n1\n</parameter>\n</function>\n</tool_call>`: Qwen 3 Coder,
//! Qwen 3.5, Nemotron 3, Step 3.5.

use super::shape::json::{JsonCalls, JsonParser};
use super::shape::typed::Untyped;
use super::shape::xml::{Newlines, XmlCalls, XmlParser, plain_name};
use super::spelling::{Arguments, Each, OBJECT, Spelling, TAGGED};
use super::{CallParser, Opener, Step, Stop, ToolFormat, hermes};
use crate::reply::calls::CallWriter;
use crate::reply::cursor::Cursor;

pub(super) static CALLS: XmlCalls = XmlCalls {
    opens: &["<tool_call>"],
    closes: &["</tool_call>"],
    call: &["<function="],
    name_ends: &[">"],
    call_ends: &["</function>"],
    argument: &["<parameter="],
    key_ends: &[">"],
    value: &[],
    value_ends: &["</parameter>"],
    object: None,
    newlines: Newlines::Frame,
    untyped: Untyped::Text,
    read: plain_name,
};

pub(super) static FORMAT: QwenCoder = QwenCoder;

pub(super) struct QwenCoder;

impl ToolFormat for QwenCoder {
    fn name(&self) -> &'static str {
        "qwen_coder"
    }

    fn fits(&self, template: &str) -> bool {
        template.contains("<function=") && template.contains("<parameter=")
    }

    fn openers(&self) -> &'static [Opener] {
        hermes::FORMAT.openers()
    }

    fn parser(&self, opener: usize) -> Box<dyn CallParser> {
        hermes::FORMAT.parser(opener)
    }

    fn tags(&self) -> &'static [&'static str] {
        hermes::FORMAT.tags()
    }

    fn spelling(&self, _knows: &dyn Fn(&str) -> bool) -> Spelling {
        // The reader takes either way to break a line.
        let each = Each { no_text: &[r"(?s:.*)\r"], ..TAGGED };
        Spelling {
            begin: "<tool_call>\n<function=",
            middle: ">\n",
            arguments: Arguments::Each(each),
            end: "</function>\n</tool_call>",
            between: Some("\n"),
            ..OBJECT
        }
    }
}

/// Calls in `<tool_call>`, in JSON or in XML: what follows the tag tells.
pub(super) struct Either {
    json: &'static JsonCalls,
    parser: Option<Box<dyn CallParser>>,
}

impl Either {
    pub(super) fn new(json: &'static JsonCalls) -> Either {
        Either { json, parser: None }
    }
}

impl CallParser for Either {
    fn step(&mut self, input: &mut Cursor, out: &mut CallWriter<'_>) -> Result<Step, Stop> {
        if self.parser.is_none() {
            let tag = CALLS.opens[0].len();
            let inside = tag + input.blanks_after(tag);
            let Some(first) = input.rest()[inside..].chars().next() else {
                return Err(if input.has_ended() { Stop::NotACall } else { Stop::Wait });
            };
            self.parser = Some(match first {
                '<' => Box::new(XmlParser::new(&CALLS)),
                _ => Box::new(JsonParser::new(self.json)),
            });
        }
        match &mut self.parser {
            Some(parser) => parser.step(input, out),
            None => Err(Stop::NotACall),
        }
    }
}
