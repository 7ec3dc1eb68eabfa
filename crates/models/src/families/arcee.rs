//! Arcee's foundation models: llama whose feed-forward part has no gate.

use super::llama::parts;
use super::*;
use crate::recipe::{Ffn, GatedFfn, PlainFfn};
use crate::rope::RopeParams;

pub(super) fn recipe(c: &Config, context: Option<usize>) -> Result<ModelSpec, Error> {
    let c = &c.with_defaults(json!({"hidden_act": "relu2", "rms_norm_eps": 1e-5}));
    let trunk = Trunk::read(c)?;
    let rope = RopeParams::read(c, "full_attention")?.rope(trunk.rope_shape(context))?;
    let (attention, GatedFfn { name, inner, activation, bias, .. }) = parts(c, &trunk)?;
    let (up, down) = ("up_proj", "down_proj");
    let ffn = Ffn::Plain(PlainFfn { name, inner, activation, up, down, bias });
    let layers = vec![trunk.pre_norm_layer(attention, ffn); trunk.n_layers];
    Ok(trunk.spec("arcee", vec![rope], layers))
}

/// A small one, beside the usual keys.
pub(super) fn tiny() -> Value {
    json!({})
}
