//! Tiny seeded models, for tests wherever a real one would be too slow: configs of every family and
//! weights that make every term of them count.
//!
//! No model anybody would talk to.

use serde_json::{Value, json};
use weights::{Checkpoint, Dtype, Float, Tensor};

use crate::modules::{Linear, Module};
use crate::recipe::{Bias, Head, ModelSpec};
use crate::{Error, families, recipe};

/// Tokens of a tiny model: all bytes and a few special ones.
pub const VOCAB: usize = 264;

/// A small config of a family by one of its `model_type` names; `None` for a name that is not
/// supported.
pub fn config(model_type: &str) -> Option<Value> {
    let mut config = json!({
        "model_type": model_type, "vocab_size": VOCAB, "hidden_size": 64, "intermediate_size": 96,
        "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16,
        "max_position_embeddings": 4096, "rms_norm_eps": 1e-5, "rope_theta": 10_000.0,
        "tie_word_embeddings": false, "bos_token_id": 256, "eos_token_id": 257,
    });
    let more = families::tiny(model_type)?;
    config.as_object_mut()?.extend(more.as_object()?.clone());
    Some(config)
}

/// A model in memory: `config` with weights drawn from `seed`.
///
/// # Errors
/// What [`recipe`] says about the config.
pub fn checkpoint(config: Value, seed: u64) -> Result<Checkpoint, Error> {
    let tensors = tensors(&recipe(&config)?, seed);
    Ok(Checkpoint::from_tensors(config, tensors))
}

/// Every tensor of `spec` under its Hugging Face name, in bf16: gains near one, biases away from
/// zero, matrices large enough that no layer is nearly an identity.
pub fn tensors(spec: &ModelSpec, seed: u64) -> Vec<Tensor> {
    let modules = spec.modules().into_iter();
    let is_stored = |module: &Module| spec.head != Head::IfStored || !is_head(module, spec);
    drawn(modules.filter(is_stored), seed)
}

/// Every tensor of the draft heads that `spec` may have, likewise.
pub fn draft_tensors(spec: &ModelSpec, seed: u64) -> Vec<Tensor> {
    let modules = spec.drafts.iter().flat_map(|draft| draft.modules(&draft.body(spec)));
    drawn(modules, seed)
}

fn drawn(modules: impl Iterator<Item = Module>, seed: u64) -> Vec<Tensor> {
    let mut list = Vec::new();
    for module in modules {
        match &module {
            Module::Embedding(linear) => list.push(matrix(linear, 1.0, seed)),
            Module::Linear(linear) => {
                list.push(matrix(linear, gain_of(linear.cols), seed));
                list.extend(bias(linear, seed));
            }
            Module::Experts(e) => list.extend((0..e.n).flat_map(|expert| {
                let [name, _] = e.single(expert);
                let linear = Linear { bias: e.bias, ..Linear::new(name, e.rows, e.cols) };
                [Some(matrix(&linear, gain_of(e.cols), seed)), bias(&linear, seed)]
                    .into_iter()
                    .flatten()
            })),
            Module::LatentUp(up) => {
                let rows = up.shape.heads * up.rows_per_head();
                let cols = up.shape.rank;
                list.push(matrix(&Linear::new(up.joined(), rows, cols), gain_of(cols), seed));
            }
            Module::Gain { name, len, kind } => {
                let center = match kind {
                    backend::NormGain::Stored => 1.0,
                    backend::NormGain::OnePlus => 0.0,
                };
                let name = format!("{name}.weight");
                list.push(tensor(name, &[*len], Noise { center, spread: 0.5 }, seed));
            }
            Module::Vector { name, shape } => {
                let noise = Noise { center: 0.0, spread: 0.9 };
                list.push(tensor(name.clone(), shape, noise, seed));
            }
        }
    }
    list
}

fn is_head(module: &Module, spec: &ModelSpec) -> bool {
    *module == Module::Linear(spec.lm_head())
}

fn gain_of(cols: usize) -> f32 {
    2.2 / (cols as f32).sqrt()
}

fn matrix(linear: &Linear, spread: f32, seed: u64) -> Tensor {
    let name = format!("{}.weight", linear.name);
    tensor(name, &[linear.rows, linear.cols], Noise { center: 0.0, spread }, seed)
}

fn bias(linear: &Linear, seed: u64) -> Option<Tensor> {
    let noise = Noise { center: 0.0, spread: 0.8 };
    let name = format!("{}.bias", linear.name);
    (linear.bias == Bias::Stored).then(|| tensor(name, &[linear.rows], noise, seed))
}

/// Numbers spread evenly over `center - spread..center + spread`.
#[derive(Clone, Copy)]
struct Noise {
    center: f32,
    spread: f32,
}

/// A bf16 tensor whose numbers follow from its name and the seed alone.
fn tensor(name: String, shape: &[usize], noise: Noise, seed: u64) -> Tensor {
    let mut state = name.bytes().fold(seed ^ 0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let numbers = (0..shape.iter().product()).flat_map(|_| {
        let unit = (splitmix(&mut state) >> 40) as f32 / (1u64 << 24) as f32;
        let value = noise.center + (2.0 * unit - 1.0) * noise.spread;
        // The upper half of a binary32 is a bf16, rounded towards zero.
        let upper = (value.to_bits() >> 16) as u16;
        upper.to_le_bytes()
    });
    let bytes: Vec<u8> = numbers.collect();
    Tensor::new(name, shape, Dtype::Float(Float::Bf16), bytes)
}

/// One step of the SplitMix64 generator.
fn splitmix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
