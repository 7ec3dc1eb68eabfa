//! `<|tool_call>call:f{a:<|"|>text<|"|>,n:1}<tool_call|>`: Gemma 4; and, with other tags,
//! FunctionGemma. Values are JSON but for the quotes, and keys have none.

use serde_json::Value;

use super::shape::typed;
use super::spelling::{Arguments, Each, Nested, Spelling, ToldBy};
use super::{CallParser, Opener, Step, Stop, ToolFormat};
use crate::digits;
use crate::reply::End;
use crate::reply::calls::CallWriter;
use crate::reply::cursor::{Cursor, Found};

/// Tags of one of the two.
struct Tags {
    open: &'static str,
    /// The quote, then what ends the call.
    inside: [&'static str; 2],
}

static GEMMA: Tags = Tags { open: "<|tool_call>", inside: ["<|\"|>", "<tool_call|>"] };
static FUNCTION_GEMMA: Tags =
    Tags { open: "<start_function_call>", inside: ["<escape>", "<end_function_call>"] };

/// Deepest nesting of values.
const MAX_DEPTH: usize = 64;

pub(super) static FORMAT: Gemma = Gemma;

pub(super) struct Gemma;

impl ToolFormat for Gemma {
    fn name(&self) -> &'static str {
        "gemma"
    }

    fn fits(&self, template: &str) -> bool {
        template.contains("<|tool_call>") || template.contains("<start_function_call>")
    }

    fn openers(&self) -> &'static [Opener] {
        const OPENERS: [Opener; 2] =
            [Opener::token("<|tool_call>"), Opener::token("<start_function_call>")];
        &OPENERS
    }

    fn parser(&self, opener: usize) -> Box<dyn CallParser> {
        let tags = if opener == 0 { &GEMMA } else { &FUNCTION_GEMMA };
        Box::new(Parser { tags, opened: false, body: String::new(), in_text: false })
    }

    fn markers(&self) -> &'static [&'static str] {
        &["<tool_call|>", "<|\"|>", "<end_function_call>", "<escape>"]
    }

    fn spelling(&self, knows: &dyn Fn(&str) -> bool) -> Spelling {
        let each = |text: [&'static str; 2]| {
            Arguments::Each(Each {
                key: "",
                text: Some(text),
                other: [":", ""],
                separator: ",",
                told_by: ToldBy::Form,
                ends_text: text[1],
                no_text: &[],
                nested: Nested::Json,
            })
        };
        let (begin, arguments, end) = match knows(FUNCTION_GEMMA.open) {
            true => {
                let arguments = each([":<escape>", "<escape>"]);
                ("<start_function_call>call:", arguments, "}<end_function_call>")
            }
            false => ("<|tool_call>call:", each([":<|\"|>", "<|\"|>"]), "}<tool_call|>"),
        };
        Spelling { before: "", begin, middle: "{", arguments, end, between: Some(""), after: "" }
    }
}

/// Reads one call, whole: a value's kind is known only at its end.
struct Parser {
    tags: &'static Tags,
    opened: bool,
    /// What stands between the tags so far.
    body: String,
    in_text: bool,
}

impl CallParser for Parser {
    fn step(&mut self, input: &mut Cursor, out: &mut CallWriter<'_>) -> Result<Step, Stop> {
        if !self.opened {
            input.accept(&[self.tags.open])?;
            self.opened = true;
        }
        match input.find(&self.tags.inside) {
            Found::Tag { at, which } => {
                input.look(at);
                self.body.push_str(&input.take(at));
                input.skip(self.tags.inside[which].len());
                if which == 1 && !self.in_text {
                    return self.finish(out);
                }
                self.in_text ^= which == 0;
                self.body.push_str(self.tags.inside[which]);
                Ok(Step::On)
            }
            Found::None { safe } => {
                self.body.push_str(&input.take(safe));
                match input.end() {
                    None => Err(Stop::Wait),
                    Some(End::Model) if !self.in_text => self.finish(out),
                    Some(_) => Err(Stop::NotACall),
                }
            }
        }
    }
}

impl Parser {
    fn finish(&self, out: &mut CallWriter<'_>) -> Result<Step, Stop> {
        let body = self.body.trim().strip_prefix("call:").ok_or(Stop::NotACall)?;
        let at = body.find('{').ok_or(Stop::NotACall)?;
        let mut reader = Reader { rest: &body[at..], quote: self.tags.inside[0] };
        let mut arguments = String::new();
        reader.value(MAX_DEPTH, &mut arguments).ok_or(Stop::NotACall)?;
        if !reader.rest.trim().is_empty() {
            return Err(Stop::NotACall);
        }
        out.call(body[..at].trim(), &arguments)?;
        Ok(Step::Done)
    }
}

struct Reader<'a> {
    rest: &'a str,
    quote: &'static str,
}

impl<'a> Reader<'a> {
    /// Appends a value as JSON. What is JSON already stays as it is, so that numbers keep their digits.
    fn value(&mut self, depth: usize, out: &mut String) -> Option<()> {
        let depth = depth.checked_sub(1)?;
        self.rest = self.rest.trim_start();
        match self.rest.chars().next()? {
            '{' => self.object(depth, out)?,
            '[' => self.list(depth, out)?,
            _ if self.rest.starts_with(self.quote) => out.push_str(&typed::quoted(self.quoted()?)),
            '"' => {
                let mut values = serde_json::Deserializer::from_str(self.rest).into_iter::<Value>();
                values.next()?.ok()?;
                let (text, rest) = self.rest.split_at(values.byte_offset());
                out.push_str(text);
                self.rest = rest;
            }
            _ => {
                let word = self.until(&[',', '}', ']']).trim();
                match digits::read(word) {
                    Ok(_) => out.push_str(word),
                    Err(_) => out.push_str(&typed::quoted(word)),
                }
            }
        }
        Some(())
    }

    /// The text before one of these.
    fn until(&mut self, ends: &[char]) -> &'a str {
        let n = self.rest.find(ends).unwrap_or(self.rest.len());
        let (text, rest) = self.rest.split_at(n);
        self.rest = rest;
        text
    }

    fn quoted(&mut self) -> Option<&'a str> {
        let (text, rest) = self.rest.strip_prefix(self.quote)?.split_once(self.quote)?;
        self.rest = rest;
        Some(text)
    }

    fn eat(&mut self, character: char) -> bool {
        self.rest = self.rest.trim_start();
        let rest = self.rest.strip_prefix(character);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    fn object(&mut self, depth: usize, out: &mut String) -> Option<()> {
        self.eat('{');
        out.push('{');
        loop {
            if self.eat('}') {
                out.push('}');
                return Some(());
            }
            let key = match self.quoted() {
                Some(key) => key,
                None => self.until(&[':', '}', ',']).trim().trim_matches('"'),
            };
            typed::separate(out);
            out.push_str(&typed::quoted(key));
            if !self.eat(':') {
                return None;
            }
            out.push(':');
            self.value(depth, out)?;
            if !self.eat(',') && !self.rest.starts_with('}') {
                return None;
            }
        }
    }

    fn list(&mut self, depth: usize, out: &mut String) -> Option<()> {
        self.eat('[');
        out.push('[');
        loop {
            if self.eat(']') {
                out.push(']');
                return Some(());
            }
            typed::separate(out);
            self.value(depth, out)?;
            if !self.eat(',') && !self.rest.starts_with(']') {
                return None;
            }
        }
    }
}
