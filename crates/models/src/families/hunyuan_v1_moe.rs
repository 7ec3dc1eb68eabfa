//! Hunyuan-A13B: the attention of the dense ones, and experts beside one that every row passes
//! through. Its config has some numbers layer by layer.

use super::hunyuan_v1_dense::known;
use super::*;
use crate::recipe::{Correction, Ffn, GatedFfn, HeadNorm, MoeFfn, Router, Shared};
use crate::rope::RopeParams;

pub(super) fn recipe(c: &Config, context: Option<usize>) -> Result<ModelSpec, Error> {
    let c = &known(c)?.with_defaults(json!({"rms_norm_eps": 1e-5, "use_mixed_mlp_moe": true}));
    only(c, "mlp_bias", &[json!(false)])?;
    only(c, "moe_layer_num_skipped", &[json!(0)])?;
    only(c, "group_limited_greedy", &[json!(false)])?;
    only(c, "norm_topk_prob", &[json!(true)])?;
    only(c, "routed_scaling_factor", &[json!(false), json!(1.0)])?;
    let trunk = Trunk::read(c)?;
    let rope = RopeParams::read(c, "full_attention")?.rope(trunk.rope_shape(context))?;
    let bias = attention_bias(c)?;
    let mut attention = trunk.attention(None);
    (attention.qkv_bias, attention.out_bias) = (bias, bias);
    if c.is_on("use_qk_norm")? {
        attention.head_norm = Some(HeadNorm {
            names: ["query_layernorm", "key_layernorm"],
            order: NormOrder::AfterRotation,
            ..trunk.head_norm()
        });
    }
    let layer = |i| {
        let ffn = Ffn::Moe(mixture(c, &trunk, i)?);
        Ok(trunk.pre_norm_layer(attention.clone(), ffn))
    };
    let layers = (0..trunk.n_layers).map(layer).collect::<Result<_, Error>>()?;
    Ok(trunk.spec("hunyuan_v1_moe", vec![rope], layers))
}

/// The mixture of layer `i`.
fn mixture(c: &Config, trunk: &Trunk, i: usize) -> Result<MoeFfn, Error> {
    let need = |key| count_at(c, key, i)?.ok_or_else(|| crate::config::missing(key));
    let (n, top_k) = (need("num_experts")?, need("moe_topk")?);
    if n == 0 || top_k == 0 || top_k > n {
        return Err(Error::config("moe_topk", format!("is {top_k} of {n} experts")));
    }
    let width = c.need_size("intermediate_size")?;
    let inner = match c.get("moe_intermediate_size") {
        Some(Value::Array(_)) => c.sizes("moe_intermediate_size")?.get(i).copied(),
        _ => c.size("moe_intermediate_size")?,
    };
    let experts = Experts {
        n,
        top_k,
        inner: inner.unwrap_or(width),
        gating: Gating::SOFTMAX_OF_CHOSEN,
        routed_scale: 1.0,
        form: ExpertForm::gated(trunk.activation),
    };
    let n_shared = count_at(c, "num_shared_expert", i)?.unwrap_or(1);
    let shared = match c.is_on("use_mixed_mlp_moe")? && n_shared > 0 {
        true => Shared::Whole(GatedFfn { name: "shared_mlp", ..trunk.gated(n_shared * width) }),
        false => Shared::None,
    };
    let router = Router { name: "gate.wg", bias: Bias::Absent, correction: Correction::Absent };
    Ok(MoeFfn { router, shared, ..trunk.mixture(experts) })
}

/// The number under `key`, or that of layer `i` where there is a list.
fn count_at(c: &Config, key: &str, i: usize) -> Result<Option<usize>, Error> {
    match c.get(key) {
        Some(Value::Array(_)) => match c.counts(key)?.get(i) {
            Some(count) => Ok(Some(*count)),
            None => Err(Error::config(key, format!("has no entry for layer {i}"))),
        },
        _ => c.count(key),
    }
}

/// A small one, beside the usual keys.
pub(super) fn tiny() -> Value {
    json!({"num_experts": 6, "moe_topk": [2, 1, 2], "num_shared_expert": [1, 1, 1]})
}
