//! What is stored is what is handed out: names, prefixes, shapes, packings, and errors that say what
//! is wrong with which tensor.

use bytes::Bytes;
use hearth_weights::{
    Checkpoint, Dtype, Error, Float, Packing, Scheme, Tensor, quantize::quantize,
};
use serde_json::{Value, json};

/// The tensors of a module whose weight MLX would have packed by `scheme`.
fn packed(module: &str, (rows, cols): (usize, usize), scheme: Scheme) -> Vec<Tensor> {
    let values: Vec<f32> = (0..rows * cols).map(|i| (i as f32 * 0.37).sin()).collect();
    let packed = quantize(scheme, Float::F32, &values);
    let tensor = |part: &str, dtype, cols, data: Vec<u8>| {
        Tensor::new(format!("{module}.{part}"), &[rows, cols], dtype, data)
    };
    let groups = cols / scheme.group();
    let words = cols * scheme.bits() / 32;
    if let Scheme::Affine { .. } = scheme {
        return vec![
            tensor("weight", Dtype::U32, words, packed.data),
            tensor("scales", Dtype::Float(Float::F32), groups, packed.scales),
            tensor("biases", Dtype::Float(Float::F32), groups, packed.biases),
        ];
    }
    vec![
        tensor("weight", Dtype::U32, words, packed.data),
        tensor("scales", Dtype::U8, groups, packed.scales),
    ]
}

fn affine(bits: u8, group: u16) -> Scheme {
    Scheme::Affine { bits, group }
}

fn error(result: Result<impl std::fmt::Debug, Error>) -> String {
    result.unwrap_err().to_string()
}

#[test]
fn tensors_come_back_as_they_were_given() {
    let values = [1.0, -2.5, 3.25, 0.0, 8.0, -0.125];
    let checkpoint = Checkpoint::from_tensors(
        json!({"model_type": "llama"}),
        vec![
            Tensor::from_f32("model.norm.weight", &[6], &values),
            Tensor::from_f32("lm_head.weight", &[2, 3], &values),
            Tensor::from_f32("model.e.up_proj.weight", &[3, 2, 1], &values),
        ],
    );
    assert_eq!(checkpoint.vector("model.norm.weight", 6).unwrap(), values);
    let head = checkpoint.matrix("lm_head", 2, 3).unwrap();
    assert_eq!((head.packing, head.n_bytes()), (Packing::Plain(Float::F32), 24));
    let mut row = [0.0; 3];
    head.dequantize_row(1, &mut row);
    assert_eq!(row, [0.0, 8.0, -0.125]);
    let experts = checkpoint.experts("model.e.up_proj", 3, 2, 1).unwrap();
    assert_eq!((experts.rows, experts.cols), (6, 1));
    assert_eq!(checkpoint.n_bytes(), 72);
    assert!(checkpoint.warnings().is_empty());
}

#[test]
fn names_are_found_with_and_without_their_prefixes() {
    for stored in ["model.language_model.layers.0.n", "language_model.model.layers.0.n"] {
        let tensor = Tensor::from_f32(stored, &[1], &[4.0]);
        let checkpoint = Checkpoint::from_tensors(json!({}), vec![tensor]);
        assert!(checkpoint.contains("model.layers.0.n"), "{stored}");
        assert_eq!(checkpoint.vector("model.layers.0.n", 1).unwrap(), [4.0], "{stored}");
        assert!(!checkpoint.contains("layers.1.n"));
    }
}

#[test]
fn the_fingerprint_follows_config_names_and_bytes() {
    let make = |config: Value, name: &str, value: f32| {
        Checkpoint::from_tensors(config, vec![Tensor::from_f32(name, &[1], &[value])]).fingerprint()
    };
    let base = make(json!({}), "a", 1.0);
    assert_eq!(base, make(json!({}), "a", 1.0));
    assert_ne!(base, make(json!({"x": 1}), "a", 1.0));
    assert_ne!(base, make(json!({}), "b", 1.0));
    assert_ne!(base, make(json!({}), "a", 2.0));
}

/// Wherever a stretch of numbers differs, and however long the tensor is.
#[test]
fn the_fingerprint_sees_all_of_a_tensor() {
    let make = |values: &[f32]| {
        let tensors = vec![Tensor::from_f32("a", &[values.len()], values)];
        Checkpoint::from_tensors(json!({}), tensors).fingerprint()
    };
    for n in [1, 15, 16, 17, 100, 5000] {
        let values = vec![1.0; n];
        let base = make(&values);
        let stretch = n.div_ceil(15);
        for start in (0..n).step_by(stretch) {
            let mut other = values.clone();
            other[start..n.min(start + stretch)].fill(2.0);
            assert_ne!(make(&other), base, "{n} numbers, from {start} on");
        }
    }
}

