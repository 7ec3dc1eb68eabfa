//! MiniCPM3: latent attention, and factors on embeddings, branches and logits.

use backend::RopeLayout;

use super::*;
use crate::latent_trunk::LatentTrunk;
use crate::recipe::{Ffn, Mixer};

pub(super) fn recipe(c: &Config, context: Option<usize>) -> Result<ModelSpec, Error> {
    let (hidden, heads) = (c.need_size("hidden_size")?, c.need_size("num_attention_heads")?);
    let c = &c.with_defaults(json!({
        "v_head_dim": hidden / heads, "kv_lora_rank": 256, "q_lora_rank": 768, "qk_nope_head_dim": 64,
        "qk_rope_head_dim": 32, "scale_emb": 12, "scale_depth": 1.4, "dim_model_base": 256,
        "rms_norm_eps": 1e-5, "tie_word_embeddings": true,
    }));
    let LatentTrunk { trunk, rope, mixer } = LatentTrunk::read(c, context, RopeLayout::Halves)?;
    let ffn = Ffn::Gated(trunk.gated(c.need_size("intermediate_size")?));
    let branches = c.positive("scale_depth")?.map(|depth| depth / (trunk.n_layers as f32).sqrt());
    let layer = |_| {
        let mut layer = trunk.pre_norm(Mixer::Latent(mixer.clone()), ffn.clone());
        layer.steps.iter_mut().for_each(|step| step.scale = branches.unwrap_or(1.0));
        layer
    };
    let layers = (0..trunk.n_layers).map(layer).collect();
    let mut spec = trunk.spec("minicpm3", vec![rope], layers);
    spec.embed_scale = c.positive("scale_emb")?.unwrap_or(1.0);
    spec.logit_scale = c.positive("dim_model_base")?.map_or(1.0, |base| base / hidden as f32);
    Ok(spec)
}

/// A small one, beside the usual keys.
pub(super) fn tiny() -> Value {
    json!({
        "kv_lora_rank": 48, "q_lora_rank": 40, "qk_rope_head_dim": 8, "qk_nope_head_dim": 24,
        "v_head_dim": 20, "num_key_value_heads": 4, "scale_emb": 3, "dim_model_base": 32,
    })
}
