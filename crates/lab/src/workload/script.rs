//! What users say in one run, and when. Made by a seed before anything is timed.

use serde_json::{Value, json};

use super::{Shape, Workload};
use crate::prompt::{CountTokens, Kind, exactly, salt};
use crate::record::{Cell, Expects};
use crate::rng::Rng;

/// One run.
#[derive(Clone, Debug, PartialEq)]
pub struct Script {
    /// All that ask, at once or later.
    pub users: Vec<User>,
}

/// What one user does.
#[derive(Clone, Debug, PartialEq)]
pub struct User {
    /// Microseconds after the run began.
    pub comes_us: u64,
    /// Requests, one after the other.
    pub steps: Vec<Step>,
}

/// One request.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// Messages that are added to those before.
    pub messages: Vec<Value>,
    /// Tools that are offered.
    pub tools: Option<Value>,
    /// Tokens of the whole prompt, where that is known.
    pub wanted: Option<u32>,
    /// Tokens of the answer.
    pub answer: u32,
    /// What the cache may have.
    pub expects: Expects,
    /// What stays of it for the next request.
    pub keep: Keep,
    /// The engine is stopped and started before.
    pub relaunch: bool,
}

/// What stays of a request for the next one of the same user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// Its messages and the answer.
    Answer,
    /// Its messages.
    Messages,
    /// Only messages before the last one.
    Beginning,
    /// Nothing.
    Nothing,
}

/// Writes scripts.
pub struct Writer<'a> {
    /// Counts the tokens of what is written.
    pub tokens: &'a dyn CountTokens,
    /// Tokens that the template adds to a single message.
    pub template: u32,
    /// Of the texts; the same for all engines of a block.
    pub body: Rng,
    /// Of their beginnings; never the same twice.
    pub salt: Rng,
}

impl Workload {
    /// One run of a cell.
    pub fn script(&self, cell: &Cell, writer: &mut Writer) -> Script {
        let alone = |steps| Script { users: vec![User { comes_us: 0, steps }] };
        match &self.shape {
            Shape::Sweep { answer, .. } => alone(vec![writer.cold(cell.at as u32, *answer)]),
            Shape::Edit { answer, .. } => alone(vec![writer.edit(cell.at as u32, *answer)]),
            Shape::Chat { turns, system, message, answer } => {
                alone(writer.chat(*turns, *system, *message, *answer))
            }
            Shape::Rag { documents, questions, question, answer } => {
                alone(writer.rag(*documents, *questions, *question, *answer))
            }
            Shape::Tools { steps, result, answer } => alone(writer.agent(*steps, *result, *answer)),
            Shape::Crowd { prompt, answer, .. } => {
                let users = (0..cell.at)
                    .map(|_| User { comes_us: 0, steps: vec![writer.cold(*prompt, *answer)] });
                Script { users: users.collect() }
            }
            Shape::Arrivals { requests, prompt, answer, .. } => {
                let mean_us = 60e6 / cell.at.max(1) as f64;
                let mut comes = 0.0;
                let users = (0..*requests).map(|_| {
                    let user =
                        User { comes_us: comes as u64, steps: vec![writer.cold(*prompt, *answer)] };
                    comes += mean_us * writer.body.exponential();
                    user
                });
                Script { users: users.collect() }
            }
            Shape::Launch { prompt, answer } => {
                alone(vec![Step { relaunch: true, ..writer.cold(*prompt, *answer) }])
            }
            Shape::Restart { prompt, answer } => {
                // It is asked for again, so it may be cached.
                let first = Step { keep: Keep::Beginning, ..writer.cold(*prompt, *answer) };
                let again = Step { relaunch: true, expects: Expects::Restarted, ..first.clone() };
                alone(vec![first, again])
            }
        }
    }
}

