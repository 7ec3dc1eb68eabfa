//! Granite 3 and 4, the dense ones: llama with factors on embeddings, scores, branches and logits.

use super::llama::parts;
use super::*;
use crate::recipe::Ffn;
use crate::rope::RopeParams;

pub(super) fn recipe(c: &Config, context: Option<usize>) -> Result<ModelSpec, Error> {
    let trunk = Trunk::read(c)?;
    let rope = RopeParams::read(c, "full_attention")?.rope(trunk.rope_shape(context))?;
    let factor = |key| Ok::<_, Error>(c.positive(key)?.unwrap_or(1.0));
    let (mut attention, ffn) = parts(c, &trunk)?;
    attention.shape.scale = factor("attention_multiplier")?;
    let mut layer = trunk.pre_norm_layer(attention, Ffn::Gated(ffn));
    let scale = factor("residual_multiplier")?;
    layer.steps.iter_mut().for_each(|step| step.scale = scale);
    let layers = vec![layer; trunk.n_layers];
    let mut spec = trunk.spec("granite", vec![rope], layers);
    spec.embed_scale = factor("embedding_multiplier")?;
    spec.logit_scale = 1.0 / factor("logits_scaling")?;
    Ok(spec)
}

/// A small one, beside the usual keys.
pub(super) fn tiny() -> Value {
    json!({
        "embedding_multiplier": 6.0, "attention_multiplier": 0.1, "residual_multiplier": 0.5,
        "logits_scaling": 2.0,
    })
}
