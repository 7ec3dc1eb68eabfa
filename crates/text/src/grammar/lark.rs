//! Pieces of grammars in Lark's notation, as `llguidance` reads it.

use serde_json::{Value, json};

use super::bounds::{MAX_TEXT, check_expression, check_text};
use super::{GrammarError, numbers};
use crate::Tokenizer;
use crate::tools::spelling::{KIND, NUMBER};

/// White space between two tokens of JSON: enough to lay it out for people, and bounded, since a
/// model that is in a corner may write nothing else to the end of its context.
const WHITE_SPACE: &str = r"\n[ \t]{0,32}| {1,4}|\t";

/// A text, to the letter.
pub(super) fn literal(text: &str) -> String {
    // Lark's strings are JSON's.
    Value::from(text).to_string()
}

/// What a lowered schema allows. Control characters in strings have their short escapes and no
/// others, so that no text can be spelled in two ways.
pub(super) fn json(schema: &Value) -> String {
    let mut schema = match numbers::bounded(schema) {
        schema @ Value::Object(_) => schema,
        // `true` and `false`.
        other => json!({"allOf": [other]}),
    };
    schema["x-guidance"] = json!({
        "whitespace_flexible": true,
        "whitespace_pattern": WHITE_SPACE,
        "json_allowed_escapes": "nrbtf\\\"",
    });
    format!("%json {schema}")
}

/// A grammar of one rule.
pub(super) fn start(rule: &str) -> String {
    format!("start: {rule}\n")
}

/// A text as part of a pattern.
pub(super) fn pattern(text: &str) -> String {
    llguidance::regex_to_lark(&regex_syntax::escape(text), "")
}

/// The token of this spelling, if it is a control token.
pub(super) fn control_token(text: &str, tokenizer: &Tokenizer) -> Option<String> {
    let id = tokenizer.id_of(text).filter(|&id| tokenizer.is_special(id))?;
    Some(format!("<[{id}]>"))
}

/// The number that a model gives a call.
const CALL_NUMBER: &str = "/0|[1-9][0-9]{0,2}/";
/// The kinds of JSON that are no text.
const KINDS: &str = "/number|boolean|null|object|array/";

/// A text in which control tokens are those, [`NUMBER`] is a number, [`KIND`] a kind of JSON, and all else
/// is to the letter.
pub(super) fn with_control_tokens(text: &str, tokenizer: &Tokenizer) -> String {
    for (mark, pattern) in [(NUMBER, CALL_NUMBER), (KIND, KINDS)] {
        if let Some((before, after)) = text.split_once(mark) {
            let [before, after] = [before, after].map(|text| with_control_tokens(text, tokenizer));
            return format!("{before} {pattern} {after}");
        }
    }
    let special = |text: &str| {
        let tokens = tokenizer.added_tokens().iter().filter(|token| token.special);
        let found = tokens.filter_map(|token| Some((text.find(&token.content)?, &token.content)));
        found.min_by_key(|(at, content)| (*at, usize::MAX - content.len()))
    };
    let mut pieces = Vec::new();
    let mut rest = text;
    while let Some((at, content)) = special(rest).filter(|(_, content)| !content.is_empty()) {
        if at > 0 {
            pieces.push(literal(&rest[..at]));
        }
        pieces.extend(control_token(content, tokenizer));
        rest = &rest[at + content.len()..];
    }
    if !rest.is_empty() {
        pieces.push(literal(rest));
    }
    pieces.join(" ")
}

/// A text up to its first control token, and from there on as part of a rule.
pub(super) fn before_control_token<'a>(text: &'a str, tokenizer: &Tokenizer) -> (&'a str, String) {
    let tokens = tokenizer.added_tokens().iter().filter(|token| token.special);
    let first = tokens.filter(|token| !token.content.is_empty());
    let at = first.filter_map(|token| text.find(&token.content)).min().unwrap_or(text.len());
    (&text[..at], with_control_tokens(&text[at..], tokenizer))
}

/// A rule of this name for a text up to this tag, and the terminals it needs.
pub(super) fn up_to(rule: &str, tag: &str, tokenizer: &Tokenizer) -> String {
    match before_control_token(tag, tokenizer) {
        ("", token) => format!("{rule}: TEXT {token}\nTEXT: /(?s:.*)/\n"),
        _ => format!("{rule}[lazy]: /(?s:.*){}/\n", pattern(tag)),
    }
}

/// The whole of a text that an expression matches, as the body of a rule.
pub(super) fn regex(expression: &str) -> Result<String, GrammarError> {
    // It has to match as a whole in any case.
    let bare = expression.strip_prefix('^').unwrap_or(expression);
    let escaped =
        |text: &str| text.bytes().rev().take_while(|&byte| byte == b'\\').count() % 2 == 1;
    let bare = bare.strip_suffix('$').filter(|rest| !escaped(rest)).unwrap_or(bare);
    check_expression(bare)?;
    Ok(format!("/{}/", llguidance::regex_to_lark(bare, "")))
}

/// One of some texts, as the body of a rule.
pub(super) fn choice(texts: &[String]) -> Result<String, GrammarError> {
    if texts.is_empty() || texts.iter().map(String::len).sum::<usize>() > MAX_TEXT {
        let problem = format!("it takes from one text to {MAX_TEXT} bytes of them");
        return Err(GrammarError::whole(problem));
    }
    let texts: Vec<String> = texts.iter().map(|text| literal(text)).collect();
    Ok(format!("({})", texts.join(" | ")))
}

/// Somebody else's grammar.
pub(super) fn grammar(text: &str) -> Result<String, GrammarError> {
    check_text(text)?;
    if text.contains("::=") {
        let problem =
            "it is in the notation of GBNF; Lark's is understood: `start: \"yes\" | \"no\"`";
        return Err(GrammarError::whole(problem));
    }
    // What it forces is not looked for, since there may be no end to it.
    Ok(format!("%llguidance {{\"no_forcing\": true}}\n{text}"))
}
