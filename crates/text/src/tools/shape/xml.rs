//! Calls whose arguments are values between tags, as plain text. Texts go on to the client while they
//! arrive; everything else is read to its end and typed by the tool's schema.

use super::scan::{Progress, Scan};
use super::typed::{self, Types, Untyped};
use crate::reply::End;
use crate::reply::calls::{CallWriter, Tools};
use crate::reply::cursor::{Cursor, Found, Wait};
use crate::tools::{CallParser, Step, Stop};

/// What is particular about a format.
pub(crate) struct XmlCalls {
    /// What stands around calls; models leave it out at times.
    pub(crate) opens: &'static [&'static str],
    pub(crate) closes: &'static [&'static str],
    /// What a call begins with, up to its name.
    pub(crate) call: &'static [&'static str],
    /// What ends the name, be it what an argument begins with or the call's end.
    pub(crate) name_ends: &'static [&'static str],
    pub(crate) call_ends: &'static [&'static str],
    /// What an argument begins with, up to its name.
    pub(crate) argument: &'static [&'static str],
    pub(crate) key_ends: &'static [&'static str],
    /// What stands between the name and the value, blanks aside.
    pub(crate) value: &'static [&'static str],
    pub(crate) value_ends: &'static [&'static str],
    /// What stands around all arguments where they are one JSON object instead.
    pub(crate) object: Option<Object>,
    pub(crate) newlines: Newlines,
    pub(crate) untyped: Untyped,
    /// The name in what stands between the tags, and whether the value is certainly a text or not.
    pub(crate) read: fn(&str) -> (&str, Option<Untyped>),
}

/// Tags around a JSON object.
pub(crate) struct Object {
    /// What it begins with, up to its attributes.
    pub(crate) opens: &'static [&'static str],
    /// What ends these.
    pub(crate) head_ends: &'static [&'static str],
    pub(crate) closes: &'static [&'static str],
}

/// Line breaks around a value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Newlines {
    /// One at each end is not part of it.
    Frame,
    /// They are part of it.
    Kept,
    /// They are; and a value may stand between `<![CDATA[` and `]]>`.
    Quoted,
}

const CDATA: &str = "<![CDATA[";
/// Longest name of a call or an argument, in bytes.
const MAX_NAME: usize = 512;
/// Most blanks between a value's end and what must follow it, in bytes.
const MAX_GAP: usize = 64;

/// A name in quotes, as in `name="f"`.
pub(crate) fn quoted_name(text: &str) -> (&str, Option<Untyped>) {
    let name = text.split('"').next().unwrap_or(text);
    let sure = if text.contains("string=\"true\"") {
        Some(Untyped::Text)
    } else {
        text.contains("string=\"false\"").then_some(Untyped::Json)
    };
    (name.trim(), sure)
}

/// A name as it stands there.
pub(crate) fn plain_name(text: &str) -> (&str, Option<Untyped>) {
    (text.trim(), None)
}

/// Reads the calls of one opener.
pub(crate) struct XmlParser {
    format: &'static XmlCalls,
    at: At,
    n_calls: usize,
    name: String,
    n_arguments: usize,
}

