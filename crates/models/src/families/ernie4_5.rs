//! ERNIE 4.5, the dense ones: llama that rotates neighbouring columns.

use super::*;
use crate::recipe::Ffn;
use crate::rope::RopeParams;

pub(super) fn recipe(c: &Config, context: Option<usize>) -> Result<ModelSpec, Error> {
    let c = &c.with_defaults(json!({
        "head_dim": 128, "rope_theta": 500_000.0, "rms_norm_eps": 1e-5, "tie_word_embeddings": true,
        "rope_interleaved": true,
    }));
    refuse_variants(c)?;
    let trunk = Trunk::read(c)?;
    let rope = RopeParams::read(c, "full_attention")?.rope(trunk.rope_shape(context))?;
    let bias = bias_switch(c, "use_bias")?;
    let mut attention = trunk.attention(None);
    (attention.qkv_bias, attention.out_bias) = (bias, bias);
    let mut ffn = trunk.gated(c.need_size("intermediate_size")?);
    ffn.bias = bias;
    let layers = vec![trunk.pre_norm_layer(attention, Ffn::Gated(ffn)); trunk.n_layers];
    Ok(trunk.spec("ernie4_5", vec![rope], layers))
}

/// Refuses what the authors' own class knows and none of their models has.
pub(super) fn refuse_variants(c: &Config) -> Result<(), Error> {
    only(c, "use_rmsnorm", &[json!(true)])?;
    only(c, "compression_ratio", &[json!(1.0)])
}

/// A small one, beside the usual keys.
pub(super) fn tiny() -> Value {
    json!({})
}
