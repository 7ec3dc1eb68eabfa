//! `<function name="f"><param name="a">1</param></function>`: MiniCPM 5. Texts with markup in them stand
//! in a CDATA section.

use super::shape::typed::Untyped;
use super::shape::xml::{Newlines, XmlCalls, XmlParser, quoted_name};
use super::spelling::{Arguments, Each, OBJECT, Spelling, TAGGED};
use super::{CallParser, Opener, ToolFormat};

static CALLS: XmlCalls = XmlCalls {
    opens: &[],
    closes: &[],
    call: &["<function name=\""],
    name_ends: &[">"],
    call_ends: &["</function>"],
    argument: &["<param name=\""],
    key_ends: &[">"],
    value: &[],
    value_ends: &["</param>"],
    object: None,
    newlines: Newlines::Quoted,
    untyped: Untyped::Text,
    read: quoted_name,
};

pub(super) static FORMAT: MiniCpm = MiniCpm;

pub(super) struct MiniCpm;

impl ToolFormat for MiniCpm {
    fn name(&self) -> &'static str {
        "minicpm"
    }

    fn fits(&self, template: &str) -> bool {
        template.contains("<function name=\"") && template.contains("<param name=\"")
    }

    fn openers(&self) -> &'static [Opener] {
        const OPENERS: [Opener; 1] = [Opener::tag("<function name=\"")];
        &OPENERS
    }

    fn parser(&self, _opener: usize) -> Box<dyn CallParser> {
        Box::new(XmlParser::new(&CALLS))
    }

    fn tags(&self) -> &'static [&'static str] {
        &["<function", "</function>", "<param", "</param>"]
    }

    fn spelling(&self, _knows: &dyn Fn(&str) -> bool) -> Spelling {
        let close = "</param>";
        let each = Each {
            key: "<param name=\"",
            text: Some(["\">", close]),
            other: ["\">", close],
            ends_text: close,
            no_text: &[r"<!\[CDATA\[(?s:.*)"],
            ..TAGGED
        };
        Spelling {
            begin: "<function name=\"",
            middle: "\">",
            arguments: Arguments::Each(each),
            end: "</function>",
            between: Some(""),
            ..OBJECT
        }
    }
}
