//! What an answer is held to, by its format or by the tools that it must call. The grammars are the
//! text crate's; masking logits between two passes is `held.rs`.

mod held;

use std::sync::Arc;

use engine::TokenId;
use text::Tokenizer;
use text::grammar::{Asked, Calls, Duty, Fault, Grammar, Grammars, Number, Part};

use crate::error::ApiError;
use crate::model::Model;
use crate::prompt::Ready;
use crate::request::{self, ChatRequest, Conversation, EndOfText, Input, ToolChoice};
use held::{Held, Masks};

/// What the answers of one model can be held to.
pub struct Shapes {
    grammars: Grammars,
    masks: Masks,
}

impl Shapes {
    /// Of a model with `n_vocab` logits, of which `stops` end an answer. Nothing is done before the
    /// first format comes.
    pub fn new(tokenizer: Arc<Tokenizer>, n_vocab: usize, stops: Vec<TokenId>) -> Shapes {
        Shapes { grammars: Grammars::new(tokenizer, n_vocab, stops), masks: Masks::default() }
    }

    /// Holds one answer to a grammar.
    pub(crate) fn hold(&self, grammar: &Grammar) -> Box<dyn engine::Constraint> {
        Box::new(Held::new(grammar.start(), &self.masks))
    }
}

/// The grammar of the answers to a prompt, if anything restricts them.
///
/// # Errors
/// What cannot be enforced, with the field at fault.
pub(crate) fn grammar(
    model: &Model,
    request: &ChatRequest,
    prompt: &Ready,
) -> Result<Option<Grammar>, ApiError> {
    let duty = match &request.input {
        Input::Chat(chat) => duty(chat),
        Input::Plain { .. } => Duty::Never,
    };
    let template = match (&model.template, &request.input) {
        (Some(template), Input::Chat(chat)) => template.source(&chat.tools),
        _ => "",
    };
    let asked = Asked {
        format: &request.format,
        calls: duty,
        voice: prompt.voice.as_ref().map(|voice| (voice.syntax, &voice.opening)),
        template,
    };
    let made = model.shapes.grammars.of_answer(&asked);
    let grammar = made.map_err(|fault| refusal(&fault, request))?;
    if grammar.is_some() && request.end == EndOfText::Ignored {
        let message = "ignore_eos does not go with a format or a call that must be made: the answer \
                       could not end with it";
        return Err(ApiError::field("ignore_eos", message));
    }
    Ok(grammar)
}

/// What of its tools a conversation may call, and whether it must.
fn duty(chat: &Conversation) -> Duty<'_> {
    let calls = |only, number| Calls { tools: &chat.tools, only, number };
    let number = match chat.calls {
        request::Calls::Several => Number::Several,
        request::Calls::AtMostOne => Number::One,
    };
    match &chat.tool_choice {
        ToolChoice::Required => Duty::Must(calls(None, number)),
        ToolChoice::Named(name) => Duty::Must(calls(Some(name), Number::One)),
        ToolChoice::Auto if !chat.tools.is_empty() => Duty::May(calls(None, number)),
        ToolChoice::Auto | ToolChoice::Never => Duty::Never,
    }
}

fn refusal(fault: &Fault, request: &ChatRequest) -> ApiError {
    let (path, code) = match fault.part {
        Part::Format => (request.format_path, "unsupported_response_format"),
        Part::Tools => ("tools", "unsupported_tool_choice"),
        Part::Calls => match &request.input {
            Input::Chat(Conversation {
                tool_choice: ToolChoice::Auto | ToolChoice::Never, ..
            })
            | Input::Plain { .. } => (request.format_path, "unsupported_response_format"),
            Input::Chat(_) => ("tool_choice", "unsupported_tool_choice"),
        },
    };
    let path = format!("{path}{}", fault.error.path);
    let message = format!("{path} cannot be enforced: {fault}");
    ApiError::refused(code, path, message)
}
