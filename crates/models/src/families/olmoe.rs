//! OLMoE: norms on q and k as a whole, and experts.

use super::*;
use crate::recipe::Ffn;
use crate::rope::RopeParams;

pub(super) fn recipe(c: &Config, context: Option<usize>) -> Result<ModelSpec, Error> {
    let c = &c.with_defaults(json!({"rms_norm_eps": 1e-5}));
    let trunk = Trunk::read(c)?;
    if c.get("clip_qkv").is_some() {
        return Err(Error::config("clip_qkv", "is set, which no published model needs"));
    }
    let rope = RopeParams::read(c, "full_attention")?.rope(trunk.rope_shape(context))?;
    let attention = super::olmo2::attention(&trunk, None, attention_bias(c)?);
    let [n, top_k] = expert_counts(c)?;
    let experts = Experts {
        n,
        top_k,
        inner: c.need_size("intermediate_size")?,
        gating: match c.is_on("norm_topk_prob")? {
            true => Gating::SOFTMAX_OF_CHOSEN,
            false => Gating::SOFTMAX,
        },
        routed_scale: 1.0,
        form: ExpertForm::gated(trunk.activation),
    };
    let layer = trunk.pre_norm_layer(attention, Ffn::Moe(trunk.mixture(experts)));
    let layers = vec![layer; trunk.n_layers];
    Ok(trunk.spec("olmoe", vec![rope], layers))
}

/// A small one, beside the usual keys.
pub(super) fn tiny() -> Value {
    json!({"num_experts": 6, "num_experts_per_tok": 2})
}
