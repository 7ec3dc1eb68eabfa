//! The state machine over a growing answer. It holds back only what may still become a tag or a call,
//! and gives the same parts however the text is cut. It knows no family's spelling.
//!
//! What looks like a call and may be text is tried: its parts wait until it is certain, and if it is
//! none, the same stretch is read again as text. A stretch is tried at most once.

use super::calls::{self, CallWriter, IdMaker, Tools, Trust};
use super::code::Code;
use super::cursor::{Cursor, Found};
use super::{End, Opening, Part, Syntax};
use crate::reasoning::{Channel, Place, Reasoning};
use crate::tools::{CallParser, Kind, Opener, Step, Stop};

/// Blanks before a call or after thoughts that may be left out, in bytes.
const HELD_BLANKS: usize = 256;
/// Longest header of a channel, in bytes.
const MAX_HEADER: usize = 1024;

/// Cuts one answer.
pub struct Splitter {
    syntax: Syntax,
    tools: Tools,
    text_tags: TagSet,
    thought_tags: TagSet,
    input: Cursor,
    mode: Mode,
    code: Code,
    /// Something other than blanks has been said.
    begun: bool,
    /// Blanks that follow are left out.
    trims: bool,
    /// The prompt has not settled whether there are thoughts.
    may_think: bool,
    ids: IdMaker,
    /// The arguments of the call being read.
    written: String,
    trial: Option<Trial>,
    /// What begins before this position has been tried.
    tried: usize,
    /// Where the latest opener is.
    opened: usize,
    /// Before this position the thoughts are not closed.
    open_until: usize,
    parts: Vec<Part>,
}

enum Mode {
    Text,
    Thoughts,
    /// A call, and what to be afterwards.
    Call(Box<dyn CallParser>, Trust),
    /// A call on trial is complete; what follows decides.
    Verdict,
    /// A channel's header, of which the prompt has written this.
    Header(String),
}

#[derive(Clone, Copy, PartialEq)]
enum Meaning {
    OpensThoughts,
    ClosesThoughts,
    Noise,
    /// Ends a message of a channel.
    EndsMessage,
    /// The opener of this number.
    Opens(usize),
}

/// Calls that may turn out to be text.
struct Trial {
    rule: Rule,
    parts: Vec<Part>,
    /// Calls there were before.
    n_ids: u64,
}

/// What must follow calls on trial.
#[derive(Clone, Copy, PartialEq)]
enum Rule {
    LineEnd,
    AnswerEnd,
    /// As above; and the thoughts must not have been closed.
    AnswerEndInThoughts,
}

impl Splitter {
    /// For an answer that goes on from a prompt with this opening. Without tools nothing is a call.
    /// The same `seed` gives the same ids.
    pub fn new(syntax: Syntax, opening: Opening, tools: Tools, seed: u64) -> Splitter {
        let may_think = opening != Opening::Answer;
        let mode = match opening {
            Opening::Thoughts => Mode::Thoughts,
            Opening::Header(header) => Mode::Header(header),
            Opening::Begun => Mode::Call(syntax.tools.parser(0), Trust::Declared),
            Opening::Free | Opening::Answer => Mode::Text,
        };
        let ids = IdMaker { seed, n: 0, ids: syntax.tools.ids() };
        let mut splitter = Splitter {
            text_tags: TagSet::of_text(syntax, !tools.is_empty()),
            thought_tags: TagSet::of_thoughts(syntax, !tools.is_empty()),
            syntax,
            tools,
            input: Cursor::default(),
            trims: matches!(mode, Mode::Thoughts),
            mode,
            code: Code::default(),
            begun: false,
            may_think,
            ids,
            written: String::new(),
            trial: None,
            tried: 0,
            opened: 0,
            open_until: 0,
            parts: Vec::new(),
        };
        splitter.input.mark();
        splitter
    }

    /// More of the answer; gives what is certain by it.
    pub fn push(&mut self, text: &str) -> Vec<Part> {
        self.input.push(text);
        self.run();
        std::mem::take(&mut self.parts)
    }

    /// The answer is over; gives the rest.
    pub fn finish(&mut self, end: End) -> Vec<Part> {
        self.input.close(end);
        self.run();
        std::mem::take(&mut self.parts)
    }

