//! `<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n{…}\n```<｜tool▁call▁end｜>…`:
//! DeepSeek V3 and R1.

use super::shape::named::{Head, NamedCalls, NamedParser, Section};
use super::spelling::{OBJECT, Spelling};
use super::{CallParser, Opener, ToolFormat};

static CALLS: NamedCalls = NamedCalls {
    section: Some(SECTION),
    begins: &["<｜tool▁call▁begin｜>"],
    separators: &["```json\n", "```json", "{"],
    ends: &["```", "<｜tool▁call▁end｜>"],
    read: |text| Head::name(text.rsplit("<｜tool▁sep｜>").next().unwrap_or(text)),
};

pub(super) const SECTION: Section =
    Section { opens: &["<｜tool▁calls▁begin｜>"], closes: &["<｜tool▁calls▁end｜>"] };

pub(super) const OPENERS: [Opener; 2] =
    [Opener::token("<｜tool▁calls▁begin｜>"), Opener::token("<｜tool▁call▁begin｜>")];

pub(super) const MARKERS: [&str; 3] =
    ["<｜tool▁sep｜>", "<｜tool▁call▁end｜>", "<｜tool▁calls▁end｜>"];

pub(super) static FORMAT: DeepSeek = DeepSeek;

pub(super) struct DeepSeek;

impl ToolFormat for DeepSeek {
    fn name(&self) -> &'static str {
        "deepseek"
    }

    fn fits(&self, template: &str) -> bool {
        template.contains("<｜tool▁calls▁begin｜>") && template.contains("```json")
    }

    fn openers(&self) -> &'static [Opener] {
        &OPENERS
    }

    fn parser(&self, _opener: usize) -> Box<dyn CallParser> {
        Box::new(NamedParser::new(&CALLS))
    }

    fn markers(&self) -> &'static [&'static str] {
        &MARKERS
    }

    fn spelling(&self, _knows: &dyn Fn(&str) -> bool) -> Spelling {
        Spelling {
            before: "<｜tool▁calls▁begin｜>",
            begin: "<｜tool▁call▁begin｜>function<｜tool▁sep｜>",
            middle: "\n```json\n",
            end: "\n```<｜tool▁call▁end｜>",
            between: Some("\n"),
            after: "<｜tool▁calls▁end｜>",
            ..OBJECT
        }
    }
}
