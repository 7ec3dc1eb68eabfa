//! Lines of `NAME=value`, as `.env` files have them. No expansion of variables.

use serde_json::Value;

use super::{EditError, Step, Tree, blocked, shown};

/// The lines, without their ends.
pub(super) struct Env {
    lines: Vec<String>,
    /// Whether the last line has an end.
    ended: bool,
}

impl Env {
    pub(super) fn open(text: &str) -> Result<Env, EditError> {
        let lines: Vec<String> = text.lines().map(str::to_owned).collect();
        let reason = |n: usize| format!("line {} is neither a comment nor NAME=value", n + 1);
        let good = |line: &str| {
            let line = line.trim();
            line.is_empty() || line.starts_with('#') || name(line).is_some()
        };
        match lines.iter().position(|line| !good(line)) {
            Some(n) => Err(EditError::Invalid { format: ".env", reason: reason(n) }),
            None => Ok(Env { lines, ended: text.is_empty() || text.ends_with('\n') }),
        }
    }

    /// The line that counts: readers take the last.
    fn find(&self, at: &[Step]) -> Option<usize> {
        let [Step::Key(key)] = at else { return None };
        self.lines.iter().rposition(|line| name(line) == Some(key))
    }
}

impl Tree for Env {
    fn get(&self, at: &[Step]) -> Option<Value> {
        let (_, value) = self.lines[self.find(at)?].split_once('=')?;
        Some(Value::String(unquoted(value.trim())))
    }

    fn set(&mut self, at: &[Step], value: &Value) -> Result<(), EditError> {
        let [Step::Key(key)] = at else { return Err(blocked(at, 1, "table")) };
        let text = value.as_str().ok_or_else(|| EditError::Unsafe(shown(at)))?;
        let line = |head: &str| format!("{head}={}", quoted(text));
        match self.find(at) {
            Some(n) => {
                let head = self.lines[n].split_once('=').map_or("", |(head, _)| head);
                self.lines[n] = line(head);
            }
            None => {
                self.lines.push(line(key));
                self.ended = true;
            }
        }
        Ok(())
    }

    fn remove(&mut self, at: &[Step]) {
        if let Some(n) = self.find(at) {
            self.lines.remove(n);
        }
    }

    fn text(&self) -> String {
        let end = if self.ended && !self.lines.is_empty() { "\n" } else { "" };
        self.lines.join("\n") + end
    }
}

fn name(line: &str) -> Option<&str> {
    let line = line.trim_start();
    let (name, _) = line.strip_prefix("export ").unwrap_or(line).split_once('=')?;
    let name = name.trim();
    let good = |c: char| c.is_ascii_alphanumeric() || "_.-".contains(c);
    (!name.is_empty() && name.chars().all(good)).then_some(name)
}

fn unquoted(value: &str) -> String {
    let inner = |quote: char| value.strip_prefix(quote)?.strip_suffix(quote);
    if let Some(inner) = inner('"') {
        return inner.replace("\\\"", "\"").replace("\\\\", "\\");
    }
    inner('\'').map_or_else(|| value.to_owned(), str::to_owned)
}

/// Plain where every reader takes it so.
fn quoted(value: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_./:@%+,-".contains(c);
    if value.chars().all(plain) {
        return value.to_owned();
    }
    format!("\"{}\"", value.replace('\\', "\\\\").replace('"', "\\\""))
}
