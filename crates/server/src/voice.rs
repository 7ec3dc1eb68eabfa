//! How the answers to one prompt are read: by which syntaxes, from which state on, with which tools. How
//! text is cut by that is the text crate's.

use engine::TokenId;
use text::{Opening, Splitter, Syntax, Tokenizer, Tools};

use crate::request::Calls;

/// Reads the answers to one prompt of a chat.
#[derive(Clone, Debug)]
pub(crate) struct Voice {
    pub(crate) syntax: Syntax,
    pub(crate) opening: Opening,
    pub(crate) tools: Tools,
    pub(crate) calls: Calls,
}

impl Voice {
    /// For one answer. Ids of calls depend on the prompt too, so that those of two turns of a
    /// conversation with a fixed seed differ.
    pub(crate) fn splitter(&self, prompt: &[TokenId], seed: u64) -> Splitter {
        let ids = prompt.iter().fold(seed, |hash, &token| {
            (hash ^ u64::from(token)).wrapping_mul(0x0000_0100_0000_01B3).rotate_left(23)
        });
        Splitter::new(self.syntax, self.opening.clone(), self.tools.clone(), ids)
    }

    /// Control tokens that mean something to the splitter.
    pub(crate) fn markers(&self, tokenizer: &Tokenizer) -> Vec<TokenId> {
        let markers = self.syntax.markers(!self.tools.is_empty());
        let ids = markers.into_iter().filter_map(|marker| tokenizer.id_of(marker));
        ids.filter(|&id| tokenizer.is_special(id)).collect()
    }
}
