//! `<minimax:tool_call>\n<invoke name="f">\n<parameter name="a">1</parameter>\n</invoke>\n</minimax:tool_call>`:
//! MiniMax M2.

use super::shape::typed::Untyped;
use super::shape::xml::{Newlines, XmlCalls, XmlParser, quoted_name};
use super::spelling::{Arguments, Each, Spelling, TAGGED};
use super::{CallParser, Opener, ToolFormat};

static CALLS: XmlCalls = XmlCalls {
    opens: &["<minimax:tool_call>"],
    closes: &["</minimax:tool_call>"],
    call: &["<invoke name=\""],
    name_ends: &[">"],
    call_ends: &["</invoke>"],
    argument: &["<parameter name=\""],
    key_ends: &[">"],
    value: &[],
    value_ends: &["</parameter>"],
    object: None,
    newlines: Newlines::Kept,
    untyped: Untyped::Text,
    read: quoted_name,
};

pub(super) static FORMAT: MiniMax = MiniMax;

pub(super) struct MiniMax;

impl ToolFormat for MiniMax {
    fn name(&self) -> &'static str {
        "minimax"
    }

    fn fits(&self, template: &str) -> bool {
        template.contains("<minimax:tool_call>")
    }

    fn openers(&self) -> &'static [Opener] {
        const OPENERS: [Opener; 2] =
            [Opener::token("<minimax:tool_call>"), Opener::line("<invoke name=\"")];
        &OPENERS
    }

    fn parser(&self, _opener: usize) -> Box<dyn CallParser> {
        Box::new(XmlParser::new(&CALLS))
    }

    fn markers(&self) -> &'static [&'static str] {
        &["</minimax:tool_call>"]
    }

    fn spelling(&self, _knows: &dyn Fn(&str) -> bool) -> Spelling {
        let close = "</parameter>\n";
        let each = Each {
            key: "<parameter name=\"",
            text: Some(["\">", close]),
            other: ["\">", close],
            ..TAGGED
        };
        Spelling {
            before: "<minimax:tool_call>\n",
            begin: "<invoke name=\"",
            middle: "\">\n",
            arguments: Arguments::Each(each),
            end: "</invoke>\n",
            between: Some(""),
            after: "</minimax:tool_call>",
        }
    }
}
