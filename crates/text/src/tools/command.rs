//! `Action: ```json\n[{"tool_name": "f", "parameters": {…}}]\n```: Cohere's Command R, Command R+ and Aya.
//! Their `directly_answer`, which templates show as a tool, is one only where the request has it.

use super::shape::json::{Arguments, JsonCalls, JsonParser};
use super::spelling::{OBJECT, Spelling};
use super::{CallParser, Opener, ToolFormat};

static CALLS: JsonCalls = JsonCalls {
    opens: &["Action: ```json", "Action:```json", "Action:\n```json", "Action:"],
    closes: &["```"],
    separators: &[],
    arguments: Arguments::Optional,
};

pub(super) static FORMAT: Command = Command;

pub(super) struct Command;

impl ToolFormat for Command {
    fn name(&self) -> &'static str {
        "command"
    }

    fn fits(&self, template: &str) -> bool {
        template.contains("followed by a json-formatted list of actions")
    }

    fn openers(&self) -> &'static [Opener] {
        const OPENERS: [Opener; 1] = [Opener::line("Action:")];
        &OPENERS
    }

    fn parser(&self, _opener: usize) -> Box<dyn CallParser> {
        Box::new(JsonParser::new(&CALLS))
    }

    fn spelling(&self, _knows: &dyn Fn(&str) -> bool) -> Spelling {
        Spelling {
            before: "Action: ```json\n[\n    ",
            begin: "{\n        \"tool_name\": \"",
            middle: "\",\n        \"parameters\": ",
            end: "\n    }",
            between: Some(",\n    "),
            after: "\n]```",
            ..OBJECT
        }
    }
}
