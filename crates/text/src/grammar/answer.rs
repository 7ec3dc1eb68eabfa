//! What a chat's answer may be, beside its format: thoughts before it, and calls of tools that the model
//! may or must make, as its own family spells them.

use std::collections::HashSet;

use serde_json::{Value, json};

use super::arguments::Tool;
use super::schema::{Lowered, lower};
use super::{Fault, Format, GrammarError, Part, Strictness, lark};
use crate::reasoning::{Channels, Reasoning, Tags};
use crate::reply::{Opening, Syntax};
use crate::tools::spelling::{Arguments, Spelling};
use crate::{Tokenizer, tools};

/// What an answer is held to.
#[derive(Clone, Copy, Debug)]
pub struct Asked<'a> {
    /// Of the answer, where it calls nothing.
    pub format: &'a Format,
    /// What it may call.
    pub calls: Duty<'a>,
    /// How the model thinks and calls, and where the prompt has left it. `None`: neither.
    pub voice: Option<(Syntax, &'a Opening)>,
    /// Source of the chat template, which tells whether the model thinks at all.
    pub template: &'a str,
}

/// Whether tools are called.
#[derive(Clone, Copy, Debug)]
pub enum Duty<'a> {
    /// None is.
    Never,
    /// Instead of an answer, if the model likes.
    May(Calls<'a>),
    /// Nothing else.
    Must(Calls<'a>),
}

/// Calls that an answer may hold.
#[derive(Clone, Copy, Debug)]
pub struct Calls<'a> {
    /// Definitions in OpenAI's form.
    pub tools: &'a [Value],
    /// The only one that may be called.
    pub only: Option<&'a str>,
    /// How many.
    pub number: Number,
}

/// How many calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Number {
    /// One.
    One,
    /// One or more.
    Several,
}

/// A grammar as text, and what it was made of, to find what is wrong with it.
pub(super) struct Text {
    pub(super) main: String,
    /// A grammar of somebody else's, which the main one calls `answer`.
    pub(super) foreign: Option<String>,
    pub(super) schemas: Vec<(Part, String, Lowered)>,
}

/// The grammar of an answer; `None` if it may be anything.
pub(super) fn text(asked: &Asked<'_>, tokenizer: &Tokenizer) -> Result<Option<Text>, Fault> {
    let mut text = Text { main: String::new(), foreign: None, schemas: Vec::new() };
    let mut rules = String::new();
    let before = before(asked, tokenizer)?;
    let format = match (asked.format, asked.calls) {
        (Format::Free, Duty::Never | Duty::May(_)) => return Ok(None),
        (_, Duty::Must(_)) => None,
        (format, _) => Some(format!("{} {}", before.format, rule(format, &mut text)?)),
    };
    let calls = match asked.calls {
        Duty::Never => None,
        Duty::May(calls) | Duty::Must(calls) => {
            Some(spelled(&calls, asked, tokenizer, (&mut text, &mut rules))?)
        }
    };
    let answer = [format, calls].into_iter().flatten().collect::<Vec<_>>().join(" | ");
    text.main = format!("start: {} said\nsaid: {answer}\n{}{rules}", before.thoughts, before.rules);
    Ok(Some(text))
}

/// A format as the body of a rule.
fn rule(format: &Format, text: &mut Text) -> Result<String, Fault> {
    let fault = |error| Fault { part: Part::Format, error };
    match format {
        Format::Free | Format::JsonObject => Ok(lark::json(&json!({"type": "object"}))),
        Format::JsonSchema { schema, strictness } => {
            let lowered = lower(schema, *strictness).map_err(fault)?;
            let rule = lark::json(&lowered.schema);
            text.schemas.push((Part::Format, String::new(), lowered));
            Ok(rule)
        }
        Format::Regex(expression) => lark::regex(expression).map_err(fault),
        Format::Choice(texts) => lark::choice(texts).map_err(fault),
        Format::Lark(grammar) => {
            text.foreign = Some(lark::grammar(grammar).map_err(fault)?);
            Ok("@answer".to_owned())
        }
    }
}

