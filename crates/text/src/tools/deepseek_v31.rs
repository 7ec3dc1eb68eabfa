//! `<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>{…}<｜tool▁call▁end｜><｜tool▁calls▁end｜>`:
//! DeepSeek V3.1.

use super::shape::named::{Head, NamedCalls, NamedParser};
use super::spelling::{OBJECT, Spelling};
use super::{CallParser, Opener, ToolFormat, deepseek};

static CALLS: NamedCalls = NamedCalls {
    section: Some(deepseek::SECTION),
    begins: &["<｜tool▁call▁begin｜>"],
    separators: &["<｜tool▁sep｜>"],
    ends: &["<｜tool▁call▁end｜>"],
    read: Head::name,
};

pub(super) static FORMAT: DeepSeekV31 = DeepSeekV31;

pub(super) struct DeepSeekV31;

impl ToolFormat for DeepSeekV31 {
    fn name(&self) -> &'static str {
        "deepseek_v31"
    }

    fn fits(&self, template: &str) -> bool {
        template.contains("<｜tool▁calls▁begin｜>")
    }

    fn openers(&self) -> &'static [Opener] {
        &deepseek::OPENERS
    }

    fn parser(&self, _opener: usize) -> Box<dyn CallParser> {
        Box::new(NamedParser::new(&CALLS))
    }

    fn markers(&self) -> &'static [&'static str] {
        &deepseek::MARKERS
    }

    fn spelling(&self, _knows: &dyn Fn(&str) -> bool) -> Spelling {
        Spelling {
            before: "<｜tool▁calls▁begin｜>",
            begin: "<｜tool▁call▁begin｜>",
            middle: "<｜tool▁sep｜>",
            end: "<｜tool▁call▁end｜>",
            between: Some(""),
            after: "<｜tool▁calls▁end｜>",
            ..OBJECT
        }
    }
}
