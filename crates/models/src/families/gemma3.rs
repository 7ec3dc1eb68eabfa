//! Gemma 3, alone or as the language model of a vision model: Gemma 2 without soft caps, with head
//! norms, five sliding layers to a full one, and a rotation of its own for each kind.

use super::gemma2::{finish, query_scale, sandwich_layer};
use super::*;
use crate::recipe::{Ffn, HeadNorm};
use crate::rope::{RopeParams, intern};

pub(super) fn recipe(c: &Config, context: Option<usize>) -> Result<ModelSpec, Error> {
    let c = &c.with_defaults(json!({
        "vocab_size": 262_208, "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256,
        "hidden_activation": "gelu_pytorch_tanh", "tie_word_embeddings": true,
        "query_pre_attn_scalar": 256, "sliding_window": 4096, "sliding_window_pattern": 6,
        "max_position_embeddings": 131_072,
    }));
    looks_back(c)?;
    let trunk = Trunk::read(c)?;
    let period = c.need_count("sliding_window_pattern")?;
    let is_full = |i: usize| (i + 1).is_multiple_of(period);
    let views = trunk.views(c, |i| if is_full(i) { View::Full } else { View::Sliding })?;
    let windows = trunk.windows(c, &views)?;
    let shape = trunk.rope_shape(context);
    let mut ropes = Vec::new();
    let full = intern(&mut ropes, full_rope(c)?.rope(shape)?);
    let sliding = intern(&mut ropes, sliding_rope(c)?.rope(shape)?);
    let ffn = Ffn::Gated(trunk.gated(c.need_size("intermediate_size")?));
    let scale = query_scale(c)?;
    let soft_cap = c.positive("attn_logit_softcapping")?;
    let layer = |(window, view)| {
        let mut attention = trunk.attention(window);
        (attention.shape.scale, attention.shape.soft_cap) = (scale, soft_cap);
        attention.head_norm = Some(HeadNorm { gain: NormGain::OnePlus, ..trunk.head_norm() });
        attention.rope = Some(if view == View::Full { full } else { sliding });
        sandwich_layer(&trunk, attention, ffn.clone())
    };
    let layers = windows.into_iter().zip(views).map(layer).collect();
    finish(c, trunk.spec("gemma3", ropes, layers))
}

/// Refuses models that look ahead, as some for embeddings do: they cannot generate text.
pub(super) fn looks_back(c: &Config) -> Result<(), Error> {
    only(c, "use_bidirectional_attention", &[json!(false), json!("vision")])
}

/// Scaling, where the config has any, is for the full layers alone.
pub(super) fn full_rope(c: &Config) -> Result<RopeParams, Error> {
    let mut params = RopeParams::nested(c, "full_attention")?;
    params.overlay(c, "rope_scaling")?;
    params.or("rope_theta", c.get("rope_theta"));
    params.or("rope_theta", Some(&json!(1_000_000.0)));
    Ok(params)
}

pub(super) fn sliding_rope(c: &Config) -> Result<RopeParams, Error> {
    let mut params = RopeParams::nested(c, "sliding_attention")?;
    params.or("rope_theta", c.get("rope_local_base_freq"));
    params.or("rope_theta", Some(&json!(10_000.0)));
    Ok(params)
}

/// A small one, beside the usual keys.
pub(super) fn tiny() -> Value {
    json!({
        "tie_word_embeddings": true, "sliding_window": 40, "query_pre_attn_scalar": 16,
        "sliding_window_pattern": 3,
    })
}
