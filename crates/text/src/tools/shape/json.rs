//! Calls that are JSON objects with a name and arguments in them, one or several, maybe in a list,
//! maybe between tags.

use super::scan::{Progress, Scan};
use crate::reply::calls::{CallWriter, are_arguments};
use crate::reply::cursor::Cursor;
use crate::tools::{CallParser, Step, Stop};

/// What is particular about a format.
pub(crate) struct JsonCalls {
    /// What stands before the object or the list.
    pub(crate) opens: &'static [&'static str],
    /// What stands after it; models leave it out at times.
    pub(crate) closes: &'static [&'static str],
    /// What may stand between objects that are not in a list.
    pub(crate) separators: &'static [&'static str],
    pub(crate) arguments: Arguments,
}

/// Whether an object without arguments is a call.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Arguments {
    /// It is, of a tool that takes none.
    Optional,
    /// It is any object that has a name. Only for openers whose calls are on trial.
    Required,
}

const NAMES: [&str; 3] = ["name", "tool_name", "function"];
const ARGUMENTS: [&str; 3] = ["arguments", "parameters", "args"];
const IDS: [&str; 2] = ["id", "tool_call_id"];
/// Times that arguments may be JSON in a string in a string.
const MAX_QUOTING: usize = 3;
/// Longest key of a call, in bytes.
const MAX_KEY: usize = 64;

/// Reads the calls of one opener.
pub(crate) struct JsonParser {
    format: &'static JsonCalls,
    at: At,
    in_list: bool,
    n_calls: usize,
    call: Call,
}

enum At {
    Opener,
    /// Before an object.
    Object,
    /// In an object, before a key or its end.
    Key,
    /// In the key, which has this of it.
    InKey(Scan, String),
    /// Before the value of this key.
    Value(String),
    /// In that value, of which this was read.
    InValue(String, Scan, String),
    /// In arguments that go on to the client.
    InArguments(Scan),
    /// After an object.
    After,
}

/// The object being read.
#[derive(Default)]
struct Call {
    name: Option<String>,
    id: Option<String>,
    /// Arguments that came before the name.
    arguments: Option<String>,
    begun: bool,
    has_arguments: bool,
    /// Objects around the keys: one, or two where all is inside of `function`.
    depth: usize,
}

impl JsonParser {
    pub(crate) fn new(format: &'static JsonCalls) -> JsonParser {
        JsonParser { format, at: At::Opener, in_list: false, n_calls: 0, call: Call::default() }
    }

    fn object(&mut self, input: &mut Cursor) -> Result<Step, Stop> {
        input.skip_blanks();
        if self.in_list {
            while input.accept(&[","])? {
                input.skip_blanks();
            }
        }
        if self.n_calls > 0 {
            input.mark();
        }
        match input.rest().chars().next() {
            Some('[') if !self.in_list && self.n_calls == 0 => {
                input.skip(1);
                self.in_list = true;
                return Ok(Step::On);
            }
            Some('{') => {
                input.skip(1);
                self.call = Call { depth: 1, ..Call::default() };
                self.at = At::Key;
                return Ok(Step::On);
            }
            Some(']') if self.in_list && self.n_calls > 0 => {
                input.skip(1);
                (self.in_list, self.at) = (false, At::After);
                return Ok(Step::On);
            }
            None if !input.has_ended() => return Err(Stop::Wait),
            _ => {}
        }
        if self.n_calls > 0 { Ok(Step::Done) } else { Err(Stop::NotACall) }
    }