    /// How much of the text was looked at so far, in bytes, again and again counted: a measure of the
    /// work that an answer made, and the same for the same pieces.
    pub fn bytes_looked_at(&self) -> u64 {
        self.input.looked()
    }

    /// The model is thinking.
    pub fn is_thinking(&self) -> bool {
        let on_trial = self.trial.as_ref().map(|trial| trial.rule);
        matches!(self.mode, Mode::Thoughts) || on_trial == Some(Rule::AnswerEndInThoughts)
    }

    fn run(&mut self) {
        while self.step() {}
    }

    /// One thing; false if more text is needed.
    fn step(&mut self) -> bool {
        match std::mem::replace(&mut self.mode, Mode::Text) {
            Mode::Text => self.text(),
            Mode::Thoughts => {
                self.mode = Mode::Thoughts;
                self.thoughts()
            }
            Mode::Call(parser, trust) => self.call(parser, trust),
            Mode::Verdict => self.verdict(),
            Mode::Header(prefix) => self.header(prefix),
        }
    }

    fn text(&mut self) -> bool {
        if self.trims {
            self.input.skip_blanks();
            self.trims = self.input.rest().is_empty();
        }
        self.input.mark();
        match self.input.find(&self.text_tags.tags) {
            Found::None { safe } => {
                let text = &self.input.rest()[..safe];
                let held = match !self.input.has_ended() && self.holds_blanks(text) {
                    true => trailing_blanks(text),
                    false => 0,
                };
                self.say(safe - held);
                false
            }
            Found::Tag { at, which } => {
                self.text_tag(at, self.text_tags.get(which));
                true
            }
        }
    }

