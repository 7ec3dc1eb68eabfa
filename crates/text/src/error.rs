//! The one error type of the crate. Its texts say what the reader can do; it is not about HTTP.

/// What can be wrong with a model's text files or with a conversation.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The tokenizer file cannot be used.
    #[error("the tokenizer cannot be used: {0}. Fetch the model again, or pick another one")]
    Tokenizer(String),
    /// The tokenizer turns ids into text by a rule that cannot be streamed.
    #[error(
        "the tokenizer's decoder `{0}` is not supported; supported are ByteLevel, Metaspace, WordPiece \
         and sequences of Replace, ByteFallback, Fuse, Strip"
    )]
    Decoder(String),
    /// The text could not be encoded.
    #[error("the text cannot be encoded by this model's tokenizer: {0}")]
    Encode(String),
    /// The chat template does not parse.
    #[error("the chat template does not parse: {0}. Give another template, or use /v1/completions")]
    TemplateSyntax(String),
    /// The template itself refuses the conversation through `raise_exception`.
    #[error("the model's chat template refuses this conversation: {0}")]
    Raised(String),
    /// The template fails on this conversation.
    #[error("the model's chat template fails on this conversation: {0}")]
    Render(String),
    /// The template burns more than any honest one needs.
    #[error("the model's chat template does not come to an end within its limit of {limit} steps")]
    TemplateLimit {
        /// Steps it may take for a conversation of this size.
        limit: u64,
    },
    /// A message is not what the API allows; `path` is where, as in `messages[1].content`.
    #[error("{path}: {problem}")]
    Message {
        /// Place in the request, as in `messages[1].tool_calls[0].function.arguments`.
        path: String,
        /// What is wrong there and what is expected.
        problem: String,
    },
}
