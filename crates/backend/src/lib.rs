//! What a device must be able to do, and nothing about how.
//!
//! A model is written once against the traits in [`ops`]; a device is one type that implements
//! them. [`reference`] is the executable definition of every op: plain loops, no tricks. A device is
//! right exactly when it agrees with it.
//!
//! **Invariant:** no `unsafe`, no knowledge of any model family, no I/O.

mod batch;
pub mod conformance;
mod kv;
mod latent;
pub mod ops;
mod recurrence;
pub mod reference;
mod spec;

pub use batch::{Batch, BlockId, KvGroup, SlotId, Span, TokenId};
pub use kv::{KEY_GROUP, KvFormat, QUERY_LENGTH, VALUE_GROUP, WHOLE_CODE, WHOLE_LENGTH};
pub use latent::{Latent, LatentOrder};
pub use ops::{Backend, DeviceError};
pub use recurrence::{
    DeltaLayout, DeltaPlace, DeltaRule, GatedDelta, Mamba2, MambaGate, MambaScales, ReadOrder,
    Recurrence, ShortConv,
};
pub use spec::{
    Activation, Attention, Divisor, ExpertForm, Experts, GateUpRows, Gating, Glu, GroupMerit,
    Groups, LayerInputs, NormCenter, NormGain, NormOrder, NormSpan, QueryGrowth, Rope, RopeLayout,
    Scores, Values,
};

/// Positions per KV block.
pub const BLOCK: usize = 32;
