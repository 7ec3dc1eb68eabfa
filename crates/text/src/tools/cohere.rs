//! `<|START_ACTION|>[{"tool_call_id": "0", "tool_name": "f", "parameters": {…}}]<|END_ACTION|>`: Cohere's
//! Command R7B, Command A and later.

use super::shape::json::{Arguments, JsonCalls, JsonParser};
use super::spelling::{OBJECT, Spelling};
use super::{CallParser, Opener, ToolFormat};

static CALLS: JsonCalls = JsonCalls {
    opens: &["<|START_ACTION|>"],
    closes: &["<|END_ACTION|>"],
    separators: &[],
    arguments: Arguments::Optional,
};

pub(super) static FORMAT: Cohere = Cohere;

pub(super) struct Cohere;

impl ToolFormat for Cohere {
    fn name(&self) -> &'static str {
        "cohere"
    }

    fn fits(&self, template: &str) -> bool {
        template.contains("<|START_ACTION|>")
    }

    fn openers(&self) -> &'static [Opener] {
        const OPENERS: [Opener; 1] = [Opener::token("<|START_ACTION|>")];
        &OPENERS
    }

    fn parser(&self, _opener: usize) -> Box<dyn CallParser> {
        Box::new(JsonParser::new(&CALLS))
    }

    fn markers(&self) -> &'static [&'static str] {
        &["<|END_ACTION|>"]
    }

    fn spelling(&self, _knows: &dyn Fn(&str) -> bool) -> Spelling {
        Spelling {
            before: "<|START_ACTION|>[\n    ",
            begin: "{\"tool_call_id\": \"\u{1}\", \"tool_name\": \"",
            middle: "\", \"parameters\": ",
            between: Some(",\n    "),
            after: "\n]<|END_ACTION|>",
            ..OBJECT
        }
    }
}
