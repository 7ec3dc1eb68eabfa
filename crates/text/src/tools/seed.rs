//! `<seed:tool_call>\n<function=f>\n<parameter=a>1</parameter>\n</function>\n</seed:tool_call>`: Seed-OSS.

use super::shape::typed::Untyped;
use super::shape::xml::{Newlines, XmlCalls, XmlParser, plain_name};
use super::spelling::{Arguments, Each, Spelling, TAGGED};
use super::{CallParser, Opener, ToolFormat};

static CALLS: XmlCalls = XmlCalls {
    opens: &["<seed:tool_call>"],
    closes: &["</seed:tool_call>"],
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

pub(super) static FORMAT: Seed = Seed;

pub(super) struct Seed;

impl ToolFormat for Seed {
    fn name(&self) -> &'static str {
        "seed"
    }

    fn fits(&self, template: &str) -> bool {
        template.contains("<seed:tool_call>")
    }

    fn openers(&self) -> &'static [Opener] {
        const OPENERS: [Opener; 2] =
            [Opener::token("<seed:tool_call>"), Opener::line("<function=")];
        &OPENERS
    }

    fn parser(&self, _opener: usize) -> Box<dyn CallParser> {
        Box::new(XmlParser::new(&CALLS))
    }

    fn markers(&self) -> &'static [&'static str] {
        &["</seed:tool_call>"]
    }

    fn spelling(&self, _knows: &dyn Fn(&str) -> bool) -> Spelling {
        let close = "</parameter>\n";
        let each = Each {
            text: Some([">", close]),
            other: [">", close],
            // A line break at either end is nobody's.
            no_text: &[r"\r?\n(?s:.*)", r"(?s:.*)\n"],
            ..TAGGED
        };
        Spelling {
            before: "<seed:tool_call>\n",
            begin: "<function=",
            middle: ">\n",
            arguments: Arguments::Each(each),
            end: "</function>\n",
            between: Some(""),
            after: "</seed:tool_call>",
        }
    }
}
