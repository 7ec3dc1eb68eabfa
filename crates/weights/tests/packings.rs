//! Every packing means what MLX, torch and transformers say it means, and the quantisers make what
//! MLX makes. The expected values come from tools/goldens/{mlx_packings,torch_floats,
//! compressed_weights}.py.

use std::ops::Range;
use std::path::PathBuf;

use half::{bf16, f16};
use hearth_weights::{
    Checkpoint, Dtype, Float, Matrix, Packing, Scheme, Tensor, quantize::quantize, safetensors,
};
use serde_json::json;

const ROWS: usize = 5;
const COLS: usize = 128;

fn fixture(name: &str) -> Vec<Tensor> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/packings").join(name);
    let bytes = std::fs::read(&path).unwrap();
    safetensors::parse(&path, bytes.into()).unwrap()
}

fn find<'a>(tensors: &'a [Tensor], name: &str) -> &'a Tensor {
    tensors.iter().find(|tensor| tensor.name == name).unwrap_or_else(|| panic!("no {name}"))
}

fn round(float: Float, value: f32) -> f32 {
    match float {
        Float::F32 => value,
        Float::F16 => f16::from_f32(value).to_f32(),
        Float::Bf16 => bf16::from_f32(value).to_f32(),
    }
}

fn values(tensor: &Tensor) -> Vec<f32> {
    let Dtype::Float(float) = tensor.dtype else { panic!("{} is {}", tensor.name, tensor.dtype) };
    let checkpoint = Checkpoint::from_tensors(json!({}), vec![tensor.clone()]);
    checkpoint.vector(&tensor.name, tensor.data.len() / float.n_bytes()).unwrap()
}

fn dequantize(matrix: &Matrix) -> Vec<f32> {
    let mut out = vec![0.0; matrix.rows * matrix.cols];
    for (row, out) in out.chunks_mut(matrix.cols).enumerate() {
        matrix.dequantize_row(row, out);
    }
    out
}

const FLOATS: [(&str, Float); 3] =
    [("f32", Float::F32), ("f16", Float::F16), ("bf16", Float::Bf16)];

/// The affine schemes, by their names in the fixtures.
fn affine() -> Vec<(String, Scheme)> {
    [2, 3, 4, 5, 6, 8]
        .into_iter()
        .flat_map(|bits| [32, 64, 128].map(|group| (bits, group)))
        .map(|(bits, group)| (format!("affine.{bits}.{group}"), Scheme::Affine { bits, group }))
        .collect()
}

/// The others.
fn small_floats() -> Vec<(String, Scheme)> {
    [("mxfp4", Scheme::Mxfp4), ("mxfp8", Scheme::Mxfp8), ("nvfp4", Scheme::Nvfp4)]
        .map(|(name, scheme)| (name.to_owned(), scheme))
        .into()
}

/// Calls `check` with each scheme's full name, for each type of source.
fn each(schemes: Vec<(String, Scheme)>, check: impl Fn(&str, Scheme, (&str, Float))) {
    for (name, scheme) in schemes {
        for (suffix, float) in FLOATS {
            check(&format!("{name}.{suffix}"), scheme, (suffix, float));
        }
    }
}

fn matrix(tensors: &[Tensor], name: &str, packing: Packing) -> Matrix {
    let part = |part: &str| find(tensors, &format!("{name}.{part}")).data.clone();
    Matrix {
        name: name.to_owned(),
        rows: ROWS,
        cols: COLS,
        packing,
        data: part("weight"),
        scales: part("scales"),
        biases: match packing {
            Packing::Affine { .. } => part("biases"),
            _ => Default::default(),
        },
    }
}

#[test]
fn affine_rows_are_those_of_mlx() {
    let tensors = fixture("affine.safetensors");
    each(affine(), |name, scheme, (_, float)| {
        let matrix = matrix(&tensors, name, scheme.packing(float));
        let expected = values(find(&tensors, &format!("{name}.dequantized")));
        // MLX rounds the product and the sum to the type of the scales. The product alone is what a
        // matrix without biases gives, so both roundings can be repeated here.
        let zeros = vec![0; matrix.biases.len()];
        let products = dequantize(&Matrix { biases: zeros.into(), ..matrix.clone() });
        let biases = values(find(&tensors, &format!("{name}.biases")));
        let twice: Vec<f32> = products
            .iter()
            .enumerate()
            .map(|(i, &product)| round(float, round(float, product) + biases[i / scheme.group()]))
            .collect();
        assert_eq!(twice, expected, "{name}");
        for ((ours, &product), mlx) in dequantize(&matrix).into_iter().zip(&products).zip(expected)
        {
            let ulp = match float {
                Float::F32 => 0.0,
                Float::F16 => 2f32.powi(-11),
                Float::Bf16 => 2f32.powi(-8),
            };
            let bound = (product.abs() + mlx.abs()) * ulp + if ulp > 0.0 { 6e-8 } else { 0.0 };
            assert!((ours - mlx).abs() <= bound, "{name}: {ours} {mlx}");
        }
    });
}

