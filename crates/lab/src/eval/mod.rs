//! Quality beside speed: questions whose answers are known, for any server. Needles that were hidden in long
//! texts, and calls that a question plainly asks for, made by a seed, of our own words; and questions from
//! files that others published.

pub mod bfcl;
pub mod choice;
pub mod code;
pub mod data;

use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::prompt::{CountTokens, Kind, exactly, salt};
use crate::record::{Expects, Turn};
use crate::rng::Rng;
use crate::workload::{Keep, Step};

/// Where needles are hidden, in percent of the text.
pub const DEPTHS: [u32; 5] = [0, 25, 50, 75, 100];

/// A question and what a right answer has.
#[derive(Clone, Debug)]
pub struct Question {
    /// What is asked.
    pub step: Step,
    /// What is right.
    pub right: Right,
}

/// What a right answer has.
#[derive(Clone, Debug, PartialEq)]
pub enum Right {
    /// This somewhere in it.
    Says(String),
    /// One call of this function with these arguments, and no others.
    Calls {
        /// The function.
        name: String,
        /// Its arguments.
        arguments: Map<String, Value>,
    },
    /// One call of this function with arguments as declared, and as allowed where somebody says what is.
    Fits {
        /// The function.
        name: String,
        /// JSON Schema of its arguments.
        parameters: Value,
        /// Possible values by argument.
        allowed: Option<Map<String, Value>>,
    },
    /// This letter before any other one up to the last.
    Letter {
        /// Of the right choice.
        right: char,
        /// Of the last choice.
        last: char,
    },
}

/// How many answers were right.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Tally {
    /// So many.
    pub right: usize,
    /// Of so many.
    pub asked: usize,
    /// So many failed altogether; they are not right.
    pub failed: usize,
}

impl Tally {
    /// Counts one more.
    pub fn add(&mut self, question: &Question, turn: &Turn) {
        self.count(turn, question.is_right(turn));
    }

    /// Counts one more that was judged elsewhere.
    pub fn count(&mut self, turn: &Turn, is_right: bool) {
        self.asked += 1;
        self.failed += usize::from(turn.error.is_some());
        self.right += usize::from(is_right);
    }

    /// Share of right ones, of all that were asked. `None`: nothing was.
    pub fn share(&self) -> Option<f64> {
        (self.asked > 0).then(|| self.right as f64 / self.asked as f64)
    }
}

/// The model-harness index in percent: half of it is calls, three tenths are programs, a fifth is choices.
/// `None` if one of them was not asked for.
pub fn index(calls: &Tally, programs: &Tally, choices: &Tally) -> Option<f64> {
    Some(100.0 * (0.5 * calls.share()? + 0.3 * programs.share()? + 0.2 * choices.share()?))
}

impl Question {
    /// Whether an answer is right.
    pub fn is_right(&self, turn: &Turn) -> bool {
        if turn.error.is_some() {
            return false;
        }
        match &self.right {
            Right::Says(text) => turn.answer.contains(text),
            Right::Calls { name, arguments } => {
                called(turn, name).is_some_and(|found| same(&found, arguments))
            }
            Right::Fits { name, parameters, allowed } => called(turn, name).is_some_and(|found| {
                allowed.as_ref().is_none_or(|allowed| bfcl::are_allowed(&found, allowed))
                    && bfcl::fits(&Value::Object(found), parameters)
            }),
            Right::Letter { right, last } => choice::chosen(&turn.answer, *last) == Some(*right),
        }
    }
}

/// Arguments of the one call of this function, if that is all there is.
fn called(turn: &Turn, name: &str) -> Option<Map<String, Value>> {
    serde_json::from_str(turn.calls.strip_prefix(name)?).ok()
}

/// Whether arguments are the same; texts are compared without regard to case and outer spaces.
fn same(found: &Map<String, Value>, right: &Map<String, Value>) -> bool {
    let plain = |value: &Value| match value {
        Value::String(text) => json!(text.trim().to_lowercase()),
        Value::Number(number) => json!(number.as_f64()),
        other => other.clone(),
    };
    found.len() == right.len()
        && right.iter().all(|(name, value)| found.get(name).map(plain) == Some(plain(value)))
}

