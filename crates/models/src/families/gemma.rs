//! Gemma, the first one: llama with gains stored as their difference from one and scaled embeddings.

use backend::Activation;

use super::gemma2::finish;
use super::gemma3::looks_back;
use super::*;
use crate::recipe::Ffn;
use crate::rope::RopeParams;

pub(super) fn recipe(c: &Config, context: Option<usize>) -> Result<ModelSpec, Error> {
    let c = &c.with_defaults(json!({"tie_word_embeddings": true, "head_dim": 256}));
    looks_back(c)?;
    let trunk = Trunk::read(c)?;
    let rope = RopeParams::read(c, "full_attention")?.rope(trunk.rope_shape(context))?;
    let mut ffn = trunk.gated(c.need_size("intermediate_size")?);
    // Configs call it by several names, some of which mean something else elsewhere.
    ffn.activation = Activation::GeluTanh;
    let mut layer = trunk.pre_norm_layer(trunk.attention(None), Ffn::Gated(ffn));
    let norms = layer.steps.iter_mut().flat_map(|step| step.norms.all_mut());
    norms.for_each(|norm| norm.gain = NormGain::OnePlus);
    let layers = vec![layer; trunk.n_layers];
    finish(c, trunk.spec("gemma", vec![rope], layers))
}

/// A small one, beside the usual keys.
pub(super) fn tiny() -> Value {
    json!({"tie_word_embeddings": true})
}
