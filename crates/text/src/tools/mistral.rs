//! `[TOOL_CALLS] [{"name": "f", "arguments": {…}}]` and, from the eleventh tokenizer on,
//! `[TOOL_CALLS]f[ARGS]{…}`: Mistral, Ministral, Devstral, Magistral.

use super::shape::json::{Arguments, JsonCalls, JsonParser};
use super::shape::named::{Head, NamedCalls, NamedParser};
use super::spelling::{OBJECT, Spelling};
use super::{CallParser, Opener, Step, Stop, ToolFormat};
use crate::reply::calls::{CallWriter, Ids};
use crate::reply::cursor::Cursor;

const MARKER: &str = "[TOOL_CALLS]";

static OLD: JsonCalls = JsonCalls {
    opens: &[MARKER],
    closes: &[],
    separators: &["{", ","],
    arguments: Arguments::Optional,
};

static NEW: NamedCalls =
    NamedCalls { section: None, begins: &[MARKER], separators: &["[ARGS]", "{"], ends: &[], read };

/// `f`, or `f[CALL_ID]abcdefghi`.
fn read(text: &str) -> Option<Head> {
    match text.split_once("[CALL_ID]") {
        Some((name, id)) => Some(Head { id: Some(id.trim().to_owned()), ..Head::name(name)? }),
        None => Head::name(text),
    }
}

pub(super) static FORMAT: Mistral = Mistral;

pub(super) struct Mistral;

impl ToolFormat for Mistral {
    fn name(&self) -> &'static str {
        "mistral"
    }

    fn fits(&self, template: &str) -> bool {
        template.contains(MARKER)
    }

    fn openers(&self) -> &'static [Opener] {
        const OPENERS: [Opener; 1] = [Opener::token(MARKER)];
        &OPENERS
    }

    fn parser(&self, _opener: usize) -> Box<dyn CallParser> {
        Box::new(Either { parser: None })
    }

    fn markers(&self) -> &'static [&'static str] {
        &["[ARGS]", "[CALL_ID]"]
    }

    fn ids(&self) -> Ids {
        Ids::Nine
    }

    fn spelling(&self, knows: &dyn Fn(&str) -> bool) -> Spelling {
        match knows("[ARGS]") {
            true => {
                Spelling { begin: MARKER, middle: "[ARGS]", end: "", between: Some(""), ..OBJECT }
            }
            false => Spelling { before: "[TOOL_CALLS][", after: "]", ..OBJECT },
        }
    }
}

/// What follows the marker tells which of the two it is.
struct Either {
    parser: Option<Box<dyn CallParser>>,
}

impl CallParser for Either {
    fn step(&mut self, input: &mut Cursor, out: &mut CallWriter<'_>) -> Result<Step, Stop> {
        if self.parser.is_none() {
            let inside = MARKER.len() + input.blanks_after(MARKER.len());
            let Some(first) = input.rest()[inside..].chars().next() else {
                return Err(if input.has_ended() { Stop::NotACall } else { Stop::Wait });
            };
            self.parser = Some(match first {
                '[' | '{' => Box::new(JsonParser::new(&OLD)),
                _ => Box::new(NamedParser::new(&NEW)),
            });
        }
        match &mut self.parser {
            Some(parser) => parser.step(input, out),
            None => Err(Stop::NotACall),
        }
    }
}