/// The config and modules of case L01: overrides written under another prefix than the tensors.
fn overridden(up_bits: u8) -> Checkpoint {
    let config = json!({"quantization": {
        "group_size": 64, "bits": 4,
        "model.language_model.layers.0.mlp.up_proj": {"group_size": 64, "bits": 6},
        "model.language_model.layers.0.mlp.gate": false,
        "model.language_model.layers.7.mlp.up_proj": {"group_size": 32, "bits": 8},
    }});
    let layer = "language_model.model.layers.0";
    let mut tensors = packed(&format!("{layer}.mlp.up_proj"), (2, 4096), affine(up_bits, 64));
    tensors.extend(packed(&format!("{layer}.self_attn.q_proj"), (2, 4096), affine(4, 64)));
    let gate = vec![0; 2 * 4096 * 2];
    let half = Dtype::Float(Float::F16);
    tensors.push(Tensor::new(format!("{layer}.mlp.gate.weight"), &[2, 4096], half, gate));
    Checkpoint::from_tensors(config, tensors)
}

#[test]
fn overrides_reach_their_layer_whatever_its_prefix() {
    let checkpoint = overridden(6);
    let packing = |module: &str| checkpoint.matrix(module, 2, 4096).unwrap().packing;
    for prefix in ["language_model.model.", "model.language_model.", "model.", ""] {
        let scale = Float::F32;
        let up = packing(&format!("{prefix}layers.0.mlp.up_proj"));
        assert_eq!(up, Packing::Affine { bits: 6, group: 64, scale }, "{prefix}");
        assert_eq!(packing(&format!("{prefix}layers.0.mlp.gate")), Packing::Plain(Float::F16));
        let q = packing(&format!("{prefix}layers.0.self_attn.q_proj"));
        assert_eq!(q, Packing::Affine { bits: 4, group: 64, scale }, "{prefix}");
    }
    let [warning] = checkpoint.warnings() else { panic!("{:?}", checkpoint.warnings()) };
    assert!(warning.contains("model.language_model.layers.7.mlp.up_proj"), "{warning}");
}

/// A config by the names of one program, and tensors by those of another.
#[test]
fn overrides_reach_their_layer_whoever_spelled_it() {
    let six = json!({"group_size": 64, "bits": 6});
    let check = |key: &str, stored: &str| {
        let config = json!({"quantization": {"group_size": 64, "bits": 4, key: six}});
        let checkpoint = Checkpoint::from_tensors(config, packed(stored, (2, 4096), affine(6, 64)));
        let packing = checkpoint.matrix(stored, 2, 4096).expect(key).packing;
        assert_eq!(packing, Packing::Affine { bits: 6, group: 64, scale: Float::F32 }, "{key}");
        assert!(checkpoint.warnings().is_empty(), "{:?}", checkpoint.warnings());
    };
    for (raw, mlx) in [
        ("model.layers.0.mlp.experts.5.up_proj", "model.layers.0.mlp.switch_mlp.up_proj"),
        (
            "model.language_model.layers.0.mlp.experts.gate_up_proj",
            "layers.0.mlp.switch_mlp.up_proj",
        ),
        ("model.layers.0.block_sparse_moe.experts.0.w3", "layers.0.mlp.switch_mlp.up_proj"),
        ("model.layers.0.self_attn.kv_b_proj", "layers.0.self_attn.unembed_out"),
        ("model.layers.0.mlp.gate", "language_model.model.layers.0.mlp.gate.gate_proj"),
    ] {
        check(raw, mlx);
        check(mlx, raw);
    }
}

#[test]
fn an_override_for_one_expert_says_nothing_about_another() {
    let name = |i: usize| format!("model.layers.0.mlp.experts.{i}.up_proj");
    let config = json!({"quantization": {
        "group_size": 64, "bits": 4, name(1): {"group_size": 64, "bits": 6},
    }});
    let mut tensors = packed(&name(0), (2, 128), affine(4, 64));
    tensors.extend(packed(&name(1), (2, 128), affine(6, 64)));
    let checkpoint = Checkpoint::from_tensors(config, tensors);
    for (i, bits) in [(0, 4), (1, 6)] {
        let packing = checkpoint.matrix(&name(i), 2, 128).unwrap().packing;
        assert_eq!(packing, Packing::Affine { bits, group: 64, scale: Float::F32 });
    }
}

