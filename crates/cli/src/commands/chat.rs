//! `hearth chat`: one answer, or a conversation. The same path to the model as HTTP's.

mod repl;

use std::io::{IsTerminal, Read, Write};
use std::path::Path;

use anyhow::{Context, Result, bail};
use server::{
    Answer, Arrival, ChatRequest, ChatService, Conversation, EndOfText, Event, Format, Input, Name,
    Overrides, Stay, Usage,
};
use text::{Message, Role};
use tokio::runtime::Runtime;

use crate::env::Environment;
use crate::load::{self, Crowd, LoadArgs, Opened};
use crate::signals;
use crate::store::catalog::DEFAULT_ALIAS;
use crate::tuned::TunedArgs;

const EXAMPLES: &str = r#"Examples:
  hearth chat
  hearth chat "Why is the sky blue?"
  hearth chat ./model.gguf "Why is the sky blue?" --temperature 0
  git diff | hearth chat default --system "Write a commit message for this diff.""#;

/// Talk to a model in the terminal, or get one answer
///
/// With a PROMPT (or text on standard input): prints the answer and ends. Without: a conversation;
/// /help lists its commands. A single argument with a space in it is a PROMPT for the default model.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
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
    tuned: TunedArgs,
    #[command(flatten)]
    load: LoadArgs,
}

/// One conversation with one model.
struct Session {
    chat: ChatService,
    runtime: Runtime,
    on_interrupt: Interrupt,
    model: String,
    system: Option<String>,
    messages: Vec<Message>,
    request: RequestSettings,
}

/// What Ctrl-C does while an answer streams.
#[derive(Clone, Copy)]
enum Interrupt {
    /// As everywhere: the program is gone, with the system's own status.
    EndsProgram,
    /// What was said so far stays part of the conversation, which goes on.
    EndsAnswer,
}

/// Where the model's thoughts go. They are no part of what a program that reads the answer wants.
#[derive(Clone, Copy)]
enum Thoughts {
    /// Onto the terminal, dimmed.
    Dimmed,
    Nowhere,
}

/// What the model has said so far.
#[derive(Default)]
struct Said {
    thoughts: String,
    text: String,
}

/// What every request of a session has in common.
struct RequestSettings {
    thoughts: Thoughts,
    max_tokens: Option<usize>,
    sampling: Overrides,
    seed: Option<u64>,
    verbose: bool,
}

pub(super) fn run(mut args: Args, env: &Environment, out: &mut dyn Write) -> Result<()> {
    let (model, prompt) = match (args.model, args.prompt) {
        (Some(only), None) if is_prompt(&only) => (None, Some(only)),
        pair => pair,
    };
    let name = model.unwrap_or_else(|| DEFAULT_ALIAS.to_owned());
    let prompt = match prompt {
        None if !std::io::stdin().is_terminal() => Some(read_stdin()?),
        given => given,
    };
    let path = super::resolve(&name, env)?;
    if let Some(said) = args.tuned.fill(&name, &mut args.load, env) {
        eprintln!("{said}");
    }
    let opened = Opened::new(&path, &args.load, Crowd::ONE)?;
    let id = load::model_id(&name);
    let name = Name { id: id.clone(), aliases: Vec::new() };
    let model = opened.serve(&name, &args.load.device()?)?;
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
        runtime: tokio::runtime::Builder::new_current_thread().enable_all().build()?,
        on_interrupt: match prompt {
            Some(_) => Interrupt::EndsProgram,
            None => Interrupt::EndsAnswer,
        },
        model: id,
        system: args.system,
        messages: Vec::new(),
        request: RequestSettings {
            thoughts: match std::io::stdout().is_terminal() {
                true => Thoughts::Dimmed,
                false => Thoughts::Nowhere,
            },
            max_tokens: args.max_tokens,
            sampling,
            seed: args.seed,
            verbose: args.verbose,
        },
    };
    match prompt {
        Some(prompt) => session.ask(&prompt, out),
        None => repl::run(&mut session, &env.history, out),
    }
}

