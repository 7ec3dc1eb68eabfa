//! `]<]minimax[>[<tool_call>\n]<]minimax[>[<invoke name="f">]<]minimax[>[<a>x]<]minimax[>[</a>…`: MiniMax M3. A
//! control token stands before every tag; arguments are elements that are named after them, objects and
//! lists are elements in elements. Texts go on to the client while they arrive, all else is read to its end.

use super::shape::elements::{self, Element};
use super::shape::typed::{self, Place, Types, Untyped};
use super::spelling::{Arguments, Each, Nested, Spelling, TAGGED, ToldBy};
use super::{CallParser, Opener, Step, Stop, ToolFormat};
use crate::reply::End;
use crate::reply::calls::CallWriter;
use crate::reply::cursor::{Cursor, Found, Wait};

/// The control token before every tag.
static MARK: [&str; 1] = ["]<]minimax[>["];
/// Longest text between `<` and `>`, in bytes.
const MAX_TAG: usize = 256;
/// Most blanks between the control token and its tag, or after a value, in bytes.
const MAX_GAP: usize = 64;
/// Deepest nesting of elements.
const MAX_DEPTH: usize = 64;

pub(super) static FORMAT: MiniMaxM3 = MiniMaxM3;

pub(super) struct MiniMaxM3;

impl ToolFormat for MiniMaxM3 {
    fn name(&self) -> &'static str {
        "minimax_m3"
    }

    fn fits(&self, template: &str) -> bool {
        template.contains(MARK[0])
    }

    fn openers(&self) -> &'static [Opener] {
        const OPENERS: [Opener; 2] = [
            Opener::token("]<]minimax[>[<tool_call>"),
            Opener::token("]<]minimax[>[<invoke name=\""),
        ];
        &OPENERS
    }

    fn parser(&self, _opener: usize) -> Box<dyn CallParser> {
        Box::new(Parser { at: At::Opener, n_calls: 0, call: Call::default() })
    }

    fn markers(&self) -> &'static [&'static str] {
        &["]<]minimax[>[</tool_call>", "]<]minimax[>["]
    }

    fn tags(&self) -> &'static [&'static str] {
        &["<tool_call>", "</tool_call>"]
    }

    fn spelling(&self, _knows: &dyn Fn(&str) -> bool) -> Spelling {
        let close = "]<]minimax[>[</\u{3}>";
        let each = Each {
            key: "]<]minimax[>[<",
            text: Some([">", close]),
            other: [">", close],
            told_by: ToldBy::Schema(Untyped::Json),
            ends_text: close,
            // A tag might end more than the text.
            no_text: &[r"(?s:.*)\]<\]minimax\[>\[(?s:.*)"],
            nested: Nested::Elements { item: elements::ITEM },
            ..TAGGED
        };
        Spelling {
            before: "]<]minimax[>[<tool_call>\n",
            begin: "]<]minimax[>[<invoke name=\"",
            middle: "\">",
            arguments: Arguments::Each(each),
            end: "]<]minimax[>[</invoke>\n",
            between: Some(""),
            after: "]<]minimax[>[</tool_call>",
        }
    }
}

/// Reads the calls of one opener.
struct Parser {
    at: At,
    n_calls: usize,
    call: Call,
}

/// The call that is being read.
#[derive(Default)]
struct Call {
    name: String,
    /// Arguments that were begun.
    n_arguments: usize,
    /// The latest one that is no text, in case it comes again: each time with the text of its element.
    held: Vec<(Element, String)>,
}

enum At {
    Opener,
    /// Before a call or the end of all.
    Between,
    /// In a call, before an argument or its end.
    Inside,
    /// In the text of this argument, which goes on to the client.
    Text(String),
    Tree(Tree),
}

/// An argument that is read to its end.
struct Tree {
    /// What was read of its value, tags included.
    text: String,
    /// The elements that are open, the argument's own first.
    open: Vec<Element>,
}

/// A tag, without the control token.
enum Tag {
    Open(String),
    Close(String),
}

