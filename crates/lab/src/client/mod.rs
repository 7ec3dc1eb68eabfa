//! One streamed request, and when each piece of its answer arrived.
//!
//! A piece has the time at which the network's bytes were there, not when somebody got round to reading
//! them: the clock is read directly after each read, before anything is parsed.

mod delta;
mod http;
mod sse;

use std::io::Read;

pub use delta::Delta;
pub use http::{Http, HttpOptions};
pub use sse::{Events, TooLong};

use crate::clock::Clock;
use crate::prompt::CountTokens;
use crate::record::{Arrival, Channel, Counted, Trouble, Turn};

/// Longest error that is kept.
const ERROR_CHARS: usize = 400;

/// How requests reach a server. Tests bring one that has the answers.
pub trait Transport: Send {
    /// Sends a body of JSON; returns when the head of the answer is there.
    ///
    /// # Errors
    /// What the system says if there is no answer.
    fn post(&mut self, path: &str, body: &str) -> Result<Reply, String>;
}

/// The head of an answer, and its body as it comes.
pub struct Reply {
    /// HTTP status.
    pub status: u16,
    /// Gives what has arrived, and waits only when that is nothing.
    pub body: Box<dyn Read + Send>,
}

/// One user's connection, with the clock that times it.
pub struct Session<'a> {
    /// How requests get there.
    pub transport: Box<dyn Transport + 'a>,
    /// Times are read from it.
    pub clock: &'a dyn Clock,
    /// Counts the tokens of answers, where a tokenizer is at hand.
    pub tokens: Option<&'a dyn CountTokens>,
    /// Says whether to give up.
    pub stopped: &'a (dyn Fn() -> bool + Sync),
}

impl Session<'_> {
    /// Asks and listens to the end. Whatever goes wrong is part of what is returned, with all that
    /// came before it.
    pub fn ask(&mut self, path: &str, body: &str) -> Turn {
        let mut turn = Turn { asked_us: self.clock.now(), ..Turn::default() };
        let reply = self.transport.post(path, body);
        let at = self.clock.now();
        match reply {
            Err(why) => turn.error = Some(Trouble::Unreachable { why }),
            Ok(reply) if !(200..300).contains(&reply.status) => {
                turn.head_us = Some(at);
                turn.error =
                    Some(Trouble::Refused { status: reply.status, why: beginning(reply.body) });
            }
            Ok(mut reply) => {
                turn.head_us = Some(at);
                turn.error = self.listen(&mut *reply.body, &mut turn).err();
            }
        }
        turn.ended_us = self.clock.now();
        if let Some(tokens) = self.tokens {
            count(&mut turn, tokens);
        }
        turn
    }

    fn listen(&self, body: &mut dyn Read, turn: &mut Turn) -> Result<(), Trouble> {
        let mut events = Events::default();
        let mut buffer = vec![0; 64 << 10];
        let mut ended = false;
        while !ended {
            let read = body.read(&mut buffer);
            let at = self.clock.now();
            if (self.stopped)() {
                return Err(Trouble::Interrupted);
            }
            let n = match read {
                Ok(0) => break,
                Ok(n) => n,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(Trouble::Cut { why: error.to_string() }),
            };
            let mut trouble = None;
            let taken = events.push(&buffer[..n], |data| {
                if data == b"[DONE]" {
                    ended = true;
                } else if trouble.is_none() {
                    trouble = take(turn, at, data).err();
                }
            });
            if taken.is_err() {
                return Err(Trouble::Garbled { why: "an event that does not end".to_owned() });
            }
            if let Some(trouble) = trouble {
                return Err(trouble);
            }
        }
        // Some end without saying so; a reason to finish says as much.
        match turn.finish {
            None if !ended => Err(Trouble::Cut { why: "the stream just ended".to_owned() }),
            _ => Ok(()),
        }
    }
}

fn take(turn: &mut Turn, at: u64, data: &[u8]) -> Result<(), Trouble> {
    let Some(delta) = Delta::of(data) else {
        return Err(Trouble::Garbled { why: beginning(data) });
    };
    for (channel, text) in delta.texts {
        turn.arrivals.push(Arrival(at, channel, text.len() as u32));
        match channel {
            Channel::Answer => turn.answer.push_str(&text),
            Channel::Thought => turn.thoughts.push_str(&text),
            Channel::Call => turn.calls.push_str(&text),
        }
    }
    turn.finish = delta.finish.or(turn.finish.take());
    turn.usage = delta.usage.or(turn.usage);
    delta.error.map_or(Ok(()), |why| Err(Trouble::Failed { why: beginning(why.as_bytes()) }))
}

/// What an error page begins with, on one line.
fn beginning(body: impl Read) -> String {
    let mut bytes = Vec::new();
    // What cannot be read of an error is left out of it.
    let _ = body.take(64 << 10).read_to_end(&mut bytes);
    if let Ok(error) = serde_json::from_slice::<serde_json::Value>(&bytes) {
        bytes = delta::told(&error).into_bytes();
    }
    let text = String::from_utf8_lossy(&bytes);
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    text.chars().take(ERROR_CHARS).collect()
}

fn count(turn: &mut Turn, tokens: &dyn CountTokens) {
    let of = |text: &str| tokens.count(text) as u32;
    let first = turn.arrivals.first().and_then(|&Arrival(at, channel, _)| {
        let together = turn.arrivals.iter().take_while(|a| a.0 == at && a.1 == channel);
        let bytes = together.map(|a| a.2 as usize).sum::<usize>();
        match channel {
            Channel::Answer => turn.answer.get(..bytes).map(of),
            Channel::Thought => turn.thoughts.get(..bytes).map(of),
            Channel::Call => None,
        }
    });
    let has_calls = turn.arrivals.iter().any(|arrival| arrival.1 == Channel::Call);
    turn.counted = Counted {
        // With calls the texts are not all of it.
        answer: (!has_calls).then(|| of(&turn.answer)),
        thoughts: (!has_calls).then(|| of(&turn.thoughts)),
        first,
        ..turn.counted
    };
}
