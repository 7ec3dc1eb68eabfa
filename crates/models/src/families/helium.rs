//! Helium: llama that rotates neighbouring columns.

use super::llama::parts;
use super::*;
use crate::recipe::Ffn;
use crate::rope::RopeParams;

pub(super) fn recipe(c: &Config, context: Option<usize>) -> Result<ModelSpec, Error> {
    let c = &c.with_defaults(json!({
        "head_dim": 128, "rms_norm_eps": 1e-8, "rope_theta": 100_000.0, "rope_interleaved": true,
    }));
    let trunk = Trunk::read(c)?;
    let rope = RopeParams::read(c, "full_attention")?.rope(trunk.rope_shape(context))?;
    let (mut attention, ffn) = parts(c, &trunk)?;
    attention.out_bias = Bias::Absent;
    let layers = vec![trunk.pre_norm_layer(attention, Ffn::Gated(ffn)); trunk.n_layers];
    Ok(trunk.spec("helium", vec![rope], layers))
}

/// A small one, beside the usual keys.
pub(super) fn tiny() -> Value {
    json!({})
}