impl Writer<'_> {
    /// A prompt that nobody has seen, of so many tokens with the template.
    pub fn cold(&mut self, prompt: u32, answer: u32) -> Step {
        let ask = "Continue this text in the same style, at length.";
        let text = self.text(prompt.saturating_sub(self.template).max(8), Kind::Prose, ask);
        Step { wanted: self.wanted(prompt), ..step(vec![message("user", &text)], answer) }
    }

    /// Salt, a task, and text up to so many tokens.
    fn text(&mut self, n: u32, kind: Kind, task: &str) -> String {
        let front = salt(&mut self.salt);
        let with_task = format!("{front} {task}\n\n");
        // A short prompt is all salt and text.
        let room = self.tokens.count(&with_task) + 8 <= n as usize;
        let front = if room { with_task } else { front };
        exactly(n as usize, kind, front.trim_end(), &mut self.body, self.tokens)
    }

    fn plain(&mut self, n: u32, kind: Kind) -> String {
        exactly(n as usize, kind, "", &mut self.body, self.tokens)
    }

    fn edit(&mut self, prompt: u32, answer: u32) -> Step {
        let task = "Here is a file. Write it again, unchanged except that every variable `total` is \
                    called `amount`. Answer with the whole file and nothing else.";
        let text = self.text(prompt.saturating_sub(self.template).max(8), Kind::Code, task);
        Step { wanted: self.wanted(prompt), ..step(vec![message("user", &text)], answer) }
    }

    /// What may be held against a server: lengths that a tokenizer counted.
    fn wanted(&self, prompt: u32) -> Option<u32> {
        (self.tokens.is_exact() && prompt >= self.template + 8).then_some(prompt)
    }

    fn chat(&mut self, turns: u32, system: u32, length: u32, answer: u32) -> Vec<Step> {
        let system =
            self.text(system, Kind::Prose, "You are a patient assistant. Some background:");
        let mut steps = Vec::new();
        for turn in 0..turns {
            let text = self.plain(length, Kind::Prose);
            let mut messages = vec![message("user", &text)];
            if turn == 0 {
                messages.insert(0, message("system", &system));
            }
            let expects = if turn == 0 { Expects::Cold } else { Expects::Warm };
            steps.push(Step { expects, keep: Keep::Answer, ..step(messages, answer) });
        }
        steps
    }

    fn rag(&mut self, documents: u32, questions: u32, length: u32, answer: u32) -> Vec<Step> {
        let documents = self.text(documents, Kind::Prose, "Answer from these documents only.");
        let mut steps = Vec::new();
        for n in 0..questions {
            let question = self.plain(length, Kind::Prose);
            let mut messages = vec![message("user", &question)];
            if n == 0 {
                messages.insert(0, message("system", &documents));
            }
            let expects = if n == 0 { Expects::Cold } else { Expects::Warm };
            steps.push(Step { expects, keep: Keep::Beginning, ..step(messages, answer) });
        }
        steps
    }

    fn agent(&mut self, n: u32, result: u32, answer: u32) -> Vec<Step> {
        let task = self.text(160, Kind::Prose, "Use the tools to find out what this is about.");
        let mut messages = vec![message("user", &task)];
        let mut steps = Vec::new();
        for call in 0..n {
            let expects = if call == 0 { Expects::Cold } else { Expects::Warm };
            let tools = Some(tools());
            let keep = Keep::Messages;
            steps.push(Step { expects, tools, keep, ..step(messages, answer) });
            // What the model said is not kept: the loop is the same for all.
            let id = format!("call_{:08x}", self.body.bits() >> 32);
            let path = format!("notes/{call}.txt");
            let arguments = json!({"path": path}).to_string();
            let function = json!({"name": "read_file", "arguments": arguments});
            let calls = json!([{"id": id, "type": "function", "function": function}]);
            let text = self.plain(result, Kind::Prose);
            messages = vec![
                json!({"role": "assistant", "content": "", "tool_calls": calls}),
                json!({"role": "tool", "tool_call_id": id, "content": text}),
            ];
        }
        steps
    }
}

