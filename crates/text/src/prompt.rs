//! A rendered prompt that remembers which special-token strings came from users. It is not encoded
//! yet: that is [`crate::Tokenizer::encode_prompt`].

/// A part of a prompt.
#[derive(Clone, Debug, PartialEq)]
pub enum Piece {
    /// Text in which special tokens are control tokens: all of them were written by the template.
    Text(String),
    /// A special token's string that a user wrote: it is encoded as the letters it consists of.
    Literal(String),
}

/// A rendered chat prompt. Pieces are split only where a user's text really holds the string of a
/// special token, so that everything else is tokenised as one text.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Prompt {
    /// Parts in order.
    pub pieces: Vec<Piece>,
}

impl Prompt {
    /// A prompt that comes from one trusted text.
    pub fn trusted(text: impl Into<String>) -> Prompt {
        Prompt { pieces: vec![Piece::Text(text.into())] }
    }

    /// The whole text, as a person would read it.
    pub fn text(&self) -> String {
        let text = self.pieces.iter().map(|piece| match piece {
            Piece::Text(text) | Piece::Literal(text) => text.as_str(),
        });
        text.collect()
    }

    pub(crate) fn push_text(&mut self, text: &str) {
        match self.pieces.last_mut() {
            _ if text.is_empty() => {}
            Some(Piece::Text(last)) => last.push_str(text),
            _ => self.pieces.push(Piece::Text(text.into())),
        }
    }

    pub(crate) fn push_literal(&mut self, text: &str) {
        self.pieces.push(Piece::Literal(text.into()));
    }
}