fn step(text: &str, tools: Option<Value>, answer: u32) -> Step {
    Step {
        messages: vec![json!({"role": "user", "content": text})],
        tools,
        wanted: None,
        answer,
        expects: Expects::Cold,
        keep: Keep::Nothing,
        relaunch: false,
    }
}

/// A text of about `n` tokens with a fact in it, `depth` percent from its beginning, and a question for it.
pub fn needle(n: u32, depth: u32, rng: &mut Rng, tokens: &dyn CountTokens) -> Question {
    let (front, name) = (salt(rng), salt(rng));
    let name = name.split(' ').next().unwrap_or_default().to_owned();
    let number = format!("{}", 1_000_000 + rng.below(8_999_999));
    let fact = format!("The secret number of {name} is {number}.");
    let ask = format!("What is the secret number of {name}? Answer with the number alone.");
    let room = (n as usize).saturating_sub(tokens.count(&fact) + tokens.count(&ask) + 4).max(16);
    let text = exactly(room, Kind::Prose, &front, rng, tokens);
    // Between two sentences, the nearest place.
    let wanted = text.len() * depth.min(100) as usize / 100;
    let ends = text.match_indices(". ").map(|(at, _)| at + 2).chain([front.len(), text.len()]);
    let at = ends.min_by_key(|at| at.abs_diff(wanted)).unwrap_or(0);
    let (before, after) = text.split_at(at);
    let text = format!("{} {fact} {}\n\n{ask}", before.trim_end(), after.trim_start());
    Question { step: step(&text, None, 24), right: Right::Says(number) }
}

/// A kind of value that functions take.
#[derive(Clone, Copy)]
enum Takes {
    Name,
    Count,
    Choice(&'static [&'static str]),
}

/// A function that a question asks for.
struct Function {
    name: &'static str,
    does: &'static str,
    parameters: &'static [(&'static str, Takes)],
    /// The question, with places for the arguments.
    ask: &'static str,
}

const FUNCTIONS: &[Function] = &[
    Function {
        name: "get_weather",
        does: "Tells the weather of a city.",
        parameters: &[
            ("city", Takes::Name),
            ("days", Takes::Count),
            ("unit", Takes::Choice(&["celsius", "fahrenheit"])),
        ],
        ask: "What will the weather in {city} be for the next {days} days, in {unit}?",
    },
    Function {
        name: "book_table",
        does: "Books a table in a restaurant.",
        parameters: &[("restaurant", Takes::Name), ("guests", Takes::Count)],
        ask: "Please book a table for {guests} guests at the restaurant {restaurant}.",
    },
    Function {
        name: "convert_length",
        does: "Converts a length in metres into another unit.",
        parameters: &[
            ("metres", Takes::Count),
            ("unit", Takes::Choice(&["miles", "feet", "inches"])),
        ],
        ask: "How much are {metres} metres in {unit}?",
    },
    Function {
        name: "create_user",
        does: "Adds a user to the system.",
        parameters: &[
            ("name", Takes::Name),
            ("age", Takes::Count),
            ("role", Takes::Choice(&["admin", "editor", "reader"])),
        ],
        ask: "Add {name}, who is {age} years old, as a user with the role {role}.",
    },
    Function {
        name: "set_timer",
        does: "Starts a timer.",
        parameters: &[
            ("minutes", Takes::Count),
            ("label", Takes::Choice(&["tea", "bread", "laundry"])),
        ],
        ask: "Start a timer of {minutes} minutes with the label {label}.",
    },
];

