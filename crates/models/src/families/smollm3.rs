//! SmolLM3: llama in which every fourth layer does not rotate.

use super::llama::parts;
use super::*;
use crate::recipe::Ffn;
use crate::rope::RopeParams;

pub(super) fn recipe(c: &Config, context: Option<usize>) -> Result<ModelSpec, Error> {
    let c = &c.with_defaults(json!({
        "rope_theta": 2_000_000.0, "tie_word_embeddings": true, "no_rope_layer_interval": 4,
    }));
    let trunk = Trunk::read(c)?;
    let rope = RopeParams::read(c, "full_attention")?.rope(trunk.rope_shape(context))?;
    let rotates = rotating_layers(c, trunk.n_layers)?;
    let windows = if c.is_on("use_sliding_window")? {
        let rule = |i: usize| if rotates[i] { View::Full } else { View::Sliding };
        trunk.windows(c, &trunk.views(c, rule)?)?
    } else {
        vec![None; trunk.n_layers]
    };
    let (attention, ffn) = parts(c, &trunk)?;
    let layer = |(window, rotates): (_, &bool)| {
        let mut attention = attention.clone();
        attention.shape.window = window;
        attention.rope = rotates.then_some(0);
        trunk.pre_norm_layer(attention, Ffn::Gated(ffn.clone()))
    };
    let layers = windows.into_iter().zip(&rotates).map(layer).collect();
    Ok(trunk.spec("smollm3", vec![rope], layers))
}

/// `no_rope_layers`, whose name says the opposite of what it holds, or every layer but each
/// `no_rope_layer_interval`-th.
fn rotating_layers(c: &Config, n_layers: usize) -> Result<Vec<bool>, Error> {
    let listed = c.counts("no_rope_layers")?;
    if !listed.is_empty() {
        if listed.len() < n_layers {
            let problem = format!("has {} entries for {n_layers} layers", listed.len());
            return Err(Error::config("no_rope_layers", problem));
        }
        return Ok(listed.iter().take(n_layers).map(|rotates| *rotates != 0).collect());
    }
    let interval = c.need_count("no_rope_layer_interval")?;
    Ok((1..=n_layers).map(|i| !i.is_multiple_of(interval)).collect())
}

/// A small one, beside the usual keys.
pub(super) fn tiny() -> Value {
    json!({"no_rope_layer_interval": 2})
}