fn step(messages: Vec<Value>, answer: u32) -> Step {
    Step {
        messages,
        tools: None,
        wanted: None,
        answer,
        expects: Expects::Cold,
        keep: Keep::Nothing,
        relaunch: false,
    }
}

fn message(role: &str, text: &str) -> Value {
    json!({"role": role, "content": text})
}

fn tools() -> Value {
    let tool = |name: &str, description: &str, argument: &str| {
        let properties = json!({argument: {"type": "string"}});
        let parameters =
            json!({"type": "object", "properties": properties, "required": [argument]});
        json!({"type": "function", "function":
            {"name": name, "description": description, "parameters": parameters}})
    };
    json!([
        tool("read_file", "Reads a text file of the project and returns what is in it.", "path"),
        tool("list_files", "Lists the files of a folder.", "folder"),
        tool("search", "Finds lines that contain a word.", "word"),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prompt::Guess;

    fn script(name: &str, changes: &str, cell: usize, salt: u64) -> Script {
        let workload = Workload::named(name, toml::from_str(changes).unwrap()).unwrap();
        let tokens = Guess::default();
        let mut writer =
            Writer { tokens: &tokens, template: 20, body: Rng::new(1), salt: Rng::new(salt) };
        let cells = workload.cells();
        workload.script(&cells[cell], &mut writer)
    }

    fn first_text(script: &Script) -> String {
        script.users[0].steps[0].messages[0]["content"].as_str().unwrap().to_owned()
    }

    #[test]
    fn all_engines_get_the_same_text_behind_a_front_of_their_own() {
        let [a, b] = [1, 2].map(|salt| first_text(&script("context", "", 2, salt)));
        assert_ne!(a[..12], b[..12]);
        let tail = |text: &str| text[200..1000].to_owned();
        let (a_tail, b_tail) = (tail(&a), tail(&b));
        assert!(a.contains(&b_tail[200..600]) || b.contains(&a_tail[200..600]));
        let tokens = Guess::default().count(&a);
        assert!(tokens.abs_diff(2028) <= 2, "{tokens}");
    }

    #[test]
    fn histories_grow_or_share_their_beginning() {
        let chat = &script("chat", "turns = 3", 0, 1).users[0].steps;
        let roles = |step: &Step| -> Vec<String> {
            step.messages.iter().map(|m| m["role"].as_str().unwrap().to_owned()).collect()
        };
        assert_eq!(roles(&chat[0]), ["system", "user"]);
        assert_eq!(roles(&chat[2]), ["user"]);
        assert_eq!((chat[0].expects, chat[1].expects), (Expects::Cold, Expects::Warm));
        let agent = &script("tools", "steps = 2", 0, 1).users[0].steps;
        assert_eq!(roles(&agent[1]), ["assistant", "tool"]);
        assert!(agent.iter().all(|step| step.tools.is_some()));
        let restart = &script("restart", "", 0, 1).users[0].steps;
        assert_eq!(restart[0].messages, restart[1].messages);
        assert!(!restart[0].relaunch && restart[1].relaunch);
    }

    #[test]
    fn users_come_together_or_apart() {
        let crowd = script("users", "", 3, 1);
        assert_eq!(crowd.users.len(), 8);
        assert!(crowd.users.iter().all(|user| user.comes_us == 0));
        let arrivals = script("arrivals", "requests = 200\nper_minute = [60]", 0, 1);
        let last = arrivals.users.last().unwrap().comes_us as f64 / 1e6;
        assert!((160.0..240.0).contains(&last), "{last}");
        let mut texts: Vec<String> = crowd
            .users
            .iter()
            .map(|user| user.steps[0].messages[0]["content"].as_str().unwrap()[..20].to_owned())
            .collect();
        texts.dedup();
        assert_eq!(texts.len(), 8);
    }
}
