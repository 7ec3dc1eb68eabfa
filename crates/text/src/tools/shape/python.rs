//! Calls that are spelled as in Python, in a list or one to a line, maybe between tags. They are read
//! whole: where an argument ends is known only when all of it is there.

use super::literal::{self, PythonCall};
use crate::reply::calls::{CallWriter, are_arguments};
use crate::reply::cursor::{Cursor, Found};
use crate::tools::{CallParser, Step, Stop};

/// What is particular about a format.
pub(crate) struct PythonCalls {
    pub(crate) opens: &'static [&'static str],
    /// Empty where the calls are the rest of the answer.
    pub(crate) closes: &'static [&'static str],
}

/// Reads the calls of one opener.
pub(crate) struct PythonParser {
    format: &'static PythonCalls,
    opened: bool,
}

impl PythonParser {
    pub(crate) fn new(format: &'static PythonCalls) -> PythonParser {
        PythonParser { format, opened: false }
    }
}

impl CallParser for PythonParser {
    fn step(&mut self, input: &mut Cursor, out: &mut CallWriter<'_>) -> Result<Step, Stop> {
        if !self.opened {
            input.accept(self.format.opens)?;
            self.opened = true;
        }
        let (len, close) = match input.find(self.format.closes) {
            Found::Tag { at, which } => (at, self.format.closes[which].len()),
            Found::None { .. } if !input.has_ended() => return Err(Stop::Wait),
            Found::None { .. } if input.end() == Some(crate::reply::End::Cut) => {
                return Err(Stop::NotACall);
            }
            Found::None { .. } => (input.rest().len(), 0),
        };
        let (calls, n_read) = literal::calls(&input.rest()[..len]);
        input.look(n_read);
        let calls = calls.ok_or(Stop::NotACall)?;
        let is_call = |call: &PythonCall| out.accepts(&call.name) && are_arguments(&call.arguments);
        if !calls.iter().all(is_call) {
            return Err(Stop::NotACall);
        }
        for call in calls {
            out.call(&call.name, &call.arguments)?;
        }
        input.skip(len + close);
        Ok(Step::Done)
    }
}
