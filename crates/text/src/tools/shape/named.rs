//! Calls that are a name and a JSON object, with tags around and between them.

use super::scan::{Progress, Scan};
use crate::reply::End;
use crate::reply::calls::CallWriter;
use crate::reply::cursor::{Cursor, Found};
use crate::tools::{CallParser, Step, Stop};

/// What is particular about a format.
pub(crate) struct NamedCalls {
    /// What stands around all calls.
    pub(crate) section: Option<Section>,
    /// What a call begins with.
    pub(crate) begins: &'static [&'static str],
    /// What stands between name and arguments. A brace is part of the arguments.
    pub(crate) separators: &'static [&'static str],
    /// What stands after the arguments.
    pub(crate) ends: &'static [&'static str],
    /// Name and id of what stands before the separator.
    pub(crate) read: fn(&str) -> Option<Head>,
}

/// Tags around all calls.
pub(crate) struct Section {
    pub(crate) opens: &'static [&'static str],
    pub(crate) closes: &'static [&'static str],
}

/// Who is called.
pub(crate) struct Head {
    pub(crate) name: String,
    pub(crate) id: Option<String>,
}

impl Head {
    /// A name alone.
    pub(crate) fn name(text: &str) -> Option<Head> {
        let name = text.trim().to_owned();
        (!name.is_empty() && !name.contains(['\n', ' ', '{'])).then_some(Head { name, id: None })
    }
}

/// Longest head of a call, in bytes.
const MAX_HEAD: usize = 512;

/// Reads the calls of one opener.
pub(crate) struct NamedParser {
    format: &'static NamedCalls,
    at: At,
    n_calls: usize,
}

enum At {
    /// Before a call or the end of all.
    Between,
    Head,
    /// Before the arguments.
    Arguments,
    InArguments(Scan),
    /// After the arguments.
    After,
}

impl NamedParser {
    pub(crate) fn new(format: &'static NamedCalls) -> NamedParser {
        NamedParser { format, at: At::Between, n_calls: 0 }
    }

    /// Reads only the arguments of a call that has begun.
    pub(crate) fn arguments(format: &'static NamedCalls) -> NamedParser {
        NamedParser { format, at: At::Arguments, n_calls: 1 }
    }

    fn between(&mut self, input: &mut Cursor) -> Result<Step, Stop> {
        self.at = At::Between;
        let blanks = input.blanks();
        if let Some(section) = &self.format.section {
            if let Some(which) = input.one_of(blanks, section.opens)? {
                input.skip(blanks + section.opens[which].len());
                return Ok(Step::On);
            }
            if let Some(which) = input.one_of(blanks, section.closes)? {
                input.skip(blanks + section.closes[which].len());
                return Ok(Step::Done);
            }
        }
        if let Some(which) = input.one_of(blanks, self.format.begins)? {
            if self.n_calls > 0 {
                input.mark();
            }
            input.skip(blanks + self.format.begins[which].len());
            self.at = At::Head;
            return Ok(Step::On);
        }
        if input.rest()[blanks..].is_empty() && !input.has_ended() {
            return Err(Stop::Wait);
        }
        if self.n_calls > 0 { Ok(Step::Done) } else { Err(Stop::NotACall) }
    }

    fn head(&mut self, input: &mut Cursor, out: &mut CallWriter<'_>) -> Result<Step, Stop> {
        self.at = At::Head;
        match input.find(self.format.separators) {
            Found::Tag { at, which } if at <= MAX_HEAD => {
                let head = (self.format.read)(&input.rest()[..at]).ok_or(Stop::NotACall)?;
                out.begin(&head.name, head.id)?;
                let separator = self.format.separators[which];
                input.skip(at + if separator == "{" { 0 } else { separator.len() });
                self.at = At::Arguments;
                Ok(Step::On)
            }
            Found::None { safe } if safe <= MAX_HEAD && !input.has_ended() => Err(Stop::Wait),
            _ => Err(Stop::NotACall),
        }
    }

    fn before_arguments(
        &mut self,
        input: &mut Cursor,
        out: &mut CallWriter<'_>,
    ) -> Result<Step, Stop> {
        self.at = At::Arguments;
        input.skip_blanks();
        // Of a tool without arguments some models write none.
        let none = input.one_of(0, self.format.ends)?.is_some();
        match input.rest().chars().next() {
            None if !input.has_ended() => return Err(Stop::Wait),
            None if input.end() == Some(End::Cut) => return Ok(Step::Done),
            Some(_) if !none => self.at = At::InArguments(Scan::default()),
            _ => {
                out.arguments("{}");
                out.end();
                self.at = At::After;
            }
        }
        Ok(Step::On)
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
                out.end();
                self.at = At::After;
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
        self.at = At::After;
        let blanks = input.blanks();
        if let Some(which) = input.one_of(blanks, self.format.ends)? {
            input.skip(blanks + self.format.ends[which].len());
            return Ok(Step::On);
        }
        self.n_calls += 1;
        self.at = At::Between;
        Ok(Step::On)
    }
}

impl CallParser for NamedParser {
    fn step(&mut self, input: &mut Cursor, out: &mut CallWriter<'_>) -> Result<Step, Stop> {
        match std::mem::replace(&mut self.at, At::Between) {
            At::Between => self.between(input),
            At::Head => self.head(input, out),
            At::Arguments => self.before_arguments(input, out),
            At::InArguments(scan) => self.in_arguments(input, out, scan),
            At::After => self.after(input),
        }
    }
}
