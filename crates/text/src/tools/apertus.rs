//! `<|tools_prefix|>[{"f": {…}}]<|tools_suffix|>`: Apertus. An object's only key is the name, so calls are
//! read whole.

use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::spelling::{OBJECT, Spelling};
use super::{CallParser, Opener, Step, Stop, ToolFormat};
use crate::reply::End;
use crate::reply::calls::{CallWriter, are_arguments};
use crate::reply::cursor::{Cursor, Found};

const OPEN: &str = "<|tools_prefix|>";
const CLOSE: [&str; 1] = ["<|tools_suffix|>"];

pub(super) static FORMAT: Apertus = Apertus;

pub(super) struct Apertus;

impl ToolFormat for Apertus {
    fn name(&self) -> &'static str {
        "apertus"
    }

    fn fits(&self, template: &str) -> bool {
        template.contains(OPEN)
    }

    fn openers(&self) -> &'static [Opener] {
        const OPENERS: [Opener; 1] = [Opener::token(OPEN)];
        &OPENERS
    }

    fn parser(&self, _opener: usize) -> Box<dyn CallParser> {
        Box::new(Parser { opened: false })
    }

    fn markers(&self) -> &'static [&'static str] {
        &CLOSE
    }

    fn spelling(&self, _knows: &dyn Fn(&str) -> bool) -> Spelling {
        Spelling {
            before: "<|tools_prefix|>[",
            begin: "{\"",
            middle: "\": ",
            after: "]<|tools_suffix|>",
            ..OBJECT
        }
    }
}

/// Names of an object, and their arguments as they are written.
struct Calls(Vec<(String, Box<RawValue>)>);

impl<'de> Deserialize<'de> for Calls {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Calls, D::Error> {
        deserializer.deserialize_map(CallsVisitor)
    }
}

struct CallsVisitor;

impl<'de> Visitor<'de> for CallsVisitor {
    type Value = Calls;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of names and arguments")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Calls, A::Error> {
        let mut calls = Vec::new();
        while let Some(call) = map.next_entry()? {
            calls.push(call);
        }
        Ok(Calls(calls))
    }
}

struct Parser {
    opened: bool,
}

impl CallParser for Parser {
    fn step(&mut self, input: &mut Cursor, out: &mut CallWriter<'_>) -> Result<Step, Stop> {
        if !self.opened {
            input.accept(&[OPEN])?;
            self.opened = true;
        }
        let (len, close) = match input.find(&CLOSE) {
            Found::Tag { at, which } => (at, CLOSE[which].len()),
            Found::None { .. } => match input.end() {
                None => return Err(Stop::Wait),
                Some(End::Cut) => return Err(Stop::NotACall),
                Some(End::Model) => (input.rest().len(), 0),
            },
        };
        let body = &input.rest()[..len];
        let calls = serde_json::from_str::<Vec<Calls>>(body);
        let n_read = match &calls {
            Ok(_) => len,
            Err(error) => {
                let lines = body.split_inclusive('\n').take(error.line().saturating_sub(1));
                lines.map(str::len).sum::<usize>() + error.column()
            }
        };
        input.look(n_read);
        let calls: Vec<_> =
            calls.map_err(|_| Stop::NotACall)?.into_iter().flat_map(|calls| calls.0).collect();
        let is_call = |(name, arguments): &(String, Box<RawValue>)| {
            out.accepts(name) && are_arguments(arguments.get())
        };
        if calls.is_empty() || !calls.iter().all(is_call) {
            return Err(Stop::NotACall);
        }
        for (name, arguments) in calls {
            out.call(&name, arguments.get())?;
        }
        input.skip(len + close);
        Ok(Step::Done)
    }
}
