//! The server that programs are to use, and how its facts get into their settings. It is not asked here.

use serde_json::{Map, Value};

/// What settings are made of.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Target {
    /// Without `/v1` and without a slash at the end.
    pub(crate) url: String,
    pub(crate) model: String,
    pub(crate) key: String,
    /// Tokens that a prompt and its answer may have together; `None` where nobody knows.
    pub(crate) context: Option<u64>,
    /// The folder of a private profile; empty where there is none.
    pub(crate) profile: String,
}

/// The share of the context that programs who ask for it are told an answer may take.
const ANSWER_SHARE: u64 = 4;

impl Target {
    /// The value with the placeholders of its texts and keys filled in: `{url}`, `{model}`, `{key}`,
    /// `{profile}`, `{context}` (as text), and, as the whole of a text, `{context:number}` and
    /// `{answer:number}`. `None` where it needs what is not known, or nothing of it is left.
    pub(crate) fn fill(&self, value: &Value) -> Option<Value> {
        Some(match value {
            Value::String(text) => match text.as_str() {
                "{context:number}" => self.context?.into(),
                "{answer:number}" => (self.context? / ANSWER_SHARE).into(),
                text => Value::String(self.fill_text(text)?),
            },
            Value::Array(items) => {
                items.iter().map(|item| self.fill(item)).collect::<Option<_>>()?
            }
            Value::Object(table) => {
                let pair = |(key, value): (&String, &Value)| {
                    Some((self.fill_text(key)?, self.fill(value)?))
                };
                let filled: Map<String, Value> = table.iter().filter_map(pair).collect();
                if filled.is_empty() && !table.is_empty() {
                    return None;
                }
                Value::Object(filled)
            }
            value => value.clone(),
        })
    }

    /// The same of a text.
    pub(crate) fn fill_text(&self, text: &str) -> Option<String> {
        let mut rest = text;
        let mut filled = String::new();
        while let Some(at) = rest.find('{') {
            let (before, from) = rest.split_at(at);
            filled.push_str(before);
            let known = [
                ("{url}", Some(&self.url)),
                ("{model}", Some(&self.model)),
                ("{key}", Some(&self.key)),
                ("{profile}", Some(&self.profile)),
                ("{context}", None),
            ];
            match known.iter().find(|(name, _)| from.starts_with(name)) {
                Some((name, Some(value))) => {
                    filled.push_str(value);
                    rest = &from[name.len()..];
                }
                Some((name, None)) => {
                    filled.push_str(&self.context?.to_string());
                    rest = &from[name.len()..];
                }
                None => {
                    filled.push('{');
                    rest = &from[1..];
                }
            }
        }
        filled.push_str(rest);
        Some(filled)
    }

    /// The address as a user may give it.
    pub(crate) fn plain_url(url: &str) -> String {
        let url = url.trim().trim_end_matches('/');
        url.strip_suffix("/v1").unwrap_or(url).trim_end_matches('/').to_owned()
    }

    #[cfg(test)]
    pub(crate) fn example() -> Target {
        Target {
            url: "http://127.0.0.1:8000".to_owned(),
            model: "default".to_owned(),
            key: "none".to_owned(),
            context: Some(32_768),
            profile: String::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn placeholders_are_filled_once_and_what_is_unknown_is_left_out() {
        let mut target = Target { model: "{key}/m".to_owned(), ..Target::example() };
        let value = json!({"{model}": {"n": "{context:number}", "t": "{context} of {url}/v1", "x": "a{b}"}});
        let filled =
            json!({"{key}/m": {"n": 32768, "t": "32768 of http://127.0.0.1:8000/v1", "x": "a{b}"}});
        assert_eq!(target.fill(&value).unwrap(), filled);
        target.context = None;
        assert_eq!(target.fill(&value).unwrap(), json!({"{key}/m": {"x": "a{b}"}}));
        assert_eq!(target.fill(&json!({"limit": {"context": "{context:number}"}})), None);
    }

    #[test]
    fn addresses_lose_what_programs_add_themselves() {
        for url in ["http://h:1/v1/", "http://h:1/v1", " http://h:1/", "http://h:1"] {
            assert_eq!(Target::plain_url(url), "http://h:1");
        }
    }
}
