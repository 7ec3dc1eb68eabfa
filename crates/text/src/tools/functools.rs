//! `functools[{"name": "f", "arguments": {…}}]`: Firefunction 2, and Phi 4 Mini as it is first served.

use super::shape::json::{Arguments, JsonCalls, JsonParser};
use super::spelling::{OBJECT, Spelling};
use super::{CallParser, Opener, ToolFormat};

static CALLS: JsonCalls = JsonCalls {
    opens: &["functools"],
    closes: &[],
    separators: &[],
    arguments: Arguments::Optional,
};

pub(super) static FORMAT: Functools = Functools;

pub(super) struct Functools;

impl ToolFormat for Functools {
    fn name(&self) -> &'static str {
        "functools"
    }

    fn fits(&self, template: &str) -> bool {
        template.contains("functools[")
    }

    fn openers(&self) -> &'static [Opener] {
        const OPENERS: [Opener; 1] = [Opener::tag("functools[")];
        &OPENERS
    }

    fn parser(&self, _opener: usize) -> Box<dyn CallParser> {
        Box::new(JsonParser::new(&CALLS))
    }

    fn spelling(&self, _knows: &dyn Fn(&str) -> bool) -> Spelling {
        Spelling { before: "functools[", after: "]", ..OBJECT }
    }
}