#[test]
fn small_float_rows_are_those_of_mlx() {
    let tensors = fixture("fp.safetensors");
    each(small_floats(), |name, scheme, (_, float)| {
        let ours = dequantize(&matrix(&tensors, name, scheme.packing(float)));
        let rounded: Vec<f32> = ours.iter().map(|&value| round(float, value)).collect();
        assert_eq!(rounded, values(find(&tensors, &format!("{name}.dequantized"))), "{name}");
    });
}

#[test]
fn the_quantisers_are_those_of_mlx() {
    for (file, schemes) in [("affine.safetensors", affine()), ("fp.safetensors", small_floats())] {
        let tensors = fixture(file);
        each(schemes, |name, scheme, (suffix, float)| {
            let source = values(find(&tensors, &format!("source.{suffix}")));
            let packed = quantize(scheme, float, &source);
            let part = |part: &str| &find(&tensors, &format!("{name}.{part}")).data[..];
            assert_eq!(packed.scales, part("scales"), "{name} scales");
            if !packed.biases.is_empty() {
                assert_eq!(packed.biases, part("biases"), "{name} biases");
            }
            assert_eq!(packed.data, part("weight"), "{name} weight");
        });
    }
}

#[test]
fn floats_are_those_of_torch() {
    let tensors = fixture("floats.safetensors");
    let expected = |name: &str| {
        values(find(&tensors, &format!("{name}.f32"))).iter().map(bits).collect::<Vec<_>>()
    };
    for name in ["f16", "bf16"] {
        let ours: Vec<_> = values(find(&tensors, name)).iter().map(bits).collect();
        assert_eq!(ours, expected(name), "{name}");
    }
    // Every byte there is, in one block whose scale is one.
    let one = Tensor::from_f32("m.weight_scale", &[], &[1.0]);
    let all = Tensor { name: "m.weight".into(), ..find(&tensors, "e4m3").clone() };
    let checkpoint = Checkpoint::from_tensors(json!({}), vec![one, all]);
    let matrix = checkpoint.matrix("m", 1, 256).unwrap();
    assert_eq!(dequantize(&matrix).iter().map(bits).collect::<Vec<_>>(), expected("e4m3"));
}

/// A float's bits, all NaNs being one.
fn bits(value: &f32) -> u32 {
    if value.is_nan() { f32::NAN.to_bits() } else { value.to_bits() }
}

#[test]
fn fp8_weights_with_scales_of_any_shape_are_those_of_torch() {
    let (rows, cols) = (40, 70);
    let tensors = fixture("floats.safetensors");
    let config = json!({"quantization_config":
        {"quant_method": "fp8", "weight_block_size": [16, 32], "activation_scheme": "dynamic"}});
    for kind in ["blocks", "blocks_e8m0", "per_row", "per_tensor"] {
        let parts = tensors.iter().filter_map(|tensor| {
            let name = tensor.name.strip_prefix(&format!("{kind}."))?;
            Some(Tensor { name: format!("m.{name}"), ..tensor.clone() })
        });
        let checkpoint = Checkpoint::from_tensors(config.clone(), parts.collect());
        let matrix = checkpoint.matrix("m", rows, cols).unwrap();
        let expected = values(find(&tensors, &format!("{kind}.expected")));
        assert_eq!(dequantize(&matrix), expected, "{kind}");
        for range in [0..0, 16..40, 3..25, 39..40] {
            let part = dequantize(&matrix.rows_range(range.clone()));
            assert_eq!(part, expected[range.start * cols..range.end * cols], "{kind} {range:?}");
        }
        let Packing::Fp8Blocks { cols: together, .. } = matrix.packing else {
            panic!("{kind} is in blocks");
        };
        let together = (together as usize).min(cols);
        let last = (cols - 1) / together * together;
        for range in [0..together, 0..cols, last..cols] {
            let part = dequantize(&matrix.cols_range(range.clone()).unwrap());
            assert_eq!(part, columns(&expected, cols, range.clone()), "{kind} {range:?}");
        }
    }
}

/// One module `m` out of the fixture of compressed-tensors.
fn compressed(tensors: &[Tensor], kind: &str) -> Vec<Tensor> {
    let parts = tensors.iter().filter_map(|tensor| {
        let name = tensor.name.strip_prefix(&format!("{kind}."))?;
        Some(Tensor { name: format!("m.{name}"), ..tensor.clone() })
    });
    parts.filter(|tensor| tensor.name != "m.expected").collect()
}

