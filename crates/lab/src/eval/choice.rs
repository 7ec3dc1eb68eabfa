//! Questions with several answers of which one is right, as MMLU has them: a file of JSON lines with
//! `question`, `choices` and `answer`, the number of the right one from 0.

use std::path::Path;

use serde::Deserialize;

use super::{Question, Right, data, step};
use crate::error::Error;

#[derive(Deserialize)]
struct Line {
    question: String,
    choices: Vec<String>,
    answer: usize,
}

/// The questions of a file.
///
/// # Errors
/// [`Error`] if it is not of this form.
pub fn read(path: &Path) -> Result<Vec<Question>, Error> {
    let lines: Vec<Line> = data::lines(path)?;
    let question = |(n, line): (usize, Line)| {
        if line.answer >= line.choices.len() || line.choices.len() > 26 {
            let why = format!("question {}: no choice {}", n + 1, line.answer);
            return Err(Error::malformed(path, why));
        }
        let choices = ('A'..='Z').zip(&line.choices);
        let choices: String = choices.map(|(letter, text)| format!("{letter}. {text}\n")).collect();
        let text = format!("{}\n\n{choices}\nAnswer with the letter alone.", line.question.trim());
        let right =
            Right::Letter { right: letter(line.answer), last: letter(line.choices.len() - 1) };
        Ok(Question { step: step(&text, None, 8), right })
    };
    lines.into_iter().enumerate().map(question).collect()
}

fn letter(n: usize) -> char {
    ('A'..='Z').nth(n).unwrap_or('Z')
}

/// The first letter of a choice that stands alone.
pub(super) fn chosen(answer: &str, last: char) -> Option<char> {
    let words = answer.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty());
    let letters = words.filter_map(|word| {
        let mut letters = word.chars();
        letters.next().filter(|_| letters.next().is_none())
    });
    letters.map(|c| c.to_ascii_uppercase()).find(|c| ('A'..=last).contains(c))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Turn;

    #[test]
    fn the_letter_that_stands_alone_is_the_choice() {
        for (answer, letter) in [
            ("B", Some('B')),
            ("The answer is (c).", Some('C')),
            ("**D**. Because", Some('D')),
            ("E", None),
            ("Because", None),
            ("", None),
        ] {
            assert_eq!(chosen(answer, 'D'), letter, "{answer}");
        }
    }

    #[test]
    fn questions_show_their_choices() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("mmlu.jsonl");
        let line = r#"{"question": "2 + 2?", "subject": "x", "choices": ["3", "4", "5", "6"], "answer": 1}"#;
        std::fs::write(&path, line).unwrap();
        let question = &read(&path).unwrap()[0];
        let text = question.step.messages[0]["content"].as_str().unwrap();
        assert!(text.starts_with("2 + 2?\n\nA. 3\nB. 4\n"), "{text}");
        let says = |answer: &str| Turn { answer: answer.to_owned(), ..Turn::default() };
        assert!(question.is_right(&says("B.")) && !question.is_right(&says("A")));
        std::fs::write(&path, line.replace(": 1}", ": 4}")).unwrap();
        assert!(read(&path).unwrap_err().to_string().contains("no choice 4"));
    }
}
