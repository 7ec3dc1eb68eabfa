//! Hyperparameters of the Gemmas, in the words of their configs: much of it is fixed in code rather than
//! stored, or stored in other terms.
//!
//! Not the names of their tensors, which are in [`super::arch`].

use serde_json::{Map, Value as Json, json};

use super::config::{Hyper, number};
use super::names::RopeFactors;
use crate::{Error, Tensor};

/// The activation of all of them.
const ACTIVATION: &str = "gelu_pytorch_tanh";
/// Divisors of frequencies from here on stand for pairs that do not turn.
const STANDS_STILL: f32 = 1e20;

/// What queries are scaled by.
pub(super) fn gemma2(hyper: &Hyper, out: &mut Map<String, Json>) -> Result<(), Error> {
    query_scale(hyper, out, 46)
}

/// The columns of a head, or, the largest model, which has so many layers, the width per head.
fn query_scale(hyper: &Hyper, out: &mut Map<String, Json>, largest: u64) -> Result<(), Error> {
    let scalar = match out["num_hidden_layers"].as_u64() {
        Some(n) if n == largest => {
            let heads = out["num_attention_heads"].as_u64().filter(|&n| n > 0).unwrap_or(1);
            json!(hyper.required("embedding_length")? / heads)
        }
        _ => out["head_dim"].clone(),
    };
    out.insert("query_pre_attn_scalar".into(), scalar);
    Ok(())
}

/// Which layers slide, and by which rotation.
pub(super) fn gemma3(hyper: &Hyper, out: &mut Map<String, Json>) -> Result<(), Error> {
    query_scale(hyper, out, 62)?;
    if out.contains_key("sliding_window") {
        let pattern = hyper.unsigned("attention.sliding_window_pattern")?.unwrap_or(6);
        out.insert("sliding_window_pattern".into(), json!(pattern));
        out.insert("rope_local_base_freq".into(), number(sliding_theta(hyper)?));
    } else {
        out.insert("sliding_window_pattern".into(), json!(1));
    }
    Ok(())
}

/// The base of the rotation of layers that slide.
fn sliding_theta(hyper: &Hyper) -> Result<f32, Error> {
    Ok(hyper.f32("rope.freq_base_swa")?.unwrap_or(10_000.0))
}

/// Several streams, low-rank residuals, gates of which little is kept.
pub(super) fn gemma3n(
    hyper: &Hyper,
    tensors: &[Tensor],
    out: &mut Map<String, Json>,
) -> Result<(), Error> {
    const SCALES: &str = "activation_sparsity_scale";
    activation(out);
    layer_inputs(hyper, tensors, out)?;
    // Where a file does not say, llama.cpp has so many layers with keys and values of their own.
    let own = (hyper.layers()?.n as u64).min(20);
    let shared = hyper.unsigned("attention.shared_kv_layers")?;
    let shared = shared.unwrap_or(hyper.layers()?.n as u64 - own);
    out.insert("num_kv_shared_layers".into(), json!(shared));
    out.insert("rope_local_base_freq".into(), number(sliding_theta(hyper)?));
    out.insert("altup_num_inputs".into(), json!(hyper.required("altup.num_inputs")?));
    let active = hyper.unsigned("altup.active_idx")?.unwrap_or(0);
    out.insert("altup_active_idx".into(), json!(active));
    let has_scale = tensors.iter().any(|t| t.name.ends_with(".altup.correct_output_scale"));
    out.insert("altup_correct_scale".into(), json!(has_scale));
    if let Some(rank) = rows(tensors, "model.layers.0.laurel.linear_left.weight") {
        out.insert("laurel_rank".into(), json!(rank));
    }
    let key = hyper.key(SCALES);
    if let Some(list) = hyper.metadata.numbers(&key)? {
        let scale = |x: Option<f32>| match x {
            // So many deviations below the mean there is nothing to leave out.
            Some(f32::NEG_INFINITY) => Ok(Json::Null),
            Some(x) if x.is_finite() => Ok(number(x)),
            _ => Err(hyper.metadata.missing(&key, "numbers of deviations")),
        };
        let scales: Vec<Json> =
            list.numbers().map(|x| scale(x.as_f32())).collect::<Result<_, _>>()?;
        out.insert(SCALES.into(), json!(scales));
    }
    Ok(())
}

