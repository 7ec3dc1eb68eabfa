//! What an event of a streamed chat means: text of some kind, usage, an end, an error.
//!
//! Servers differ in names: thoughts are `reasoning_content` or `reasoning`, cached tokens and drafts
//! are reported in several places. All of them are known here and nowhere else.

use serde::Deserialize;
use serde_json::Value;

use crate::record::{Channel, Usage};

/// What one event said.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Delta {
    /// Texts in the order in which they stand.
    pub texts: Vec<(Channel, String)>,
    /// Why the answer ended.
    pub finish: Option<String>,
    /// What it used.
    pub usage: Option<Usage>,
    /// What went wrong.
    pub error: Option<String>,
}

#[derive(Deserialize)]
struct Chunk {
    #[serde(default)]
    choices: Vec<Choice>,
    usage: Option<Value>,
    timings: Option<Value>,
    error: Option<Value>,
}

#[derive(Deserialize)]
struct Choice {
    delta: Option<Message>,
    message: Option<Message>,
    text: Option<String>,
    finish_reason: Option<String>,
}

#[derive(Deserialize)]
struct Message {
    content: Option<String>,
    reasoning_content: Option<String>,
    reasoning: Option<Value>,
    tool_calls: Option<Vec<Value>>,
}

impl Delta {
    /// Of the data of an event. `None`: it is not JSON of such a stream.
    pub fn of(data: &[u8]) -> Option<Delta> {
        let chunk: Chunk = serde_json::from_slice(data).ok()?;
        let mut delta = Delta {
            usage: chunk.usage.as_ref().and_then(usage),
            error: chunk.error.as_ref().map(told),
            ..Delta::default()
        };
        if let (Some(usage), Some(timings)) = (&mut delta.usage, &chunk.timings) {
            with_timings(usage, timings);
        }
        for choice in chunk.choices {
            delta.finish = choice.finish_reason.or(delta.finish);
            delta.add(Channel::Answer, choice.text);
            if let Some(message) = choice.delta.or(choice.message) {
                delta.add_message(message);
            }
        }
        Some(delta)
    }

    fn add_message(&mut self, message: Message) {
        // Some send the same thought under both names.
        let reasoning = message.reasoning.and_then(|value| value.as_str().map(str::to_owned));
        self.add(Channel::Thought, message.reasoning_content.or(reasoning));
        self.add(Channel::Answer, message.content);
        for call in message.tool_calls.unwrap_or_default() {
            let part = |name: &str| call["function"][name].as_str().map(str::to_owned);
            let text = [part("name"), part("arguments")].into_iter().flatten().collect::<String>();
            self.add(Channel::Call, Some(text));
        }
    }

    fn add(&mut self, channel: Channel, text: Option<String>) {
        // A delta that only names the role is no token.
        if let Some(text) = text.filter(|text| !text.is_empty()) {
            self.texts.push((channel, text));
        }
    }
}

fn number(value: &Value, path: &[&str]) -> Option<u32> {
    let value = path.iter().try_fold(value, |value, name| value.get(name))?;
    value.as_u64().and_then(|n| u32::try_from(n).ok())
}

fn usage(value: &Value) -> Option<Usage> {
    let first = |paths: &[&[&str]]| paths.iter().find_map(|path| number(value, path));
    Some(Usage {
        prompt: number(value, &["prompt_tokens"])?,
        completion: number(value, &["completion_tokens"])?,
        cached: first(&[&["prompt_tokens_details", "cached_tokens"], &["cached_tokens"]]),
        thoughts: first(&[&["completion_tokens_details", "reasoning_tokens"]]),
        drafted: first(&[&["completion_tokens_details", "drafted_tokens"], &["drafted_tokens"]]),
        accepted: first(&[
            &["completion_tokens_details", "accepted_prediction_tokens"],
            &["accepted_tokens"],
        ]),
    })
}

/// llama-server tells more beside the usage.
fn with_timings(usage: &mut Usage, timings: &Value) {
    usage.cached = usage.cached.or(number(timings, &["cache_n"]));
    usage.drafted = usage.drafted.or(number(timings, &["draft_n"]));
    usage.accepted = usage.accepted.or(number(timings, &["draft_n_accepted"]));
}

/// The message of an error, in whatever form it comes.
pub(super) fn told(error: &Value) -> String {
    let inner = error.get("error").unwrap_or(error);
    let message = inner.get("message").unwrap_or(inner);
    message.as_str().map_or_else(|| message.to_string(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_servers_send() {
        let of = |text: &str| Delta::of(text.as_bytes()).unwrap();
        let role = of(r#"{"choices":[{"delta":{"role":"assistant","content":""}}]}"#);
        assert_eq!(role, Delta::default());
        let thought = of(r#"{"choices":[{"delta":{"reasoning_content":"hm","reasoning":"hm"}}]}"#);
        assert_eq!(thought.texts, [(Channel::Thought, "hm".to_owned())]);
        let both = of(
            r#"{"choices":[{"delta":{"reasoning":"so","content":"A"},"finish_reason":"stop"}]}"#,
        );
        assert_eq!(
            both.texts,
            [(Channel::Thought, "so".to_owned()), (Channel::Answer, "A".to_owned())]
        );
        assert_eq!(both.finish.as_deref(), Some("stop"));
        let call = of(
            r#"{"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"name":"f","arguments":"{"}}]}}]}"#,
        );
        assert_eq!(call.texts, [(Channel::Call, "f{".to_owned())]);
        let usage = of(
            r#"{"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":3,"prompt_tokens_details":{"cached_tokens":4},"completion_tokens_details":{"reasoning_tokens":1}}}"#,
        );
        let expected = Usage {
            prompt: 9,
            completion: 3,
            cached: Some(4),
            thoughts: Some(1),
            ..Usage::default()
        };
        assert_eq!(usage.usage, Some(expected));
        let llama = of(
            r#"{"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":3},"timings":{"cache_n":2,"draft_n":5,"draft_n_accepted":4}}"#,
        );
        let usage = llama.usage.unwrap();
        assert_eq!((usage.cached, usage.drafted, usage.accepted), (Some(2), Some(5), Some(4)));
        let error = of(r#"{"error":{"message":"out of memory","code":500}}"#);
        assert_eq!(error.error.as_deref(), Some("out of memory"));
        assert_eq!(Delta::of(b"<html>"), None);
    }
}
