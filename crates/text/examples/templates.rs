//! Compares templates with what transformers made of them, for templates that are not in the repository.
//! The file to name comes from `tools/goldens/other_templates.py`.
//!
//! No test: it only reports.

#[path = "../tests/common/mod.rs"]
mod common;

use common::{render_talk, tokenizer};
use hearth_text::{Error, Template, TemplateFiles};
use serde_json::Value;

fn main() {
    let path = std::env::args().nth(1).expect("usage: templates GOLDENS.json");
    let goldens: Value = serde_json::from_slice(&std::fs::read(path).expect("a readable file"))
        .expect("what other_templates.py writes");
    // Its named tokens are those the goldens were made with.
    let tokenizer = tokenizer("sentencepiece");
    let talks = goldens["conversations"].as_array().expect("conversations");
    for (name, golden) in goldens["templates"].as_object().expect("templates") {
        let source = golden["source"].as_str().expect("a source");
        let files = TemplateFiles { default: source, tool_use: None };
        let template = match Template::new(files, &tokenizer) {
            Ok(template) => template,
            Err(error) => {
                println!("{name}: {error}");
                continue;
            }
        };
        let wrong: Vec<(usize, String)> = talks
            .iter()
            .enumerate()
            .filter_map(|(at, talk)| {
                Some((at, difference(&template, talk, &golden["prompts"][at])?))
            })
            .collect();
        let first = wrong.first().map_or(String::new(), |(at, what)| format!(": {at}: {what}"));
        println!("{name}: {} of {} differ{first}", wrong.len(), talks.len());
    }
}

/// Where a prompt is not the golden one.
fn difference(template: &Template, talk: &Value, golden: &Value) -> Option<String> {
    match (render_talk(template, talk), golden["text"].as_str()) {
        (Ok(prompt), Some(want)) => {
            let got = prompt.text();
            let same = got.bytes().zip(want.bytes()).take_while(|(a, b)| a == b).count();
            let from = |text: &str| {
                let rest = String::from_utf8_lossy(&text.as_bytes()[same..]).into_owned();
                rest.chars().take(60).collect::<String>()
            };
            (got != want).then(|| format!("byte {same}: {:?}, not {:?}", from(&got), from(want)))
        }
        (Err(Error::Raised(says)), None) => {
            (golden["says"] != says.as_str()).then(|| format!("{says:?}, not {}", golden["says"]))
        }
        // Python's own errors have no counterpart here, but must be errors.
        (Err(_), None) => None,
        (Err(error), Some(_)) => Some(error.to_string()),
        (Ok(_), None) => Some(format!("a prompt, not {golden}")),
    }
}
