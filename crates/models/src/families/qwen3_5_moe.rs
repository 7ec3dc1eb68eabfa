//! Qwen3.5-MoE and Qwen3.6-MoE, alone or as the language model of a vision model: Qwen3.5 with the
//! experts of Qwen3-Next.

use backend::DeltaLayout;

pub(super) use super::qwen3_next::tiny;
use super::qwen3_next::{Hybrid, hybrid, shared_experts, with_usual_values};
use super::*;

pub(super) fn recipe(c: &Config, context: Option<usize>) -> Result<ModelSpec, Error> {
    let c = &with_usual_values(c);
    let trunk = Trunk::read(c)?;
    let ffns = shared_experts(c, &trunk)?;
    hybrid(c, trunk, ffns, Hybrid { family: "qwen3_5_moe", layout: DeltaLayout::ByKind, context })
}
