//! Calls that are spelled as in Python, in a list or one to a line, maybe between tags. They are read
//! whole: where an argument ends is known only when all of it is there.

use super::literal;
use crate::reply::calls::CallWriter;
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
        let known = calls.iter().all(|call| out.accepts(&call.name));
        if !known {
            return Err(Stop::NotACall);
        }
        for call in calls {
            out.call(&call.name, &serde_json::Value::Object(call.arguments).to_string())?;
        }
        input.skip(len + close);
        Ok(Step::Done)
    }
}
