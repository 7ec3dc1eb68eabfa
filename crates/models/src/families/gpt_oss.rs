//! gpt-oss: windows in every second layer, sinks in all of them, experts with a clamped swish and
//! biases everywhere.

use backend::{GateUpRows, Glu};

use super::*;
use crate::recipe::{Correction, Ffn, JoinedRows, MoeFfn, Router};
use crate::rope::RopeParams;

pub(super) fn recipe(c: &Config, context: Option<usize>) -> Result<ModelSpec, Error> {
    let c = &c.with_defaults(json!({
        "attention_bias": true, "head_dim": 64, "sliding_window": 128, "rms_norm_eps": 1e-5,
        "rope_theta": 150_000.0, "swiglu_alpha": 1.702, "swiglu_limit": 7.0,
    }));
    let trunk = Trunk::read(c)?;
    let views = trunk.views(c, |i| if i % 2 == 0 { View::Sliding } else { View::Full })?;
    let windows = trunk.windows(c, &views)?;
    let rope = RopeParams::read(c, "full_attention")?.rope(trunk.rope_shape(context))?;
    let bias = attention_bias(c)?;
    let ffn = Ffn::Moe(mixture(c, &trunk)?);
    let layer = |window| {
        let mut attention = trunk.attention(window);
        (attention.qkv_bias, attention.out_bias) = (bias, bias);
        attention.sinks = Bias::Stored;
        trunk.pre_norm_layer(attention, ffn.clone())
    };
    let layers = windows.into_iter().map(layer).collect();
    Ok(trunk.spec("gpt_oss", vec![rope], layers))
}

fn mixture(c: &Config, trunk: &Trunk) -> Result<MoeFfn, Error> {
    let [n, top_k] = expert_counts(c)?;
    let number = |key| Ok::<_, Error>(c.positive(key)?.unwrap_or(1.0));
    let glu = Glu::ClampedSwish { slope: number("swiglu_alpha")?, limit: number("swiglu_limit")? };
    let experts = Experts {
        n,
        top_k,
        inner: c.need_size("intermediate_size")?,
        gating: Gating::SOFTMAX_OF_CHOSEN,
        routed_scale: 1.0,
        form: ExpertForm::Gated { glu, rows: GateUpRows::Halves },
    };
    Ok(MoeFfn {
        router: Router { name: "router", bias: Bias::Stored, correction: Correction::Absent },
        expert_bias: Bias::Stored,
        joined_rows: JoinedRows::TakeTurns,
        ..trunk.mixture(experts)
    })
}

/// A small one, beside the usual keys.
pub(super) fn tiny() -> Value {
    json!({"num_local_experts": 6, "num_experts_per_tok": 2, "sliding_window": 40})
}
