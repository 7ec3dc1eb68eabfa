//! `<|function_call|>{"name": "f", "arguments": {…}}`: GigaChat 3.1; before it a role of its own,
//! `function call<|role_sep|>\n{…}`.

use super::shape::json::{Arguments, JsonCalls, JsonParser};
use super::spelling::{OBJECT, Spelling};
use super::{CallParser, Opener, ToolFormat};

const TAG: &str = "<|function_call|>";
const ROLE: &str = "function call<|role_sep|>";
const TURN: &str = "<|message_sep|>\n\nfunction call<|role_sep|>";

static CALLS: JsonCalls = JsonCalls {
    opens: &[TAG, TURN, ROLE],
    closes: &[],
    separators: &[],
    arguments: Arguments::Optional,
};

pub(super) static FORMAT: GigaChat = GigaChat;

pub(super) struct GigaChat;

impl ToolFormat for GigaChat {
    fn name(&self) -> &'static str {
        "gigachat"
    }

    fn fits(&self, template: &str) -> bool {
        template.contains(TAG) || template.contains(ROLE)
    }

    fn openers(&self) -> &'static [Opener] {
        const OPENERS: [Opener; 3] = [Opener::token(TAG), Opener::token(TURN), Opener::token(ROLE)];
        &OPENERS
    }

    fn parser(&self, _opener: usize) -> Box<dyn CallParser> {
        Box::new(JsonParser::new(&CALLS))
    }

    fn markers(&self) -> &'static [&'static str] {
        &["<|message_sep|>", "<|role_sep|>"]
    }

    fn spelling(&self, knows: &dyn Fn(&str) -> bool) -> Spelling {
        let begin = match knows(TAG) {
            true => "<|function_call|>{\"name\": \"",
            false => "function call<|role_sep|>\n{\"name\": \"",
        };
        Spelling { begin, between: None, ..OBJECT }
    }
}
