//! The request's tools, and the writing end of calls: who may be called, under which ids. How calls
//! are spelled is the business of the formats.

use serde_json::{Map, Value};

use super::Part;
use crate::digits;

/// The tools of a request.
#[derive(Clone, Debug, Default)]
pub struct Tools {
    /// Schemas of the parameters by name.
    by_name: Map<String, Value>,
}

impl Tools {
    /// Reads definitions in OpenAI's form, with or without the `function` around them.
    pub fn new(definitions: &[Value]) -> Tools {
        let read = |definition: &Value| {
            let function = definition.get("function").unwrap_or(definition);
            let name = function.get("name")?.as_str()?.to_owned();
            Some((name, function.get("parameters").cloned().unwrap_or_default()))
        };
        Tools { by_name: definitions.iter().filter_map(read).collect() }
    }

    /// There is none: then nothing is a call.
    pub fn is_empty(&self) -> bool {
        self.by_name.is_empty()
    }

    /// There is one of this name.
    pub fn has(&self, name: &str) -> bool {
        self.by_name.contains_key(name)
    }

    /// The schema of a tool's parameters.
    pub(crate) fn schema(&self, name: &str) -> Option<&Value> {
        self.by_name.get(name)
    }
}

/// Which names a format's calls may have.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Trust {
    /// Those of the request's tools. For syntaxes that a text about calls may contain.
    Declared,
    /// Any, since only control tokens can spell a call: the client can tell the model better than
    /// broken text could that there is no such tool.
    Any,
}

/// What calls are named by where the model gives no id.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Ids {
    /// `call_` and 24 letters.
    Long,
    /// Nine letters, which is all that Mistral's templates take.
    Nine,
}

/// Makes ids: the same seed gives the same ones.
#[derive(Clone, Copy, Debug)]
pub(crate) struct IdMaker {
    pub(crate) seed: u64,
    /// Calls so far.
    pub(crate) n: u64,
    pub(crate) ids: Ids,
}

impl IdMaker {
    fn next(&mut self) -> String {
        self.n += 1;
        let (prefix, len) = match self.ids {
            Ids::Long => ("call_", 24),
            Ids::Nine => ("", 9),
        };
        let letters = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
        let mut state = mix(self.seed ^ mix(self.n));
        let letter = |_| {
            state = mix(state);
            char::from(letters[(state % letters.len() as u64) as usize])
        };
        prefix.chars().chain((0..len).map(letter)).collect()
    }
}

/// One step of SplitMix64 (Steele, Lea, Flood 2014).
fn mix(state: u64) -> u64 {
    let z = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// Where a format's parser writes calls.
pub(crate) struct CallWriter<'a> {
    pub(crate) tools: &'a Tools,
    pub(crate) trust: Trust,
    pub(crate) ids: &'a mut IdMaker,
    /// The arguments of the call being written.
    pub(crate) written: &'a mut String,
    pub(crate) parts: &'a mut Vec<Part>,
}

/// It was text after all.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct NotACall;

impl CallWriter<'_> {
    /// Whether there may be a call of this name.
    pub(crate) fn accepts(&self, name: &str) -> bool {
        !name.is_empty() && (self.trust == Trust::Any || self.tools.has(name))
    }

    /// A call begins, under the id that the model gave it or a new one.
    pub(crate) fn begin(&mut self, name: &str, id: Option<String>) -> Result<(), NotACall> {
        if !self.accepts(name) {
            return Err(NotACall);
        }
        let made = self.ids.next();
        let id = id.filter(|id| !id.is_empty()).unwrap_or(made);
        self.written.clear();
        self.parts.push(Part::Begun { id, name: name.to_owned() });
        Ok(())
    }

    pub(crate) fn arguments(&mut self, text: &str) {
        self.written.push_str(text);
        match self.parts.last_mut() {
            _ if text.is_empty() => {}
            Some(Part::Arguments(last)) => last.push_str(text),
            _ => self.parts.push(Part::Arguments(text.to_owned())),
        }
    }

    /// A call is at its end. It is complete only if its arguments can be read.
    pub(crate) fn end(&mut self) {
        if are_arguments(self.written) {
            self.parts.push(Part::Ended);
        }
        self.written.clear();
    }

    /// A whole call. What cannot be carried out is none.
    pub(crate) fn call(&mut self, name: &str, arguments: &str) -> Result<(), NotACall> {
        if !are_arguments(arguments) {
            return Err(NotACall);
        }
        self.begin(name, None)?;
        self.arguments(arguments);
        self.end();
        Ok(())
    }
}

/// The text is one JSON object.
pub(crate) fn are_arguments(text: &str) -> bool {
    digits::read(text).is_ok_and(|value| digits::as_object(&value).is_some())
}

/// Each call among these parts has come to its end.
pub(crate) fn are_complete(parts: &[Part]) -> bool {
    let count = |of: fn(&Part) -> bool| parts.iter().filter(|part| of(part)).count();
    count(|part| matches!(part, Part::Begun { .. })) == count(|part| *part == Part::Ended)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_have_their_form_and_differ() {
        let make = |ids, seed| {
            let mut maker = IdMaker { seed, n: 0, ids };
            [maker.next(), maker.next()]
        };
        let [one, two] = make(Ids::Long, 7);
        assert!(one.starts_with("call_") && one.len() == 29 && one != two, "{one} {two}");
        assert_eq!(make(Ids::Long, 7), [one.clone(), two]);
        assert_ne!(make(Ids::Long, 8)[0], one);
        let [nine, _] = make(Ids::Nine, 7);
        assert!(nine.len() == 9 && nine.chars().all(|c| c.is_ascii_alphanumeric()), "{nine}");
    }
}
