//! Answers are cut right, however they arrive. Texts are the published formats' own examples and cases
//! from public bug reports; every one runs whole, cut at every character, and at random.

mod calls;
mod cases;
mod families;
mod linear;
mod mutations;
mod random;
mod reasoning;

use hearth_text::{End, Opening, Part, Splitter, Syntax, Tools};
use serde_json::{Value, json};

/// An answer put together.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Whole {
    pub(crate) reasoning: String,
    pub(crate) content: String,
    /// Id, name, arguments, and whether it is complete.
    pub(crate) calls: Vec<(String, String, String, bool)>,
    /// Kinds of parts in order, each once in a row.
    pub(crate) order: String,
}

/// One answer and all that decides how it is read.
#[derive(Clone)]
pub(crate) struct Case {
    pub(crate) template: &'static str,
    pub(crate) opening: Opening,
    pub(crate) tools: Vec<Value>,
    pub(crate) end: End,
}

/// A tool with these parameters.
pub(crate) fn tool(name: &str, properties: Value) -> Value {
    let parameters = json!({"type": "object", "properties": properties});
    json!({"type": "function", "function": {"name": name, "parameters": parameters}})
}

impl Case {
    pub(crate) fn new(template: &'static str, tools: &[Value]) -> Case {
        Case { template, opening: Opening::Free, tools: tools.to_vec(), end: End::Model }
    }

    /// The answer in these pieces.
    pub(crate) fn run(&self, pieces: &[&str]) -> Whole {
        let tools = Tools::new(&self.tools);
        let syntax = Syntax::of(self.template);
        let mut splitter = Splitter::new(syntax, self.opening.clone(), tools, 7);
        let text = pieces.concat();
        let mut whole = Whole::default();
        for piece in pieces {
            whole.add(splitter.push(piece), &text);
        }
        whole.add(splitter.finish(self.end), &text);
        whole
    }

    /// The answer, which must come out the same however it is cut.
    #[track_caller]
    pub(crate) fn any_cut(&self, text: &str) -> Whole {
        let whole = self.run(&[text]);
        let places: Vec<usize> =
            text.char_indices().map(|(at, _)| at).chain([text.len()]).collect();
        for &at in &places {
            assert_eq!(self.run(&[&text[..at], &text[at..]]), whole, "cut at {at} of {text:?}");
        }
        let single: Vec<&str> = places.windows(2).map(|at| &text[at[0]..at[1]]).collect();
        assert_eq!(self.run(&single), whole, "every character of {text:?}");
        let mut state = 1_u64;
        for round in 0..200 {
            let mut pieces = Vec::new();
            let mut from = 0;
            for &at in &places[1..] {
                state = state
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1_442_695_040_888_963_407);
                if state >> 61 == 0 || at == text.len() {
                    pieces.push(&text[from..at]);
                    from = at;
                }
            }
            assert_eq!(self.run(&pieces), whole, "random cut {round} of {text:?}");
        }
        whole
    }

    /// Checks thoughts, content and calls. All calls must be complete.
    #[track_caller]
    pub(crate) fn check(
        &self,
        text: &str,
        reasoning: &str,
        content: &str,
        calls: &[(&str, Value)],
    ) {
        let whole = self.any_cut(text);
        assert_eq!(whole.reasoning, reasoning, "reasoning of {text:?}");
        assert_eq!(whole.content, content, "content of {text:?}");
        let parsed = whole.calls.iter().map(|(_, name, arguments, complete)| {
            assert!(complete, "{arguments} of {text:?}");
            let arguments = serde_json::from_str(arguments);
            (name.as_str(), arguments.unwrap_or_else(|error| panic!("{error}: {whole:?}")))
        });
        assert_eq!(parsed.collect::<Vec<(&str, Value)>>(), calls, "calls of {text:?}");
    }
}

impl Whole {
    fn add(&mut self, parts: Vec<Part>, text: &str) {
        for part in parts {
            let kind = match part {
                Part::Reasoning(more) => {
                    assert!(!more.is_empty());
                    self.reasoning += &more;
                    'r'
                }
                Part::Text { at, text: more } => {
                    assert_eq!(text.get(at..at + more.len()), Some(more.as_str()));
                    assert!(!more.is_empty());
                    self.content += &more;
                    't'
                }
                Part::Begun { id, name } => {
                    self.calls.push((id, name, String::new(), false));
                    'c'
                }
                Part::Arguments(more) => {
                    self.calls.last_mut().expect("a call has begun").2 += &more;
                    'a'
                }
                Part::Ended => {
                    self.calls.last_mut().expect("a call has begun").3 = true;
                    'e'
                }
            };
            if !self.order.ends_with(kind) {
                self.order.push(kind);
            }
        }
    }
}