/// Heads of another size in the full layers, whose keys may be their values too, and upper layers that
/// may be twice as wide.
pub(super) fn gemma4(
    hyper: &Hyper,
    tensors: &[Tensor],
    out: &mut Map<String, Json>,
) -> Result<(), Error> {
    activation(out);
    layer_inputs(hyper, tensors, out)?;
    let shared = hyper.unsigned("attention.shared_kv_layers")?.unwrap_or(0);
    out.insert("num_kv_shared_layers".into(), json!(shared));
    heads(hyper, tensors, out)?;
    widths(hyper, shared, out)?;
    if out.contains_key("num_experts") {
        out.insert("enable_moe_block".into(), json!(true));
    }
    Ok(())
}

fn activation(out: &mut Map<String, Json>) {
    out.remove("hidden_act");
    out.insert("hidden_activation".into(), json!(ACTIVATION));
}

/// What tokens bring along for every layer.
fn layer_inputs(
    hyper: &Hyper,
    tensors: &[Tensor],
    out: &mut Map<String, Json>,
) -> Result<(), Error> {
    let width = hyper.unsigned("embedding_length_per_layer_input")?.unwrap_or(0);
    out.insert("hidden_size_per_layer_input".into(), json!(width));
    if let Some(n) = rows(tensors, "model.embed_tokens_per_layer.weight") {
        out.insert("vocab_size_per_layer_input".into(), json!(n));
    }
    Ok(())
}

fn rows(tensors: &[Tensor], name: &str) -> Option<usize> {
    tensors.iter().find(|tensor| tensor.name == name)?.shape.first().copied()
}

/// What the file says of all layers is true of the full ones here, and what it says of those that slide
/// is what configs say of all.
fn heads(hyper: &Hyper, tensors: &[Tensor], out: &mut Map<String, Json>) -> Result<(), Error> {
    let pattern = hyper.key("attention.sliding_window_pattern");
    let kinds = out.get("layer_types").and_then(Json::as_array).cloned();
    let kinds = kinds.ok_or_else(|| hyper.metadata.missing(&pattern, "a truth value per layer"))?;
    let is_full = |i: &usize| kinds[*i] == "full_attention";
    let layers = 0..kinds.len().min(hyper.layers()?.n);
    let kv_heads = out["num_key_value_heads"].clone();
    let kv_heads = |i: usize| kv_heads.get(i).unwrap_or(&kv_heads).clone();
    let full_dim = out["head_dim"].clone();
    let full = layers.clone().filter(is_full).map(|i| {
        (i.to_string(), json!({"head_dim": full_dim, "num_key_value_heads": kv_heads(i)}))
    });
    let full: Map<String, Json> = full.collect();
    out.insert("per_layer_config".into(), Json::Object(full));
    let mut sliding = layers.clone().filter(|i| !is_full(i)).map(kv_heads);
    let first = sliding.next().unwrap_or_else(|| kv_heads(0));
    if let Some(other) = sliding.find(|n| *n != first) {
        let key = hyper.key("attention.head_count_kv");
        let expected = format!("{first} in every layer that slides");
        return Err(hyper.metadata.bad(&key, &expected, other.to_string()));
    }
    out.insert("num_key_value_heads".into(), first);
    if let Some(dim) = hyper.unsigned("attention.key_length_swa")?.filter(|&n| n > 0) {
        out.insert("head_dim".into(), json!(dim));
    }
    out.remove("partial_rotary_factor");
    let has = |i: usize, part: &str| {
        let name = format!("model.layers.{i}.self_attn.{part}.weight");
        tensors.iter().any(|tensor| tensor.name == name)
    };
    let own = layers.filter(is_full).filter(|&i| has(i, "k_proj"));
    let mut with_values = own.map(|i| has(i, "v_proj"));
    let has_values = with_values.next().unwrap_or(true);
    if with_values.any(|other| other != has_values) {
        return Err(Error::Unsupported {
            file: hyper.metadata.file.to_path_buf(),
            what: "a model with projections to values in some of its full layers".into(),
            advice: "all of them have one, or none has".into(),
        });
    }
    out.insert("attention_k_eq_v".into(), json!(!has_values));
    Ok(())
}

