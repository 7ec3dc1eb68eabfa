//! Turns the tensors of a GGUF file into those of a Hugging Face model: other names, and, where the
//! converter changed them, other numbers.
//!
//! Rotary permutations are left in place; the config says so (`rope_interleaved`).

use crate::{Dtype, Error, Tensor};

use super::arch::{Arch, Gains};
use super::config::Layers;
use super::states;

/// Modules whose matrices are taken apart, and how many they may be.
const STACKS: [&str; 2] = ["model.altup_projections", "model.altup_unembed_projections"];
const MAX_STACK: usize = 64;

/// RoPE factors, which the file stores as tensors and Hugging Face in the config.
#[derive(Debug, Default)]
pub(super) struct RopeFactors {
    /// `rope_freqs`: divisors of all frequencies.
    pub(super) freqs: Option<Vec<f32>>,
    /// `rope_factors_long`.
    pub(super) long: Option<Vec<f32>>,
    /// `rope_factors_short`.
    pub(super) short: Option<Vec<f32>>,
}

/// Renames `tensors`, takes the RoPE factors out of them, and leaves out layers behind those of the
/// model.
pub(super) fn translate(
    arch: &Arch,
    layers: &Layers,
    tensors: Vec<Tensor>,
) -> Result<(Vec<Tensor>, RopeFactors), Error> {
    let mut factors = RopeFactors::default();
    let mut out = Vec::new();
    for tensor in tensors {
        match tensor.name.as_str() {
            "rope_freqs.weight" => factors.freqs = Some(numbers(&tensor)?),
            "rope_factors_long.weight" => factors.long = Some(numbers(&tensor)?),
            "rope_factors_short.weight" => factors.short = Some(numbers(&tensor)?),
            // What nobody knows of a layer that guesses is as good as no such layer.
            tensor_name
                if layers.guesses(tensor_name) && name(arch, layers, tensor_name).is_none() => {}
            _ => {
                for tensor in apart(rename(arch, layers, tensor)?) {
                    out.extend(states::restored(tensor, layers.states)?);
                }
            }
        }
    }
    Ok((out, factors))
}

impl Layers {
    /// Whether a tensor is of a layer that guesses further tokens.
    fn guesses(&self, name: &str) -> bool {
        let digits = name.strip_prefix("blk.").and_then(|rest| rest.split_once('.'));
        let layer = digits.and_then(|(digits, _)| digits.parse::<usize>().ok());
        layer.is_some_and(|layer| (self.n..self.n + self.guessing).contains(&layer))
    }
}

fn rename(arch: &Arch, layers: &Layers, tensor: Tensor) -> Result<Tensor, Error> {
    let n_layers = layers.n;
    let Some(name) = name(arch, layers, &tensor.name) else {
        return Err(Error::Unsupported {
            file: tensor.file.to_path_buf(),
            what: format!("tensor {} in a {} of {n_layers} layers", tensor.name, arch.name),
            advice: "it would have to be ignored, and the answers would be wrong".into(),
        });
    };
    let mut tensor = match arch.gains {
        Gains::OneMore if tensor.name.ends_with("_norm.weight") => less_one(&tensor)?,
        _ => tensor,
    };
    if tensor.name.ends_with(".ffn_gate_inp_shexp.weight") && tensor.shape.len() == 1 {
        tensor.shape.insert(0, 1);
    }
    Ok(Tensor { name, ..tensor })
}

/// Matrices that the file has one on top of the other, and Hugging Face each for itself.
fn apart(tensor: Tensor) -> Vec<Tensor> {
    let stack = tensor.name.strip_suffix(".weight").filter(|name| STACKS.contains(name));
    let (Some(stack), [n @ 1..=MAX_STACK, rows, cols]) = (stack, &tensor.shape[..]) else {
        return vec![tensor];
    };
    let len = tensor.data.len() / n;
    let one = |i: usize| Tensor {
        name: format!("{stack}.{i}.weight"),
        shape: vec![*rows, *cols],
        data: tensor.data.slice(i * len..(i + 1) * len),
        ..tensor.clone()
    };
    (0..*n).map(one).collect()
}

/// The Hugging Face name of a tensor; `None` where the architecture has no such tensor.
fn name(arch: &Arch, layers: &Layers, name: &str) -> Option<String> {
    let (module, kind) = match name.rsplit_once('.')? {
        (module, kind @ ("weight" | "bias")) => (module, kind),
        // Some have nothing behind their names.
        _ => (name, ""),
    };
    let Some(rest) = module.strip_prefix("blk.") else {
        return arch.model_module(module).map(|module| format!("{module}.{kind}"));
    };
    let (digits, module) = rest.split_once('.')?;
    let layer: usize = digits.parse().ok()?;
    // `+1` and `01` are numbers too, but not names that the converter writes.
    if layer >= layers.n + layers.guessing || layer.to_string() != digits {
        return None;
    }
    if let Some(i) = layer.checked_sub(layers.n) {
        return arch.guessing_tensor(i, layers, (module, kind));
    }
    Some(format!("{}.{layer}.{}", arch.layers(), arch.layer_tensor((module, kind))?))
}

/// A norm's gain as Hugging Face stores it.
fn less_one(tensor: &Tensor) -> Result<Tensor, Error> {
    let gains: Vec<f32> = numbers(tensor)?.iter().map(|gain| gain - 1.0).collect();
    let file = tensor.file.clone();
    Ok(Tensor { file, ..Tensor::from_f32(tensor.name.as_str(), &tensor.shape, &gains) })
}

/// The numbers of a vector that the loader itself has to know.
pub(super) fn numbers(tensor: &Tensor) -> Result<Vec<f32>, Error> {
    let Dtype::Float(float) = tensor.dtype else {
        return Err(Error::BadTensor {
            file: tensor.file.to_path_buf(),
            tensor: tensor.name.clone(),
            expected: "F32, F16 or BF16".into(),
            found: tensor.describe(),
        });
    };
    let mut values = vec![0.0; tensor.data.len() / float.n_bytes()];
    float.read(&tensor.data, &mut values);
    Ok(values)
}