/// Models have no spaces in their names, but paths may.
fn is_prompt(argument: &str) -> bool {
    argument.contains(char::is_whitespace) && !Path::new(argument).exists()
}

fn read_stdin() -> Result<String> {
    let mut text = String::new();
    std::io::stdin().read_to_string(&mut text).context("cannot read standard input as text")?;
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
    /// Streams the answer to `out` and adds both turns to the conversation. A question that fails,
    /// or is interrupted before the first word of its answer, is forgotten.
    fn ask(&mut self, prompt: &str, out: &mut dyn Write) -> Result<()> {
        self.messages.push(Message::text(Role::User, prompt));
        let mut said = Said::default();
        let result = self.answer(&mut said, out);
        if result.is_err() || said.text.is_empty() {
            self.messages.pop();
        } else {
            let Said { thoughts, text } = said;
            let reasoning_content = (!thoughts.is_empty()).then_some(thoughts);
            let message = Message::text(Role::Assistant, text);
            self.messages.push(Message { reasoning_content, ..message });
        }
        result
    }

    fn answer(&self, said: &mut Said, out: &mut dyn Write) -> Result<()> {
        let mut answer = self.chat.submit(&self.request(), Arrival::now("terminal"))?;
        let seed = answer.head().seed;
        let streaming = stream(&mut answer, said, (self.request.thoughts, out));
        let usage = self.runtime.block_on(async {
            match self.on_interrupt {
                Interrupt::EndsProgram => streaming.await.map(Some),
                Interrupt::EndsAnswer => tokio::select! {
                    () = signals::interrupted() => Ok(None),
                    usage = streaming => usage.map(Some),
                },
            }
        })?;
        writeln!(out)?;
        match usage {
            None => eprintln!("[stopped]"),
            Some(usage) if self.request.verbose => eprintln!("{}", report(&usage, seed)),
            Some(_) => (),
        }
        Ok(())
    }

    fn request(&self) -> ChatRequest {
        let system = self.system.iter().map(|text| Message::text(Role::System, text.as_str()));
        ChatRequest {
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
            priority: 0,
            timeout: None,
            stay: Stay::Usual,
            logprobs: None,
            format: Format::Free,
            format_path: "",
        }
    }
}

/// Writes `answer` to `out` as it comes, and keeps it in `said`.
async fn stream(
    answer: &mut Answer,
    said: &mut Said,
    (thoughts, out): (Thoughts, &mut dyn Write),
) -> Result<Usage> {
    while let Some(event) = answer.recv().await {
        match event {
            Event::Text { text, .. } => {
                let gap = said.text.is_empty() && !said.thoughts.is_empty();
                if gap && matches!(thoughts, Thoughts::Dimmed) {
                    out.write_all(b"\n\n")?;
                }
                out.write_all(text.as_bytes())?;
                out.flush()?;
                said.text.push_str(&text);
            }
            Event::Reasoning { text, .. } => {
                if matches!(thoughts, Thoughts::Dimmed) {
                    // Each piece by itself: whatever ends the program, the terminal is left as it was.
                    write!(out, "\x1b[2m{text}\x1b[22m")?;
                    out.flush()?;
                }
                said.thoughts.push_str(&text);
            }
            Event::Finished(usage) => return Ok(usage),
            Event::Failed(error) => return Err(error.into()),
            // There are no tools here.
            Event::Call { .. } => (),
            Event::Started { .. } | Event::Progress { .. } | Event::Done { .. } => (),
        }
    }
    bail!("the engine stopped in the middle of the answer; start again")
}

fn report(usage: &Usage, seed: u64) -> String {
    let timings = usage.timings;
    format!(
        "[{} prompt tokens ({} cached), first after {:.0} ms; {} tokens at {:.1}/s; seed {seed}]",
        usage.prompt_tokens,
        usage.cached_tokens,
        timings.queue_ms + timings.prompt_ms,
        usage.completion_tokens,
        timings.predicted_per_second,
    )
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
