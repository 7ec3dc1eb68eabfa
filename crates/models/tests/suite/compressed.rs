//! A model whose linear layers are packed by compressed-tensors, the head too, is the model that they
//! stand for. What a packed number is worth is tested where the packings are, against the library.

use backend::reference::Reference;
use hearth_models::{Decoder, recipe, tiny};
use serde_json::json;
use weights::{Checkpoint, Dtype, Float, Tensor};

use crate::common::Runner;

const GROUP: usize = 32;

/// A linear layer in words of four-bit integers, and the numbers they stand for.
fn packed(tensor: &Tensor) -> (Vec<Tensor>, Tensor) {
    let [rows, cols] = tensor.shape[..] else { panic!("{} is no matrix", tensor.name) };
    let bytes: Vec<u8> = (0..rows * cols / 2).map(|i| (i * 37 + i / 7 * 11) as u8).collect();
    let code = |i: usize| f32::from(bytes[i / 2] >> (i % 2 * 4) & 15);
    // Powers of two, which every type holds.
    let scale = |group: usize| [0.0078125, 0.015625, 0.03125][group % 3];
    let values: Vec<f32> = (0..rows * cols).map(|i| scale(i / GROUP) * (code(i) - 8.0)).collect();
    let scales: Vec<u8> = (0..rows * cols / GROUP)
        .flat_map(|group| ((f32::to_bits(scale(group)) >> 16) as u16).to_le_bytes())
        .collect();
    let shape: Vec<u8> = [rows as u64, cols as u64].iter().flat_map(|n| n.to_le_bytes()).collect();
    let bf16 = Dtype::Float(Float::Bf16);
    let parts = vec![
        Tensor::new(
            format!("{}_packed", tensor.name),
            &[rows, cols / 8],
            Dtype::I32,
            bytes.clone(),
        ),
        Tensor::new(format!("{}_scale", tensor.name), &[rows, cols / GROUP], bf16, scales),
        Tensor::new(format!("{}_shape", tensor.name), &[2], Dtype::I64, shape),
    ];
    (parts, Tensor::from_f32(&tensor.name, &tensor.shape, &values))
}

#[test]
fn packed_layers_and_a_packed_head_compute_what_they_stand_for() {
    let config = tiny::config("llama").expect("there is one");
    let spec = recipe(&config).expect("it is sound");
    let (mut stored, mut meant) = (Vec::new(), Vec::new());
    for tensor in tiny::tensors(&spec, 5) {
        if tensor.name.ends_with("_proj.weight") || tensor.name == "lm_head.weight" {
            let (parts, numbers) = packed(&tensor);
            stored.extend(parts);
            meant.push(numbers);
        } else {
            stored.push(tensor.clone());
            meant.push(tensor);
        }
    }
    let quantized = json!({"quantization_config":
        {"quant_method": "compressed-tensors", "format": "pack-quantized"}});
    let stored = Checkpoint::from_tensors(quantized, stored);
    let decoder = Decoder::load(&spec, &stored, &Reference).expect("loads");
    assert!(decoder.notes().is_empty(), "{:?}", decoder.notes());
    let tokens: Vec<u32> = (0..40).map(|i| i * 13 % 250).collect();
    let logits = |checkpoint: &Checkpoint| {
        Runner::new(&Reference, &spec, checkpoint).logits(&tokens, tokens.len())
    };
    assert!(logits(&stored) == logits(&Checkpoint::from_tensors(config, meant)));
}