/// One width, or twice that in the last `shared` layers.
fn widths(hyper: &Hyper, shared: u64, out: &mut Map<String, Json>) -> Result<(), Error> {
    let Some(list) = out.get("intermediate_size").and_then(Json::as_array) else { return Ok(()) };
    let narrow = list.first().and_then(Json::as_u64).unwrap_or(0);
    let first = (hyper.layers()?.n as u64).saturating_sub(shared);
    let width = |i: u64| if i < first { Some(narrow) } else { narrow.checked_mul(2) };
    if (0..).zip(list).any(|(i, found)| found.as_u64() != width(i)) {
        let expected = format!("{narrow}, or twice that in the last {shared} layers");
        let found = Json::from(list.clone()).to_string();
        return Err(hyper.metadata.bad(&hyper.key("feed_forward_length"), &expected, found));
    }
    out.insert("intermediate_size".into(), json!(narrow));
    out.insert("use_double_wide_mlp".into(), json!(true));
    Ok(())
}

/// The rotations of Gemma 4. A table of divisors says which pairs of the full layers turn: the first
/// ones, as they are.
pub(super) fn ropes(
    hyper: &Hyper,
    factors: &RopeFactors,
    out: &mut Map<String, Json>,
) -> Result<(), Error> {
    const TABLE: &str = "rope_freqs.weight";
    let file = || hyper.metadata.file.to_path_buf();
    let table = factors.freqs.as_deref().filter(|table| !table.is_empty());
    let table = table.ok_or_else(|| Error::MissingTensor { path: file(), tensor: TABLE.into() })?;
    let turning = table.iter().take_while(|x| **x == 1.0).count();
    if table[turning..].iter().any(|x| x.is_nan() || *x < STANDS_STILL) {
        return Err(Error::BadTensor {
            file: file(),
            tensor: TABLE.into(),
            expected: "ones, and behind them numbers that stop a rotation".into(),
            found: format!("{table:?}"),
        });
    }
    let theta = hyper.f32("rope.freq_base")?.unwrap_or(10_000.0);
    let full = json!({
        "rope_type": "proportional",
        "rope_theta": number(theta),
        "partial_rotary_factor": share(turning, table.len()),
    });
    let theta = number(sliding_theta(hyper)?);
    let mut sliding = json!({"rope_type": "default", "rope_theta": theta});
    let dim = out["head_dim"].as_u64().unwrap_or(0);
    if let Some(rotated) = hyper.unsigned("rope.dimension_count_swa")?.filter(|&n| n < dim) {
        sliding["partial_rotary_factor"] = json!(share(rotated as usize, dim as usize));
    }
    let both = json!({"full_attention": full, "sliding_attention": sliding});
    out.insert("rope_parameters".into(), both);
    Ok(())
}

/// `part` of `all`, so that as much of `all` is never less than `part`.
fn share(part: usize, all: usize) -> f64 {
    let share = part as f64 / all as f64;
    if share * (all as f64) < part as f64 { share.next_up() } else { share }
}

#[cfg(test)]
mod tests {
    use super::share;

    /// Who reads a share takes so much of all, rounded down.
    #[test]
    fn a_share_gives_its_part_back() {
        for all in 1..=512usize {
            for part in 0..=all {
                assert_eq!((share(part, all) * all as f64) as usize, part, "{part} of {all}");
            }
        }
    }
}
