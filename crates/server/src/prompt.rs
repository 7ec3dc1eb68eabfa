//! From what a request holds to prompt tokens. Which template and which tokenizer is the model's
//! business, how they work is the text crate's.

use engine::TokenId;
use serde_json::{Map, Value};
use text::{
    Detokenizer, LocalTime, Message, Opening, RenderInput, Role, Specials, Start, Syntax, Template,
    Tools,
};

use crate::error::{ApiError, ErrorKind};
use crate::model::Model;
use crate::request::{Conversation, Echo, Input, Prompt};
use crate::voice::Voice;

/// One prompt, ready for the engine.
pub(crate) struct Ready {
    pub(crate) tokens: Vec<TokenId>,
    /// How many tokens at its start other conversations will start with too.
    pub(crate) pin: usize,
    /// Where other prompts are likely to go on differently, as the engine wants to know.
    pub(crate) marks: Vec<usize>,
    /// What its answers begin with.
    pub(crate) echo: String,
    /// How a chat's answers are read.
    pub(crate) voice: Option<Voice>,
}

/// Instructions that are shorter, in bytes, are computed again faster than they are looked for.
const LONG_INSTRUCTIONS: usize = 1000;

/// The prompts of a request. `now` is what templates print as the date.
pub(crate) fn prompts(
    model: &Model,
    input: &Input,
    now: LocalTime,
) -> Result<Vec<Ready>, ApiError> {
    match input {
        Input::Chat(conversation) => Ok(vec![chat(model, conversation, now)?]),
        Input::Plain { prompts, echo } => {
            prompts.iter().map(|prompt| plain(model, prompt, *echo)).collect()
        }
    }
}

fn plain(model: &Model, prompt: &Prompt, echo: Echo) -> Result<Ready, ApiError> {
    let tokens = match prompt {
        Prompt::Text(text) => {
            model.tokenizer.encode_raw(text).map_err(|e| text_error(e, "prompt"))?
        }
        Prompt::Tokens(tokens) => tokens.clone(),
    };
    let echo = match (echo, prompt) {
        (Echo::Nothing, _) => String::new(),
        (Echo::Prompt, Prompt::Text(text)) => text.clone(),
        (Echo::Prompt, Prompt::Tokens(tokens)) => {
            let mut text = Detokenizer::new(&model.tokenizer, Specials::Skip, Start::Text);
            let mut pieces: String = tokens.iter().map(|&id| text.push(id)).collect();
            pieces += &text.finish();
            pieces
        }
    };
    Ok(Ready { tokens, pin: 0, marks: Vec::new(), echo, voice: None })
}

fn chat(model: &Model, chat: &Conversation, now: LocalTime) -> Result<Ready, ApiError> {
    let template = model.template.as_ref().ok_or_else(|| {
        let message = "this model has no chat template; use /v1/completions";
        ApiError::refused("no_chat_template", "messages", message)
    })?;
    let failed = |error| text_error(error, "messages");
    let kwargs = with_synonyms(chat.kwargs.clone(), template.source(&chat.tools));
    let messages = text::normalise(chat.messages.clone(), &chat.tools, template).map_err(failed)?;
    let input = RenderInput {
        messages: &messages,
        tools: &chat.tools,
        add_generation_prompt: true,
        kwargs: &kwargs,
        now,
    };
    let mut prompt = template.render(&input).map_err(failed)?;
    let syntax = Syntax::of(template.source(&chat.tools));
    let opening = syntax.opening(&prompt.text());
    let opening = go_on(&mut prompt, chat.begun.as_deref(), opening)?;
    let tokens = model.tokenizer.encode_prompt(&prompt).map_err(failed)?;
    let pin = instructions(model, template, &input, &tokens);
    let marks = if model.has_states() {
        end_of_messages(model, template, &input, (&prompt.text(), &tokens)).into_iter().collect()
    } else {
        Vec::new()
    };
    let voice = Voice { syntax, opening, tools: Tools::new(&chat.tools), calls: chat.calls };
    Ok(Ready { tokens, pin, marks, echo: String::new(), voice: Some(voice) })
}

