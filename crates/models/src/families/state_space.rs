//! What the families with Mamba-2 layers read from their configs in the same way, each by its own
//! names. No family itself.

use backend::{Activation, Mamba2, MambaGate, MambaScales};

use crate::Error;
use crate::config::Config;
use crate::recipe::Mamba2Mixer;

use super::bias_switch;

/// What the sizes of a Mamba-2 layer are called.
pub(super) struct Keys {
    pub(super) heads: &'static str,
    pub(super) head_dim: &'static str,
    pub(super) groups: &'static str,
    pub(super) state: &'static str,
    pub(super) taps: &'static str,
    pub(super) conv_bias: &'static str,
    /// Whether the projections have biases.
    pub(super) bias: &'static str,
}

/// Of Bamba and those that came after it.
pub(super) const BAMBA: Keys = Keys {
    heads: "mamba_n_heads",
    head_dim: "mamba_d_head",
    groups: "mamba_n_groups",
    state: "mamba_d_state",
    taps: "mamba_d_conv",
    conv_bias: "mamba_conv_bias",
    bias: "mamba_proj_bias",
};

/// A layer called `name`, gated as `gate` has it, without factors.
pub(super) fn mamba2(
    c: &Config,
    keys: &Keys,
    name: &'static str,
    gate: MambaGate,
) -> Result<Mamba2Mixer, Error> {
    let heads = c.need_size(keys.heads)?;
    let groups = c.need_size(keys.groups)?;
    if heads % groups != 0 {
        let problem = format!("is {groups}, which does not divide {} {heads}", keys.heads);
        return Err(Error::config(keys.groups, problem));
    }
    let bias = bias_switch(c, keys.bias)?;
    Ok(Mamba2Mixer {
        name,
        shape: Mamba2 {
            heads,
            head_dim: head_dim(c, keys, heads)?,
            groups,
            state: c.need_size(keys.state)?,
            taps: taps(c, keys.taps)?,
            dt_limit: dt_limit(c)?,
            scales: MambaScales::NONE,
            gate,
        },
        in_bias: bias,
        conv_bias: bias_switch(c, keys.conv_bias)?,
        out_bias: bias,
        conv_scales: [1.0; 3],
        out_scale: 1.0,
    })
}

/// Written down, or what the heads leave of the columns of all of them.
fn head_dim(c: &Config, keys: &Keys, heads: usize) -> Result<usize, Error> {
    let is_auto = c.get(keys.head_dim).and_then(|value| value.as_str()) == Some("auto");
    if !is_auto {
        return c.need_size(keys.head_dim);
    }
    let inner = match c.size("mamba_d_ssm")? {
        Some(inner) => inner,
        None => c.need_count("mamba_expand")? * c.need_size("hidden_size")?,
    };
    match inner % heads {
        0 => Ok(inner / heads),
        _ => {
            let problem = format!("is \"auto\" and {inner} columns do not divide by {heads} heads");
            Err(Error::config(keys.head_dim, problem))
        }
    }
}

/// Rows that a convolution reads.
pub(super) fn taps(c: &Config, key: &str) -> Result<usize, Error> {
    let taps = c.need_size(key)?;
    if (2..=64).contains(&taps) {
        return Ok(taps);
    }
    Err(Error::config(key, format!("is {taps}; supported: 2 to 64")))
}

/// What steps are clamped to; nothing, if the config does not say.
fn dt_limit(c: &Config) -> Result<[f32; 2], Error> {
    const KEY: &str = "time_step_limit";
    let list = c.numbers(KEY)?;
    match list[..] {
        [] => Ok([0.0, f32::INFINITY]),
        [low, high] if 0.0 <= low && low <= high => Ok([low as f32, high as f32]),
        _ => Err(Error::config(KEY, "must be two numbers, the first not the greater one")),
    }
}

/// Convolutions of this kind have a SiLU behind them.
pub(super) fn need_silu(activation: Activation, key: &str) -> Result<(), Error> {
    match activation {
        Activation::Silu => Ok(()),
        _ => Err(Error::config(key, "must be silu where layers have a convolution")),
    }
}

/// The kind of each layer, by the names that a config has for kinds.
pub(super) fn kinds<T: Copy>(
    names: &[String],
    key: &str,
    known: &[(&str, T)],
) -> Result<Vec<T>, Error> {
    let kind = |name: &String| {
        let found = known.iter().find(|(known, _)| known == name);
        found.map(|(_, kind)| *kind).ok_or_else(|| {
            let known: Vec<&str> = known.iter().map(|(known, _)| *known).collect();
            Error::config(key, format!("names \"{name}\"; supported: {}", known.join(", ")))
        })
    };
    names.iter().map(kind).collect()
}
