//! Between what people write and what models emit: messages, templates, tokens, stop strings.
//!
//! Pure functions and small state machines. It is no place for the engine, HTTP, JSON dialects,
//! the clock or the file system: all of those come in as arguments.

mod detokenize;
pub mod digits;
mod encode;
mod eos;
mod error;
pub mod grammar;
mod message;
mod model;
mod normalise;
mod prompt;
mod reasoning;
mod reply;
mod stop;
pub mod template;
mod tokenizer;
mod tools;

pub use detokenize::{Detokenizer, Specials, Start};
pub use eos::{EosSources, eos_ids};
pub use error::Error;
pub use message::{Content, Message, Role, ToolCall};
pub use model::{Joins, Vocabulary};
pub use normalise::normalise;
pub use prompt::{Piece, Prompt};
pub use reply::{End, Opening, Part, Splitter, Syntax, Tools};
pub use stop::{Pushed, StopMatcher};
pub use template::{LocalTime, RenderInput, Template, TemplateFiles};
pub use tokenizer::{AddedToken, Tokenizer, TokenizerFiles};