#[test]
fn compressed_tensors_mean_what_their_library_says() {
    let (rows, cols) = (10, COLS);
    let config = json!({"quantization_config": {"quant_method": "compressed-tensors"}});
    let tensors = fixture("compressed.safetensors");
    let kinds = tensors.iter().filter_map(|tensor| tensor.name.strip_suffix(".expected"));
    let mut n_kinds = 0;
    for kind in kinds {
        let parts = compressed(&tensors, kind);
        let elements = parts.iter().find(|part| part.name.contains("weight_packed"));
        let elements = elements.unwrap_or_else(|| find(&parts, "m.weight")).data.clone();
        let checkpoint = Checkpoint::from_tensors(config.clone(), parts.clone());
        let matrix = checkpoint.matrix("m", rows, cols).unwrap_or_else(|e| panic!("{kind}: {e}"));
        let expected = values(find(&tensors, &format!("{kind}.expected")));
        assert_eq!(dequantize(&matrix), expected, "{kind}");
        assert_eq!(dequantize(&matrix.rows_range(3..9)), expected[3 * cols..9 * cols], "{kind}");
        assert_eq!(matrix.data.as_ptr(), elements.as_ptr(), "{kind}: the elements were copied");
        n_kinds += 1;
    }
    assert_eq!(n_kinds, 15);
}

#[test]
fn compressed_tensors_that_cannot_be_read_say_why() {
    let tensors = fixture("compressed.safetensors");
    let check = |kind: &str, name: &str, change: &dyn Fn(&mut Tensor), says: &str| {
        let mut parts = compressed(&tensors, kind);
        if !parts.iter().any(|part| part.name == name) {
            parts.push(Tensor::new(name, &[COLS], Dtype::I32, vec![0; 4 * COLS]));
        }
        parts.iter_mut().filter(|part| part.name == name).for_each(change);
        let checkpoint = Checkpoint::from_tensors(json!({}), parts);
        let error = checkpoint.matrix("m", 10, COLS).unwrap_err().to_string();
        assert!(error.contains(says) && error.contains(name), "{error}");
    };
    let cut = |tensor: &mut Tensor| tensor.shape[0] -= 1;
    check("int4.64", "m.weight_packed", &cut, "bytes");
    check("int4.64", "m.weight_g_idx", &|_| (), "a group order by activations");
    let flat = |tensor: &mut Tensor| tensor.shape = vec![tensor.shape.iter().product()];
    check("int4.64", "m.weight_packed", &flat, "of 2 to 8 bits");
    check("int4.zeros", "m.weight_zero_point", &flat, "I32 [2, 4]");
    let sevens = |tensor: &mut Tensor| *tensor = Tensor::from_f32(&tensor.name, &[7], &[1.0; 7]);
    check("bytes.row", "m.weight_scale", &sevens, "as many for each of 10 rows");
    let zero = |tensor: &mut Tensor| *tensor = Tensor::from_f32(&tensor.name, &[1], &[0.0]);
    check("nvfp4", "m.weight_global_scale", &zero, "a number above 0");
    let ones = |tensor: &mut Tensor| tensor.data = vec![1; tensor.data.len()].into();
    check("bytes.row", "m.weight_zero_point", &ones, "bytes with zero points");
}

#[test]
fn a_range_of_rows_is_a_matrix_of_those_rows() {
    for (file, schemes) in [("affine.safetensors", affine()), ("fp.safetensors", small_floats())] {
        let tensors = fixture(file);
        each(schemes, |name, scheme, (_, float)| {
            let matrix = matrix(&tensors, name, scheme.packing(float));
            let part = matrix.rows_range(2..4);
            assert_eq!(dequantize(&part), dequantize(&matrix)[2 * COLS..4 * COLS], "{name}");
            assert_eq!(part.n_bytes() * ROWS, matrix.n_bytes() * 2, "{name}");
        });
    }
}

/// Some columns of every row of `expected`.
fn columns(expected: &[f32], cols: usize, range: Range<usize>) -> Vec<f32> {
    expected.chunks_exact(cols).flat_map(|row| &row[range.clone()]).copied().collect()
}

#[test]
fn a_range_of_columns_is_a_matrix_of_those_columns() {
    for (file, schemes) in [("affine.safetensors", affine()), ("fp.safetensors", small_floats())] {
        let tensors = fixture(file);
        each(schemes, |name, scheme, (_, float)| {
            let packing = scheme.packing(float);
            let matrix = matrix(&tensors, name, packing);
            let group = packing.granule();
            for range in [0..group, COLS - group..COLS, 0..COLS] {
                let part = matrix.cols_range(range.clone()).unwrap();
                let expected = columns(&dequantize(&matrix), COLS, range.clone());
                assert_eq!(dequantize(&part), expected, "{name} {range:?}");
                assert_eq!(part.n_bytes() * COLS, matrix.n_bytes() * range.len(), "{name}");
            }
            let error = matrix.cols_range(1..COLS).unwrap_err().to_string();
            assert!(error.contains("a cut at columns 1 and"), "{error}");
        });
    }
}
