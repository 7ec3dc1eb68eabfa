//! `<｜DSML｜function_calls>\n<｜DSML｜invoke name="f">\n<｜DSML｜parameter name="a" string="true">x…`:
//! DeepSeek V3.2 and V4, whose values say themselves whether they are text.

use super::shape::typed::Untyped;
use super::shape::xml::{Newlines, XmlCalls, XmlParser, quoted_name};
use super::spelling::{Arguments, Each, Spelling, TAGGED, ToldBy};
use super::{CallParser, Opener, ToolFormat};

static CALLS: XmlCalls = XmlCalls {
    opens: &["<｜DSML｜function_calls>", "<｜DSML｜tool_calls>"],
    closes: &["</｜DSML｜function_calls>", "</｜DSML｜tool_calls>"],
    call: &["<｜DSML｜invoke name=\""],
    name_ends: &[">"],
    call_ends: &["</｜DSML｜invoke>"],
    argument: &["<｜DSML｜parameter name=\""],
    key_ends: &[">"],
    value: &[],
    value_ends: &["</｜DSML｜parameter>"],
    object: None,
    newlines: Newlines::Kept,
    untyped: Untyped::Text,
    read: quoted_name,
};

pub(super) static FORMAT: Dsml = Dsml;

pub(super) struct Dsml;

impl ToolFormat for Dsml {
    fn name(&self) -> &'static str {
        "deepseek_dsml"
    }

    fn fits(&self, template: &str) -> bool {
        template.contains("｜DSML｜")
    }

    fn openers(&self) -> &'static [Opener] {
        const OPENERS: [Opener; 3] = [
            Opener::token("<｜DSML｜function_calls>"),
            Opener::token("<｜DSML｜tool_calls>"),
            Opener::line("<｜DSML｜invoke name=\""),
        ];
        &OPENERS
    }

    fn parser(&self, _opener: usize) -> Box<dyn CallParser> {
        Box::new(XmlParser::new(&CALLS))
    }

    // The control token of this family, from which all of its tags are made.
    fn markers(&self) -> &'static [&'static str] {
        &["｜DSML｜"]
    }

    fn spelling(&self, _knows: &dyn Fn(&str) -> bool) -> Spelling {
        let close = "</｜DSML｜parameter>\n";
        let each = Each {
            key: "<｜DSML｜parameter name=\"",
            text: Some(["\" string=\"true\">", close]),
            other: ["\" string=\"false\">", close],
            told_by: ToldBy::Form,
            ends_text: "</｜DSML｜parameter>",
            ..TAGGED
        };
        Spelling {
            before: "<｜DSML｜function_calls>\n",
            begin: "<｜DSML｜invoke name=\"",
            middle: "\">\n",
            arguments: Arguments::Each(each),
            end: "</｜DSML｜invoke>\n",
            between: Some(""),
            after: "</｜DSML｜function_calls>",
        }
    }
}
