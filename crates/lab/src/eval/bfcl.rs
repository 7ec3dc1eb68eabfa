//! Calls by the files of the Berkeley Function Calling Leaderboard, category "simple": one question, one
//! function, one call. Its files of questions and of possible answers are given by path.
//!
//! Without answers a call is right that names the function and whose arguments are what the function
//! declares: those it requires, none that it does not know, each of its type. With answers each argument
//! must also have one of the values given there, compared as the leaderboard does: texts without regard to
//! case, spaces and `, . / - _ * ^`; an argument whose possible values have `""` may be left out.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::{Question, Right, data, step};
use crate::error::Error;

/// Tokens of an answer, at most.
const ANSWER: u32 = 256;

#[derive(Deserialize)]
struct Line {
    id: String,
    /// Of a conversation, whose turns are messages. Here there is one.
    question: Vec<Vec<Value>>,
    function: Vec<Function>,
}

#[derive(Clone, Deserialize)]
struct Function {
    name: String,
    #[serde(default)]
    description: String,
    parameters: Value,
}

#[derive(Deserialize)]
struct Answer {
    id: String,
    /// Possible calls: values of arguments by name, by function.
    ground_truth: Vec<BTreeMap<String, Map<String, Value>>>,
}

/// The questions of a file, with what is right by a file of answers if there is one.
///
/// # Errors
/// [`Error`] if a file is not of this form, or lacks the answer of a question.
pub fn read(questions: &Path, answers: Option<&Path>) -> Result<Vec<Question>, Error> {
    let lines: Vec<Line> = data::lines(questions)?;
    let answers: Option<BTreeMap<String, Answer>> = match answers {
        None => None,
        Some(path) => {
            let all: Vec<Answer> = data::lines(path)?;
            Some(all.into_iter().map(|answer| (answer.id.clone(), answer)).collect())
        }
    };
    let fail = |id: &str, why: &str| Error::malformed(questions, format!("{id}: {why}"));
    let question = |line: Line| {
        let [function] = &line.function[..] else {
            return Err(fail(&line.id, "not one function"));
        };
        let [messages] = &line.question[..] else { return Err(fail(&line.id, "not one turn")) };
        let allowed = match &answers {
            None => None,
            Some(all) => {
                let truth = all.get(&line.id).and_then(|answer| answer.ground_truth.first());
                let values = truth.and_then(|truth| truth.get(&function.name));
                Some(values.ok_or_else(|| fail(&line.id, "has no answer"))?.clone())
            }
        };
        Ok(asked(messages, function, allowed))
    };
    lines.into_iter().map(question).collect()
}

fn asked(messages: &[Value], function: &Function, allowed: Option<Map<String, Value>>) -> Question {
    // Names of functions have no dots in the API; the leaderboard replaces them too.
    let name = function.name.replace('.', "_");
    let parameters = schema(&function.parameters);
    let declared = json!({
        "name": name, "description": function.description, "parameters": parameters,
    });
    let mut step = step("", Some(json!([{"type": "function", "function": declared}])), ANSWER);
    step.messages = messages.to_vec();
    Question { step, right: Right::Fits { name, parameters, allowed } }
}

/// JSON Schema of what the file writes with the names of Python's types.
fn schema(declared: &Value) -> Value {
    let mut schema = declared.clone();
    let Some(fields) = schema.as_object_mut() else { return schema };
    match fields.get("type").and_then(Value::as_str) {
        Some("dict") => fields.insert("type".to_owned(), json!("object")),
        Some("float") => fields.insert("type".to_owned(), json!("number")),
        Some("tuple") => fields.insert("type".to_owned(), json!("array")),
        Some("any") => fields.remove("type"),
        _ => None,
    };
    if let Some(items) = fields.get_mut("items") {
        *items = self::schema(items);
    }
    if let Some(properties) = fields.get_mut("properties").and_then(Value::as_object_mut) {
        properties.values_mut().for_each(|property| *property = self::schema(property));
    }
    schema
}

/// Whether arguments are what a schema declares.
pub(super) fn fits(value: &Value, schema: &Value) -> bool {
    let is_type = match schema["type"].as_str() {
        Some("object") => value.is_object(),
        Some("array") => value.is_array(),
        Some("string") => value.is_string(),
        Some("boolean") => value.is_boolean(),
        Some("integer") => value.is_i64() || value.is_u64(),
        Some("number") => value.is_number(),
        _ => true,
    };
    let is_choice = schema["enum"].as_array().is_none_or(|all| all.contains(value));
    let items = value.as_array().filter(|_| schema["items"].is_object());
    let items_fit = items.is_none_or(|items| items.iter().all(|item| fits(item, &schema["items"])));
    is_type && is_choice && items_fit && members_fit(value, schema)
}

fn members_fit(value: &Value, schema: &Value) -> bool {
    let (Some(members), Some(properties)) = (value.as_object(), schema["properties"].as_object())
    else {
        return true;
    };
    let mut required = schema["required"].as_array().into_iter().flatten();
    required.all(|name| name.as_str().is_some_and(|name| members.contains_key(name)))
        && members
            .iter()
            .all(|(name, member)| properties.get(name).is_some_and(|schema| fits(member, schema)))
}

