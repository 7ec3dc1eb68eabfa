//! What the families with multi-head latent attention read from their configs in the same way.
//!
//! Not their feed-forward layers, in which they differ.

use backend::{Latent, Rope, RopeLayout};
use serde_json::json;

use crate::Error;
use crate::config::Config;
use crate::recipe::{Bias, LatentMixer, LatentQuery, Norm};
use crate::rope::{RopeParams, RopeShape};
use crate::trunk::Trunk;

/// Added to the mean square in the norms of latents, whatever the config says about others.
const LATENT_EPS: f32 = 1e-6;

/// A decoder whose layers have latent attention.
pub(crate) struct LatentTrunk {
    pub(crate) trunk: Trunk,
    /// The only rotation.
    pub(crate) rope: Rope,
    /// The attention of every layer.
    pub(crate) mixer: LatentMixer,
}

impl LatentTrunk {
    /// Reads the sizes of a model whose rotary pairs lie as `layout` says.
    pub(crate) fn read(
        c: &Config,
        context: Option<usize>,
        layout: RopeLayout,
    ) -> Result<LatentTrunk, Error> {
        let (plain, rotated) = (c.need_size("qk_nope_head_dim")?, c.need_size("qk_rope_head_dim")?);
        // Some configs leave it out, and no head has as many columns anyway.
        let trunk = Trunk::read(&c.with_defaults(json!({ "head_dim": rotated })))?;
        let params = RopeParams::read(c, "full_attention")?;
        let rope = params.rope(RopeShape { head_dim: rotated, ..trunk.rope_shape(context) })?;
        let scale = ((plain + rotated) as f64).powf(-0.5) * params.latent_scale()?;
        let norm = |name| Norm { eps: LATENT_EPS, ..trunk.norm(name) };
        let query = match c.size("q_lora_rank")? {
            None => LatentQuery::Direct,
            Some(rank) => LatentQuery::LowRank { rank, norm: norm("q_a_layernorm") },
        };
        let mixer = LatentMixer {
            shape: Latent {
                heads: trunk.heads,
                rank: c.need_size("kv_lora_rank")?,
                plain,
                rotated,
                v_dim: c.need_size("v_head_dim")?,
                scale: scale as f32,
            },
            query,
            norm: norm("kv_a_layernorm"),
            bias: if c.is_on("attention_bias")? { Bias::Stored } else { Bias::Absent },
            rope: Some(0),
        };
        Ok(LatentTrunk { trunk, rope: Rope { layout, ..rope }, mixer })
    }
}

/// `rope_interleave`, which is on unless something else is said.
pub(crate) fn rope_layout(c: &Config) -> Result<RopeLayout, Error> {
    Ok(match c.get("rope_interleave") {
        Some(_) if !c.is_on("rope_interleave")? => RopeLayout::Halves,
        _ => RopeLayout::Interleaved,
    })
}
