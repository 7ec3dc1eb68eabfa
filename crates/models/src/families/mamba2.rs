//! Mamba-2: selective state spaces and nothing else, so that a sequence is remembered in a state of
//! one size, and positions have no end.

use backend::MambaGate;

use super::state_space::{Keys, mamba2, need_silu};
use super::*;
use crate::recipe::{Layer, Mixer, Norms, Step};

const KEYS: Keys = Keys {
    heads: "num_heads",
    head_dim: "head_dim",
    groups: "n_groups",
    state: "state_size",
    taps: "conv_kernel",
    conv_bias: "use_conv_bias",
    bias: "use_bias",
};

pub(super) fn recipe(c: &Config, _context: Option<usize>) -> Result<ModelSpec, Error> {
    let c = &c.with_defaults(json!({
        "use_conv_bias": true, "layer_norm_epsilon": 1e-5,
        // Attention there is none, and no position is too far.
        "num_attention_heads": 1, "max_position_embeddings": 1 << 20,
    }));
    let trunk = Trunk::read(c)?;
    need_silu(trunk.activation, "hidden_act")?;
    let mixer = mamba2(c, &KEYS, "mixer", MambaGate::ThenNorm(trunk.eps))?;
    let step = Step::new(Norms::Pre(trunk.norm("norm")), Mixer::Mamba2(mixer));
    let layers = vec![Layer { steps: vec![step] }; trunk.n_layers];
    let mut spec = trunk.spec("mamba2", Vec::new(), layers);
    spec.embed = "embeddings";
    spec.final_norm.name = "norm_f";
    Ok(spec)
}

/// A small one, beside the usual keys.
pub(super) fn tiny() -> Value {
    json!({
        "num_heads": 8, "head_dim": 16, "n_groups": 2, "state_size": 16, "conv_kernel": 4,
        "use_bias": false, "use_conv_bias": true,
    })
}
