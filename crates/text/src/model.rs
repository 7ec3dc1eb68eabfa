//! What splits words into tokens: our own BPE, packed for opening large vocabularies fast, or any
//! model of the `tokenizers` crate. Everything around it (normaliser, pre-tokeniser, added tokens) is
//! the crate's, for either.

mod bpe;
mod merging;
mod read;
mod vocab;

use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::Deserialize;
use tokenizers::models::{ModelWrapper, TrainerWrapper, bpe::BpeTrainer};
use tokenizers::{
    DecoderWrapper, NormalizerWrapper, PostProcessorWrapper, PreTokenizedString,
    PreTokenizerWrapper, Token, TokenizerBuilder, TokenizerImpl, TruncationDirection,
};

use bpe::{Bpe, Options, Scratch};
use merging::{Merging, Ranked, Scored};
use vocab::{Clash, Spellings, Vocab};

/// A whole tokenizer around a [`Model`].
pub(crate) type Inner = TokenizerImpl<
    Model,
    NormalizerWrapper,
    PreTokenizerWrapper,
    PostProcessorWrapper,
    DecoderWrapper,
>;

/// The large parts of a tokenizer, where they do not come as JSON.
pub struct Vocabulary<'a> {
    /// Spellings by ascending id, from 0 on. They are checked to be UTF-8.
    pub tokens: Box<dyn Iterator<Item = Cow<'a, [u8]>> + 'a>,
    /// How tokens join.
    pub joins: Joins<'a>,
}

/// How tokens join into longer ones.
pub enum Joins<'a> {
    /// Pairs of spellings; the first joins first.
    Ranked(Box<dyn Iterator<Item = (&'a [u8], &'a [u8])> + 'a>),
    /// Any two that spell a third, best first: ids of the tokens that may join or come out of a join.
    Scored(&'a [u32]),
}

/// Splits words into tokens. Cheap to clone.
#[derive(Clone)]
pub(crate) enum Model {
    Bpe(Arc<Bpe>),
    Other(Arc<ModelWrapper>),
}

impl Model {
    fn ranked<'a>(
        vocab: Vocab,
        pairs: impl Iterator<Item = (&'a [u8], &'a [u8])>,
        options: Options,
    ) -> Result<Model, String> {
        let ranked = Ranked::new(&vocab, pairs).map_err(|(place, left, right)| {
            let [left, right] = [left, right].map(String::from_utf8_lossy);
            format!("merge {place} ({left:?} and {right:?}) does not join two tokens")
        })?;
        Ok(Model::Bpe(Arc::new(Bpe::new(vocab, Merging::Ranked(ranked), options))))
    }

    fn of(vocabulary: Vocabulary<'_>, options: Options) -> Result<Model, String> {
        let mut spellings = Spellings::default();
        vocabulary.tokens.for_each(|token| spellings.push(&token));
        let vocab = Vocab::in_order(spellings).map_err(|clash| match clash {
            Clash::Spelling(first, second, text) => {
                format!("tokens {first} and {second} are both {text:?}")
            }
            Clash::Text(id) => format!("token {id} is not UTF-8"),
            Clash::Id(_) | Clash::Size => "it has too many tokens".into(),
        })?;
        match vocabulary.joins {
            Joins::Ranked(pairs) => Model::ranked(vocab, pairs, options),
            Joins::Scored(best_first) => {
                let scored = Scored::new(&vocab, best_first);
                Ok(Model::Bpe(Arc::new(Bpe::new(vocab, Merging::Scored(scored), options))))
            }
        }
    }
}

/// A tokenizer.json but for the vocabulary.
#[derive(Deserialize)]
struct Frame {
    added_tokens: Vec<tokenizers::AddedToken>,
    normalizer: Option<NormalizerWrapper>,
    pre_tokenizer: Option<PreTokenizerWrapper>,
    post_processor: Option<PostProcessorWrapper>,
    decoder: Option<DecoderWrapper>,
    model: Options,
}

/// Puts a tokenizer together from a tokenizer.json whose model lacks `vocab` and `merges`, and those.
pub(crate) fn assemble(
    frame: &[u8],
    vocabulary: Vocabulary<'_>,
) -> Result<Inner, tokenizers::Error> {
    let frame: Frame = serde_json::from_slice(frame)?;
    let mut inner = TokenizerBuilder::new()
        .with_model(Model::of(vocabulary, frame.model)?)
        .with_normalizer(frame.normalizer)
        .with_pre_tokenizer(frame.pre_tokenizer)
        .with_post_processor(frame.post_processor)
        .with_decoder(frame.decoder)
        .build()?;
    inner.add_tokens(frame.added_tokens)?;
    Ok(inner)
}

impl tokenizers::Model for Model {
    type Trainer = TrainerWrapper;

    fn tokenize(&self, word: &str) -> tokenizers::Result<Vec<Token>> {
        match self {
            Model::Bpe(bpe) => tokens(bpe, word, &mut Scratch::new()),
            Model::Other(model) => model.tokenize(word),
        }
    }

    fn tokenize_in_pretokenized(
        &self,
        words: &mut PreTokenizedString,
        truncation: Option<(usize, TruncationDirection)>,
    ) -> tokenizers::Result<()> {
        match self {
            // Nothing here truncates.
            Model::Bpe(bpe) => {
                let scratch = RefCell::new(Scratch::new());
                words.tokenize(|word| tokens(bpe, word.get(), &mut scratch.borrow_mut()))
            }
            Model::Other(model) => model.tokenize_in_pretokenized(words, truncation),
        }
    }

    fn token_to_id(&self, token: &str) -> Option<u32> {
        match self {
            Model::Bpe(bpe) => bpe.vocab().id(token),
            Model::Other(model) => model.token_to_id(token),
        }
    }

    fn id_to_token(&self, id: u32) -> Option<String> {
        match self {
            Model::Bpe(bpe) => bpe.vocab().spelling(id).map(str::to_owned),
            Model::Other(model) => model.id_to_token(id),
        }
    }

    fn get_vocab(&self) -> HashMap<String, u32> {
        match self {
            Model::Bpe(bpe) => bpe.vocab().iter().map(|(id, text)| (text.to_owned(), id)).collect(),
            Model::Other(model) => model.get_vocab(),
        }
    }

    fn get_vocab_size(&self) -> usize {
        match self {
            Model::Bpe(bpe) => bpe.vocab().len(),
            Model::Other(model) => model.get_vocab_size(),
        }
    }

    fn save(&self, folder: &Path, prefix: Option<&str>) -> tokenizers::Result<Vec<PathBuf>> {
        match self {
            Model::Bpe(_) => Err("a packed vocabulary is not saved".into()),
            Model::Other(model) => model.save(folder, prefix),
        }
    }

    fn get_trainer(&self) -> TrainerWrapper {
        match self {
            Model::Bpe(_) => BpeTrainer::default().into(),
            Model::Other(model) => model.get_trainer(),
        }
    }
}

/// Ids as the crate wants them; it throws spellings and offsets away again.
fn tokens(bpe: &Bpe, word: &str, scratch: &mut Scratch) -> tokenizers::Result<Vec<Token>> {
    let ids = bpe.encode(word, scratch)?;
    Ok(ids.iter().map(|&id| Token::new(id, String::new(), (0, 0))).collect())
}
