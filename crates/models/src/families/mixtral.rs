//! Mixtral: Mistral with experts.

use super::*;
use crate::recipe::{Ffn, MoeFfn};
use crate::rope::RopeParams;

pub(super) fn recipe(c: &Config, context: Option<usize>) -> Result<ModelSpec, Error> {
    let c = &c.with_defaults(json!({"rms_norm_eps": 1e-5, "rope_theta": 1_000_000.0}));
    let trunk = Trunk::read(c)?;
    let rope = RopeParams::read(c, "sliding_attention")?.rope(trunk.rope_shape(context))?;
    let attention = trunk.attention(c.positions("sliding_window")?);
    let layer = trunk.pre_norm_layer(attention, Ffn::Moe(mixture(c, &trunk)?));
    let layers = vec![layer; trunk.n_layers];
    Ok(trunk.spec("mixtral", vec![rope], layers))
}

/// Experts as wide as the config says a feed-forward layer is, beside nothing.
pub(super) fn mixture(c: &Config, trunk: &Trunk) -> Result<MoeFfn, Error> {
    let [n, top_k] = expert_counts(c)?;
    let experts = Experts {
        n,
        top_k,
        inner: c.need_size("intermediate_size")?,
        gating: Gating::SOFTMAX_OF_CHOSEN,
        routed_scale: 1.0,
        form: ExpertForm::gated(trunk.activation),
    };
    Ok(MoeFfn { name: "block_sparse_moe", ..trunk.mixture(experts) })
}

/// A small one, beside the usual keys.
pub(super) fn tiny() -> Value {
    json!({"num_local_experts": 6, "num_experts_per_tok": 2, "sliding_window": 40})
}
