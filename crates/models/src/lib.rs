//! Model families as recipes, and the one decoder that cooks them.
//!
//! A family file maps `config.json` to a [`ModelSpec`]: plain data, no weights, no device, so it is
//! tested by comparing text. The forward pass exists once, in [`Decoder`].
//!
//! **Invariant:** nothing here names a device, a sequence, a scheduler or a socket.

mod config;
mod decoder;
mod dense;
mod ends;
mod error;
mod families;
mod ffn;
mod heads;
mod latent_trunk;
mod laurel;
mod layer_inputs;
mod layers;
mod loader;
mod mixers;
pub mod modules;
mod nearest;
mod normal;
mod part;
mod plan;
pub mod recipe;
mod rope;
mod share;
mod step;
mod streams;
mod support;
pub mod tiny;
mod trunk;

pub use decoder::{Decoder, Scratch, Store};
pub use error::Error;
pub use families::{FAMILIES, SUPPORTED, recipe, recipe_for_context};
pub use heads::{DraftHead, DraftScratch, StoredDrafts, stored_drafts};
pub use mixers::Room;
pub use part::{Part, PartDecoder};
pub use plan::{Cache, Footprint};
pub use recipe::ModelSpec;
pub use share::{Share, ShareDecoder};
pub use support::{Support, support, support_table};