/// Calls as the body of a rule, which may need others.
fn spelled(
    calls: &Calls<'_>,
    asked: &Asked<'_>,
    tokenizer: &Tokenizer,
    (text, rules): (&mut Text, &mut String),
) -> Result<String, Fault> {
    let knows = |token: &str| tokenizer.id_of(token).is_some();
    let format = asked.voice.map_or_else(|| tools::of(""), |(syntax, _)| syntax.tools);
    let spelling = format.spelling(&knows);
    let mut options = Vec::new();
    for (i, tool) in calls.tools.iter().enumerate() {
        let function = tool.get("function").unwrap_or(tool);
        let name = function["name"].as_str().unwrap_or_default();
        if calls.only.is_some_and(|only| only != name) {
            continue;
        }
        let path = format!("[{i}].function.parameters");
        let fault = |error: GrammarError| Fault {
            part: Part::Tools,
            error: GrammarError { path: format!("{path}{}", error.path), ..error },
        };
        let lowered = lower(&parameters(function), Strictness::Closed).map_err(fault)?;
        let arguments = match &spelling.arguments {
            Arguments::Object => lark::json(&lowered.schema),
            Arguments::Each(each) => {
                let parameters = function.get("parameters").unwrap_or(&Value::Null);
                let prefix = format!("tool{i}");
                let mut tool = Tool {
                    each,
                    parameters,
                    lowered: &lowered,
                    tokenizer,
                    prefix,
                    rules: String::new(),
                    n_texts: 0,
                    n_sequences: 0,
                    defined: HashSet::new(),
                };
                let rule = tool.rule().map_err(fault)?;
                *rules += &tool.rules;
                rule
            }
        };
        options.push(call(&spelling, name, &arguments, tokenizer));
        text.schemas.push((Part::Tools, path, lowered));
    }
    let one = format!("({})", options.join(" | "));
    let [before, after] =
        [spelling.before, spelling.after].map(|text| lark::with_control_tokens(text, tokenizer));
    Ok(match (calls.number, spelling.between) {
        (Number::One, _) | (_, None) => format!("{before} {one} {after}"),
        (Number::Several, Some(between)) => {
            let between = lark::with_control_tokens(between, tokenizer);
            format!("{before} {one} ({between} {one})* {after}")
        }
    })
}

/// The schema of a tool's arguments, which are an object whatever it says.
fn parameters(function: &Value) -> Value {
    let mut schema = match function.get("parameters").or_else(|| function.get("input_schema")) {
        Some(Value::Object(schema)) if !schema.is_empty() => Value::Object(schema.clone()),
        _ => json!({"properties": {}, "additionalProperties": false}),
    };
    if schema.get("type").is_none() {
        schema["type"] = "object".into();
    }
    schema
}

fn call(spelling: &Spelling, name: &str, arguments: &str, tokenizer: &Tokenizer) -> String {
    // Names stand in JSON, or are such that it makes no difference.
    let quoted = Value::from(name).to_string();
    let name = &quoted[1..quoted.len() - 1];
    let head = format!("{}{name}{}", spelling.begin, spelling.middle);
    let [head, end] =
        [head.as_str(), spelling.end].map(|text| lark::with_control_tokens(text, tokenizer));
    format!("{head} {arguments} {end}")
}

/// What stands before an answer.
#[derive(Default)]
struct Before {
    /// Before anything else.
    thoughts: String,
    /// Before what is in the format.
    format: String,
    /// Rules that these need.
    rules: String,
}

fn before(asked: &Asked<'_>, tokenizer: &Tokenizer) -> Result<Before, Fault> {
    let Some((syntax, opening)) = asked.voice else { return Ok(Before::default()) };
    match syntax.reasoning {
        Reasoning::Tags(tags) => Ok(before_tags(tags, opening, asked, tokenizer)),
        Reasoning::Channels(channels) => before_channels(channels, opening, asked, tokenizer),
    }
}

fn before_tags(tags: &Tags, opening: &Opening, asked: &Asked<'_>, tokenizer: &Tokenizer) -> Before {
    let thinks =
        tags.opens.iter().chain(tags.closes).any(|tag| asked.template.contains(tag.trim()));
    let [Some(open), Some(close)] = [tags.opens, tags.closes].map(|tags| tags.first()) else {
        return Before::default();
    };
    // Up to the tag if that is a token, else up to where its letters are.
    let rest = lark::up_to("thoughts", close.trim(), tokenizer);
    let rules = format!("{rest}gap: /\\n{{1,2}}/\n");
    let thoughts = match opening {
        Opening::Thoughts => "thoughts gap?".to_owned(),
        Opening::Free if thinks => {
            let open = lark::with_control_tokens(open.trim(), tokenizer);
            format!("({open} thoughts gap?)?")
        }
        _ => return Before::default(),
    };
    Before { thoughts, format: String::new(), rules }
}

/// One message of thoughts, then the answer's; or a call's, which the spelling of calls begins.
fn before_channels(
    channels: &Channels,
    opening: &Opening,
    asked: &Asked<'_>,
    tokenizer: &Tokenizer,
) -> Result<Before, Fault> {
    let token = |text: &str| lark::with_control_tokens(text, tokenizer);
    let next = token(channels.next);
    let thinking = format!("{} thoughts {next}", token(channels.thinking));
    let thoughts = match opening {
        Opening::Thoughts => format!("thoughts {next}"),
        Opening::Header(header) if header.trim() == "assistant" => format!("({thinking})?"),
        Opening::Header(header) if header.is_empty() => {
            format!("{} ({thinking})?", next)
        }
        // The prompt has begun the answer's own message.
        Opening::Free if !matches!(asked.calls, Duty::Must(_)) => return Ok(Before::default()),
        Opening::Free | Opening::Answer | Opening::Header(_) | Opening::Begun => {
            let problem = format!(
                "the prompt ends inside of a message of the model (`{}`), which cannot become a call",
                channels.name
            );
            return Err(Fault { part: Part::Calls, error: GrammarError::whole(problem) });
        }
    };
    let rules = lark::up_to("thoughts", channels.end, tokenizer);
    Ok(Before { thoughts, format: token(channels.answer), rules })
}
