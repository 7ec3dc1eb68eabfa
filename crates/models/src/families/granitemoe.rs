//! Granite 3 with experts: Mixtral with factors on embeddings, scores, branches and logits.

use super::*;
use crate::recipe::{Ffn, MoeFfn, Router};
use crate::rope::RopeParams;

pub(super) fn recipe(c: &Config, context: Option<usize>) -> Result<ModelSpec, Error> {
    let trunk = Trunk::read(c)?;
    let rope = RopeParams::read(c, "full_attention")?.rope(trunk.rope_shape(context))?;
    let bias = attention_bias(c)?;
    let factor = |key| Ok::<_, Error>(c.positive(key)?.unwrap_or(1.0));
    let mut attention = trunk.attention(None);
    (attention.qkv_bias, attention.out_bias) = (bias, bias);
    attention.shape.scale = factor("attention_multiplier")?;
    let moe = super::mixtral::mixture(c, &trunk)?;
    let router = Router { name: "router.layer", ..moe.router };
    let mut layer = trunk.pre_norm_layer(attention, Ffn::Moe(MoeFfn { router, ..moe }));
    let residual = factor("residual_multiplier")?;
    layer.steps.iter_mut().for_each(|step| step.scale = residual);
    let layers = vec![layer; trunk.n_layers];
    let mut spec = trunk.spec("granitemoe", vec![rope], layers);
    spec.embed_scale = factor("embedding_multiplier")?;
    spec.logit_scale = 1.0 / factor("logits_scaling")?;
    Ok(spec)
}

/// A small one, beside the usual keys.
pub(super) fn tiny() -> Value {
    json!({
        "num_local_experts": 6, "num_experts_per_tok": 2, "embedding_multiplier": 2.0,
        "attention_multiplier": 0.25, "residual_multiplier": 0.5, "logits_scaling": 2.0,
    })
}