/// What is said of all experts holds for their stack, also where something else is said of one before.
#[test]
fn an_override_for_all_experts_goes_before_one_for_one() {
    let scheme = |bits: u8| json!({"group_size": 64, "bits": bits});
    let [one, all, stored] = ["experts.1.up_proj", "switch_mlp.up_proj", "experts.up_proj"]
        .map(|part| format!("model.layers.0.mlp.{part}"));
    let config = json!({"quantization": {
        "group_size": 64, "bits": 4, one: scheme(8), all: scheme(6),
    }});
    let checkpoint = Checkpoint::from_tensors(config, packed(&stored, (2, 128), affine(6, 64)));
    let packing = checkpoint.matrix(&stored, 2, 128).unwrap().packing;
    assert_eq!(packing, Packing::Affine { bits: 6, group: 64, scale: Float::F32 });
}

#[test]
fn an_override_that_disagrees_with_what_is_stored_is_an_error() {
    let name = "language_model.model.layers.0.mlp.up_proj";
    let message = error(overridden(4).matrix(name, 2, 4096));
    for part in [&format!("{name}.weight"), "U32 [2, 768] (6 bits", "found U32 [2, 512]"] {
        assert!(message.contains(part), "{message}");
    }
}

#[test]
fn every_form_of_quantisation_section_is_followed() {
    let scale = Float::F32;
    let four = Packing::Affine { bits: 4, group: 32, scale };
    let check = |config: Value, scheme, expected| {
        let checkpoint = Checkpoint::from_tensors(config, packed("model.a", (2, 128), scheme));
        assert_eq!(checkpoint.matrix("model.a", 2, 128).unwrap().packing, expected);
    };
    let plain = json!({"group_size": 32, "bits": 4});
    check(json!({"quantization": plain}), affine(4, 32), four);
    check(json!({"quantization_config": plain}), affine(4, 32), four);
    check(json!({"text_config": {"quantization": plain}}), affine(4, 32), four);
    check(json!({"quantization": {"group_size": 32, "bits": 4, "a": true}}), affine(4, 32), four);
    check(
        json!({"quantization": {"group_size": 32, "bits": 4, "mode": "mxfp4",
            "a": {"group_size": 128, "bits": 3}}}),
        affine(3, 128),
        Packing::Affine { bits: 3, group: 128, scale },
    );
    for (mode, bits, group, scheme, packing) in [
        ("mxfp4", 4, 32, Scheme::Mxfp4, Packing::Mxfp4),
        ("mxfp8", 8, 32, Scheme::Mxfp8, Packing::Mxfp8),
        ("nvfp4", 4, 16, Scheme::Nvfp4, Packing::Nvfp4),
    ] {
        let section = json!({"group_size": group, "bits": bits, "mode": mode});
        check(json!({"quantization": section}), scheme, packing);
    }
    check(json!({"quantization_config": {"quant_method": "mxfp4"}}), Scheme::Mxfp4, Packing::Mxfp4);
}

#[test]
fn stacked_experts_are_one_matrix() {
    let config = json!({"quantization": {"group_size": 32, "bits": 5}});
    let mut tensors = packed("model.switch_mlp.up_proj", (6, 64), affine(5, 32));
    for tensor in &mut tensors {
        tensor.shape = vec![3, 2, tensor.shape[1]];
    }
    let checkpoint = Checkpoint::from_tensors(config, tensors);
    let experts = checkpoint.experts("model.switch_mlp.up_proj", 3, 2, 64).unwrap();
    assert_eq!((experts.rows, experts.cols), (6, 64));
    let message = error(checkpoint.matrix("model.switch_mlp.up_proj", 6, 64));
    assert!(message.contains("[6, 10]") && message.contains("[3, 2, 10]"), "{message}");
}