enum At {
    Opener,
    /// Before a call or the end of all.
    Between,
    Name,
    /// In a call, before an argument or its end.
    Inside,
    Key,
    /// Between an argument's name and its value.
    Gap(Kind),
    /// At the beginning of the value.
    Value(Kind),
    /// In a text that goes on to the client, up to one of these.
    Text(&'static [&'static str]),
    /// In a value of which this was read, up to one of these.
    Typed(Kind, &'static [&'static str], String),
    /// In the head of an object that is all arguments.
    ObjectHead(&'static Object),
    Object(&'static Object, Scan),
    /// After it.
    ObjectEnd(&'static Object),
}

/// How a value becomes JSON.
#[derive(Clone, Copy)]
enum Kind {
    Text,
    Typed(Types, Untyped),
}

impl XmlParser {
    pub(crate) fn new(format: &'static XmlCalls) -> XmlParser {
        XmlParser { format, at: At::Opener, n_calls: 0, name: String::new(), n_arguments: 0 }
    }

    fn opener(&mut self, input: &mut Cursor) -> Result<Step, Stop> {
        self.at = At::Opener;
        input.accept(self.format.opens)?;
        self.at = At::Between;
        Ok(Step::On)
    }

    fn between(&mut self, input: &mut Cursor) -> Result<Step, Stop> {
        self.at = At::Between;
        let blanks = input.blanks();
        if let Some(which) = input.one_of(blanks, self.format.call)? {
            if self.n_calls > 0 {
                input.mark();
            }
            input.skip(blanks + self.format.call[which].len());
            self.at = At::Name;
            return Ok(Step::On);
        }
        if self.n_calls > 0 {
            let close = input.one_of(blanks, self.format.closes)?;
            if let Some(which) = close {
                input.skip(blanks + self.format.closes[which].len());
                return Ok(Step::Done);
            }
        }
        if input.rest()[blanks..].is_empty() && !input.has_ended() {
            return Err(Stop::Wait);
        }
        if self.n_calls > 0 { Ok(Step::Done) } else { Err(Stop::NotACall) }
    }

    fn name(&mut self, input: &mut Cursor, out: &mut CallWriter<'_>) -> Result<Step, Stop> {
        self.at = At::Name;
        let name_ends = self.format.name_ends;
        match input.find(name_ends) {
            Found::Tag { at, which } if at <= MAX_NAME => {
                let name = (self.format.read)(&input.rest()[..at]).0.to_owned();
                out.begin(&name, None)?;
                (self.name, self.n_arguments) = (name, 0);
                let end = name_ends[which];
                let format = self.format;
                let goes_on = format.argument.contains(&end) || format.call_ends.contains(&end);
                input.skip(at + if goes_on { 0 } else { end.len() });
                self.at = At::Inside;
                Ok(Step::On)
            }
            Found::None { safe } if safe <= MAX_NAME && !input.has_ended() => Err(Stop::Wait),
            _ => Err(Stop::NotACall),
        }
    }

    fn inside(&mut self, input: &mut Cursor, out: &mut CallWriter<'_>) -> Result<Step, Stop> {
        self.at = At::Inside;
        let blanks = input.blanks();
        if let Some(which) = input.one_of(blanks, self.format.argument)? {
            input.skip(blanks + self.format.argument[which].len());
            self.at = At::Key;
            return Ok(Step::On);
        }
        if let Some(object) = &self.format.object
            && self.n_arguments == 0
            && let Some(which) = input.one_of(blanks, object.opens)?
        {
            input.skip(blanks + object.opens[which].len());
            self.at = At::ObjectHead(object);
            return Ok(Step::On);
        }
        let ended = input.rest()[blanks..].is_empty();
        if ended && !input.has_ended() {
            return Err(Stop::Wait);
        }
        if ended && input.end() == Some(End::Cut) {
            return self.cut(input);
        }
        let end = input.one_of(blanks, self.format.call_ends)?;
        if end.is_none() && input.end() == Some(End::Cut) {
            // A tag that was cut off.
            return self.cut(input);
        }
        // Whatever else follows: the call is over, its end may have been left out.
        out.arguments(if self.n_arguments == 0 { "{}" } else { "}" });
        self.end_call(input, out, end.map(|which| blanks + self.format.call_ends[which].len()))
    }

    /// A call is complete, and its end, if there is one, has so many bytes.
    fn end_call(
        &mut self,
        input: &mut Cursor,
        out: &mut CallWriter<'_>,
        end: Option<usize>,
    ) -> Result<Step, Stop> {
        input.skip(end.unwrap_or(0));
        out.end();
        self.n_calls += 1;
        self.at = At::Between;
        Ok(Step::On)
    }

    fn object_head(&mut self, input: &mut Cursor, object: &'static Object) -> Result<Step, Stop> {
        self.at = At::ObjectHead(object);
        match input.find(object.head_ends) {
            Found::Tag { at, which } if at <= MAX_NAME => {
                input.skip(at + object.head_ends[which].len());
                self.at = At::Object(object, Scan::default());
                Ok(Step::On)
            }
            Found::None { safe } if safe <= MAX_NAME && !input.has_ended() => Err(Stop::Wait),
            _ => self.cut(input),
        }
    }

    fn object(
        &mut self,
        input: &mut Cursor,
        out: &mut CallWriter<'_>,
        (object, mut scan): (&'static Object, Scan),
    ) -> Result<Step, Stop> {
        let mut text = String::new();
        let progress = scan.read(input, &mut text);
        out.arguments(&text);
        match progress {
            Progress::Whole => self.at = At::ObjectEnd(object),
            Progress::Partial => {
                self.at = At::Object(object, scan);
                return Err(Stop::Wait);
            }
            Progress::Broken => return self.cut(input),
        }
        Ok(Step::On)
    }

    fn object_end(
        &mut self,
        input: &mut Cursor,
        out: &mut CallWriter<'_>,
        object: &'static Object,
    ) -> Result<Step, Stop> {
        self.at = At::ObjectEnd(object);
        let blanks = input.blanks();
        if let Some(which) = input.one_of(blanks, object.closes)? {
            input.skip(blanks + object.closes[which].len());
            return Ok(Step::On);
        }
        if input.rest()[blanks..].is_empty() && !input.has_ended() {
            return Err(Stop::Wait);
        }
        let end = input.one_of(blanks, self.format.call_ends)?;
        self.end_call(input, out, end.map(|which| blanks + self.format.call_ends[which].len()))
    }

    fn key(&mut self, input: &mut Cursor, out: &mut CallWriter<'_>) -> Result<Step, Stop> {
        self.at = At::Key;
        match input.find(self.format.key_ends) {
            Found::Tag { at, which } if at <= MAX_NAME => {
                let (key, sure) = (self.format.read)(&input.rest()[..at]);
                let kind = self.kind(key, sure, out.tools);
                let separator = if self.n_arguments == 0 { "{" } else { ", " };
                out.arguments(&format!("{separator}{}: ", typed::quoted(key)));
                input.skip(at + self.format.key_ends[which].len());
                self.n_arguments += 1;
                self.at = At::Gap(kind);
                Ok(Step::On)
            }
            Found::None { safe } if safe <= MAX_NAME && !input.has_ended() => Err(Stop::Wait),
            _ => self.cut(input),
        }
    }

    /// The call breaks off: it is never complete.
    fn cut(&mut self, input: &mut Cursor) -> Result<Step, Stop> {
        if input.has_ended() {
            input.skip(input.rest().len());
        }
        Ok(Step::Done)
    }

    fn kind(&self, key: &str, sure: Option<Untyped>, tools: &Tools) -> Kind {
        let types = match sure {
            Some(Untyped::Text) => Types::STRING,
            Some(Untyped::Json) => return Kind::Typed(Types::default(), Untyped::Json),
            None => typed::types(tools.schema(&self.name), key),
        };
        match typed::is_text(types, self.format.untyped) {
            true => Kind::Text,
            false => Kind::Typed(types, self.format.untyped),
        }
    }

    fn gap(&mut self, input: &mut Cursor, kind: Kind) -> Result<Step, Stop> {
        self.at = At::Gap(kind);
        if !self.format.value.is_empty() {
            let blanks = input.blanks();
            let Some(which) = input.one_of(blanks, self.format.value)? else {
                if input.rest()[blanks..].is_empty() && !input.has_ended() {
                    return Err(Stop::Wait);
                }
                return self.cut(input);
            };
            input.skip(blanks + self.format.value[which].len());
        }
        self.at = At::Value(kind);
        Ok(Step::On)
    }

    fn value(
        &mut self,
        input: &mut Cursor,
        out: &mut CallWriter<'_>,
        kind: Kind,
    ) -> Result<Step, Stop> {
        self.at = At::Value(kind);
        if self.format.newlines == Newlines::Frame {
            input.accept(&["\n", "\r\n"])?;
        }
        let quoted = self.format.newlines == Newlines::Quoted && input.accept(&[CDATA])?;
        let ends: &[_] = if quoted { &["]]></param>", "]]>"] } else { self.format.value_ends };
        self.at = match kind {
            Kind::Text => {
                out.arguments("\"");
                At::Text(ends)
            }
            typed => At::Typed(typed, ends, String::new()),
        };
        Ok(Step::On)
    }

    fn text(
        &mut self,
        input: &mut Cursor,
        out: &mut CallWriter<'_>,
        ends: &'static [&'static str],
    ) -> Result<Step, Stop> {
        self.at = At::Text(ends);
        let mut piece = String::new();
        let state = self.read_value(input, &mut piece, ends);
        let quoted = typed::quoted(&piece);
        out.arguments(&quoted[1..quoted.len() - 1]);
        match state? {
            Value::Whole => {
                out.arguments("\"");
                self.at = At::Inside;
            }
            Value::Cut => return self.cut(input),
        }
        Ok(Step::On)
    }

    fn typed(
        &mut self,
        input: &mut Cursor,
        out: &mut CallWriter<'_>,
        (kind, ends, mut read): (Kind, &'static [&'static str], String),
    ) -> Result<Step, Stop> {
        let state = self.read_value(input, &mut read, ends);
        let Ok(state) = state else {
            self.at = At::Typed(kind, ends, read);
            return Err(Stop::Wait);
        };
        match (state, kind) {
            (Value::Whole, Kind::Typed(types, untyped)) => {
                out.arguments(&typed::json(&read, types, untyped));
            }
            (Value::Whole, Kind::Text) => out.arguments(&typed::quoted(&read)),
            (Value::Cut, _) => return self.cut(input),
        }
        self.at = At::Inside;
        Ok(Step::On)
    }

    /// Reads on in a value. Its end is one only if what must follow an end follows it: a value may
    /// hold the text of its own end. Where the end was left out, it is before what ends the answer.
    fn read_value(
        &self,
        input: &mut Cursor,
        out: &mut String,
        ends: &'static [&'static str],
    ) -> Result<Value, Wait> {
        loop {
            let (at, next) = self.next(input, ends);
            let ends_here = match next {
                Next::End(len) => self.goes_on(input, at + len),
                Next::Frame(_) => self.is_tail(input, at),
                Next::Nothing if input.has_ended() => Ok(true),
                Next::Nothing => Err(Wait),
            };
            match (ends_here, next) {
                (Err(Wait), _) => {
                    self.take_safe(input, at, out);
                    return Err(Wait);
                }
                (Ok(false), Next::End(len) | Next::Frame(len)) => {
                    out.push_str(&input.take(at + len));
                }
                (Ok(true), Next::End(len)) => {
                    self.take_value(input, at, out);
                    input.skip(len);
                    return Ok(Value::Whole);
                }
                _ if input.end() == Some(End::Cut) => {
                    self.take_safe(input, at, out);
                    return Ok(Value::Cut);
                }
                _ => {
                    self.take_value(input, at, out);
                    input.skip(input.rest().len());
                    return Ok(Value::Whole);
                }
            }
        }
    }

    /// What comes first in a value that may end it, and after how many bytes.
    fn next(&self, input: &mut Cursor, ends: &'static [&'static str]) -> (usize, Next) {
        let mut first = match input.find(ends) {
            Found::Tag { at, which } => (at, Next::End(ends[which].len())),
            Found::None { safe } => (safe, Next::Nothing),
        };
        for tags in [self.format.call_ends, self.format.closes] {
            let frame = match input.find(tags) {
                Found::Tag { at, which } => (at, Next::Frame(tags[which].len())),
                Found::None { safe } => (safe, Next::Nothing),
            };
            if frame.0 < first.0 {
                first = frame;
            }
        }
        first
    }

    /// Whether after so many bytes call and section are closed, and the answer ends.
    fn is_tail(&self, input: &Cursor, mut skip: usize) -> Result<bool, Wait> {
        for tags in [self.format.call_ends, self.format.closes] {
            if let Some(which) = input.one_of(skip, tags)? {
                skip += tags[which].len();
            }
            let blanks = input.blanks_after(skip);
            if input.rest().len() == skip + blanks {
                return if input.has_ended() { Ok(true) } else { Err(Wait) };
            }
            skip += blanks;
        }
        Ok(false)
    }

    /// Whether after so many bytes comes what may follow a value.
    fn goes_on(&self, input: &Cursor, skip: usize) -> Result<bool, Wait> {
        let rest = &input.rest()[skip..];
        let blanks = rest.len() - rest.trim_start().len();
        if blanks > MAX_GAP {
            return Ok(false);
        }
        if rest.len() == blanks {
            return if input.has_ended() { Ok(true) } else { Err(Wait) };
        }
        let format = self.format;
        for followers in [format.argument, format.call_ends, format.closes] {
            if input.one_of(skip + blanks, followers)?.is_some() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Takes what is certainly part of the value, of so many bytes.
    fn take_safe(&self, input: &mut Cursor, n: usize, out: &mut String) {
        let safe = &input.rest()[..n];
        let kept = match self.format.newlines {
            Newlines::Frame => safe.strip_suffix('\n').unwrap_or(safe).trim_end_matches('\r').len(),
            Newlines::Kept | Newlines::Quoted => n,
        };
        out.push_str(&input.take(kept));
    }

    /// Takes the last bytes of a value.
    fn take_value(&self, input: &mut Cursor, n: usize, out: &mut String) {
        let last = input.take(n);
        out.push_str(match self.format.newlines {
            Newlines::Frame => last
                .strip_suffix('\n')
                .map_or(last.as_str(), |text| text.strip_suffix('\r').unwrap_or(text)),
            Newlines::Kept | Newlines::Quoted => &last,
        });
    }
}

/// What may end a value, with the bytes that it has.
#[derive(Clone, Copy)]
enum Next {
    /// Its own end.
    End(usize),
    /// The end of the call or of all calls, where its own was left out.
    Frame(usize),
    Nothing,
}

/// How a value ended.
enum Value {
    Whole,
    Cut,
}

impl CallParser for XmlParser {
    fn step(&mut self, input: &mut Cursor, out: &mut CallWriter<'_>) -> Result<Step, Stop> {
        match std::mem::replace(&mut self.at, At::Between) {
            At::Opener => self.opener(input),
            At::Between => self.between(input),
            At::Name => self.name(input, out),
            At::Inside => self.inside(input, out),
            At::Key => self.key(input, out),
            At::Gap(kind) => self.gap(input, kind),
            At::Value(kind) => self.value(input, out, kind),
            At::Text(ends) => self.text(input, out, ends),
            At::Typed(kind, ends, read) => self.typed(input, out, (kind, ends, read)),
            At::ObjectHead(object) => self.object_head(input, object),
            At::Object(object, scan) => self.object(input, out, (object, scan)),
            At::ObjectEnd(object) => self.object_end(input, out, object),
        }
    }
}