/// Adds how the client has begun the answer; gives how the rest of it begins. What a client writes is
/// never a control token.
fn go_on(
    prompt: &mut text::Prompt,
    begun: Option<&str>,
    opening: Opening,
) -> Result<Opening, ApiError> {
    let Some(begun) = begun else { return Ok(opening) };
    if matches!(opening, Opening::Thoughts | Opening::Header(_)) {
        let message = "the last message begins the answer, but this model thinks first: turn \
                       thinking off, or end with a user message";
        return Err(ApiError::refused("unsupported_prefill", "messages", message));
    }
    if opening == Opening::Begun {
        let message = "the last message begins the answer, but this model says first whom it speaks \
                       to: end with a user message";
        return Err(ApiError::refused("unsupported_prefill", "messages", message));
    }
    prompt.pieces.push(text::Piece::Literal(begun.to_owned()));
    Ok(Opening::Answer)
}

/// Template variables, with the wish whether to think also under the names that some templates have
/// for it.
fn with_synonyms(mut kwargs: Map<String, Value>, template: &str) -> Map<String, Value> {
    if let Some(on) = kwargs.get("enable_thinking").cloned()
        && !template.contains("enable_thinking")
    {
        for name in ["thinking", "reasoning"] {
            kwargs.entry(name).or_insert_with(|| on.clone());
        }
        if let Some(on) = on.as_bool()
            && template.contains("thinking_mode == \"")
        {
            let mode = if on { "enabled" } else { "disabled" };
            kwargs.entry("thinking_mode").or_insert_with(|| mode.into());
        }
    }
    kwargs
}

/// How many tokens of a prompt, given as text and as tokens, there are up to the end of its last
/// message. What follows there begins the answer, and may be another when the next turn repeats the
/// conversation: templates leave out what was thought. `None` if it cannot be told.
fn end_of_messages(
    model: &Model,
    template: &Template,
    input: &RenderInput<'_>,
    (text, tokens): (&str, &[TokenId]),
) -> Option<usize> {
    let messages = template.render(&RenderInput { add_generation_prompt: false, ..*input }).ok()?;
    let opening = text.strip_prefix(&messages.text())?;
    let opening = model.tokenizer.encode_prompt(&text::Prompt::trusted(opening)).ok()?;
    let bos = model.tokenizer.bos().filter(|bos| opening.first() == Some(bos));
    let opening = &opening[usize::from(bos.is_some())..];
    tokens.strip_suffix(opening).map(<[TokenId]>::len)
}

/// How many of `tokens` at the start are standing instructions, tools included: those that stay when
/// the user says something else. Nought if there are none or hardly any.
fn instructions(
    model: &Model,
    template: &Template,
    input: &RenderInput<'_>,
    tokens: &[TokenId],
) -> usize {
    let instructs = |message: &&Message| matches!(message.role, Role::System | Role::Developer);
    let mut other: Vec<Message> = input.messages.iter().take_while(instructs).cloned().collect();
    let length = |message: &Message| message.content.clone().map_or(0, |c| c.into_text().len());
    let n_bytes: usize = other.iter().map(length).sum();
    if input.tools.is_empty() && n_bytes < LONG_INSTRUCTIONS {
        return 0;
    }
    other.push(Message::text(Role::User, "\u{2026}"));
    // A template that refuses this conversation says nothing about the real one.
    let rendered = template.render(&RenderInput { messages: &other, ..*input });
    let encoded = rendered.and_then(|prompt| model.tokenizer.encode_prompt(&prompt));
    let same = |other: Vec<TokenId>| tokens.iter().zip(other).take_while(|(a, b)| *a == b).count();
    encoded.map_or(0, same)
}

/// Where the texts of the answers begin: a chat's is a text of its own, unless the client has begun it; a
/// completion goes on.
pub(crate) fn start(input: &Input) -> Start {
    match input {
        Input::Chat(Conversation { begun: Some(_), .. }) => Start::Continuation,
        Input::Chat(_) => Start::Text,
        Input::Plain { .. } => Start::Continuation,
    }
}

/// The field that errors about the prompt point at.
pub(crate) fn param(input: &Input) -> &'static str {
    match input {
        Input::Chat(_) => "messages",
        Input::Plain { .. } => "prompt",
    }
}

fn text_error(error: text::Error, param: &str) -> ApiError {
    let message = error.to_string();
    match error {
        text::Error::Message { path, .. } => ApiError::field(path, message),
        text::Error::Raised(_) | text::Error::Render(_) | text::Error::TemplateLimit { .. } => {
            ApiError::refused("template_error", param, message)
        }
        text::Error::Encode(_) => ApiError::field(param, message),
        _ => ApiError::new(ErrorKind::Internal, "model_error", message),
    }
}
