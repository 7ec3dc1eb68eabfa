//! `<tool_calls:opensource>\n<tool_call:opensource>f<tool_sep:opensource>\n<arg_key:opensource>a…`:
//! Hunyuan 3.

use super::shape::typed::Untyped;
use super::shape::xml::{Newlines, XmlCalls, XmlParser, plain_name};
use super::spelling::{Arguments, Each, Spelling, TAGGED, ToldBy};
use super::{CallParser, Opener, ToolFormat};

static CALLS: XmlCalls = XmlCalls {
    opens: &["<tool_calls:opensource>"],
    closes: &["</tool_calls:opensource>"],
    call: &["<tool_call:opensource>"],
    name_ends: &["<tool_sep:opensource>", "\n", "<arg_key:opensource>", "</tool_call:opensource>"],
    call_ends: &["</tool_call:opensource>"],
    argument: &["<arg_key:opensource>"],
    key_ends: &["</arg_key:opensource>"],
    value: &["<arg_value:opensource>"],
    value_ends: &["</arg_value:opensource>"],
    object: None,
    newlines: Newlines::Kept,
    untyped: Untyped::Json,
    read: plain_name,
};

pub(super) static FORMAT: Hunyuan = Hunyuan;

pub(super) struct Hunyuan;

impl ToolFormat for Hunyuan {
    fn name(&self) -> &'static str {
        "hunyuan"
    }

    // Its templates put the tags together.
    fn fits(&self, template: &str) -> bool {
        template.contains("':opensource'")
    }

    fn openers(&self) -> &'static [Opener] {
        const OPENERS: [Opener; 2] =
            [Opener::token("<tool_calls:opensource>"), Opener::token("<tool_call:opensource>")];
        &OPENERS
    }

    fn parser(&self, _opener: usize) -> Box<dyn CallParser> {
        Box::new(XmlParser::new(&CALLS))
    }

    fn markers(&self) -> &'static [&'static str] {
        &[
            "</tool_calls:opensource>",
            "</tool_call:opensource>",
            "<tool_sep:opensource>",
            "<arg_key:opensource>",
            "</arg_key:opensource>",
            "<arg_value:opensource>",
            "</arg_value:opensource>",
        ]
    }

    fn spelling(&self, _knows: &dyn Fn(&str) -> bool) -> Spelling {
        let close = "</arg_value:opensource>\n";
        let each = Each {
            key: "<arg_key:opensource>",
            text: Some(["</arg_key:opensource>\n<arg_value:opensource>", close]),
            other: ["</arg_key:opensource>\n<arg_value:opensource>", close],
            told_by: ToldBy::Schema(Untyped::Json),
            ends_text: "</arg_value:opensource>",
            ..TAGGED
        };
        Spelling {
            before: "<tool_calls:opensource>\n",
            begin: "<tool_call:opensource>",
            middle: "<tool_sep:opensource>\n",
            arguments: Arguments::Each(each),
            end: "</tool_call:opensource>\n",
            between: Some(""),
            after: "</tool_calls:opensource>",
        }
    }
}