/// The tag that stands after so many bytes, and its length with the control token.
fn tag(input: &Cursor, skip: usize) -> Result<Option<(Tag, usize)>, Wait> {
    if input.one_of(skip, &MARK)?.is_none() {
        return Ok(None);
    }
    let start = skip + MARK[0].len();
    let blanks = input.blanks_after(start);
    if blanks > MAX_GAP {
        return Ok(None);
    }
    let Some(text) = input.rest()[start + blanks..].strip_prefix('<') else {
        let is_open = input.rest().len() == start + blanks && !input.has_ended();
        return if is_open { Err(Wait) } else { Ok(None) };
    };
    let end = text.bytes().take(MAX_TAG).position(|byte| matches!(byte, b'<' | b'>'));
    input.look(end.unwrap_or(text.len().min(MAX_TAG)));
    match end {
        Some(end) if text.as_bytes()[end] == b'>' => {
            let len = start + blanks - skip + 1 + end + 1;
            let inner = text[..end].trim();
            Ok(Some(match inner.strip_prefix('/') {
                Some(name) => (Tag::Close(name.trim().to_owned()), len),
                None => (Tag::Open(inner.to_owned()), len),
            }))
        }
        None if text.len() < MAX_TAG && !input.has_ended() => Err(Wait),
        _ => Ok(None),
    }
}

/// Who is called by the tag of a call.
fn called(tag: &str) -> Option<&str> {
    let attributes = tag.strip_prefix("invoke")?.trim_start().strip_prefix("name")?;
    let name = attributes.trim_start().strip_prefix('=')?.trim().trim_matches('"');
    (!name.is_empty()).then_some(name)
}

/// What may follow a value follows after so many bytes.
fn goes_on(input: &Cursor, skip: usize) -> Result<bool, Wait> {
    let blanks = input.blanks_after(skip);
    match input.rest().len() == skip + blanks {
        _ if blanks > MAX_GAP => Ok(false),
        true if input.has_ended() => Ok(true),
        true => Err(Wait),
        false => Ok(input.one_of(skip + blanks, &MARK)?.is_some()),
    }
}

/// After so many bytes call and section are closed, and the answer ends: the end of a value was left out.
fn is_tail(input: &Cursor, mut skip: usize) -> Result<bool, Wait> {
    for _ in 0..3 {
        match tag(input, skip)? {
            Some((Tag::Close(name), len)) if is_frame(&name) => skip += len,
            _ => return Ok(false),
        }
        let blanks = input.blanks_after(skip);
        if input.rest().len() == skip + blanks {
            return if input.has_ended() { Ok(true) } else { Err(Wait) };
        }
        skip += blanks;
    }
    Ok(false)
}

/// This closes more than an argument.
fn is_frame(name: &str) -> bool {
    matches!(name, "invoke" | "tool_call")
}

impl Parser {
    fn opener(&mut self, input: &mut Cursor) -> Result<Step, Stop> {
        self.at = At::Opener;
        input.accept(&["]<]minimax[>[<tool_call>"])?;
        self.at = At::Between;
        Ok(Step::On)
    }

    fn between(&mut self, input: &mut Cursor, out: &mut CallWriter<'_>) -> Result<Step, Stop> {
        self.at = At::Between;
        let blanks = input.blanks();
        let (tag, len) = match tag(input, blanks)? {
            Some((tag, len)) => (Some(tag), blanks + len),
            None => (None, 0),
        };
        match &tag {
            Some(Tag::Open(text)) if called(text).is_some() => {
                let name = called(text).unwrap_or_default();
                if self.n_calls > 0 {
                    input.mark();
                }
                out.begin(name, None)?;
                self.call = Call { name: name.to_owned(), ..Call::default() };
                input.skip(len);
                self.at = At::Inside;
                Ok(Step::On)
            }
            Some(Tag::Close(name)) if self.n_calls > 0 && name == "tool_call" => {
                input.skip(len);
                Ok(Step::Done)
            }
            None if input.rest().len() == blanks && !input.has_ended() => Err(Stop::Wait),
            _ if self.n_calls > 0 => Ok(Step::Done),
            _ => Err(Stop::NotACall),
        }
    }

