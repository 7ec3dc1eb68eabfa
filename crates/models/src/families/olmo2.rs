//! OLMo 2: norms behind the branches instead of before them, and on q and k as a whole.

use super::*;
use crate::recipe::{Ffn, HeadNorm, Layer, Mixer, Norms, Step};
use crate::rope::RopeParams;

pub(super) fn recipe(c: &Config, context: Option<usize>) -> Result<ModelSpec, Error> {
    let c = &c.with_defaults(json!({"rms_norm_eps": 1e-5}));
    let trunk = Trunk::read(c)?;
    let rope = RopeParams::read(c, "full_attention")?.rope(trunk.rope_shape(context))?;
    let ffn = Ffn::Gated(trunk.gated(c.need_size("intermediate_size")?));
    let attention = attention(&trunk, None, attention_bias(c)?);
    let layers = vec![post_norm_layer(&trunk, attention, ffn); trunk.n_layers];
    Ok(trunk.spec("olmo2", vec![rope], layers))
}

/// The attention of OLMo 2 and 3.
pub(super) fn attention(trunk: &Trunk, window: Option<usize>, bias: Bias) -> AttentionMixer {
    let mut attention = trunk.attention(window);
    attention.head_norm = Some(HeadNorm { span: NormSpan::AllHeads, ..trunk.head_norm() });
    (attention.qkv_bias, attention.out_bias) = (bias, bias);
    attention
}

/// A layer with a norm behind each branch.
pub(super) fn post_norm_layer(trunk: &Trunk, attention: AttentionMixer, ffn: Ffn) -> Layer {
    let norms = |name| Norms::Post(trunk.norm(name));
    let attention = Step::new(norms("post_attention_layernorm"), Mixer::Attention(attention));
    Layer { steps: vec![attention, Step::new(norms("post_feedforward_layernorm"), ffn)] }
}

/// A small one, beside the usual keys.
pub(super) fn tiny() -> Value {
    json!({})
}