    /// In text stands a tag after so many bytes.
    fn text_tag(&mut self, at: usize, (tag, meaning): (&'static str, Meaning)) {
        let before = &self.input.rest()[..at];
        let first = !self.begun && before.trim().is_empty();
        match meaning {
            Meaning::OpensThoughts if self.opens_thoughts(first) => {
                self.say(at - trailing_blanks(before));
                self.input.skip(self.input.blanks() + tag.len());
                (self.mode, self.trims) = (Mode::Thoughts, true);
            }
            Meaning::Noise => {
                self.say(at);
                self.input.skip(tag.len());
            }
            Meaning::EndsMessage => {
                self.say(at);
                self.input.skip(tag.len());
                self.end_message(tag);
            }
            Meaning::Opens(number) => self.opener(at, first, number),
            Meaning::OpensThoughts | Meaning::ClosesThoughts => self.say(at + tag.len()),
        }
    }

    /// The blanks after this text may stand before something that is no text.
    fn holds_blanks(&self, text: &str) -> bool {
        !self.tools.is_empty() || self.opens_thoughts(!self.begun && text.trim().is_empty())
    }

    fn opens_thoughts(&self, first: bool) -> bool {
        match self.syntax.reasoning {
            Reasoning::Tags(tags) if tags.place == Place::Anywhere => true,
            Reasoning::Tags(_) => first && self.may_think,
            Reasoning::Channels(_) => false,
        }
    }

    /// In text stands the opener of a call after so many bytes.
    fn opener(&mut self, at: usize, first: bool, number: usize) {
        let opener = self.syntax.tools.openers()[number];
        let before = &self.input.rest()[..at];
        self.input.look(at);
        let mut code = self.code;
        code.push(before);
        let tried = self.input.position() + at < self.tried;
        let rule = match opener.kind {
            Kind::Token if tried => {
                self.say(at);
                return self.input.skip(opener.tag.len());
            }
            Kind::Token => Some(None),
            _ if tried || code.is_code() => None,
            Kind::Bare if first => Some(Some(Rule::AnswerEnd)),
            Kind::Tag | Kind::Line if code.is_line_start() => Some(None),
            Kind::Tag => Some(Some(Rule::LineEnd)),
            Kind::Line | Kind::Bare => None,
        };
        match rule {
            None => self.say(at + opener.tag.len()),
            Some(rule) => {
                self.say(at - trailing_blanks(before));
                self.begin_call(opener, number, rule);
            }
        }
    }

    /// What follows, blanks aside, is an opener.
    fn begin_call(&mut self, opener: Opener, number: usize, rule: Option<Rule>) {
        match rule {
            Some(rule) => {
                self.input.pin();
                self.trial = Some(Trial { rule, parts: Vec::new(), n_ids: self.ids.n });
            }
            None => self.input.mark(),
        }
        self.input.skip_blanks();
        self.opened = self.input.position();
        self.mode = Mode::Call(self.syntax.tools.parser(number), opener.trust());
    }

    fn thoughts(&mut self) -> bool {
        if self.trims {
            self.input.skip_blanks();
            self.trims = self.input.rest().is_empty();
        }
        self.input.mark();
        match self.input.find(&self.thought_tags.tags) {
            Found::None { safe } => {
                let held = trailing_blanks(&self.input.rest()[..safe]);
                self.think(safe - held);
                if self.input.has_ended() {
                    self.input.skip(held);
                }
                false
            }
            Found::Tag { at, which } => {
                self.thought_tag(at, self.thought_tags.get(which));
                true
            }
        }
    }

    fn thought_tag(&mut self, at: usize, (tag, meaning): (&'static str, Meaning)) {
        let blanks = trailing_blanks(&self.input.rest()[..at]);
        let untried = self.input.position() + at >= self.tried;
        match meaning {
            Meaning::ClosesThoughts | Meaning::EndsMessage => {
                self.think(at - blanks);
                self.input.skip(blanks + tag.len());
                self.end_thoughts();
                if meaning == Meaning::EndsMessage {
                    self.end_message(tag);
                }
            }
            Meaning::Opens(number) => {
                let opener = self.syntax.tools.openers()[number];
                match opener.kind {
                    Kind::Token if untried => {
                        self.think(at - blanks);
                        self.end_thoughts();
                        self.begin_call(opener, number, None);
                    }
                    Kind::Tag | Kind::Line if untried => {
                        self.think(at - blanks);
                        self.begin_call(opener, number, Some(Rule::AnswerEndInThoughts));
                    }
                    _ => self.think(at + tag.len()),
                }
            }
            Meaning::OpensThoughts | Meaning::Noise => self.think(at + tag.len()),
        }
    }

    fn end_thoughts(&mut self) {
        (self.mode, self.trims, self.may_think) = (Mode::Text, true, false);
        self.code = Code::default();
    }

    fn call(&mut self, mut parser: Box<dyn CallParser>, trust: Trust) -> bool {
        if self.close_in_trial() {
            return true;
        }
        let parts = match &mut self.trial {
            Some(trial) => &mut trial.parts,
            None => &mut self.parts,
        };
        let (ids, written) = (&mut self.ids, &mut self.written);
        let mut out = CallWriter { tools: &self.tools, trust, ids, written, parts };
        match parser.step(&mut self.input, &mut out) {
            Ok(Step::On) => self.mode = Mode::Call(parser, trust),
            Ok(Step::Done) if self.trial.is_some() => self.mode = Mode::Verdict,
            Ok(Step::Done) => self.after_calls(),
            Err(Stop::Wait) if self.input.end().is_none() => {
                self.mode = Mode::Call(parser, trust);
                return false;
            }
            Err(Stop::NotACall | Stop::Wait) => self.give_back(),
        }
        true
    }

    /// Thoughts come to their end in the middle of a trial in them, by what closes them or by a call that
    /// is certainly one: then it was no call.
    fn close_in_trial(&mut self) -> bool {
        let in_thoughts = Some(Rule::AnswerEndInThoughts);
        let Reasoning::Tags(tags) = self.syntax.reasoning else { return false };
        if self.trial.as_ref().map(|trial| trial.rule) != in_thoughts {
            return false;
        }
        let ends = tags.closes.iter().copied().chain(self.certain());
        let (text, mark) = (self.input.since_mark().as_bytes(), self.input.mark_position());
        let from = self.open_until.saturating_sub(mark).min(text.len());
        let found = ends.clone().filter_map(|tag| {
            text[from..].windows(tag.len()).position(|window| window == tag.as_bytes())
        });
        if let Some(at) = found.min() {
            // Before that no call can become one.
            self.tried = self.tried.max(mark + from + at);
            self.input.rewind();
            self.give_back();
            return true;
        }
        self.input.look(text.len() - from);
        let longest = ends.map(str::len).max().unwrap_or(1);
        self.open_until = self.open_until.max(mark + text.len().saturating_sub(longest - 1));
        false
    }

    /// With what a call begins that is certainly one.
    fn certain(&self) -> impl Iterator<Item = &'static str> + Clone + use<> {
        let openers = self.syntax.tools.openers().iter();
        openers.filter(|opener| opener.kind == Kind::Token).map(|opener| opener.tag)
    }

    fn after_calls(&mut self) {
        self.input.mark();
        (self.mode, self.trims, self.begun) = (Mode::Text, true, true);
        self.code = Code::default();
    }

    /// It was no call: what was read since the mark is read again as text.
    fn give_back(&mut self) {
        let rule = self.trial.take().map(|trial| {
            self.ids.n = trial.n_ids;
            trial.rule
        });
        // In thoughts the end of what was read may be the beginning of what is certainly a call.
        let begun = match rule {
            Some(Rule::AnswerEndInThoughts) => self.certain().map(|tag| tag.len() - 1).max(),
            _ => None,
        };
        let read = self.input.position().saturating_sub(begun.unwrap_or(0));
        // The opener itself has been tried, however little of it was read.
        self.tried = self.tried.max(read).max(self.opened + 1);
        self.input.unpin();
        self.input.rewind();
        self.mode = match rule {
            Some(Rule::AnswerEndInThoughts) => Mode::Thoughts,
            _ => Mode::Text,
        };
    }

    /// Calls on trial are complete: are they calls?
    fn verdict(&mut self) -> bool {
        let Some(trial) = &self.trial else { return true };
        let rule = trial.rule;
        let blanks = match rule {
            Rule::LineEnd => {
                self.input.rest().len() - self.input.rest().trim_start_matches([' ', '\t']).len()
            }
            _ => self.input.blanks(),
        };
        self.input.skip(blanks);
        let rest = self.input.rest();
        let is_end = match (rest.is_empty(), rule) {
            (true, Rule::LineEnd) => self.input.end().is_some(),
            (true, _) => self.input.end() == Some(End::Model),
            (false, Rule::LineEnd) => rest.starts_with(['\n', '\r']),
            (false, _) => false,
        };
        if rest.is_empty() && self.input.end().is_none() {
            self.mode = Mode::Verdict;
            return false;
        }
        // Only a cut excuses a call without its end.
        let is_cut = rest.is_empty() && self.input.end() == Some(End::Cut);
        if is_end && (is_cut || calls::are_complete(&trial.parts)) {
            let trial = self.trial.take();
            self.parts.extend(trial.into_iter().flat_map(|trial| trial.parts));
            self.input.unpin();
            self.after_calls();
            return true;
        }
        if is_end {
            self.give_back();
            return true;
        }
        let openers = self.syntax.tools.openers();
        let tags: Vec<&str> = openers.iter().map(|opener| opener.tag).collect();
        match self.input.one_of(0, &tags) {
            Err(_) => {
                self.mode = Mode::Verdict;
                return false;
            }
            Ok(Some(number)) => {
                let trust = openers[number].trust();
                self.mode = Mode::Call(self.syntax.tools.parser(number), trust);
            }
            Ok(None) => self.give_back(),
        }
        true
    }

    /// A channel's header ends, or is none.
    fn header(&mut self, prefix: String) -> bool {
        let Reasoning::Channels(channels) = self.syntax.reasoning else { return true };
        // What begins unlike any header is an answer without one.
        let begins = self.input.one_of(0, channels.heads);
        if !prefix.contains('<') && begins == Ok(None) && !self.input.rest().is_empty() {
            return true;
        }
        match self.input.find(std::slice::from_ref(&channels.message)) {
            Found::Tag { at, .. } if at <= MAX_HEADER => {
                let header = prefix + &self.input.take(at);
                self.input.skip(channels.message.len());
                self.input.mark();
                self.mode = match (channels.read)(&header) {
                    Channel::Call(name) if !self.tools.is_empty() => {
                        Mode::Call(crate::tools::message_body(name), Trust::Any)
                    }
                    Channel::Text => Mode::Text,
                    Channel::Reasoning | Channel::Call(_) => {
                        self.trims = true;
                        Mode::Thoughts
                    }
                };
                true
            }
            Found::None { safe } if safe <= MAX_HEADER => {
                if self.input.has_ended() {
                    // A header that was cut off says nothing.
                    self.input.skip(self.input.rest().len());
                }
                self.mode = Mode::Header(prefix);
                false
            }
            _ => true,
        }
    }

    /// A message of a channel has ended with this tag.
    fn end_message(&mut self, tag: &'static str) {
        let prefix = if tag == "<|channel|>" { tag } else { "" };
        self.mode = Mode::Header(prefix.to_owned());
    }

    /// So many bytes are part of the answer.
    fn say(&mut self, n: usize) {
        if n == 0 {
            return;
        }
        let at = self.input.position();
        let text = self.input.take(n);
        self.code.push(&text);
        self.begun |= !text.trim().is_empty();
        match self.parts.last_mut() {
            Some(Part::Text { at: start, text: last }) if *start + last.len() == at => {
                last.push_str(&text);
            }
            _ => self.parts.push(Part::Text { at, text }),
        }
    }

    /// So many bytes are thoughts.
    fn think(&mut self, n: usize) {
        if n == 0 {
            return;
        }
        let text = self.input.take(n);
        match self.parts.last_mut() {
            Some(Part::Reasoning(last)) => last.push_str(&text),
            _ => self.parts.push(Part::Reasoning(text)),
        }
    }
}

/// Tags that may be met, and what they mean.
struct TagSet {
    tags: Vec<&'static str>,
    meanings: Vec<Meaning>,
}

impl TagSet {
    fn get(&self, which: usize) -> (&'static str, Meaning) {
        (self.tags[which], self.meanings[which])
    }

