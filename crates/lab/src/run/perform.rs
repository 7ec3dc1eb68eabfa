//! Plays a script: sends what its users say, when they say it, and keeps everything that comes back.

use std::collections::BTreeMap;
use std::thread;

use serde_json::{Value, json};

use crate::client::Session;
use crate::record::{Trouble, Turn};
use crate::workload::{Keep, Step, User};

/// What requests have in common.
#[derive(Clone, Debug, Default)]
pub struct Request {
    /// What the server calls the model.
    pub model: String,
    /// Sampling, and what the engine's recipe adds.
    pub fields: BTreeMap<String, Value>,
    /// What the recipe adds to requests that no cache shall help.
    pub cold_fields: BTreeMap<String, Value>,
}

impl Request {
    fn body(&self, step: &Step, messages: &[Value]) -> String {
        let mut body = json!({
            "model": self.model,
            "messages": messages,
            "max_tokens": step.answer,
            "stream": true,
            "stream_options": {"include_usage": true},
        });
        let mut put = |fields: &BTreeMap<String, Value>| {
            for (name, value) in fields {
                body[name] = value.clone();
            }
        };
        put(&self.fields);
        // A request whose messages are needed again must be allowed into the cache.
        if step.keep == Keep::Nothing {
            put(&self.cold_fields);
        }
        if let Some(tools) = &step.tools {
            body["tools"] = tools.clone();
            body["tool_choice"] = json!("auto");
        }
        body.to_string()
    }
}

/// What one user remembers between requests.
#[derive(Debug, Default)]
pub struct Memory {
    messages: Vec<Value>,
    number: u32,
}

impl Memory {
    /// One request of the user.
    pub fn ask(&mut self, step: &Step, request: &Request, session: &mut Session) -> Turn {
        self.messages.extend(step.messages.iter().cloned());
        let body = request.body(step, &self.messages);
        // Counted before the time is taken.
        let prompt = session.tokens.map(|tokens| {
            let texts = self.messages.iter().filter_map(|message| message["content"].as_str());
            texts.map(|text| tokens.count(text) as u32).sum()
        });
        let mut turn = session.ask("/v1/chat/completions", &body);
        turn.counted.prompt = prompt;
        turn.turn = self.number;
        turn.expects = step.expects;
        turn.wanted = step.wanted;
        turn.max_tokens = step.answer;
        self.number += 1;
        match step.keep {
            Keep::Answer => {
                self.messages.push(json!({"role": "assistant", "content": turn.answer}));
            }
            Keep::Messages => (),
            Keep::Beginning => {
                self.messages.pop();
            }
            Keep::Nothing => self.messages.clear(),
        }
        turn
    }
}

/// Plays what users do who need no restart, all at once; each has a session of its own. A user whose
/// request fails asks nothing further. The answers by user, then by time.
pub fn play<'s>(
    users: &[User],
    request: &Request,
    session: &(dyn Fn() -> Session<'s> + Sync),
) -> Vec<Turn> {
    thread::scope(|scope| {
        let threads: Vec<_> = users
            .iter()
            .enumerate()
            .map(|(number, user)| scope.spawn(move || one(user, number as u32, request, session())))
            .collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap_or_default()).collect()
    })
}

fn one(user: &User, number: u32, request: &Request, mut session: Session) -> Vec<Turn> {
    let mut memory = Memory::default();
    let mut turns = Vec::new();
    session.clock.wait_until(user.comes_us);
    for step in &user.steps {
        let turn = Turn { user: number, ..memory.ask(step, request, &mut session) };
        let failed = turn.error.is_some();
        turns.push(turn);
        if failed {
            break;
        }
    }
    turns
}

/// Whether somebody asked to stop while these were on their way: then they are no result.
pub(super) fn was_interrupted(turns: &[Turn]) -> bool {
    turns.iter().any(|turn| turn.error == Some(Trouble::Interrupted))
}
