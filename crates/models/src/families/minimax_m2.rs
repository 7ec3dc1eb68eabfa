//! MiniMax-M2: norms on q and k as a whole, a partial rotation, and experts by corrected sigmoids.

use super::*;
use crate::recipe::{Correction, Ffn, HeadNorm, MoeFfn, Router};
use crate::rope::RopeParams;

pub(super) fn recipe(c: &Config, context: Option<usize>) -> Result<ModelSpec, Error> {
    let c = &c.with_defaults(json!({
        "head_dim": 128, "rope_theta": 5_000_000.0, "use_qk_norm": true, "qk_norm_type": "per_layer",
    }));
    let trunk = Trunk::read(c)?;
    let mut params = RopeParams::read(c, "full_attention")?;
    if let Some(rotated) = c.size("rotary_dim")? {
        let part = rotated as f64 / trunk.head_dim as f64;
        params.or("partial_rotary_factor", Some(&part.into()));
    }
    let rope = params.rope(trunk.rope_shape(context))?;
    if let Some(other) = c.text("qk_norm_type")?.filter(|kind| *kind != "per_layer") {
        return Err(Error::config("qk_norm_type", format!("is \"{other}\"; supported: per_layer")));
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
    let correction = Correction::Stored("e_score_correction_bias");
    Ok(MoeFfn { router: Router { correction, ..moe.router }, ..moe })
}

/// A small one, beside the usual keys.
pub(super) fn tiny() -> Value {
    json!({"num_local_experts": 6, "num_experts_per_tok": 2, "rotary_dim": 8})
}
