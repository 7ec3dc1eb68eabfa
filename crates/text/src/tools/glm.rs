//! `<tool_call>f\n<arg_key>a</arg_key>\n<arg_value>1</arg_value>\n</tool_call>`: GLM 4.5 and later, and
//! others that took it over (Laguna, Ling 3, Spark). Values are JSON unless the schema says text.

use super::shape::typed::Untyped;
use super::shape::xml::{Newlines, XmlCalls, XmlParser, plain_name};
use super::spelling::{Arguments, Each, Spelling, TAGGED, ToldBy};
use super::{CallParser, Opener, ToolFormat};

static CALLS: XmlCalls = XmlCalls {
    opens: &[],
    closes: &[],
    call: &["<tool_call>"],
    name_ends: &["\n", "<arg_key>", "</tool_call>"],
    call_ends: &["</tool_call>"],
    argument: &["<arg_key>"],
    key_ends: &["</arg_key>"],
    value: &["<arg_value>"],
    value_ends: &["</arg_value>"],
    object: None,
    newlines: Newlines::Kept,
    untyped: Untyped::Json,
    read: plain_name,
};

pub(super) static FORMAT: Glm = Glm;

pub(super) struct Glm;

impl ToolFormat for Glm {
    fn name(&self) -> &'static str {
        "glm"
    }

    fn fits(&self, template: &str) -> bool {
        template.contains("<arg_key>")
    }

    fn openers(&self) -> &'static [Opener] {
        const OPENERS: [Opener; 1] = [Opener::tag("<tool_call>")];
        &OPENERS
    }

    fn parser(&self, _opener: usize) -> Box<dyn CallParser> {
        Box::new(XmlParser::new(&CALLS))
    }

    fn tags(&self) -> &'static [&'static str] {
        &["<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>", "</tool_call>"]
    }

    fn spelling(&self, _knows: &dyn Fn(&str) -> bool) -> Spelling {
        let close = "</arg_value>\n";
        let each = Each {
            key: "<arg_key>",
            text: Some(["</arg_key>\n<arg_value>", close]),
            other: ["</arg_key>\n<arg_value>", close],
            told_by: ToldBy::Schema(Untyped::Json),
            ends_text: "</arg_value>",
            ..TAGGED
        };
        Spelling {
            before: "",
            begin: "<tool_call>",
            middle: "\n",
            arguments: Arguments::Each(each),
            end: "</tool_call>",
            between: Some("\n"),
            after: "",
        }
    }
}
