//! `<longcat_tool_call>f\n<longcat_arg_key>a</longcat_arg_key>…</longcat_tool_call>`: LongCat. GLM's
//! format with tags of its own.

use super::shape::typed::Untyped;
use super::shape::xml::{Newlines, XmlCalls, XmlParser, plain_name};
use super::spelling::{Arguments, Each, Spelling, TAGGED, ToldBy};
use super::{CallParser, Opener, ToolFormat};

static CALLS: XmlCalls = XmlCalls {
    opens: &[],
    closes: &[],
    call: &["<longcat_tool_call>"],
    name_ends: &["\n", "<longcat_arg_key>", "</longcat_tool_call>"],
    call_ends: &["</longcat_tool_call>"],
    argument: &["<longcat_arg_key>"],
    key_ends: &["</longcat_arg_key>"],
    value: &["<longcat_arg_value>"],
    value_ends: &["</longcat_arg_value>"],
    object: None,
    newlines: Newlines::Kept,
    untyped: Untyped::Json,
    read: plain_name,
};

pub(super) static FORMAT: LongCat = LongCat;

pub(super) struct LongCat;

impl ToolFormat for LongCat {
    fn name(&self) -> &'static str {
        "longcat"
    }

    fn fits(&self, template: &str) -> bool {
        template.contains("<longcat_tool_call>")
    }

    fn openers(&self) -> &'static [Opener] {
        const OPENERS: [Opener; 1] = [Opener::token("<longcat_tool_call>")];
        &OPENERS
    }

    fn parser(&self, _opener: usize) -> Box<dyn CallParser> {
        Box::new(XmlParser::new(&CALLS))
    }

    fn tags(&self) -> &'static [&'static str] {
        &[
            "</longcat_tool_call>",
            "<longcat_arg_key>",
            "</longcat_arg_key>",
            "<longcat_arg_value>",
            "</longcat_arg_value>",
        ]
    }

    fn spelling(&self, _knows: &dyn Fn(&str) -> bool) -> Spelling {
        let close = "</longcat_arg_value>\n";
        let each = Each {
            key: "<longcat_arg_key>",
            text: Some(["</longcat_arg_key>\n<longcat_arg_value>", close]),
            other: ["</longcat_arg_key>\n<longcat_arg_value>", close],
            told_by: ToldBy::Schema(Untyped::Json),
            ends_text: "</longcat_arg_value>",
            ..TAGGED
        };
        Spelling {
            before: "",
            begin: "<longcat_tool_call>",
            middle: "\n",
            arguments: Arguments::Each(each),
            end: "</longcat_tool_call>",
            between: Some("\n"),
            after: "",
        }
    }
}