    fn key(&mut self, input: &mut Cursor, out: &mut CallWriter<'_>) -> Result<Step, Stop> {
        input.skip_blanks();
        while input.accept(&[","])? {
            input.skip_blanks();
        }
        match input.rest().chars().next() {
            Some('}') => {
                input.skip(1);
                self.call.depth -= 1;
                if self.call.depth == 0 {
                    self.finish(out)?;
                }
                Ok(Step::On)
            }
            Some('"') => {
                self.at = At::InKey(Scan::default(), String::new());
                Ok(Step::On)
            }
            None if !input.has_ended() => Err(Stop::Wait),
            // Qwen 2.5's templates show the braces doubled.
            Some('{') if self.call.depth == 1 && self.call.name.is_none() => {
                input.skip(1);
                self.call.depth = 2;
                Ok(Step::On)
            }
            // The last braces are missing.
            None if self.call.begun || self.call.name.is_some() => {
                if input.end() == Some(crate::reply::End::Model) {
                    self.finish(out)?;
                }
                self.broken()
            }
            _ => self.broken(),
        }
    }

    /// What follows cannot be read as part of this call.
    fn broken(&self) -> Result<Step, Stop> {
        if self.call.begun { Ok(Step::Done) } else { Err(Stop::NotACall) }
    }

    fn in_key(
        &mut self,
        input: &mut Cursor,
        mut scan: Scan,
        mut key: String,
    ) -> Result<Step, Stop> {
        match scan.read_to(input, &mut key, MAX_KEY) {
            Progress::Whole => {
                self.at = At::Value(serde_json::from_str(&key).unwrap_or_default());
                Ok(Step::On)
            }
            Progress::Partial if key.len() <= MAX_KEY => {
                self.at = At::InKey(scan, key);
                Err(Stop::Wait)
            }
            _ => self.broken(),
        }
    }

    fn value(
        &mut self,
        input: &mut Cursor,
        out: &mut CallWriter<'_>,
        key: String,
    ) -> Result<Step, Stop> {
        input.skip_blanks();
        // The colon stays until what follows is there, so that no second one is taken for it.
        let colon = usize::from(input.rest().starts_with(':'));
        let gap = colon + input.blanks_after(colon);
        let Some(next) = input.rest()[gap..].chars().next() else {
            if input.has_ended() {
                return self.broken();
            }
            self.at = At::Value(key);
            return Err(Stop::Wait);
        };
        input.skip(gap);
        if next == '{' && key == "function" && self.call.depth == 1 {
            input.skip(1);
            self.call.depth = 2;
            self.at = At::Key;
            return Ok(Step::On);
        }
        let known = [&NAMES[..], &ARGUMENTS, &IDS, &["type", "index"]].concat();
        // Where any text may be looked at, a call has nothing but what belongs to one.
        let is_strict = !self.call.begun || self.format.arguments == Arguments::Required;
        if is_strict && !known.contains(&key.as_str()) {
            return Err(Stop::NotACall);
        }
        if ARGUMENTS.contains(&key.as_str()) && next == '{' && self.call.name.is_some() {
            self.begin(out)?;
            self.call.has_arguments = true;
            self.at = At::InArguments(Scan::default());
        } else {
            self.at = At::InValue(key, Scan::default(), String::new());
        }
        Ok(Step::On)
    }

    fn in_value(
        &mut self,
        input: &mut Cursor,
        (key, mut scan, mut text): (String, Scan, String),
    ) -> Result<Step, Stop> {
        match scan.read(input, &mut text) {
            Progress::Partial => {
                self.at = At::InValue(key, scan, text);
                return Err(Stop::Wait);
            }
            Progress::Broken => return self.broken(),
            Progress::Whole => {}
        }
        let string = || serde_json::from_str::<String>(&text).ok();
        if NAMES.contains(&key.as_str()) {
            self.call.name = string();
        } else if IDS.contains(&key.as_str()) {
            self.call.id = string();
        } else if ARGUMENTS.contains(&key.as_str()) {
            self.call.has_arguments = true;
            self.call.arguments = Some(unquoted(text));
        }
        self.at = At::Key;
        Ok(Step::On)
    }

