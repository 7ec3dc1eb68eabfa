//! Gemma 2: norms before and after each branch, gains stored as their difference from one, scaled
//! embeddings, soft caps, and a sliding window on every second layer.

use super::gemma3::looks_back;
use super::*;
use crate::recipe::{Ffn, Layer, Mixer, Norm, Norms, Step};
use crate::rope::RopeParams;

pub(super) fn recipe(c: &Config, context: Option<usize>) -> Result<ModelSpec, Error> {
    let c = &c.with_defaults(json!({
        "hidden_activation": "gelu_pytorch_tanh", "tie_word_embeddings": true, "head_dim": 256,
        "query_pre_attn_scalar": 256, "sliding_window": 4096, "max_position_embeddings": 8192,
        "attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0,
    }));
    looks_back(c)?;
    let trunk = Trunk::read(c)?;
    let views = trunk.views(c, |i| if i % 2 == 0 { View::Sliding } else { View::Full })?;
    let windows = trunk.windows(c, &views)?;
    let rope = RopeParams::read(c, "full_attention")?.rope(trunk.rope_shape(context))?;
    let soft_cap = c.positive("attn_logit_softcapping")?;
    let ffn = Ffn::Gated(trunk.gated(c.need_size("intermediate_size")?));
    let scale = query_scale(c)?;
    let layer = |window| {
        let mut attention = trunk.attention(window);
        (attention.shape.scale, attention.shape.soft_cap) = (scale, soft_cap);
        sandwich_layer(&trunk, attention, ffn.clone())
    };
    let layers = windows.into_iter().map(layer).collect();
    finish(c, trunk.spec("gemma2", vec![rope], layers))
}

/// What a Gemma multiplies scores with.
pub(super) fn query_scale(c: &Config) -> Result<f32, Error> {
    Ok(c.positive("query_pre_attn_scalar")?.unwrap_or(256.0).powf(-0.5))
}

/// A layer with a norm before and after each branch.
pub(super) fn sandwich_layer(trunk: &Trunk, attention: AttentionMixer, ffn: Ffn) -> Layer {
    let norm = |name| Norm { gain: NormGain::OnePlus, ..trunk.norm(name) };
    let norms = |before, after| Norms::Sandwich { before: norm(before), after: norm(after) };
    let mixer_norms = norms("input_layernorm", "post_attention_layernorm");
    let ffn_norms = norms("pre_feedforward_layernorm", "post_feedforward_layernorm");
    let attention = Mixer::Attention(attention);
    Layer { steps: vec![Step::new(mixer_norms, attention), Step::new(ffn_norms, ffn)] }
}

/// What every Gemma does before its first and after its last layer.
pub(super) fn finish(c: &Config, mut spec: ModelSpec) -> Result<ModelSpec, Error> {
    spec.embed_scale = (spec.hidden as f32).sqrt();
    spec.final_norm.gain = NormGain::OnePlus;
    spec.final_soft_cap = c.positive("final_logit_softcapping")?;
    Ok(spec)
}

/// A small one, beside the usual keys.
pub(super) fn tiny() -> Value {
    json!({
        "tie_word_embeddings": true, "sliding_window": 40, "query_pre_attn_scalar": 16,
    })
}
