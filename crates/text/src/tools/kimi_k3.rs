//! `<|open|>tools<|sep|><|open|>call tool="f" index="1"<|sep|><|open|>argument key="a" type="string"<|sep|>x…`:
//! Kimi K3, whose values say themselves whether they are text. Its tags are made of three control tokens
//! and plain words. Arguments may also be one object, `<|open|>json type="object"<|sep|>{…}<|close|>json<|sep|>`.
//! `&amp;` and `&quot;` in names are left as they are.

use super::shape::typed::Untyped;
use super::shape::xml::{Newlines, Object, XmlCalls, XmlParser};
use super::spelling::{Arguments, Each, Spelling, TAGGED, ToldBy};
use super::{CallParser, Opener, ToolFormat};

const ARGUMENT_END: &str = "<|close|>argument<|sep|>";

static CALLS: XmlCalls = XmlCalls {
    opens: &["<|open|>tools<|sep|>"],
    closes: &["<|close|>tools<|sep|>"],
    call: &["<|open|>call tool=\""],
    name_ends: &["<|sep|>"],
    call_ends: &["<|close|>call<|sep|>"],
    argument: &["<|open|>argument key=\""],
    key_ends: &["<|sep|>"],
    value: &[],
    value_ends: &[ARGUMENT_END],
    object: Some(Object {
        opens: &["<|open|>json"],
        head_ends: &["<|sep|>"],
        closes: &["<|close|>json<|sep|>"],
    }),
    newlines: Newlines::Kept,
    untyped: Untyped::Text,
    read,
};

/// `f" index="1"` and `a" type="string"`, behind the first quote.
fn read(text: &str) -> (&str, Option<Untyped>) {
    let (name, attributes) = text.split_once('"').unwrap_or((text, ""));
    let sure = match attributes.split_once("type=\"") {
        Some((_, kind)) if kind.starts_with("string\"") => Some(Untyped::Text),
        Some(_) => Some(Untyped::Json),
        None => None,
    };
    (name, sure)
}

pub(super) static FORMAT: KimiK3 = KimiK3;

pub(super) struct KimiK3;

impl ToolFormat for KimiK3 {
    fn name(&self) -> &'static str {
        "kimi_k3"
    }

    fn fits(&self, template: &str) -> bool {
        template.contains("<|open|>") && template.contains("<|sep|>")
    }

    fn openers(&self) -> &'static [Opener] {
        const OPENERS: [Opener; 2] =
            [Opener::token("<|open|>tools<|sep|>"), Opener::token("<|open|>call tool=\"")];
        &OPENERS
    }

    fn parser(&self, _opener: usize) -> Box<dyn CallParser> {
        Box::new(XmlParser::new(&CALLS))
    }

    fn markers(&self) -> &'static [&'static str] {
        &["<|close|>tools<|sep|>"]
    }

    fn spelling(&self, _knows: &dyn Fn(&str) -> bool) -> Spelling {
        let each = Each {
            key: "<|open|>argument key=\"",
            text: Some(["\" type=\"string\"<|sep|>", ARGUMENT_END]),
            other: ["\" type=\"\u{2}\"<|sep|>", ARGUMENT_END],
            told_by: ToldBy::Form,
            ends_text: ARGUMENT_END,
            ..TAGGED
        };
        Spelling {
            before: "<|open|>tools<|sep|>",
            begin: "<|open|>call tool=\"",
            middle: "\" index=\"\u{1}\"<|sep|>",
            arguments: Arguments::Each(each),
            end: "<|close|>call<|sep|>",
            between: Some(""),
            after: "<|close|>tools<|sep|>",
        }
    }
}
