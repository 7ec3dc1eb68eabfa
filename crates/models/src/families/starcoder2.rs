//! StarCoder2: layer norms, biases everywhere, a feed-forward part without a gate.

use super::*;
use crate::recipe::{Ffn, Layer, Mixer, Norms, PlainFfn, Step};
use crate::rope::RopeParams;

pub(super) fn recipe(c: &Config, context: Option<usize>) -> Result<ModelSpec, Error> {
    let c = &c.with_defaults(json!({
        "hidden_act": "gelu_pytorch_tanh", "norm_epsilon": 1e-5, "use_bias": true,
        "tie_word_embeddings": true,
    }));
    let trunk = Trunk::read(c)?;
    let rope = RopeParams::read(c, "full_attention")?.rope(trunk.rope_shape(context))?;
    let bias = bias_switch(c, "use_bias")?;
    let mut attention = trunk.attention(c.positions("sliding_window")?);
    (attention.qkv_bias, attention.out_bias) = (bias, bias);
    let ffn = PlainFfn {
        name: "mlp",
        inner: c.need_size("intermediate_size")?,
        activation: trunk.activation,
        up: "c_fc",
        down: "c_proj",
        bias,
    };
    let norms = |name| Norms::Pre(trunk.layer_norm(name, Bias::Stored));
    let attention = Step::new(norms("input_layernorm"), Mixer::Attention(attention));
    let steps = vec![attention, Step::new(norms("post_attention_layernorm"), Ffn::Plain(ffn))];
    let final_norm = trunk.layer_norm("norm", Bias::Stored);
    let layers = vec![Layer { steps }; trunk.n_layers];
    let spec = trunk.spec("starcoder2", vec![rope], layers);
    Ok(ModelSpec { final_norm, ..spec })
}

/// A small one, beside the usual keys.
pub(super) fn tiny() -> Value {
    json!({"tie_word_embeddings": true, "sliding_window": 40})
}
