//! The scripted server: a transport that has the bytes of an answer and the time that passes before each
//! of them.

use std::io::{Error, ErrorKind, Read, Result};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use hearth_lab::client::{Reply, Session, Transport};
use hearth_lab::clock::Clock;
use hearth_lab::prompt::CountTokens;
use hearth_lab::record::{Cell, Expects, Phase, Run, State, Turn};
use serde_json::{Value, json};

/// Shows what it was told.
#[derive(Clone, Default)]
pub(crate) struct Virtual(Arc<AtomicU64>);

impl Virtual {
    pub(crate) fn pass(&self, us: u64) {
        self.0.fetch_add(us, Ordering::SeqCst);
    }
}

impl Clock for Virtual {
    fn now(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }

    fn wait_until(&self, at: u64) {
        self.0.fetch_max(at, Ordering::SeqCst);
    }
}

/// Every word is a token, as the script writes them.
pub(crate) struct Words;

impl CountTokens for Words {
    fn count(&self, text: &str) -> usize {
        text.split_whitespace().count()
    }
}

/// What comes over the network: after so many microseconds, these bytes; or an end without one.
pub(crate) enum Piece {
    After(u64, Vec<u8>),
    Break(u64),
}

/// An answer as it comes.
#[derive(Default)]
pub(crate) struct Script {
    pub(crate) status: Option<u16>,
    pub(crate) pieces: Vec<Piece>,
}

impl Script {
    pub(crate) fn raw(mut self, after: u64, bytes: &str) -> Script {
        self.pieces.push(Piece::After(after, bytes.as_bytes().to_vec()));
        self
    }

    pub(crate) fn event(self, after: u64, data: &Value) -> Script {
        self.raw(after, &format!("data: {data}\n\n"))
    }

    /// A chunk with text of one field of the delta.
    pub(crate) fn text(self, after: u64, field: &str, text: &str) -> Script {
        self.event(after, &json!({"choices": [{"index": 0, "delta": {field: text}}]}))
    }

    pub(crate) fn finish(self, after: u64, reason: &str) -> Script {
        self.event(after, &json!({"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]}))
    }

    pub(crate) fn usage(self, after: u64, prompt: u32, completion: u32, cached: u32) -> Script {
        let details = json!({"cached_tokens": cached});
        let usage = json!({"prompt_tokens": prompt, "completion_tokens": completion,
                           "prompt_tokens_details": details});
        self.event(after, &json!({"choices": [], "usage": usage}))
    }

    pub(crate) fn done(self, after: u64) -> Script {
        self.raw(after, "data: [DONE]\n\n")
    }

    pub(crate) fn broken(mut self, after: u64) -> Script {
        self.pieces.push(Piece::Break(after));
        self
    }

    /// What a client makes of it, that asks at `asked`.
    pub(crate) fn play(self, asked: u64, tokens: Option<&dyn CountTokens>) -> Turn {
        let clock = Virtual::default();
        clock.pass(asked);
        let transport = Box::new(Scripted { script: Some(self), clock: clock.clone() });
        let mut session = Session { transport, clock: &clock, tokens, stopped: &|| false };
        session.ask("/v1/chat/completions", "{}")
    }
}

struct Scripted {
    script: Option<Script>,
    clock: Virtual,
}

impl Transport for Scripted {
    fn post(&mut self, _path: &str, _body: &str) -> std::result::Result<Reply, String> {
        let script = self.script.take().ok_or("connection refused")?;
        let body =
            Body { pieces: script.pieces.into_iter(), rest: Vec::new(), clock: self.clock.clone() };
        Ok(Reply { status: script.status.unwrap_or(200), body: Box::new(body) })
    }
}

struct Body {
    pieces: std::vec::IntoIter<Piece>,
    rest: Vec<u8>,
    clock: Virtual,
}

impl Read for Body {
    fn read(&mut self, buffer: &mut [u8]) -> Result<usize> {
        while self.rest.is_empty() {
            match self.pieces.next() {
                None => return Ok(0),
                Some(Piece::After(us, bytes)) => {
                    self.clock.pass(us);
                    self.rest = bytes;
                }
                Some(Piece::Break(us)) => {
                    self.clock.pass(us);
                    return Err(Error::new(ErrorKind::ConnectionReset, "connection reset"));
                }
            }
        }
        let n = self.rest.len().min(buffer.len());
        buffer[..n].copy_from_slice(&self.rest[..n]);
        self.rest.drain(..n);
        Ok(n)
    }
}

/// A run of these requests, each of a user of its own.
pub(crate) fn run(turns: Vec<Turn>) -> Run {
    let number = |(user, turn): (usize, Turn)| Turn { user: user as u32, ..turn };
    Run {
        arm: "a".to_owned(),
        model: "m".to_owned(),
        block: 0,
        phase: Phase::Measured,
        cell: Cell { workload: "w".to_owned(), axis: "users".to_owned(), at: 1 },
        before: State::default(),
        after: State::default(),
        turns: turns.into_iter().enumerate().map(number).collect(),
    }
}

/// As it is, but its beginning may be cached.
pub(crate) fn warm(turn: Turn) -> Turn {
    Turn { expects: Expects::Warm, ..turn }
}
