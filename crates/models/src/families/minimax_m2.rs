//! MiniMax-M2: norms on q and k as a whole, a partial rotation, and experts by corrected sigmoids.

use super::*;
use crate::recipe::{Correction, Ffn, HeadNorm, MoeFfn, Router};
use crate::rope::RopeParams;

pub(super) fn recipe(c: &Config, context: Option<usize>) -> Result<ModelSpec, Error> {
    let c = &c.with_defaults(json!({
        "head_dim": 128, "rope_theta": 5_000_000.0, "use_qk_norm": true, "use_routing_bias": true,
    }));
    let trunk = Trunk::read(c)?;
    let mut params = RopeParams::read(c, "full_attention")?;
    if let Some(rotated) = c.size("rotary_dim")? {
        let part = rotated as f64 / trunk.head_dim as f64;
        params.or("partial_rotary_factor", Some(&part.into()));
    }
    let rope = params.rope(trunk.rope_shape(context))?;
    only(c, "qk_norm_type", &[json!("per_layer")])?;
    only(c, "scoring_func", &[json!("sigmoid")])?;
    // What those before it had beside experts.
    only(c, "shared_intermediate_size", &[json!(0)])?;
    if c.counts("attn_type_list")?.iter().any(|kind| *kind != 1) {
        return Err(Error::config("attn_type_list", "names linear attention; supported: 1"));
    }
    let mut attention = trunk.attention(None);
    if c.is_on("use_qk_norm")? {
        attention.head_norm = Some(HeadNorm { span: NormSpan::AllHeads, ..trunk.head_norm() });
    }
    let layer = trunk.pre_norm_layer(attention, Ffn::Moe(mixture(c, &trunk)?));
    let layers = vec![layer; trunk.n_layers];
    Ok(trunk.spec("minimax_m2", vec![rope], layers))
}

fn mixture(c: &Config, trunk: &Trunk) -> Result<MoeFfn, Error> {
    let mut moe = super::mixtral::mixture(c, trunk)?;
    moe.experts.gating = Gating::SIGMOID;
    let correction = match c.is_on("use_routing_bias")? {
        true => Correction::Stored("e_score_correction_bias"),
        false => Correction::Absent,
    };
    Ok(MoeFfn { router: Router { correction, ..moe.router }, ..moe })
}

/// A small one, beside the usual keys.
pub(super) fn tiny() -> Value {
    json!({"num_local_experts": 6, "num_experts_per_tok": 2, "rotary_dim": 8})
}