    fn add(&mut self, tags: impl IntoIterator<Item = &'static str>, meaning: Meaning) {
        for tag in tags {
            if !self.tags.contains(&tag) {
                self.tags.push(tag);
                self.meanings.push(meaning);
            }
        }
    }

    fn of_text(syntax: Syntax, has_tools: bool) -> TagSet {
        let mut set = TagSet { tags: Vec::new(), meanings: Vec::new() };
        if has_tools {
            for (number, opener) in syntax.tools.openers().iter().enumerate() {
                set.add([opener.tag], Meaning::Opens(number));
            }
            set.add(syntax.tools.markers().iter().copied(), Meaning::Noise);
        }
        match syntax.reasoning {
            Reasoning::Tags(tags) => {
                set.add(tags.opens.iter().copied(), Meaning::OpensThoughts);
                let closes = tags.closes.iter().copied();
                set.add(closes.filter(|_| tags.place == Place::Anywhere), Meaning::Noise);
                set.add(tags.noise.iter().copied(), Meaning::Noise);
            }
            Reasoning::Channels(channels) => {
                set.add(channels.ends.iter().copied(), Meaning::EndsMessage);
                set.add(channels.markers.iter().copied(), Meaning::Noise);
            }
        }
        set
    }

    fn of_thoughts(syntax: Syntax, has_tools: bool) -> TagSet {
        let mut set = TagSet { tags: Vec::new(), meanings: Vec::new() };
        match syntax.reasoning {
            Reasoning::Tags(tags) => set.add(tags.closes.iter().copied(), Meaning::ClosesThoughts),
            Reasoning::Channels(channels) => {
                set.add(channels.ends.iter().copied(), Meaning::EndsMessage);
            }
        }
        let calls = syntax.tools.openers().iter().enumerate();
        for (number, opener) in calls.filter(|(_, opener)| has_tools && opener.kind != Kind::Bare) {
            set.add([opener.tag], Meaning::Opens(number));
        }
        set
    }
}

/// Bytes of white space at the end, as far as it is held back.
fn trailing_blanks(text: &str) -> usize {
    let blanks = text.len() - text.trim_end().len();
    let first = text.len() - blanks.min(HELD_BLANKS);
    // A wider space at the edge of the limit stays whole.
    (first..=text.len()).find(|&at| text.is_char_boundary(at)).map_or(0, |at| text.len() - at)
}
