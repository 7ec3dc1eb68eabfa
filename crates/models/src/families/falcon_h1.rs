//! Falcon-H1: attention beside Mamba-2 in every layer, and a factor on whatever is multiplied.
//!
//! Factors go where they cost nothing and mean the same: to the scale of attention, to the taps of
//! convolutions, to gains, and to what branches are multiplied with.

use backend::{MambaGate, MambaScales};

use super::state_space::{BAMBA, mamba2, need_silu};
use super::*;
use crate::recipe::{Branch, Ffn, GatedFfn, Layer, Mamba2Mixer, Mixer, Norm, Norms, Skip, Step};
use crate::rope::RopeParams;

pub(super) fn recipe(c: &Config, context: Option<usize>) -> Result<ModelSpec, Error> {
    let c = &c.with_defaults(json!({
        "mamba_conv_bias": true, "mamba_n_groups": 1, "mamba_d_conv": 4, "mamba_d_head": "auto",
        "mamba_expand": 2, "mamba_norm_before_gate": true, "rms_norm_eps": 1e-5,
    }));
    let trunk = Trunk::read(c)?;
    need_silu(trunk.activation, "hidden_act")?;
    let rope = RopeParams::read(c, "full_attention")?.rope(trunk.rope_shape(context))?;
    let attention_scale =
        c.factor("attention_in_multiplier")? * c.factor("attention_out_multiplier")?;
    let mut mamba = mamba(c, &trunk)?;
    mamba.out_scale = c.factor("ssm_out_multiplier")? / attention_scale;
    let [gate_scale, down_scale] = factors(c, "mlp_multipliers")?;
    let mix = Step {
        norms: Norms::Pre(trunk.norm("input_layernorm")),
        // The first one can be scaled in place.
        branches: vec![Mixer::Mamba2(mamba).into(), attention(c, &trunk)?],
        scale: attention_scale,
        skip: Skip::Stream,
    };
    let ffn = GatedFfn { name: "feed_forward", ..trunk.gated(c.need_size("intermediate_size")?) };
    let think = Step {
        // Scales the gate, and with it what the gate is for.
        norms: Norms::Pre(Norm { scale: gate_scale, ..trunk.norm("pre_ff_layernorm") }),
        branches: vec![Ffn::Gated(ffn).into()],
        scale: down_scale / gate_scale,
        skip: Skip::Stream,
    };
    refuse_biases(c)?;
    let layers = vec![Layer { steps: vec![mix, think] }; trunk.n_layers];
    let mut spec = trunk.spec("falcon_h1", vec![rope], layers);
    spec.final_norm.name = "final_layernorm";
    spec.embed_scale = c.factor("embedding_multiplier")?;
    spec.logit_scale = c.factor("lm_head_multiplier")?;
    Ok(spec)
}

/// Attention without its output's factor.
fn attention(c: &Config, trunk: &Trunk) -> Result<Branch, Error> {
    let mut attention = trunk.attention(None);
    let input = c.factor("attention_in_multiplier")?;
    attention.shape.scale *= c.factor("key_multiplier")? * input * input;
    Ok(Mixer::Attention(attention).into())
}

fn mamba(c: &Config, trunk: &Trunk) -> Result<Mamba2Mixer, Error> {
    let gate = match (c.is_on("mamba_rms_norm")?, c.is_on("mamba_norm_before_gate")?) {
        (false, _) => MambaGate::Bare,
        (true, true) => MambaGate::AfterNorm(trunk.eps),
        (true, false) => MambaGate::ThenNorm(trunk.eps),
    };
    let input = c.factor("ssm_in_multiplier")?;
    let [z, x, b, c_, dt] = factors(c, "ssm_multipliers")?.map(|factor: f32| factor * input);
    let mut mamba = mamba2(c, &BAMBA, "mamba", gate)?;
    mamba.shape.scales = MambaScales { z, dt };
    mamba.conv_scales = [x, b, c_];
    mamba.out_bias = bias_switch(c, "projectors_bias")?;
    Ok(mamba)
}

/// `N` numbers above zero; ones, if the config does not say.
fn factors<const N: usize>(c: &Config, key: &str) -> Result<[f32; N], Error> {
    let list = c.numbers(key)?;
    if list.is_empty() {
        return Ok([1.0; N]);
    }
    let list: Vec<f32> = list.into_iter().map(|x| x as f32).collect();
    let is_sound = list.iter().all(|x| *x > 0.0 && x.is_finite());
    let array = list.try_into().ok().filter(|_| is_sound);
    array.ok_or_else(|| Error::config(key, format!("must be {N} numbers above zero")))
}

/// A factor on what a linear layer reads or writes cannot be moved past its bias.
fn refuse_biases(c: &Config) -> Result<(), Error> {
    for key in ["attention_bias", "mlp_bias", "mamba_proj_bias", "projectors_bias"] {
        if c.is_on(key)? {
            return Err(Error::config(key, "is true; supported: false"));
        }
    }
    Ok(())
}

/// A small one, beside the usual keys.
pub(super) fn tiny() -> Value {
    json!({
        "mamba_d_ssm": 96, "mamba_n_heads": 6, "mamba_d_head": 16, "mamba_d_state": 16,
        "mamba_n_groups": 2, "mamba_d_conv": 4, "mamba_rms_norm": false, "key_multiplier": 0.7,
        "attention_out_multiplier": 0.8, "ssm_in_multiplier": 1.2, "ssm_out_multiplier": 0.7,
        "ssm_multipliers": [0.8, 1.3, 0.6, 1.5, 1.2], "mlp_multipliers": [0.7, 1.4],
    })
}
