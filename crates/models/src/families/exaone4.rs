//! EXAONE 4: norms behind the branches and on every head of q and k. The larger one has a window in
//! three of four layers, and only these rotate.

use super::olmo2::post_norm_layer;
use super::*;
use crate::recipe::Ffn;
use crate::rope::RopeParams;

pub(super) fn recipe(c: &Config, context: Option<usize>) -> Result<ModelSpec, Error> {
    let c = &c.with_defaults(json!({"rms_norm_eps": 1e-5}));
    let trunk = Trunk::read(c)?;
    let rope = RopeParams::read(c, "full_attention")?.rope(trunk.rope_shape(context))?;
    let is_hybrid = c.positions("sliding_window")?.is_some();
    let views = if is_hybrid { views(c, &trunk)? } else { vec![View::Full; trunk.n_layers] };
    let windows = trunk.windows(c, &views)?;
    let ffn = Ffn::Gated(trunk.gated(c.need_size("intermediate_size")?));
    let layer = |window: Option<usize>| {
        let mut attention = trunk.attention(window);
        attention.head_norm = Some(trunk.head_norm());
        attention.rope = (!is_hybrid || window.is_some()).then_some(0);
        post_norm_layer(&trunk, attention, ffn.clone())
    };
    let layers = windows.into_iter().map(layer).collect();
    Ok(trunk.spec("exaone4", vec![rope], layers))
}

/// `layer_types`, or `sliding_window_pattern`: a word such as `LLLG` that repeats, or the number of
/// layers of which the last one is full.
fn views(c: &Config, trunk: &Trunk) -> Result<Vec<View>, Error> {
    let key = "sliding_window_pattern";
    let word = match c.get(key) {
        Some(Value::String(word)) => word.clone(),
        _ => "L".repeat(c.count(key)?.unwrap_or(4).max(1) - 1) + "G",
    };
    if word.is_empty() || word.chars().any(|letter| !"LG".contains(letter)) {
        return Err(Error::config(key, format!("is \"{word}\"; a word of the letters L and G")));
    }
    let letters = word.as_bytes();
    let is_full = |i: usize| letters[i % letters.len()] == b'G';
    trunk.views(c, |i| if is_full(i) { View::Full } else { View::Sliding })
}

/// A small one, beside the usual keys.
pub(super) fn tiny() -> Value {
    json!({"sliding_window": 40, "sliding_window_pattern": "LG"})
}
