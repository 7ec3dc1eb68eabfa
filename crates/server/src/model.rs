//! A model as the server sees it: an engine that runs, and what turns text into its tokens.

use std::sync::Arc;

use engine::{Sampling, Suppressed, TokenId, Xtc};
use text::{Template, Tokenizer};

use crate::pool::human_bytes;
use crate::request::Overrides;
use crate::shape::Shapes;

/// A served model.
pub struct Model {
    /// The name in answers.
    pub id: String,
    /// Other names it answers to. `default` need not be among them.
    pub aliases: Vec<String>,
    /// Where its requests go.
    pub engine: engine::Handle,
    /// Text to tokens and back.
    pub tokenizer: Arc<Tokenizer>,
    /// Messages to prompt; without one only plain completions are served.
    pub template: Option<Template>,
    /// Tokens that end an answer.
    pub stop_tokens: Vec<TokenId>,
    /// What its answers can be held to.
    pub shapes: Shapes,
    /// Settings for requests that bring none.
    pub defaults: Defaults,
    /// What its makers want never to come, whatever a request brings.
    pub suppressed: Arc<Suppressed>,
    /// Tokens of prompt and answer together.
    pub context: usize,
    /// Why it is not more.
    pub context_limit: ContextLimit,
    /// How keys and values are stored, for people.
    pub kv_format: &'static str,
    /// When it was loaded, in seconds since 1970.
    pub created: u64,
}

impl Model {
    /// It has recurrent states, and can go on only where one was kept.
    pub(crate) fn has_states(&self) -> bool {
        self.engine.stats().states != engine::States::default()
    }
}

/// Why a model's context is not longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContextLimit {
    /// The model was made for no more.
    Model,
    /// Somebody set it.
    Setting,
    /// Keys and values of more do not fit into the memory there is for them.
    Memory {
        /// Memory for keys and values.
        bytes: u64,
        /// What one token takes of it.
        per_token: u64,
        /// Tokens that would fit with keys and values in 8 bits, if they are not and it would be more.
        in_8_bits: Option<usize>,
    },
}

impl ContextLimit {
    /// What to do for a longer context.
    pub(crate) fn advice(&self) -> String {
        match self {
            ContextLimit::Model => "the model was made for no more".to_owned(),
            ContextLimit::Setting => "serve the model with a longer --context".to_owned(),
            ContextLimit::Memory { bytes, per_token, in_8_bits } => format!(
                "keys and values take {} per token and have {}: raise --kv-memory or --memory-limit{}",
                human_bytes(*per_token),
                human_bytes(*bytes),
                in_8_bits.map_or_else(String::new, |tokens| format!(
                    ", or store them in 8 bits (--kv-format q8), which gives {tokens} tokens"
                )),
            ),
        }
    }
}

/// Sampling settings for requests that bring none.
#[derive(Clone, Debug, PartialEq)]
pub struct Defaults {
    /// 0 takes the likeliest token.
    pub temperature: f32,
    /// Share of probability kept.
    pub top_p: f32,
    /// Tokens kept; 0 keeps all.
    pub top_k: usize,
    /// Tokens less likely than this share of the best are dropped.
    pub min_p: f32,
    /// Exclude top choices.
    pub xtc: Option<Xtc>,
    /// Divides the logits of tokens seen before; 1 is off.
    pub repetition_penalty: f32,
    /// How many of the last tokens that looks at. `None`: all.
    pub repetition_window: Option<usize>,
}

impl Default for Defaults {
    fn default() -> Defaults {
        Defaults {
            temperature: 0.7,
            top_p: 1.0,
            top_k: 0,
            min_p: 0.0,
            xtc: None,
            repetition_penalty: 1.0,
            repetition_window: None,
        }
    }
}

impl Defaults {
    /// The settings of one answer.
    pub fn sampling(&self, overrides: &Overrides, seed: u64) -> Sampling {
        let own = self.xtc.unwrap_or(Xtc { probability: 0.0, threshold: 0.1 });
        let xtc = Xtc {
            probability: overrides.xtc_probability.unwrap_or(own.probability),
            threshold: overrides.xtc_threshold.unwrap_or(own.threshold),
        };
        Sampling {
            temperature: overrides.temperature.unwrap_or(self.temperature),
            top_p: overrides.top_p.unwrap_or(self.top_p),
            top_k: overrides.top_k.unwrap_or(self.top_k),
            min_p: overrides.min_p.unwrap_or(self.min_p),
            xtc: (xtc.probability > 0.0).then_some(xtc),
            repetition_penalty: overrides.repetition_penalty.unwrap_or(self.repetition_penalty),
            repetition_window: self.repetition_window,
            presence_penalty: overrides.presence_penalty.unwrap_or(0.0),
            frequency_penalty: overrides.frequency_penalty.unwrap_or(0.0),
            logit_bias: overrides.logit_bias.clone(),
            seed,
            ..Sampling::default()
        }
    }
}
