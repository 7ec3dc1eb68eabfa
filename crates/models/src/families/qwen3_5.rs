//! Qwen3.5 and Qwen3.6, alone or as the language model of a vision model: Qwen3-Next without experts,
//! its projections stored apart.

use backend::DeltaLayout;

pub(super) use super::qwen3_next::tiny;
use super::qwen3_next::{Hybrid, hybrid, with_usual_values};
use super::*;
use crate::recipe::Ffn;

pub(super) fn recipe(c: &Config, context: Option<usize>) -> Result<ModelSpec, Error> {
    let c = &with_usual_values(c);
    let trunk = Trunk::read(c)?;
    let ffn = Ffn::Gated(trunk.gated(c.need_size("intermediate_size")?));
    let ffns = vec![ffn; trunk.n_layers];
    hybrid(c, trunk, ffns, Hybrid { family: "qwen3_5", layout: DeltaLayout::ByKind, context })
}
