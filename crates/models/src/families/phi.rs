//! Phi-1 to Phi-2: attention and a feed-forward part without a gate read the same layer norm side by
//! side, biases everywhere, part of every head rotates.

use super::*;
use crate::recipe::{Ffn, Layer, Mixer, Norms, PlainFfn, Skip, Step};
use crate::rope::RopeParams;

pub(super) fn recipe(c: &Config, context: Option<usize>) -> Result<ModelSpec, Error> {
    let c = &c.with_defaults(json!({
        "hidden_act": "gelu_new", "partial_rotary_factor": 0.5, "layer_norm_eps": 1e-5,
        "tie_word_embeddings": false,
    }));
    if c.is_on("qk_layernorm")? {
        return Err(Error::config("qk_layernorm", "is true, which no published model has"));
    }
    let trunk = Trunk::read(c)?;
    let rope = RopeParams::read(c, "full_attention")?.rope(trunk.rope_shape(context))?;
    let bias = Bias::Stored;
    let mut attention = trunk.attention(None);
    (attention.out, attention.qkv_bias, attention.out_bias) = ("dense", bias, bias);
    let ffn = PlainFfn {
        name: "mlp",
        inner: c.size("intermediate_size")?.unwrap_or(4 * trunk.hidden),
        activation: trunk.activation,
        up: "fc1",
        down: "fc2",
        bias,
    };
    let norms = Norms::Pre(trunk.layer_norm("input_layernorm", bias));
    let branches = vec![Mixer::Attention(attention).into(), Ffn::Plain(ffn).into()];
    let layer = Layer { steps: vec![Step { norms, branches, scale: 1.0, skip: Skip::Stream }] };
    let final_norm = trunk.layer_norm("final_layernorm", bias);
    let layers = vec![layer; trunk.n_layers];
    let spec = trunk.spec("phi", vec![rope], layers);
    Ok(ModelSpec { final_norm, head_bias: bias, ..spec })
}

/// A small one, beside the usual keys.
pub(super) fn tiny() -> Value {
    json!({})
}
