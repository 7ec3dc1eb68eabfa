//! `hearth chat`: one answer, or a conversation. The same path to the model as HTTP's.

mod repl;

use std::io::{IsTerminal, Read, Write};

use anyhow::{Result, bail};
use server::{Arrival, ChatRequest, ChatService, Conversation, EndOfText, Event, Input, Overrides};
use text::{Message, Role};

use crate::env::Environment;
use crate::load::{self, Crowd, LoadArgs, Opened};
use crate::store::catalog::DEFAULT_ALIAS;

/// With a PROMPT (or text on standard input): prints the answer and ends. Without: a conversation;
/// /help lists its commands. A single argument with a space in it is a PROMPT for the default model.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Model to talk to [default: smollm2-135m-4bit]
    model: Option<String>,
    /// What to ask
    prompt: Option<String>,
    /// Instructions that stand before the conversation
    #[arg(long)]
    system: Option<String>,
    /// Longest answer, in tokens [default: to the end of the context]
    #[arg(long, value_name = "N")]
    max_tokens: Option<usize>,
    /// Randomness; 0 always takes the likeliest token [default: the model's own]
    #[arg(long, value_name = "T", value_parser = temperature)]
    temperature: Option<f32>,
    /// Share of probability to choose from [default: the model's own]
    #[arg(long, value_name = "P", value_parser = share)]
    top_p: Option<f32>,
    /// Number of tokens to choose from [default: the model's own]
    #[arg(long, value_name = "K")]
    top_k: Option<usize>,
    /// Same seed, same answer [default: a random one]
    #[arg(long)]
    seed: Option<u64>,
    /// Print speed and seed after each answer
    #[arg(long, short)]
    verbose: bool,
    #[command(flatten)]
    load: LoadArgs,
}

/// One conversation with one model.
struct Session {
    chat: ChatService,
    model: String,
    system: Option<String>,
    messages: Vec<Message>,
    request: RequestSettings,
}

/// What every request of a session has in common.
struct RequestSettings {
    max_tokens: Option<usize>,
    sampling: Overrides,
    seed: Option<u64>,
    verbose: bool,
}

pub(super) fn run(args: Args, env: &Environment) -> Result<()> {
    let (model, prompt) = match (args.model, args.prompt) {
        (Some(only), None) if only.contains(char::is_whitespace) => (None, Some(only)),
        pair => pair,
    };
    let name = model.unwrap_or_else(|| DEFAULT_ALIAS.to_owned());
    let prompt = match prompt {
        None if !std::io::stdin().is_terminal() => Some(read_stdin()?),
        given => given,
    };
    let path = super::resolve(&name, env)?;
    let opened = Opened::new(&path, &args.load)?;
    let id = load::model_id(&name);
    let crowd = Crowd { seqs: 1, queue: 1 };
    let model = opened.serve(id.clone(), Vec::new(), &args.load, crowd)?;
    if model.template.is_none() {
        bail!(
            "`{id}` has no chat template: it completes text but does not chat. Serve it and use /v1/completions"
        );
    }
    let sampling = Overrides {
        temperature: args.temperature,
        top_p: args.top_p,
        top_k: args.top_k,
        ..Overrides::default()
    };
    let mut session = Session {
        chat: ChatService::new(vec![model]),
        model: id,
        system: args.system,
        messages: Vec::new(),
        request: RequestSettings {
            max_tokens: args.max_tokens,
            sampling,
            seed: args.seed,
            verbose: args.verbose,
        },
    };
    match prompt {
        Some(prompt) => session.ask(&prompt),
        None => repl::run(&mut session, &env.history),
    }
}

fn read_stdin() -> Result<String> {
    let mut text = String::new();
    std::io::stdin().read_to_string(&mut text)?;
    if text.trim().is_empty() {
        bail!("there is nothing to answer: give a prompt, or text on standard input");
    }
    Ok(text)
}

fn temperature(text: &str) -> Result<f32, String> {
    number_in(text, 0.0, 2.0)
}

fn share(text: &str) -> Result<f32, String> {
    number_in(text, f32::MIN_POSITIVE, 1.0)
}

fn number_in(text: &str, low: f32, high: f32) -> Result<f32, String> {
    let number: f32 = text.parse().map_err(|_| "not a number".to_owned())?;
    if (low..=high).contains(&number) {
        Ok(number)
    } else {
        Err(format!("must be within {low} and {high}"))
    }
}

impl Session {
    /// Streams the answer to standard output and adds both turns to the conversation. A question
    /// that fails is forgotten.
    fn ask(&mut self, prompt: &str) -> Result<()> {
        self.messages.push(Message::text(Role::User, prompt));
        match self.answer() {
            Ok(answer) => {
                self.messages.push(Message::text(Role::Assistant, answer));
                Ok(())
            }
            Err(error) => {
                self.messages.pop();
                Err(error)
            }
        }
    }

    fn answer(&self) -> Result<String> {
        let system = self.system.iter().map(|text| Message::text(Role::System, text.as_str()));
        let request = ChatRequest {
            model: self.model.clone(),
            input: Input::Chat(Conversation {
                messages: system.chain(self.messages.iter().cloned()).collect(),
                ..Conversation::default()
            }),
            n: 1,
            max_tokens: self.request.max_tokens,
            sampling: self.request.sampling.clone(),
            seed: self.request.seed,
            stop: Vec::new(),
            end: EndOfText::Stops,
            logprobs: None,
        };
        let mut answer = self.chat.submit(&request, Arrival::now("terminal"))?;
        let seed = answer.head().seed;
        let mut out = std::io::stdout().lock();
        let mut whole = String::new();
        while let Some(event) = answer.blocking_recv() {
            match event {
                Event::Text { text, .. } => {
                    out.write_all(text.as_bytes())?;
                    out.flush()?;
                    whole.push_str(&text);
                }
                Event::Finished(usage) => {
                    writeln!(out)?;
                    if self.request.verbose {
                        let timings = usage.timings;
                        eprintln!(
                            "[{} prompt tokens ({} cached), first after {:.0} ms; {} tokens at {:.1}/s; seed {seed}]",
                            usage.prompt_tokens,
                            usage.cached_tokens,
                            timings.queue_ms + timings.prompt_ms,
                            usage.completion_tokens,
                            timings.predicted_per_second,
                        );
                    }
                }
                Event::Failed(error) => return Err(error.into()),
                Event::Started { .. } | Event::Progress { .. } | Event::Done { .. } => (),
            }
        }
        Ok(whole)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_out_of_range_are_refused() {
        assert!(temperature("0").is_ok() && temperature("2").is_ok());
        for bad in ["-0.1", "2.1", "NaN", "hot"] {
            assert!(temperature(bad).is_err(), "{bad}");
        }
        assert!(share("0").is_err() && share("1").is_ok());
    }
}
