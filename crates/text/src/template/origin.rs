//! Tells in a rendered prompt which special-token strings users wrote: user text is marked with
//! noncharacters before rendering, and the marks are taken out afterwards.
//!
//! - A special token inside a user's string becomes `OPEN token CLOSE`. Tests such as
//!   `'</think>' in content` still hold; a split at that token leaves lone marks, which vanish.
//! - A user's string that begins or ends with a fragment of a special token gets an `EDGE` there, in
//!   a second rendering: if template and user together spell a token over an edge, it is no control
//!   token; else the first rendering, without edges, counts.
//!
//! Limits: `length` counts marks, `startswith` sees them, and a template that cuts user strings into
//! pieces and joins them into a token is believed. None of this touches text without such strings.

use std::collections::HashSet;

use aho_corasick::{AhoCorasick, MatchKind};
use serde_json::{Map, Value};

use crate::{AddedToken, Error, Prompt, digits};

/// Characters that no text should contain: Unicode keeps them for use inside a program.
const NONCHARACTERS: std::ops::RangeInclusive<char> = '\u{FDD0}'..='\u{FDEF}';
/// For texts that use all of the above.
const PRIVATE: std::ops::RangeInclusive<char> = '\u{100000}'..='\u{10FFFD}';

/// Whether a character can be one of the marks.
pub(super) fn may_be_mark(c: char) -> bool {
    NONCHARACTERS.contains(&c) || PRIVATE.contains(&c)
}

/// The marks of one rendering: characters that occur nowhere in its input.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Marks {
    open: char,
    close: char,
    edge: char,
}

impl Marks {
    pub(super) fn unused_in(
        messages: &[Value],
        tools: &[Value],
        kwargs: &Map<String, Value>,
    ) -> Marks {
        let mut used = HashSet::new();
        messages.iter().chain(tools).for_each(|value| collect(value, &mut used));
        kwargs.values().for_each(|value| collect(value, &mut used));
        let mut free = NONCHARACTERS.chain(PRIVATE).filter(|c| !used.contains(c));
        // A text would have to hold all 65 568 candidates to leave none.
        let mut next = |fallback| free.next().unwrap_or(fallback);
        Marks { open: next('\u{FDD0}'), close: next('\u{FDD1}'), edge: next('\u{FDD2}') }
    }

    fn any(&self) -> [char; 3] {
        [self.open, self.close, self.edge]
    }
}

fn collect(value: &Value, used: &mut HashSet<char>) {
    match value {
        Value::String(text) => used.extend(text.chars().filter(|&c| may_be_mark(c))),
        Value::Array(list) => list.iter().for_each(|value| collect(value, used)),
        Value::Object(map) => map.iter().for_each(|(key, value)| {
            used.extend(key.chars().filter(|&c| may_be_mark(c)));
            collect(value, used);
        }),
        _ => {}
    }
}

/// Whether the edges of users' strings are marked too.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Edges {
    Bare,
    Marked,
}

/// Puts marks into what users wrote and takes them out of what was rendered.
pub(super) struct Marker {
    /// Special tokens.
    special: Tokens,
    /// Those, and the added tokens that this template writes although they are not special.
    control: Tokens,
}

/// A set of token strings that is looked for in texts.
struct Tokens {
    finder: AhoCorasick,
    strings: HashSet<String>,
    /// Proper beginnings and ends of tokens that look like marks rather than words.
    heads: HashSet<String>,
    tails: HashSet<String>,
    longest: usize,
}

impl Marker {
    pub(super) fn new(added: &[AddedToken], template: &str) -> Result<Marker, Error> {
        let shown = |token: &&AddedToken| !token.content.chars().all(char::is_whitespace);
        let special = added.iter().filter(shown).filter(|token| token.special);
        let control = added
            .iter()
            .filter(shown)
            .filter(|token| token.special || template.contains(&token.content));
        Ok(Marker {
            special: Tokens::new(special.map(|token| token.content.as_str()).collect())?,
            control: Tokens::new(control.map(|token| token.content.as_str()).collect())?,
        })
    }

    /// Marks a message. In what the operator and the model say, tokens that are not special, such
    /// as `<tool_call>` or `</think>`, keep their meaning: templates parse them.
    pub(super) fn message(&self, message: &Value, marks: &Marks, edges: Edges) -> Value {
        match message["role"].as_str() {
            Some("user" | "tool") => self.control.mark(message, marks, edges),
            _ => self.special.mark(message, marks, edges),
        }
    }

    /// Marks anything else that comes from a request.
    pub(super) fn foreign(&self, value: &Value, marks: &Marks, edges: Edges) -> Value {
        self.control.mark(value, marks, edges)
    }

