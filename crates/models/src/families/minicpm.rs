//! MiniCPM, the dense ones: llama with factors on embeddings, branches and logits.

use super::llama::parts;
use super::*;
use crate::recipe::Ffn;
use crate::rope::RopeParams;

pub(super) fn recipe(c: &Config, context: Option<usize>) -> Result<ModelSpec, Error> {
    let trunk = Trunk::read(c)?;
    let rope = RopeParams::read(c, "full_attention")?.rope(trunk.rope_shape(context))?;
    let (attention, ffn) = parts(c, &trunk)?;
    let mut layer = trunk.pre_norm_layer(attention, Ffn::Gated(ffn));
    let depth = c.positive("scale_depth")?.unwrap_or(1.4) / (trunk.n_layers as f32).sqrt();
    layer.steps.iter_mut().for_each(|step| step.scale = depth);
    let layers = vec![layer; trunk.n_layers];
    let mut spec = trunk.spec("minicpm", vec![rope], layers);
    spec.embed_scale = c.positive("scale_emb")?.unwrap_or(12.0);
    spec.logit_scale = c.positive("dim_model_base")?.unwrap_or(256.0) / spec.hidden as f32;
    Ok(spec)
}

/// A small one, beside the usual keys.
pub(super) fn tiny() -> Value {
    json!({"scale_emb": 6.0, "scale_depth": 1.2, "dim_model_base": 32})
}
