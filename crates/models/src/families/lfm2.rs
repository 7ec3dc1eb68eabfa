//! LFM2: short gated convolutions with some attention between them.

use backend::ShortConv;

use super::state_space::{kinds, taps};
use super::*;
use crate::recipe::{Ffn, GateUp, GatedFfn, HeadNorm, Layer, Mixer, Norms, ShortConvMixer, Step};
use crate::rope::RopeParams;

pub(super) fn recipe(c: &Config, context: Option<usize>) -> Result<ModelSpec, Error> {
    let c = &with_usual_values(c)?;
    let trunk = Trunk::read(c)?;
    let ffn = Ffn::Gated(gated(&trunk, inner(c)?));
    let ffns = vec![ffn; trunk.n_layers];
    conv_hybrid(c, trunk, ffns, "lfm2", context)
}

/// What configs of this kind leave out.
pub(super) fn with_usual_values<'a>(c: &Config<'a>) -> Result<Config<'a>, Error> {
    let tied = c.get("tie_embedding").cloned().unwrap_or(json!(true));
    Ok(c.with_defaults(json!({
        "tie_word_embeddings": tied, "conv_L_cache": 3, "rope_theta": 1e6,
        "block_auto_adjust_ff_dim": true, "block_multiple_of": 256,
        "use_expert_bias": true, "norm_topk_prob": true,
    })))
}

pub(super) fn gated(trunk: &Trunk, inner: usize) -> GatedFfn {
    GatedFfn { name: "feed_forward", gate_up: GateUp::Numbered, ..trunk.gated(inner) }
}

/// Columns between the projections: two thirds of what is written down, times a factor, rounded up.
fn inner(c: &Config) -> Result<usize, Error> {
    let inner = match c.size("block_ff_dim")? {
        Some(inner) => inner,
        None => c.need_size("intermediate_size")?,
    };
    if !c.is_on("block_auto_adjust_ff_dim")? {
        return Ok(inner);
    }
    let inner = (2 * inner / 3) as f64;
    let factor = c.positive("block_ffn_dim_multiplier")?.map_or(1.0, shortest);
    let multiple = c.need_size("block_multiple_of")?;
    // A factor that is out of all bounds leads to a tensor that is not there.
    let inner = (inner * factor).min(1e9) as usize;
    Ok(inner.div_ceil(multiple).max(1).saturating_mul(multiple).min(1 << 20))
}

/// The number that was written down, as double precision has it.
fn shortest(x: f32) -> f64 {
    x.to_string().parse().unwrap_or(f64::from(x))
}

/// The model around `ffns`, one per layer.
pub(super) fn conv_hybrid(
    c: &Config,
    trunk: Trunk,
    ffns: Vec<Ffn>,
    family: &'static str,
    context: Option<usize>,
) -> Result<ModelSpec, Error> {
    let rope = RopeParams::read(c, "full_attention")?.rope(trunk.rope_shape(context))?;
    let mut attention = trunk.attention(None);
    attention.out = "out_proj";
    let names = ["q_layernorm", "k_layernorm"];
    attention.head_norm = Some(HeadNorm { names, ..trunk.head_norm() });
    let attention = Mixer::Attention(attention);
    let shape = ShortConv { cols: trunk.hidden, taps: taps(c, "conv_L_cache")? };
    let conv = Mixer::ShortConv(ShortConvMixer { shape, bias: bias_switch(c, "conv_bias")? });
    let norms = |name| Norms::Pre(trunk.norm(name));
    let layer = |(is_conv, ffn): (bool, Ffn)| {
        let mixer = if is_conv { conv.clone() } else { attention.clone() };
        Layer {
            steps: vec![
                Step::new(norms("operator_norm"), mixer),
                Step::new(norms("ffn_norm"), ffn),
            ],
        }
    };
    let layers = are_convs(c, trunk.n_layers)?.into_iter().zip(ffns).map(layer).collect();
    let mut spec = trunk.spec(family, vec![rope], layers);
    spec.final_norm.name = "embedding_norm";
    Ok(spec)
}

/// Which layers are convolutions: `layer_types`, or all but `full_attn_idxs`.
fn are_convs(c: &Config, n_layers: usize) -> Result<Vec<bool>, Error> {
    if let Some(names) = c.per_layer("layer_types", n_layers)? {
        return kinds(
            &names[..n_layers],
            "layer_types",
            &[("conv", true), ("full_attention", false)],
        );
    }
    let full = c.counts("full_attn_idxs")?;
    let all_are_full = c.get("full_attn_idxs").is_none();
    Ok((0..n_layers).map(|i| !all_are_full && !full.contains(&i)).collect())
}

/// A small one, beside the usual keys.
pub(super) fn tiny() -> Value {
    json!({
        "norm_eps": 1e-5, "layer_types": ["conv", "full_attention", "conv"], "conv_L_cache": 3,
        "conv_bias": false, "block_auto_adjust_ff_dim": false, "tie_word_embeddings": true,
    })
}
