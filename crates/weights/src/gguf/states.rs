//! What layers that carry a state have in a GGUF file: small tensors are given the numbers that Hugging
//! Face has for them, and hyperparameters the names of their family.
//!
//! Large matrices stay as they lie. Where their heads are in another order, the config says so.

use serde_json::{Map, Value as Json, json};

use super::arch::States;
use super::config::Hyper;
use super::names::numbers;
use crate::{Error, Tensor};

/// The heads of a gated delta rule.
#[derive(Clone, Copy, Debug)]
pub(super) struct Heads {
    k: usize,
    v: usize,
    /// Columns of all queries, which are as many as those of all keys.
    k_cols: usize,
    v_dim: usize,
}

/// What is needed to restore the tensors of layers with a state.
#[derive(Clone, Copy, Debug)]
pub(super) enum Restoring {
    /// Nothing was done to them.
    Nothing,
    /// Mamba-2.
    Mamba2,
    /// Strengths and decays of each key head lie together.
    Delta(Heads),
    /// Value heads are in turn: the first one of every key head, then the second ones.
    InTurn(Heads),
}

impl Restoring {
    /// What the hyperparameters say.
    pub(super) fn of(hyper: &Hyper) -> Result<Restoring, Error> {
        Ok(match hyper.arch.states {
            States::Same => Restoring::Nothing,
            States::Mamba2 => Restoring::Mamba2,
            States::Delta => Restoring::Delta(heads(hyper)?),
            States::DeltaInTurn => Restoring::InTurn(heads(hyper)?),
        })
    }
}

fn heads(hyper: &Hyper) -> Result<Heads, Error> {
    let size = |key: &str| Ok::<_, Error>(hyper.required(key)? as usize);
    let (k, v) = (size("ssm.group_count")?, size("ssm.time_step_rank")?);
    let (k_dim, inner) = (size("ssm.state_size")?, size("ssm.inner_size")?);
    let whole = |key: &str, n: usize, by: usize| match n % by {
        0 => Ok(n / by),
        _ => {
            let expected = format!("a multiple of {by}");
            Err(hyper.metadata.bad(&hyper.key(key), &expected, n.to_string()))
        }
    };
    whole("ssm.time_step_rank", v, k)?;
    let v_dim = whole("ssm.inner_size", inner, v)?;
    Ok(Heads { k, v, k_cols: k.saturating_mul(k_dim), v_dim })
}

impl Heads {
    /// Where value head `head`, counted by key head, is in turn.
    fn turn(&self, head: usize) -> usize {
        let group = self.v / self.k;
        head % group * self.k + head / group
    }

    /// A tensor of `before` rows and then `len` for each value head, these by key head.
    fn by_key_head(&self, tensor: Tensor, before: usize, len: usize) -> Result<Tensor, Error> {
        let all = self.v.checked_mul(len).and_then(|n| n.checked_add(before));
        if all.is_none() || all != tensor.shape.first().copied() {
            return Err(bad(
                &tensor,
                format!("{before} rows and {len} for each of {} heads", self.v),
            ));
        }
        let of_head = |head: usize| (0..len).map(move |i| before + self.turn(head) * len + i);
        let order: Vec<usize> = (0..before).chain((0..self.v).flat_map(of_head)).collect();
        rows(tensor, &order)
    }
}

/// The tensors that one with a Hugging Face name stands for.
pub(super) fn restored(tensor: Tensor, how: Restoring) -> Result<Vec<Tensor>, Error> {
    let part = tensor.name.rsplit_once("linear_attn.").map_or("", |(_, part)| part);
    Ok(match (how, part) {
        (Restoring::Nothing, _) => vec![tensor],
        (_, "A_log") | (Restoring::Mamba2, _) if tensor.name.ends_with(".A_log") => {
            let logs = logs(&tensor)?;
            match how {
                Restoring::InTurn(heads) => vec![heads.by_key_head(logs, 0, 1)?],
                _ => vec![logs],
            }
        }
        (Restoring::Delta(_) | Restoring::InTurn(_), "conv1d.weight") => {
            let mut tensor = tensor;
            if let Restoring::InTurn(heads) = how {
                tensor = heads.by_key_head(tensor, heads.k_cols.saturating_mul(2), heads.v_dim)?;
            }
            // With its axes as MLX has them, because gains have the one as with MLX.
            if let [_, taps] = tensor.shape[..]
                && taps > 1
            {
                tensor.shape.push(1);
            }
            vec![tensor]
        }
        (Restoring::InTurn(heads), "dt_bias" | "in_proj_a.weight" | "in_proj_b.weight") => {
            vec![heads.by_key_head(tensor, 0, 1)?]
        }
        (Restoring::Delta(heads), "in_proj_ba.weight") => {
            let group = heads.v / heads.k;
            if heads.v.checked_mul(2) != tensor.shape.first().copied() {
                return Err(bad(&tensor, format!("two rows for each of {} heads", heads.v)));
            }
            let of = |second: usize| -> Vec<usize> {
                let first = move |head: usize| head / group * 2 * group + second * group;
                (0..heads.v).map(|head| first(head) + head % group).collect()
            };
            let half = |end: &str, order: Vec<usize>| {
                let name = tensor.name.replace("in_proj_ba.", end);
                rows(Tensor { name, ..tensor.clone() }, &order)
            };
            vec![half("in_proj_b.", of(0))?, half("in_proj_a.", of(1))?]
        }
        _ => vec![tensor],
    })
}