/// A question that plainly asks for one call of the one function that is offered.
pub fn call(rng: &mut Rng) -> Question {
    let Function { name, does, parameters, ask } = FUNCTIONS[rng.below(FUNCTIONS.len())];
    let (mut text, mut arguments, mut properties) = (ask.to_owned(), Map::new(), Map::new());
    for &(parameter, takes) in parameters {
        let (value, schema) = match takes {
            Takes::Name => {
                let name = salt(rng).split(' ').next().unwrap_or_default().to_owned();
                (json!(name), json!({"type": "string"}))
            }
            Takes::Count => (json!(2 + rng.below(40)), json!({"type": "integer"})),
            Takes::Choice(all) => {
                let value = rng.pick(all).copied().unwrap_or_default();
                (json!(value), json!({"type": "string", "enum": all}))
            }
        };
        let said = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        text = text.replace(&format!("{{{parameter}}}"), &said);
        arguments.insert(parameter.to_owned(), value);
        properties.insert(parameter.to_owned(), schema);
    }
    let required: Vec<&str> = parameters.iter().map(|parameter| parameter.0).collect();
    let schema = json!({"type": "object", "properties": properties, "required": required});
    let function = json!({"name": name, "description": does, "parameters": schema});
    let tools = json!([{"type": "function", "function": function}]);
    let right = Right::Calls { name: name.to_owned(), arguments };
    Question { step: step(&text, Some(tools), 128), right }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prompt::Guess;
    use crate::record::Trouble;

    #[test]
    fn needles_lie_where_they_should() {
        for depth in DEPTHS {
            let tokens = Guess::default();
            let question = needle(800, depth, &mut Rng::new(u64::from(depth)), &tokens);
            let text = question.step.messages[0]["content"].as_str().unwrap();
            let Right::Says(number) = &question.right else { panic!() };
            assert_eq!(text.matches(number.as_str()).count(), 1);
            let at = 100.0 * text.find(number.as_str()).unwrap() as f64 / text.len() as f64;
            assert!((at - f64::from(depth)).abs() < 10.0, "{at} for {depth}");
            assert!(tokens.count(text).abs_diff(800) < 40);
        }
    }

    #[test]
    fn answers_are_judged() {
        let question = Question { step: step("", None, 1), right: Right::Says("42".to_owned()) };
        let says = |answer: &str| Turn { answer: answer.to_owned(), ..Turn::default() };
        assert!(question.is_right(&says("It is 42.")));
        assert!(!question.is_right(&says("It is 4 2.")));
        let failed = Turn { error: Some(Trouble::Interrupted), ..says("42") };
        assert!(!question.is_right(&failed));
        let mut tally = Tally::default();
        tally.add(&question, &says("42"));
        tally.add(&question, &failed);
        assert_eq!(tally, Tally { right: 1, asked: 2, failed: 1 });
    }

    #[test]
    fn calls_are_judged_by_name_and_arguments() {
        let Value::Object(arguments) = json!({"city": "Belton", "days": 3}) else { panic!() };
        let right = Right::Calls { name: "get_weather".to_owned(), arguments };
        let question = Question { step: step("", None, 1), right };
        let calls = |calls: &str| Turn { calls: calls.to_owned(), ..Turn::default() };
        assert!(question.is_right(&calls(r#"get_weather{"days": 3.0, "city": "belton "}"#)));
        for wrong in [
            r#"get_weather{"days": 4, "city": "Belton"}"#,
            r#"get_weather{"city": "Belton"}"#,
            r#"get_weather{"days": 3, "city": "Belton", "unit": "celsius"}"#,
            r#"get_wind{"days": 3, "city": "Belton"}"#,
            r#"get_weather{"days": 3, "city": "Belton"}get_weather{"days": 3, "city": "Belton"}"#,
            "",
        ] {
            assert!(!question.is_right(&calls(wrong)), "{wrong}");
        }
    }

    #[test]
    fn the_index_needs_all_of_its_parts() {
        let tally = |right, asked| Tally { right, asked, failed: 0 };
        let all = [tally(8, 10), tally(1, 4), tally(1, 2)];
        assert!((index(&all[0], &all[1], &all[2]).unwrap() - 57.5).abs() < 1e-9);
        assert_eq!(index(&all[0], &tally(0, 0), &all[2]), None);
    }

    #[test]
    fn questions_name_every_argument() {
        let mut rng = Rng::new(2);
        for _ in 0..50 {
            let question = call(&mut rng);
            let text = question.step.messages[0]["content"].as_str().unwrap().to_owned();
            assert!(!text.contains('{'), "{text}");
            let Right::Calls { arguments, .. } = question.right else { panic!() };
            for value in arguments.values() {
                let said = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
                assert!(text.contains(&said), "{text}: {said}");
            }
        }
    }
}
