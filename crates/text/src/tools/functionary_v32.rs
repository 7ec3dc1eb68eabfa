//! `>>>f\n{…}`, and `>>>all\n` before an answer: Functionary 3.2. Prompts end with the first `>>>`.

use super::shape::named::{Head, NamedCalls, NamedParser};
use super::spelling::{OBJECT, Spelling};
use super::{CallParser, Opener, Step, Stop, ToolFormat};
use crate::reply::calls::CallWriter;
use crate::reply::cursor::{Cursor, Found};

const OPEN: &str = ">>>";
/// Who is spoken to in an answer.
const EVERYBODY: &str = "all";
/// Longest name, in bytes.
const MAX_NAME: usize = 256;

static ARGUMENTS: NamedCalls =
    NamedCalls { section: None, begins: &[], separators: &[], ends: &[], read: Head::name };

pub(super) static FORMAT: Functionary = Functionary;

pub(super) struct Functionary;

impl ToolFormat for Functionary {
    fn name(&self) -> &'static str {
        "functionary_v32"
    }

    fn fits(&self, template: &str) -> bool {
        template.contains(">>>all") || template.contains(">>>${recipient}")
    }

    fn openers(&self) -> &'static [Opener] {
        const OPENERS: [Opener; 1] = [Opener::tag(OPEN)];
        &OPENERS
    }

    fn parser(&self, _opener: usize) -> Box<dyn CallParser> {
        Box::new(Parser { at: At::Opener })
    }

    fn begun_by(&self, prompt: &str) -> bool {
        prompt.ends_with(OPEN)
    }

    fn spelling(&self, _knows: &dyn Fn(&str) -> bool) -> Spelling {
        Spelling { begin: "", middle: "\n", end: "", between: Some(OPEN), ..OBJECT }
    }
}

/// Reads one message.
struct Parser {
    at: At,
}

enum At {
    /// Before the opener, unless the prompt has written it.
    Opener,
    Name,
    /// Behind this name.
    Body(String),
    Arguments(NamedParser),
}

impl CallParser for Parser {
    fn step(&mut self, input: &mut Cursor, out: &mut CallWriter<'_>) -> Result<Step, Stop> {
        match &mut self.at {
            At::Opener => {
                input.accept(&[OPEN])?;
                self.at = At::Name;
                Ok(Step::On)
            }
            At::Name => match input.find(&["\n"]) {
                Found::Tag { at, .. } if at <= MAX_NAME => {
                    let name = input.rest()[..at].trim().to_owned();
                    if name != EVERYBODY && !out.accepts(&name) {
                        return Err(Stop::NotACall);
                    }
                    input.skip(at + 1);
                    if name == EVERYBODY {
                        return Ok(Step::Done);
                    }
                    self.at = At::Body(name);
                    Ok(Step::On)
                }
                Found::None { safe } if safe <= MAX_NAME && !input.has_ended() => Err(Stop::Wait),
                _ => Err(Stop::NotACall),
            },
            At::Body(name) => {
                let blanks = input.blanks();
                match input.rest()[blanks..].chars().next() {
                    None if !input.has_ended() => return Err(Stop::Wait),
                    Some('{') => out.begin(name, None)?,
                    _ => return Err(Stop::NotACall),
                }
                self.at = At::Arguments(NamedParser::arguments(&ARGUMENTS));
                Ok(Step::On)
            }
            At::Arguments(parser) => parser.step(input, out),
        }
    }
}
