//! Nemotron and Minitron, the dense ones: layer norms whose gains lack the one, a feed-forward part
//! without a gate, half of every head rotates.

use super::*;
use crate::recipe::{Ffn, Layer, Mixer, Norm, Norms, PlainFfn, Step};
use crate::rope::RopeParams;

pub(super) fn recipe(c: &Config, context: Option<usize>) -> Result<ModelSpec, Error> {
    let c = &c.with_defaults(json!({
        "hidden_act": "relu2", "norm_eps": 1e-5, "partial_rotary_factor": 0.5,
    }));
    let trunk = Trunk::read(c)?;
    let rope = RopeParams::read(c, "full_attention")?.rope(trunk.rope_shape(context))?;
    let bias = attention_bias(c)?;
    let mut attention = trunk.attention(None);
    (attention.qkv_bias, attention.out_bias) = (bias, bias);
    let ffn = PlainFfn {
        name: "mlp",
        inner: c.need_size("intermediate_size")?,
        activation: trunk.activation,
        up: "up_proj",
        down: "down_proj",
        bias: bias_switch(c, "mlp_bias")?,
    };
    let norm = |name| Norm { gain: NormGain::OnePlus, ..trunk.layer_norm(name, Bias::Stored) };
    let norms = |name| Norms::Pre(norm(name));
    let attention = Step::new(norms("input_layernorm"), Mixer::Attention(attention));
    let steps = vec![attention, Step::new(norms("post_attention_layernorm"), Ffn::Plain(ffn))];
    let final_norm = norm("norm");
    let layers = vec![Layer { steps }; trunk.n_layers];
    let spec = trunk.spec("nemotron", vec![rope], layers);
    Ok(ModelSpec { final_norm, ..spec })
}

/// A small one, beside the usual keys.
pub(super) fn tiny() -> Value {
    json!({})
}
