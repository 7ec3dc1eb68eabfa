//! Granite 4: Mamba-2 with some attention between, factors on everything, and a gated layer that
//! every row passes through, alone or beside experts.

use backend::MambaGate;

use super::state_space::{BAMBA, kinds, mamba2, need_silu};
use super::*;
use crate::recipe::{
    Branch, Ffn, GateUp, GatedFfn, Layer, Mixer, MoeFfn, Norms, Router, Skip, Step,
};
use crate::rope::RopeParams;

pub(super) fn recipe(c: &Config, context: Option<usize>) -> Result<ModelSpec, Error> {
    let c = &c.with_defaults(json!({
        "mamba_conv_bias": true, "mamba_n_groups": 1, "mamba_d_conv": 4, "mamba_d_head": "auto",
        "mamba_expand": 2, "num_local_experts": 8,
    }));
    let trunk = Trunk::read(c)?;
    need_silu(trunk.activation, "hidden_act")?;
    let ropes = match c.text("position_embedding_type")? {
        Some("rope") => {
            vec![RopeParams::read(c, "full_attention")?.rope(trunk.rope_shape(context))?]
        }
        _ => Vec::new(),
    };
    let mut attention = trunk.attention(None);
    let bias = attention_bias(c)?;
    (attention.qkv_bias, attention.out_bias) = (bias, bias);
    attention.shape.scale = c.factor("attention_multiplier")?;
    attention.rope = (!ropes.is_empty()).then_some(0);
    let attention = Mixer::Attention(attention);
    let mamba = mamba2(c, &BAMBA, "mamba", MambaGate::ThenNorm(trunk.eps))?;
    let mamba = Mixer::Mamba2(mamba);
    let ffns = feed_forward(c, &trunk)?;
    let scale = c.factor("residual_multiplier")?;
    let step = |norm, branches| Step {
        norms: Norms::Pre(trunk.norm(norm)),
        branches,
        scale,
        skip: Skip::Stream,
    };
    let layer = |is_mamba| {
        let mixer = if is_mamba { mamba.clone() } else { attention.clone() };
        Layer {
            steps: vec![
                step("input_layernorm", vec![Branch::Mixer(mixer)]),
                step("post_attention_layernorm", ffns.clone()),
            ],
        }
    };
    let layers = are_mambas(c, trunk.n_layers)?.into_iter().map(layer).collect();
    let mut spec = trunk.spec("granitemoehybrid", ropes, layers);
    spec.embed_scale = c.factor("embedding_multiplier")?;
    spec.logit_scale = 1.0 / c.factor("logits_scaling")?;
    Ok(spec)
}

/// Which layers have no attention; all, if the config does not say.
fn are_mambas(c: &Config, n_layers: usize) -> Result<Vec<bool>, Error> {
    let key = if c.get("layer_types").is_some() { "layer_types" } else { "layers_block_type" };
    let Some(names) = c.per_layer(key, n_layers)? else { return Ok(vec![true; n_layers]) };
    let known = [
        ("linear_attention", true),
        ("mamba", true),
        ("full_attention", false),
        ("attention", false),
    ];
    kinds(&names[..n_layers], key, &known)
}

/// What is summed up after the mixer of each layer.
fn feed_forward(c: &Config, trunk: &Trunk) -> Result<Vec<Branch>, Error> {
    let shared = GatedFfn {
        name: "shared_mlp",
        gate_up: GateUp::InOut,
        ..trunk.gated(c.need_size("shared_intermediate_size")?)
    };
    match c.count("num_local_experts")?.unwrap_or(0) {
        0 => Ok(vec![Ffn::Gated(shared).into()]),
        _ => {
            let moe = super::mixtral::mixture(c, trunk)?;
            let router = Router { name: "router.layer", ..moe.router };
            Ok(vec![Ffn::Moe(MoeFfn { router, ..moe }).into(), Ffn::Gated(shared).into()])
        }
    }
}

/// A small one, beside the usual keys.
pub(super) fn tiny() -> Value {
    json!({
        "layer_types": ["mamba", "attention", "mamba"], "mamba_n_heads": 8, "mamba_d_head": 16,
        "mamba_d_state": 16, "mamba_n_groups": 1, "mamba_d_conv": 4, "shared_intermediate_size": 96,
        "num_local_experts": 6, "num_experts_per_tok": 2, "embedding_multiplier": 2.0, "attention_multiplier": 0.2,
        "residual_multiplier": 0.5, "logits_scaling": 2.0,
    })
}