    fn inside(&mut self, input: &mut Cursor, out: &mut CallWriter<'_>) -> Result<Step, Stop> {
        self.at = At::Inside;
        let blanks = input.blanks();
        if input.rest().len() == blanks {
            match input.end() {
                None => return Err(Stop::Wait),
                Some(End::Cut) => return self.cut(input, out),
                Some(End::Model) => {}
            }
        }
        match tag(input, blanks)? {
            Some((Tag::Open(name), len)) if called(&name).is_none() => {
                input.skip(blanks + len);
                self.at = self.value(out, name);
                return Ok(Step::On);
            }
            Some((Tag::Close(name), len)) if name != "tool_call" => {
                input.skip(blanks + len);
                // Something that was never opened is closed.
                if name != "invoke" {
                    return Ok(Step::On);
                }
            }
            // A tag that was cut off.
            None if input.end() == Some(End::Cut) => return self.cut(input, out),
            // Whatever else follows: the call is over, its end has been left out.
            _ => {}
        }
        self.call.release(out);
        out.arguments(if self.call.n_arguments == 0 { "{}" } else { "}" });
        out.end();
        self.n_calls += 1;
        self.at = At::Between;
        Ok(Step::On)
    }

    /// The call breaks off: it is never complete.
    fn cut(&mut self, input: &mut Cursor, out: &mut CallWriter<'_>) -> Result<Step, Stop> {
        self.call.release(out);
        if input.has_ended() {
            input.skip(input.rest().len());
        }
        Ok(Step::Done)
    }

    /// At the beginning of an argument's value. Where nothing but a text is allowed, it is one, whatever it
    /// begins with: templates write texts as they are.
    fn value(&mut self, out: &mut CallWriter<'_>, name: String) -> At {
        let types = self.call.place(&name, out).map_or(Types::default(), Place::types);
        if !typed::is_text(types, Untyped::Json) {
            let own = Element { name, ..Element::default() };
            return At::Tree(Tree { text: String::new(), open: vec![own] });
        }
        self.call.release(out);
        self.call.key(&name, out);
        out.arguments("\"");
        At::Text(name)
    }

    fn text(
        &mut self,
        input: &mut Cursor,
        out: &mut CallWriter<'_>,
        name: String,
    ) -> Result<Step, Stop> {
        let mut piece = String::new();
        let read = read_text(input, &name, &mut piece);
        let quoted = typed::quoted(&piece);
        out.arguments(&quoted[1..quoted.len() - 1]);
        match read {
            Ok(Whole::Yes) => {
                out.arguments("\"");
                self.at = At::Inside;
                Ok(Step::On)
            }
            Ok(Whole::Cut) => self.cut(input, out),
            Err(Wait) => {
                self.at = At::Text(name);
                Err(Stop::Wait)
            }
        }
    }

    fn tree(
        &mut self,
        input: &mut Cursor,
        out: &mut CallWriter<'_>,
        mut tree: Tree,
    ) -> Result<Step, Stop> {
        match tree.read(input) {
            Ok(Whole::Yes) => {
                // The innermost first.
                while tree.open.len() > 1 {
                    tree.close();
                }
                if let Some(mut own) = tree.open.pop() {
                    own.inner.end = tree.text.len();
                    self.call.hold(own, tree.text, out);
                }
                self.at = At::Inside;
                Ok(Step::On)
            }
            Ok(Whole::Cut) => self.cut(input, out),
            Err(Wait) => {
                self.at = At::Tree(tree);
                Err(Stop::Wait)
            }
        }
    }
}

/// How a value ended.
enum Whole {
    Yes,
    Cut,
}

/// Reads on in a text. It may hold tags, but for its own end, with which no text goes on.
fn read_text(input: &mut Cursor, name: &str, out: &mut String) -> Result<Whole, Wait> {
    loop {
        let at = match (input.find(&MARK), input.end()) {
            (Found::Tag { at, .. }, _) => at,
            (Found::None { safe }, end) => {
                out.push_str(&input.take(safe));
                return match end {
                    None => Err(Wait),
                    Some(End::Model) => Ok(Whole::Yes),
                    Some(End::Cut) => Ok(Whole::Cut),
                };
            }
        };
        out.push_str(&input.take(at));
        match tag(input, 0)? {
            Some((Tag::Close(closed), len)) if closed == name && goes_on(input, len)? => {
                input.skip(len);
                return Ok(Whole::Yes);
            }
            Some(_) if input.end() != Some(End::Cut) && is_tail(input, 0)? => {
                return Ok(Whole::Yes);
            }
            _ => out.push_str(&input.take(MARK[0].len())),
        }
    }
}

