//! `[{"name": "f", "arguments": {…}}]` as the whole answer, maybe in a fence: xLAM.

use super::shape::json::{Arguments, JsonCalls, JsonParser};
use super::spelling::{OBJECT, Spelling};
use super::{CallParser, Opener, ToolFormat};

static CALLS: JsonCalls = JsonCalls {
    opens: &["```json"],
    closes: &["```"],
    separators: &["{", ","],
    arguments: Arguments::Required,
};

pub(super) static FORMAT: Xlam = Xlam;

pub(super) struct Xlam;

impl ToolFormat for Xlam {
    fn name(&self) -> &'static str {
        "xlam"
    }

    fn fits(&self, template: &str) -> bool {
        template.contains("[FORMAT INSTRUCTION]")
            || template.contains("BEGIN OF FORMAT INSTRUCTION")
    }

    fn openers(&self) -> &'static [Opener] {
        const OPENERS: [Opener; 3] =
            [Opener::bare("["), Opener::bare("{"), Opener::bare("```json")];
        &OPENERS
    }

    fn parser(&self, _opener: usize) -> Box<dyn CallParser> {
        Box::new(JsonParser::new(&CALLS))
    }

    fn spelling(&self, _knows: &dyn Fn(&str) -> bool) -> Spelling {
        Spelling { before: "[", after: "]", ..OBJECT }
    }
}
