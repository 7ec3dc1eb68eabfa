//! Hunyuan, the dense ones: llama with a norm on every head of q and k once they are rotated.

use super::llama::parts;
use super::*;
use crate::recipe::{Ffn, HeadNorm};
use crate::rope::RopeParams;

pub(super) fn recipe(c: &Config, context: Option<usize>) -> Result<ModelSpec, Error> {
    let c = &known(c)?.with_defaults(json!({"rms_norm_eps": 1e-5}));
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

/// The config with what both kinds take for granted. Refuses what the authors' own class knows and none of
/// their models has.
pub(super) fn known<'a>(c: &Config<'a>) -> Result<Config<'a>, Error> {
    for (key, known) in [("use_cla", false), ("use_mla", false), ("use_rotary_pos_emb", true)] {
        only(c, key, &[json!(known)])?;
    }
    only(c, "position_embedding_xdrope", &[json!(false)])?;
    only(c, "norm_type", &[json!("rms"), json!("hf_rms")])?;
    let head_dim = c.get("attention_head_dim").cloned().unwrap_or(Value::Null);
    Ok(c.with_defaults(json!({"use_qk_norm": true, "head_dim": head_dim})))
}

/// A small one, beside the usual keys.
pub(super) fn tiny() -> Value {
    json!({})
}