    /// Whether any user's string begins or ends with a fragment of a token.
    pub(super) fn has_edges(
        &self,
        messages: &[Value],
        tools: &[Value],
        kwargs: &Map<String, Value>,
        marks: &Marks,
    ) -> bool {
        let edge = |value: Value| {
            let mut used = HashSet::new();
            collect(&value, &mut used);
            used.contains(&marks.edge)
        };
        let foreign = |value| edge(self.foreign(value, marks, Edges::Marked));
        messages.iter().any(|value| edge(self.message(value, marks, Edges::Marked)))
            || tools.iter().chain(kwargs.values()).any(foreign)
    }

    /// The prompt of a rendered text.
    pub(super) fn split(&self, rendered: &str, marks: &Marks) -> Prompt {
        let mut prompt = Prompt::default();
        let mut text = String::new();
        let mut seams = Vec::new();
        let mut rest = rendered;
        while let Some(at) = rest.find(marks.any()) {
            text.push_str(&rest[..at]);
            let mark = rest[at..].chars().next().unwrap_or(marks.edge);
            rest = &rest[at + mark.len_utf8()..];
            let token = rest.split_once(marks.close).filter(|_| mark == marks.open);
            match token.filter(|(token, _)| self.control.strings.contains(*token)) {
                Some((token, after)) => {
                    self.push_seamed(&mut prompt, &text, &seams);
                    prompt.push_literal(token);
                    (text, seams, rest) = (String::new(), Vec::new(), after);
                }
                None => seams.push(text.len()),
            }
        }
        text.push_str(rest);
        self.push_seamed(&mut prompt, &text, &seams);
        prompt
    }

    /// Adds a text; tokens in it that lie over a seam are not the template's.
    fn push_seamed(&self, prompt: &mut Prompt, text: &str, seams: &[usize]) {
        let mut start = 0;
        if !seams.is_empty() {
            for found in self.control.finder.find_iter(text) {
                let inside = found.start() + 1..found.end();
                if seams.iter().any(|seam| inside.contains(seam)) {
                    prompt.push_text(&text[start..found.start()]);
                    prompt.push_literal(&text[found.range()]);
                    start = found.end();
                }
            }
        }
        prompt.push_text(&text[start..]);
    }
}

impl Tokens {
    fn new(tokens: Vec<&str>) -> Result<Tokens, Error> {
        let finder = AhoCorasick::builder()
            .match_kind(MatchKind::LeftmostLongest)
            .build(&tokens)
            .map_err(|error| Error::Tokenizer(error.to_string()))?;
        let strings = tokens.iter().map(|&token| token.to_owned()).collect();
        let (mut heads, mut tails) = (HashSet::new(), HashSet::new());
        let word = |c: Option<char>| c.is_none_or(char::is_alphanumeric);
        for token in &tokens {
            if word(token.chars().next()) || word(token.chars().next_back()) {
                continue;
            }
            for (cut, _) in token.char_indices().skip(1) {
                heads.insert(token[..cut].to_owned());
                tails.insert(token[cut..].to_owned());
            }
        }
        let longest = tokens.iter().map(|token| token.len()).max().unwrap_or(0);
        Ok(Tokens { finder, strings, heads, tails, longest })
    }

    fn mark(&self, value: &Value, marks: &Marks, edges: Edges) -> Value {
        match value {
            number if digits::of(number).is_some() => number.clone(),
            Value::String(text) => Value::String(self.mark_text(text, marks, edges)),
            Value::Array(list) => list.iter().map(|value| self.mark(value, marks, edges)).collect(),
            Value::Object(map) => map
                .iter()
                .map(|(key, value)| {
                    (self.mark_text(key, marks, edges), self.mark(value, marks, edges))
                })
                .collect::<Map<_, _>>()
                .into(),
            other => other.clone(),
        }
    }

    fn mark_text(&self, text: &str, marks: &Marks, edges: Edges) -> String {
        let body = text.trim();
        let lead = text.len() - text.trim_start().len();
        let mut out = String::with_capacity(text.len() + 8);
        out.push_str(&text[..lead]);
        if edges == Edges::Marked && self.starts_with_tail(body) {
            out.push(marks.edge);
        }
        let mut last = 0;
        for found in self.finder.find_iter(body) {
            out.push_str(&body[last..found.start()]);
            out.push(marks.open);
            out.push_str(&body[found.range()]);
            out.push(marks.close);
            last = found.end();
        }
        out.push_str(&body[last..]);
        if edges == Edges::Marked && self.ends_with_head(&body[last..]) {
            out.push(marks.edge);
        }
        out.push_str(&text[lead + body.len()..]);
        out
    }

    fn starts_with_tail(&self, text: &str) -> bool {
        let longest = self.longest.min(text.len());
        (1..=longest).any(|n| text.get(..n).is_some_and(|head| self.tails.contains(head)))
    }

    fn ends_with_head(&self, text: &str) -> bool {
        let longest = self.longest.min(text.len());
        (1..=longest)
            .any(|n| text.get(text.len() - n..).is_some_and(|tail| self.heads.contains(tail)))
    }
}
