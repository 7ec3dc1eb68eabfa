//! Hunyuan, the dense ones: llama with a norm on every head of q and k once they are rotated.

use super::llama::parts;
use super::*;
use crate::recipe::{Ffn, HeadNorm};
use crate::rope::RopeParams;

pub(super) fn recipe(c: &Config, context: Option<usize>) -> Result<ModelSpec, Error> {
    let c = &c.with_defaults(json!({"use_qk_norm": true}));
    let trunk = Trunk::read(c)?;
    let rope = RopeParams::read(c, "full_attention")?.rope(trunk.rope_shape(context))?;
    let (mut attention, ffn) = parts(c, &trunk)?;
    if c.is_on("use_qk_norm")? {
        attention.head_norm = Some(HeadNorm {
            names: ["query_layernorm", "key_layernorm"],
            order: NormOrder::AfterRotation,
            ..trunk.head_norm()
        });
    }
    let layers = vec![trunk.pre_norm_layer(attention, Ffn::Gated(ffn)); trunk.n_layers];
    Ok(trunk.spec("hunyuan_v1_dense", vec![rope], layers))
}

/// A small one, beside the usual keys.
pub(super) fn tiny() -> Value {
    json!({})
}