    fn begin(&mut self, out: &mut CallWriter<'_>) -> Result<(), Stop> {
        let name = self.call.name.as_deref().ok_or(Stop::NotACall)?;
        if !self.call.begun {
            out.begin(name, self.call.id.take())?;
            self.call.begun = true;
        }
        Ok(())
    }

    /// The object has ended.
    fn finish(&mut self, out: &mut CallWriter<'_>) -> Result<(), Stop> {
        if self.format.arguments == Arguments::Required && !self.call.has_arguments {
            return Err(Stop::NotACall);
        }
        let arguments = self.call.arguments.take();
        // Nothing has gone out yet: it may still be text.
        if !self.call.begun && arguments.as_deref().is_some_and(|text| !are_arguments(text)) {
            return Err(Stop::NotACall);
        }
        self.begin(out)?;
        match (arguments, self.call.has_arguments) {
            (Some(arguments), _) => out.arguments(&arguments),
            (None, false) => out.arguments("{}"),
            (None, true) => {}
        }
        out.end();
        self.n_calls += 1;
        self.at = At::After;
        Ok(())
    }

    fn in_arguments(
        &mut self,
        input: &mut Cursor,
        out: &mut CallWriter<'_>,
        mut scan: Scan,
    ) -> Result<Step, Stop> {
        let mut text = String::new();
        let progress = scan.read(input, &mut text);
        out.arguments(&text);
        match progress {
            Progress::Whole => {
                self.at = At::Key;
                Ok(Step::On)
            }
            Progress::Partial => {
                self.at = At::InArguments(scan);
                Err(Stop::Wait)
            }
            Progress::Broken => Ok(Step::Done),
        }
    }

    fn after(&mut self, input: &mut Cursor) -> Result<Step, Stop> {
        if self.in_list {
            self.at = At::Object;
            return Ok(Step::On);
        }
        self.at = At::After;
        let blanks = input.blanks();
        // One brace too many is a common slip, and no text begins with one.
        let stray = input.one_of(blanks, &["}"])?;
        if stray.is_some() && !self.format.closes.is_empty() {
            input.skip(blanks + 1);
            return Ok(Step::On);
        }
        if let Some(close) = input.one_of(blanks, self.format.closes)? {
            input.skip(blanks + self.format.closes[close].len());
            return Ok(Step::Done);
        }
        if let Some(which) = input.one_of(blanks, self.format.separators)? {
            let separator = self.format.separators[which];
            input.skip(blanks + if separator == "{" { 0 } else { separator.len() });
            self.at = At::Object;
            return Ok(Step::On);
        }
        if input.rest()[blanks..].is_empty() && !input.has_ended() {
            return Err(Stop::Wait);
        }
        Ok(Step::Done)
    }

    fn opener(&mut self, input: &mut Cursor) -> Result<Step, Stop> {
        self.at = At::Opener;
        input.accept(self.format.opens)?;
        self.at = At::Object;
        Ok(Step::On)
    }
}

impl CallParser for JsonParser {
    fn step(&mut self, input: &mut Cursor, out: &mut CallWriter<'_>) -> Result<Step, Stop> {
        match std::mem::replace(&mut self.at, At::Object) {
            At::Opener => self.opener(input),
            At::Object => self.object(input),
            At::Key => {
                self.at = At::Key;
                self.key(input, out)
            }
            At::InKey(scan, key) => self.in_key(input, scan, key),
            At::Value(key) => self.value(input, out, key),
            At::InValue(key, scan, text) => self.in_value(input, (key, scan, text)),
            At::InArguments(scan) => self.in_arguments(input, out, scan),
            At::After => self.after(input),
        }
    }
}

/// Arguments that are JSON in a string, taken out of it.
fn unquoted(text: String) -> String {
    let mut value = text;
    for _ in 0..MAX_QUOTING {
        match serde_json::from_str::<String>(&value) {
            Ok(inner) => value = inner,
            Err(_) => break,
        }
    }
    match value.trim() {
        "" | "null" => "{}".to_owned(),
        _ => value,
    }
}