/// Whether every argument has one of its possible values, and none is missing that must be there.
pub(super) fn are_allowed(arguments: &Map<String, Value>, allowed: &Map<String, Value>) -> bool {
    let possible = |name: &str| allowed.get(name).and_then(Value::as_array);
    arguments.iter().all(|(name, value)| {
        possible(name).is_some_and(|all| all.iter().any(|one| is_same(value, one)))
    }) && allowed.keys().all(|name| {
        let may_miss = possible(name).is_some_and(|all| all.contains(&json!("")));
        arguments.contains_key(name) || may_miss
    })
}

/// Whether a value is the possible one. Members of an object are lists of possible values again.
fn is_same(value: &Value, possible: &Value) -> bool {
    match (value, possible) {
        (Value::String(a), Value::String(b)) => plain(a) == plain(b),
        (Value::Number(a), Value::Number(b)) => a.as_f64() == b.as_f64(),
        (Value::Array(a), Value::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| is_same(a, b))
        }
        (Value::Object(a), Value::Object(b)) => are_allowed(a, b),
        (a, b) => a == b,
    }
}

fn plain(text: &str) -> String {
    let kept = text.chars().filter(|c| !" ,./-_*^".contains(*c));
    kept.map(|c| if c == '\'' { '"' } else { c }).flat_map(char::to_lowercase).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Turn;

    const QUESTION: &str = r#"{"id": "simple_0", "question": [[{"role": "user", "content": "How far?"}]],
        "function": [{"name": "geo.distance", "description": "Tells a distance.", "parameters": {"type": "dict",
        "properties": {"from": {"type": "string"}, "stops": {"type": "array", "items": {"type": "float"}},
        "unit": {"type": "string", "enum": ["km", "mi"]}, "n": {"type": "integer"}}, "required": ["from"]}}]}"#;
    const ANSWER: &str = r#"{"id": "simple_0", "ground_truth": [{"geo.distance": {"from": ["New York", "NYC"],
        "stops": [[1, 2.5], ""], "unit": ["km", ""], "n": [""]}}]}"#;

    fn questions(question: &str, answer: Option<&str>) -> Result<Vec<Question>, Error> {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = folder.path().join(name);
            std::fs::write(&path, text.replace('\n', " ")).unwrap();
            path
        };
        let answer = answer.map(|text| write("answers", text));
        read(&write("questions", question), answer.as_deref())
    }

    fn is_right(question: &Question, calls: &str) -> bool {
        question.is_right(&Turn { calls: calls.to_owned(), ..Turn::default() })
    }

    #[test]
    fn a_function_is_offered_as_the_api_wants_it() {
        let all = questions(QUESTION, None).unwrap();
        let tool = &all[0].step.tools.as_ref().unwrap()[0]["function"];
        assert_eq!(tool["name"], "geo_distance");
        assert_eq!(tool["parameters"]["type"], "object");
        assert_eq!(tool["parameters"]["properties"]["stops"]["items"]["type"], "number");
        assert_eq!(all[0].step.messages[0]["content"], "How far?");
    }

    #[test]
    fn without_answers_arguments_have_to_be_what_is_declared() {
        let question = &questions(QUESTION, None).unwrap()[0];
        for right in [
            r#"geo_distance{"from": "anywhere"}"#,
            r#"geo_distance{"from": "x", "stops": [1, 2.5], "unit": "mi", "n": 3}"#,
        ] {
            assert!(is_right(question, right), "{right}");
        }
        for wrong in [
            r#"geo_distance{"unit": "km"}"#,
            r#"geo_distance{"from": 1}"#,
            r#"geo_distance{"from": "x", "n": 1.5}"#,
            r#"geo_distance{"from": "x", "unit": "ft"}"#,
            r#"geo_distance{"from": "x", "stops": ["a"]}"#,
            r#"geo_distance{"from": "x", "to": "y"}"#,
            r#"geo.distance{"from": "x"}"#,
            r#"geo_distance{"from": "x"}geo_distance{"from": "x"}"#,
            "",
        ] {
            assert!(!is_right(question, wrong), "{wrong}");
        }
    }

    #[test]
    fn with_answers_they_have_to_be_the_ones_that_are_meant() {
        let question = &questions(QUESTION, Some(ANSWER)).unwrap()[0];
        for right in [
            r#"geo_distance{"from": "new-york"}"#,
            r#"geo_distance{"from": "NYC", "stops": [1.0, 2.5], "unit": "km"}"#,
        ] {
            assert!(is_right(question, right), "{right}");
        }
        for wrong in [
            r#"geo_distance{"from": "Boston"}"#,
            r#"geo_distance{"from": "NYC", "stops": [1.0]}"#,
            r#"geo_distance{"from": "NYC", "unit": "mi"}"#,
            r#"geo_distance{"stops": [1, 2.5]}"#,
        ] {
            assert!(!is_right(question, wrong), "{wrong}");
        }
    }

    #[test]
    fn what_is_no_such_file_is_an_error() {
        let error = |question: &str, answer| questions(question, answer).unwrap_err().to_string();
        assert!(error("{\"id\": 1}", None).contains("line 1"));
        assert!(error(&QUESTION.replace("[[{", "[[],[{"), None).contains("simple_0"));
        let other = ANSWER.replace("simple_0", "simple_1");
        assert!(error(QUESTION, Some(&other)).contains("no answer"));
    }
}
