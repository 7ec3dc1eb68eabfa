//! OLMo 3: OLMo 2 with a window in three of four layers, whose rotation is never scaled.

use super::olmo2::{attention, post_norm_layer};
use super::*;
use crate::recipe::Ffn;
use crate::rope::{RopeParams, intern};

pub(super) fn recipe(c: &Config, context: Option<usize>) -> Result<ModelSpec, Error> {
    let c = &c.with_defaults(json!({
        "rms_norm_eps": 1e-5, "rope_theta": 500_000.0, "sliding_window": 4096,
    }));
    let trunk = Trunk::read(c)?;
    let is_full = |i: usize| (i + 1).is_multiple_of(4);
    let views = trunk.views(c, |i| if is_full(i) { View::Full } else { View::Sliding })?;
    let windows = trunk.windows(c, &views)?;
    let shape = trunk.rope_shape(context);
    let mut ropes = Vec::new();
    let full = RopeParams::read(c, "full_attention")?.rope(shape)?;
    let full = intern(&mut ropes, full);
    let sliding = RopeParams::unscaled(c, "sliding_attention")?.rope(shape)?;
    let sliding = intern(&mut ropes, sliding);
    let ffn = Ffn::Gated(trunk.gated(c.need_size("intermediate_size")?));
    let bias = attention_bias(c)?;
    let layer = |(window, view)| {
        let mut attention = attention(&trunk, window, bias);
        attention.rope = Some(if view == View::Full { full } else { sliding });
        post_norm_layer(&trunk, attention, ffn.clone())
    };
    let layers = windows.into_iter().zip(views).map(layer).collect();
    Ok(trunk.spec("olmo3", ropes, layers))
}

/// A small one, beside the usual keys.
pub(super) fn tiny() -> Value {
    json!({
        "sliding_window": 40,
        "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
    })
}