fn bad(tensor: &Tensor, expected: String) -> Error {
    let (file, found) = (tensor.file.to_path_buf(), tensor.describe());
    Error::BadTensor { file, tensor: tensor.name.clone(), expected, found }
}

/// These rows of a tensor.
fn rows(tensor: Tensor, order: &[usize]) -> Result<Tensor, Error> {
    let n = tensor.shape.first().copied().unwrap_or(0);
    let len = tensor.data.len() / n.max(1);
    if order.iter().any(|row| *row >= n) || len * n != tensor.data.len() {
        return Err(bad(&tensor, format!("{} whole rows", order.len())));
    }
    let data: Vec<u8> =
        order.iter().flat_map(|row| &tensor.data[row * len..][..len]).copied().collect();
    let mut shape = tensor.shape;
    shape[0] = order.len();
    Ok(Tensor { shape, data: data.into(), ..tensor })
}

/// The logarithms of rates, which files have with a minus before them.
fn logs(tensor: &Tensor) -> Result<Tensor, Error> {
    let rates = numbers(tensor)?;
    if let Some(rate) = rates.iter().find(|rate| rate.is_nan() || **rate >= 0.0) {
        return Err(Error::BadTensor {
            file: tensor.file.to_path_buf(),
            tensor: tensor.name.clone(),
            expected: "numbers below zero".into(),
            found: rate.to_string(),
        });
    }
    let logs: Vec<f32> = rates.iter().map(|rate| (-rate).ln()).collect();
    Ok(Tensor {
        file: tensor.file.clone(),
        ..Tensor::from_f32(&*tensor.name, &[logs.len()], &logs)
    })
}

/// The sizes of gated delta rules.
pub(super) fn delta(hyper: &Hyper, out: &mut Map<String, Json>) -> Result<(), Error> {
    let Heads { k, v, v_dim, .. } = heads(hyper)?;
    for (key, value) in [
        ("linear_num_key_heads", json!(k)),
        ("linear_num_value_heads", json!(v)),
        ("linear_key_head_dim", json!(hyper.required("ssm.state_size")?)),
        ("linear_value_head_dim", json!(v_dim)),
        ("linear_conv_kernel_dim", json!(hyper.required("ssm.conv_kernel")?)),
        ("full_attention_interval", json!(hyper.unsigned("full_attention_interval")?.unwrap_or(4))),
        ("linear_by_kind", json!(true)),
        ("linear_heads_in_turn", json!(hyper.arch.states == States::DeltaInTurn)),
    ] {
        out.insert(key.into(), value);
    }
    Ok(())
}

/// The sizes of Mamba-2 layers, by the names of one family.
pub(super) fn mamba2(
    hyper: &Hyper,
    names: [&str; 5],
    out: &mut Map<String, Json>,
) -> Result<(), Error> {
    let (heads, inner) = (hyper.required("ssm.time_step_rank")?, hyper.required("ssm.inner_size")?);
    if inner % heads != 0 {
        let expected = format!("a multiple of {heads}");
        return Err(hyper.metadata.bad(&hyper.key("ssm.inner_size"), &expected, inner.to_string()));
    }
    let groups = hyper.unsigned("ssm.group_count")?.filter(|&n| n > 0).unwrap_or(1);
    let sizes = [
        heads,
        inner / heads,
        groups,
        hyper.required("ssm.state_size")?,
        hyper.required("ssm.conv_kernel")?,
    ];
    for (name, size) in names.into_iter().zip(sizes) {
        out.insert(name.into(), json!(size));
    }
    Ok(())
}