impl Tree {
    fn read(&mut self, input: &mut Cursor) -> Result<Whole, Wait> {
        loop {
            let at = match (input.find(&MARK), input.end()) {
                (Found::Tag { at, .. }, _) => at,
                (Found::None { safe }, end) => {
                    self.take(input, safe);
                    return match end {
                        None => Err(Wait),
                        Some(End::Model) => Ok(Whole::Yes),
                        Some(End::Cut) => Ok(Whole::Cut),
                    };
                }
            };
            self.take(input, at);
            match tag(input, 0)? {
                Some((Tag::Open(name), len)) => {
                    if self.open.len() == MAX_DEPTH {
                        return Ok(Whole::Cut);
                    }
                    self.text.push_str(&input.take(len));
                    let start = self.text.len();
                    self.open.push(Element { name, inner: start..start, ..Element::default() });
                }
                Some((Tag::Close(name), len)) => {
                    match self.open.iter().rposition(|element| element.name == name) {
                        Some(0) if goes_on(input, len)? => {
                            // The elements that are open end here.
                            while self.open.len() > 1 {
                                self.close();
                            }
                            input.skip(len);
                            return Ok(Whole::Yes);
                        }
                        Some(depth) if depth > 0 => {
                            while self.open.len() > depth {
                                self.close();
                            }
                            self.text.push_str(&input.take(len));
                        }
                        None if is_frame(&name) => return Ok(Whole::Yes),
                        _ => self.take(input, len),
                    }
                }
                None => self.take(input, MARK[0].len()),
            }
        }
    }

    /// Takes so many bytes of the innermost element.
    fn take(&mut self, input: &mut Cursor, n: usize) {
        let text = input.take(n);
        if let Some(element) = self.open.last_mut() {
            element.has_text |= !text.trim().is_empty();
        }
        self.text.push_str(&text);
    }

    /// The innermost element ends here.
    fn close(&mut self) {
        if let Some(mut element) = self.open.pop() {
            element.inner.end = self.text.len();
            if let Some(parent) = self.open.last_mut() {
                parent.children.push(element);
            }
        }
    }
}

impl Call {
    /// What the schema says of an argument.
    fn place<'a>(&self, name: &str, out: &CallWriter<'a>) -> Option<Place<'a>> {
        out.tools.schema(&self.name).and_then(|schema| Place::of(schema).property(name))
    }

    fn key(&mut self, name: &str, out: &mut CallWriter<'_>) {
        let separator = if self.n_arguments == 0 { "{" } else { ", " };
        out.arguments(&format!("{separator}{}: ", typed::quoted(name)));
        self.n_arguments += 1;
    }

    /// Keeps an argument until it is known that it does not come again.
    fn hold(&mut self, element: Element, text: String, out: &mut CallWriter<'_>) {
        if self.held.first().is_some_and(|(first, _)| first.name != element.name) {
            self.release(out);
        }
        self.held.push((element, text));
    }

    /// Writes the argument that was kept.
    fn release(&mut self, out: &mut CallWriter<'_>) {
        let held = std::mem::take(&mut self.held);
        let Some((first, text)) = held.first() else { return };
        let place = self.place(&first.name, out);
        let mut json = String::new();
        match held.len() {
            1 => elements::json(first, text, place, &mut json),
            _ => {
                let all = held.iter().map(|(element, text)| (element, text.as_str()));
                elements::list(all, place, &mut json);
            }
        }
        self.key(&first.name, out);
        out.arguments(&json);
    }
}

impl CallParser for Parser {
    fn step(&mut self, input: &mut Cursor, out: &mut CallWriter<'_>) -> Result<Step, Stop> {
        match std::mem::replace(&mut self.at, At::Between) {
            At::Opener => self.opener(input),
            At::Between => self.between(input, out),
            At::Inside => self.inside(input, out),
            At::Text(name) => self.text(input, out, name),
            At::Tree(tree) => self.tree(input, out, tree),
        }
    }
}
