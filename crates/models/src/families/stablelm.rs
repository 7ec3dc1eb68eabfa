//! StableLM: layer norms around the parts of llama, which read the same one side by side in some
//! models; a quarter of every head rotates.

use super::*;
use crate::recipe::{Ffn, Layer, Mixer, Norms, Skip, Step};
use crate::rope::RopeParams;

pub(super) fn recipe(c: &Config, context: Option<usize>) -> Result<ModelSpec, Error> {
    let c = &c.with_defaults(json!({"partial_rotary_factor": 0.25, "layer_norm_eps": 1e-5}));
    if c.is_on("qk_layernorm")? {
        return Err(Error::config("qk_layernorm", "is true; supported: models without such norms"));
    }
    let trunk = Trunk::read(c)?;
    let rope = RopeParams::read(c, "full_attention")?.rope(trunk.rope_shape(context))?;
    let mut attention = trunk.attention(None);
    attention.qkv_bias = bias_switch(c, "use_qkv_bias")?;
    let attention = Mixer::Attention(attention);
    let ffn = Ffn::Gated(trunk.gated(c.need_size("intermediate_size")?));
    let norms = |name| Norms::Pre(trunk.layer_norm(name, Bias::Stored));
    let before = norms("input_layernorm");
    let steps = if c.is_on("use_parallel_residual")? {
        vec![Step {
            norms: before,
            branches: vec![attention.into(), ffn.into()],
            scale: 1.0,
            skip: Skip::Stream,
        }]
    } else {
        vec![Step::new(before, attention), Step::new(norms("post_attention_layernorm"), ffn)]
    };
    let final_norm = trunk.layer_norm("norm", Bias::Stored);
    let layers = vec![Layer { steps }; trunk.n_layers];
    let spec = trunk.spec("stablelm", vec![rope], layers);
    Ok(ModelSpec { final_norm, ..spec })
}

/// A small one, beside the usual keys.
pub(super) fn tiny() -> Value {
    json!({"use_qkv_bias": true})
}