#[test]
fn what_does_not_fit_is_named() {
    let section = |section: Value| json!({"quantization": section});
    let four = || section(json!({"group_size": 64, "bits": 4}));
    let module = || packed("m", (2, 128), affine(4, 64));
    let without = |part: &str| {
        module().into_iter().filter(|tensor| !tensor.name.ends_with(part)).collect::<Vec<_>>()
    };
    let with = |part: &str, change: &dyn Fn(&mut Tensor)| {
        let mut tensors = module();
        tensors.iter_mut().filter(|tensor| tensor.name.ends_with(part)).for_each(change);
        tensors
    };
    let check = |config: Value, tensors: Vec<Tensor>, parts: &[&str]| {
        let message = error(Checkpoint::from_tensors(config, tensors).matrix("m", 2, 128));
        for part in parts {
            assert!(message.contains(part), "no {part:?} in {message:?}");
        }
    };
    check(four(), without("weight"), &["no tensor m.weight"]);
    check(four(), without("biases"), &["no tensor m.biases"]);
    check(four(), without("scales"), &["m.weight", "floats", "U32 [2, 16]"]);
    check(
        section(json!({"group_size": 64, "bits": 4, "m": true})),
        without("scales"),
        &["no tensor m.scales"],
    );
    check(json!({}), module(), &["m.scales", "`quantization`"]);
    check(section(json!({"group_size": 64, "bits": 7})), module(), &["7", "quantization of m"]);
    check(section(json!({"mode": "zip"})), module(), &["zip"]);
    check(section(json!(4)), module(), &["quantization of m"]);
    check(section(json!({"m": false})), module(), &["m.scales", "not quantized"]);
    check(
        section(json!({"mode": "mxfp4", "group_size": 32})),
        module(),
        &["m.scales", "U8 [2, 4]"],
    );
    check(section(json!({"group_size": 64, "bits": 8})), module(), &["m.weight", "[2, 32]"]);
    check(section(json!({"group_size": 128, "bits": 4})), module(), &["m.scales", "[2, 1]"]);
    check(four(), with("weight", &|t| t.data = Bytes::new()), &["m.weight", "0 bytes"]);
    check(four(), with("scales", &|t| t.data = t.data.slice(1..)), &["m.scales", "15 bytes"]);
    check(four(), with("biases", &|t| t.dtype = Dtype::U32), &["m.biases", "F32", "U32"]);
    check(four(), with("weight", &|t| t.shape = vec![usize::MAX, 9]), &["m.weight"]);
    let foreign = json!({"quantization_config": {"quant_method": "gptq", "bits": 4}});
    check(foreign, vec![], &["gptq", "not supported"]);
}

#[test]
fn odd_sizes_never_overflow() {
    let checkpoint = Checkpoint::from_tensors(
        json!({"quantization": {"group_size": 64, "bits": 6}}),
        packed("m", (2, 128), affine(6, 64)),
    );
    for size in [0, 1, 63, usize::MAX, usize::MAX - 63] {
        error(checkpoint.matrix("m", 2, size));
        error(checkpoint.matrix("m", size, 128));
        error(checkpoint.experts("m", size, size, size));
        error(checkpoint.vector("m.scales", size));
    }
}

/// Experts as gpt-oss has them: MXFP4 blocks beside their scales, and floats the other way round.
#[test]
fn stacks_of_gpt_oss() {
    let name = "model.layers.0.mlp.experts.down_proj";
    let mut codes = vec![0u8; 2 * 3 * 16];
    // Row 1 of expert 1: the first number is 6, the second -0.5.
    codes[4 * 16] = 0x97;
    let mut scales = vec![127u8; 6];
    scales[4] = 128;
    let stack = |shape: &[usize], scales: Vec<u8>| {
        let blocks = Tensor::new(format!("{name}_blocks"), shape, Dtype::U8, codes.clone());
        let scales = Tensor::new(format!("{name}_scales"), &[2, 3, 1], Dtype::U8, scales);
        Checkpoint::from_tensors(json!({}), vec![blocks, scales])
    };
    let checkpoint = stack(&[2, 3, 1, 16], scales.clone());
    assert!(checkpoint.has_weight(name) && !checkpoint.is_parameter(name));
    let matrix = checkpoint.experts(name, 2, 3, 32).unwrap();
    let mut row = vec![0.0; 32];
    matrix.dequantize_row(4, &mut row);
    assert_eq!(row[..3], [12.0, -1.0, 0.0]);
    for (rows, cols) in [(4, 32), (3, 64), (3, 33)] {
        assert!(checkpoint.experts(name, 2, rows, cols).is_err(), "{rows} x {cols}");
    }
    assert!(stack(&[2, 3, 16], scales).experts(name, 2, 3, 32).is_err());

    let numbers: Vec<f32> = (0..12).map(|i| i as f32).collect();
    let floats = vec![Tensor::from_f32(name, &[2, 2, 3], &numbers)];
    let checkpoint = Checkpoint::from_tensors(json!({}), floats);
    assert!(checkpoint.is_parameter(name));
    let matrix = checkpoint.experts_transposed(name, 2, 3, 2).unwrap();
    let mut row = vec![0.0; 2];
    matrix.dequantize_row(4, &mut row);
    assert_eq!(row, [7.0, 10.0]);
    assert!(checkpoint.experts_transposed(name, 2, 2, 3).is_err());
}
