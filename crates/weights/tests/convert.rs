//! A conversion keeps what can be kept, packs the rest as MLX would, writes what mlx-lm reads, and
//! leaves nothing behind when it fails.

use std::{fs, path::Path};

use half::f16;
use hearth_weights::{
    Checkpoint, ConvertOptions, ConvertReport, Dtype, Error, Float, Format, GgufType, Matrix,
    Packing, Repacking, Scheme, Tensor, TextFiles, TokenizerFile, convert, quantize::quantize,
};
use serde_json::{Value, json};
use tempfile::TempDir;

const ROWS: usize = 8;
const COLS: usize = 256;

/// Reproducible numbers between -1 and 1.
fn noise(n: usize, seed: u32) -> Vec<f32> {
    let mut state = seed.wrapping_mul(2_654_435_769) | 1;
    let next = |_| {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        (state >> 8) as f32 / (1 << 23) as f32 - 1.0
    };
    (0..n).map(next).collect()
}

fn floats(name: &str, shape: &[usize]) -> Tensor {
    let n = shape.iter().product();
    Tensor::from_f32(name, shape, &noise(n, name.len() as u32))
}

/// Random blocks with ordinary scales.
fn blocks(name: &str, ty: GgufType, shape: &[usize]) -> Tensor {
    let dtype = Dtype::Gguf(ty);
    let n = dtype.n_bytes(shape).unwrap();
    let mut data: Vec<u8> = noise(n, 7).iter().map(|v| (v * 127.0) as i8 as u8).collect();
    let halves: &[usize] = match ty {
        GgufType::Q4_1 | GgufType::Q5_1 | GgufType::Q4K | GgufType::Q5K => &[0, 2],
        GgufType::Q6K => &[208],
        GgufType::Q2K => &[80, 82],
        _ => &[0],
    };
    for (i, block) in data.chunks_exact_mut(ty.block().1).enumerate() {
        for at in halves {
            let scale = f16::from_f32(0.01 + i as f32 * 0.003);
            block[*at..at + 2].copy_from_slice(&scale.to_le_bytes());
        }
    }
    Tensor::new(name, shape, dtype, data)
}

fn options(packing: Repacking, dtype: Option<Float>) -> ConvertOptions {
    ConvertOptions { packing, dtype, threads: 2, shard_bytes: ConvertOptions::SHARD }
}

/// Converts into a new folder and opens it.
fn converted(src: &Checkpoint, options: &ConvertOptions) -> (TempDir, Checkpoint, ConvertReport) {
    let dir = TempDir::new().unwrap();
    let dst = dir.path().join("made/here");
    let report = convert(src, &dst, options, &mut |_| {}).unwrap();
    let made = Checkpoint::open(&dst).unwrap();
    assert!(made.warnings().is_empty(), "{:?}", made.warnings());
    (dir, made, report)
}

fn rows(matrix: &Matrix) -> Vec<f32> {
    let mut out = vec![0.0; matrix.rows * matrix.cols];
    for (row, out) in out.chunks_mut(matrix.cols).enumerate() {
        matrix.dequantize_row(row, out);
    }
    out
}

fn to(bits: u8, group: u16) -> Repacking {
    Repacking::To(Scheme::Affine { bits, group })
}

#[test]
fn blocks_that_are_affine_groups_keep_every_number() {
    use GgufType::*;
    for (ty, bits, dtype) in [
        (Q4_0, 4, Float::F16),
        (Q4_1, 4, Float::F16),
        (Q5_0, 5, Float::F16),
        (Q5_1, 5, Float::F16),
        (Q8_0, 8, Float::F16),
        (Q4K, 4, Float::F32),
        (Q5K, 5, Float::F32),
    ] {
        let src = Checkpoint::from_tensors(json!({}), vec![blocks("m.weight", ty, &[ROWS, COLS])]);
        let expected = rows(&src.matrix("m", ROWS, COLS).unwrap());
        for packing in [Repacking::Keep, to(bits, 32)] {
            let (_dir, made, report) = converted(&src, &options(packing, Some(dtype)));
            let matrix = made.matrix("m", ROWS, COLS).unwrap();
            assert_eq!(matrix.packing, Packing::Affine { bits, group: 32, scale: dtype }, "{ty:?}");
            assert_eq!((report.n_exact, report.n_rounded), (1, 0), "{ty:?}");
            assert_eq!(rows(&matrix), expected, "{ty:?}");
        }
    }
}

#[test]
fn scales_that_had_to_be_rounded_are_reported() {
    let src =
        Checkpoint::from_tensors(json!({}), vec![blocks("m.weight", GgufType::Q4K, &[ROWS, COLS])]);
    let (_dir, made, report) = converted(&src, &options(Repacking::Keep, Some(Float::Bf16)));
    assert_eq!((report.n_exact, report.n_rounded), (0, 1));
    let expected = rows(&src.matrix("m", ROWS, COLS).unwrap());
    let largest = expected.iter().fold(0f32, |max, v| v.abs().max(max));
    for (ours, was) in rows(&made.matrix("m", ROWS, COLS).unwrap()).iter().zip(expected) {
        assert!((ours - was).abs() <= largest / 128.0, "{ours} {was}");
    }
}

#[test]
fn what_mlx_cannot_hold_becomes_something_finer() {
    let check = |ty, cols, expected| {
        let src = Checkpoint::from_tensors(json!({}), vec![blocks("m.weight", ty, &[ROWS, cols])]);
        let (_dir, made, _) = converted(&src, &options(Repacking::Keep, None));
        assert_eq!(made.matrix("m", ROWS, cols).unwrap().packing, expected, "{ty:?}");
    };
    let affine = |bits, group| Packing::Affine { bits, group, scale: Float::F16 };
    check(GgufType::Q6K, 256, affine(8, 32));
    check(GgufType::Q2K, 256, affine(4, 32));
    check(GgufType::Iq4Nl, 96, affine(8, 32));
    check(GgufType::Mxfp4, 96, Packing::Mxfp4);
}

#[test]
fn floats_are_packed_as_mlx_packs_them() {
    let weight = floats("model.l.q_proj.weight", &[ROWS, COLS]);
    let stacked = floats("model.l.switch_mlp.up_proj.weight", &[2, 4, COLS]);
    let src = Checkpoint::from_tensors(
        json!({"model_type": "x", "torch_dtype": "float32"}),
        vec![
            weight.clone(),
            stacked.clone(),
            floats("model.l.mlp.gate.weight", &[4, COLS]),
            floats("model.l.odd_proj.weight", &[4, 40]),
            floats("model.norm.weight", &[COLS]),
            floats("model.l.q_proj.bias", &[ROWS]),
        ],
    );
    let scheme = Scheme::Affine { bits: 3, group: 128 };
    let (_dir, made, report) = converted(&src, &options(Repacking::To(scheme), Some(Float::F16)));
    assert_eq!((made.format(), report.n_params), (Format::Mlx, src.n_bytes() / 4));
    for (tensor, n) in [(&weight, 0), (&stacked, 2)] {
        let module = tensor.name.strip_suffix(".weight").unwrap();
        let matrix = match n {
            0 => made.matrix(module, ROWS, COLS).unwrap(),
            n => made.experts(module, n, ROWS / n, COLS).unwrap(),
        };
        let mut values = src.vector(&tensor.name, ROWS * COLS).unwrap();
        values.iter_mut().for_each(|v| *v = f16::from_f32(*v).to_f32());
        let packed = quantize(scheme, Float::F16, &values);
        assert_eq!(matrix.data, packed.data, "{module}");
        assert_eq!(matrix.scales, packed.scales, "{module}");
        assert_eq!(matrix.biases, packed.biases, "{module}");
    }
    let scale = Float::F16;
    let router = made.matrix("model.l.mlp.gate", 4, COLS).unwrap();
    assert_eq!(router.packing, Packing::Affine { bits: 8, group: 64, scale });
    let odd = made.matrix("model.l.odd_proj", 4, 40).unwrap();
    assert_eq!(odd.packing, Packing::Plain(Float::F16));
    made.vector("model.norm.weight", COLS).unwrap();
    made.vector("model.l.q_proj.bias", ROWS).unwrap();
    assert_eq!(
        made.config,
        json!({
            "model_type": "x", "torch_dtype": "float16",
            "quantization": {"group_size": 128, "bits": 3, "mode": "affine",
                "model.l.mlp.gate": {"group_size": 64, "bits": 8, "mode": "affine"}},
            "quantization_config": {"group_size": 128, "bits": 3, "mode": "affine",
                "model.l.mlp.gate": {"group_size": 64, "bits": 8, "mode": "affine"}},
        })
    );
}

#[test]
fn keeping_an_mlx_model_copies_it() {
    let src = Checkpoint::from_tensors(
        json!({"model_type": "x"}),
        vec![
            floats("model.a.weight", &[ROWS, COLS]),
            floats("model.b.weight", &[ROWS, COLS]),
            floats("model.norm.weight", &[COLS]),
        ],
    );
    for scheme in [Scheme::Affine { bits: 5, group: 64 }, Scheme::Mxfp8, Scheme::Nvfp4] {
        let (dir, first, _) = converted(&src, &options(Repacking::To(scheme), None));
        let (_dir, second, report) = converted(&first, &options(Repacking::Keep, None));
        assert_eq!((report.n_exact, report.n_rounded), (3, 0));
        assert_eq!(second.config, first.config);
        for (a, b) in first.tensors().zip(second.tensors()) {
            assert_eq!((&a.name, &a.shape, &a.data), (&b.name, &b.shape, &b.data), "{scheme:?}");
        }
        let (_dir, third, _) = converted(&first, &options(Repacking::Floats, None));
        assert_eq!(third.format(), Format::HuggingFace);
        let a = |model: &Checkpoint| rows(&model.matrix("model.a", ROWS, COLS).unwrap());
        assert_eq!(a(&first), a(&third));
        drop(dir);
    }
}

#[test]
fn rotary_rows_come_back_into_halves() {
    // Row r of the source holds nothing but r, so the order can be read off.
    let named = |name: &str, n: usize, cols: usize| {
        let values: Vec<f32> = (0..n * cols).map(|i| (i / cols) as f32).collect();
        let shape = if cols == 1 { vec![n] } else { vec![n, cols] };
        Tensor::from_f32(name, &shape, &values)
    };
    let layer = "model.layers.0.self_attn";
    let src = Checkpoint::from_tensors(
        json!({"rope_interleaved": true, "hidden_size": 8, "num_attention_heads": 2}),
        vec![
            named(&format!("{layer}.q_proj.weight"), 8, 32),
            named(&format!("{layer}.q_proj.bias"), 8, 1),
            named(&format!("{layer}.k_proj.weight"), 4, 32),
            named(&format!("{layer}.v_proj.weight"), 4, 32),
        ],
    );
    let (_dir, made, _) = converted(&src, &options(Repacking::Keep, None));
    let order = |name: &str, n: usize| {
        let values = rows(&made.matrix(&format!("{layer}.{name}"), n, 32).unwrap());
        values.into_iter().step_by(32).collect::<Vec<_>>()
    };
    let halves = [0.0, 2.0, 1.0, 3.0, 4.0, 6.0, 5.0, 7.0];
    assert_eq!(order("q_proj", 8), halves);
    assert_eq!(made.vector(&format!("{layer}.q_proj.bias"), 8).unwrap(), halves);
    assert_eq!(order("k_proj", 4), halves[..4]);
    assert_eq!(order("v_proj", 4), [0.0, 1.0, 2.0, 3.0]);
    assert_eq!(made.config.get("rope_interleaved"), None);
}

#[test]
fn experts_stored_one_by_one_are_stacked_in_their_order() {
    let name = |e: usize| format!("model.layers.0.mlp.experts.{e}.up_proj.weight");
    let tensors: Vec<Tensor> =
        (0..11).map(|e| Tensor::from_f32(name(e), &[2, 64], &[e as f32; 128])).collect();
    let src = Checkpoint::from_tensors(json!({}), tensors);
    for packing in [Repacking::Keep, to(4, 64)] {
        let (_dir, made, _) = converted(&src, &options(packing, None));
        let stacked = made.experts("model.layers.0.mlp.switch_mlp.up_proj", 11, 2, 64).unwrap();
        for (i, value) in rows(&stacked).into_iter().enumerate() {
            assert!((value - (i / 128) as f32).abs() < 1e-5, "{i}: {value}");
        }
        assert_eq!(made.names().filter(|name| name.contains("experts")).count(), 0);
    }
}

/// Gate and up of each expert in one parameter, as transformers keeps them, become what the same experts
/// one by one become.
#[test]
fn joined_experts_become_the_stacks_of_mlx() {
    let mlp = "model.layers.0.mlp";
    let (gate_up, down) = (noise(3 * 128 * 32, 1), noise(3 * 32 * 64, 2));
    let joined = vec![
        Tensor::from_f32(format!("{mlp}.experts.gate_up_proj"), &[3, 128, 32], &gate_up),
        Tensor::from_f32(format!("{mlp}.experts.down_proj"), &[3, 32, 64], &down),
    ];
    let single = |e: usize, name: &str, shape: [usize; 2], values: &[f32]| {
        Tensor::from_f32(format!("{mlp}.experts.{e}.{name}.weight"), &shape, values)
    };
    let apart = (0..3).flat_map(|e| {
        let (gate, up) = gate_up[e * 4096..(e + 1) * 4096].split_at(2048);
        [
            single(e, "gate_proj", [64, 32], gate),
            single(e, "up_proj", [64, 32], up),
            single(e, "down_proj", [32, 64], &down[e * 2048..(e + 1) * 2048]),
        ]
    });
    let sources = [joined, apart.collect()].map(|t| Checkpoint::from_tensors(json!({}), t));
    for packing in [Repacking::Keep, to(4, 32)] {
        let [joined, apart] = sources.each_ref().map(|src| {
            let (_dir, made, _) = converted(src, &options(packing, None));
            made.tensors().map(|t| (t.name.clone(), t.shape.clone(), t.data.to_vec())).collect()
        });
        let joined: Vec<(String, Vec<usize>, Vec<u8>)> = joined;
        assert_eq!(joined.len(), if packing == Repacking::Keep { 3 } else { 9 });
        assert!(joined == apart, "{packing:?}");
    }
}

/// With inputs and outputs the other way round they stay what they are.
#[test]
fn transposed_experts_stay_as_they_are() {
    let names = ["model.layers.0.mlp.experts.gate_up_proj", "model.layers.0.mlp.experts.down_proj"];
    let tensors = vec![floats(names[0], &[2, 32, 128]), floats(names[1], &[2, 64, 32])];
    let src = Checkpoint::from_tensors(json!({}), tensors);
    let (_dir, made, _) = converted(&src, &options(to(4, 32), None));
    for name in names {
        assert_eq!(made.tensor(name).unwrap().data, src.tensor(name).unwrap().data);
    }
}

#[test]
fn experts_that_do_not_fit_together_are_named() {
    let up = |e: usize, rows: usize| {
        floats(&format!("model.layers.0.mlp.experts.{e}.up_proj.weight"), &[rows, 64])
    };
    let stacked = floats("model.layers.0.mlp.switch_mlp.up_proj.weight", &[2, 4, 64]);
    for (tensors, part) in [
        (vec![up(0, 4), up(1, 8)], "experts.1.up_proj.weight: expected 4 x 64"),
        (vec![up(0, 4), up(2, 4)], "expert 1 of model.layers.0.mlp.switch_mlp.up_proj"),
        (vec![up(0, 8), stacked], "switch_mlp.up_proj.weight"),
    ] {
        let src = Checkpoint::from_tensors(json!({}), tensors);
        let message = refused(&src, &options(Repacking::Keep, None), |_| {}).to_string();
        assert!(message.contains(part), "{message}");
    }
}

#[test]
fn empty_arrays_are_left_out_whatever_sizes_they_claim() {
    let empty = |name: &str, shape: &[usize]| Tensor::from_f32(name, shape, &[]);
    let src = Checkpoint::from_tensors(
        json!({}),
        vec![
            empty("a.weight", &[1 << 50, 0]),
            empty("b.weight", &[0, 1 << 60]),
            empty("model.layers.0.mlp.experts.0.up_proj.weight", &[1 << 63, 0]),
            empty("model.layers.0.mlp.experts.1.up_proj.weight", &[1 << 63, 0]),
            floats("c.weight", &[4, 64]),
        ],
    );
    for packing in [Repacking::Keep, to(8, 32)] {
        let (_dir, made, report) = converted(&src, &options(packing, None));
        assert!(made.contains("c.weight"));
        assert_eq!(report.notes.len(), 4, "{:?}", report.notes);
    }
}

#[test]
fn what_no_model_reads_is_left_out_with_a_note() {
    let src = Checkpoint::from_tensors(
        json!({"tie_word_embeddings": true}),
        vec![
            floats("model.embed_tokens.weight", &[4, 64]),
            floats("lm_head.weight", &[4, 64]),
            floats("model.layers.0.self_attn.rotary_emb.inv_freq", &[4]),
            Tensor::new("model.count", &[1], Dtype::Other { bits: 64 }, vec![0; 8]),
        ],
    );
    let (_dir, made, report) = converted(&src, &options(Repacking::Keep, None));
    assert_eq!(made.names().collect::<Vec<_>>(), ["model.embed_tokens.weight"]);
    assert_eq!(report.notes.len(), 3, "{:?}", report.notes);
}

#[test]
fn large_models_are_cut_into_shards_and_progress_adds_up() {
    let tensors = (0..5).map(|i| floats(&format!("model.t{i}.weight"), &[4, 64])).collect();
    let src = Checkpoint::from_tensors(json!({}), tensors);
    let dir = TempDir::new().unwrap();
    let dst = dir.path().join("m");
    let options = ConvertOptions { shard_bytes: 2048, ..options(Repacking::Keep, None) };
    let (mut last, mut total) = (0, 0);
    convert(&src, &dst, &options, &mut |progress| {
        assert!(progress.done >= last);
        (last, total) = (progress.done, progress.total);
    })
    .unwrap();
    assert_eq!((last, total), (5 * 1024, 5 * 1024));
    assert!(dst.join("model-00003-of-00003.safetensors").exists());
    let index: Value =
        serde_json::from_slice(&fs::read(dst.join("model.safetensors.index.json")).unwrap())
            .unwrap();
    assert_eq!(index["weight_map"]["model.t4.weight"], "model-00003-of-00003.safetensors");
    let made = Checkpoint::open(&dst).unwrap();
    for (a, b) in src.tensors().zip(made.tensors()) {
        assert_eq!((&a.name, &a.data), (&b.name, &b.data));
    }
}

#[test]
fn text_files_come_along() {
    let mut src = Checkpoint::from_tensors(json!({}), vec![floats("a.weight", &[2, 32])]);
    src.generation_config = Some(json!({"eos_token_id": [1, 2]}));
    src.text = TextFiles {
        tokenizer: Some(TokenizerFile::Json("{}".into())),
        tokenizer_config: Some(json!({"eos_token": "</s>"})),
        chat_template: Some("chat".into()),
        tool_template: Some("tools".into()),
        special_tokens_map: Some(json!({"bos_token": "<s>"})),
    };
    let (dir, made, _) = converted(&src, &options(Repacking::Keep, None));
    assert_eq!(made.text.tokenizer.unwrap().to_json().unwrap(), "{}");
    assert_eq!(made.text.tool_template, src.text.tool_template);
    assert_eq!(made.text.special_tokens_map, src.text.special_tokens_map);
    assert_eq!(made.generation_config, src.generation_config);
    let config = json!({"eos_token": "</s>", "chat_template": "chat"});
    assert_eq!(made.text.tokenizer_config, Some(config));
    let jinja = fs::read_to_string(dir.path().join("made/here/chat_template.jinja")).unwrap();
    assert_eq!(jinja, "chat");
}

/// Converts to somewhere in a folder that must be as it was afterwards.
fn refused(src: &Checkpoint, options: &ConvertOptions, prepare: impl Fn(&Path)) -> Error {
    let dir = TempDir::new().unwrap();
    let dst = dir.path().join("m");
    prepare(&dst);
    let list = |path: &Path| {
        let names = fs::read_dir(path).unwrap().map(|entry| entry.unwrap().file_name());
        let mut names: Vec<_> = names.collect();
        names.sort();
        names
    };
    let before = list(dir.path());
    let error = convert(src, &dst, options, &mut |_| {}).unwrap_err();
    assert_eq!(list(dir.path()), before);
    error
}

#[test]
fn a_failed_conversion_leaves_nothing_behind() {
    let good = Checkpoint::from_tensors(json!({}), vec![floats("a.weight", &[2, 32])]);
    let half = options(Repacking::Keep, Some(Float::F16));
    let occupied = |dst: &Path| {
        fs::create_dir(dst).unwrap();
        fs::write(dst.join("mine"), "mine").unwrap();
    };
    assert!(matches!(refused(&good, &half, occupied), Error::TargetNotEmpty { .. }));
    let large = Tensor::from_f32("a.weight", &[1, 32], &[1e6; 32]);
    let large = Checkpoint::from_tensors(json!({}), vec![large]);
    for packing in [Repacking::Keep, to(4, 32)] {
        let options = options(packing, Some(Float::F16));
        let message = refused(&large, &options, |_| {}).to_string();
        assert!(message.contains("a.weight") || message.contains("numbers of a"), "{message}");
    }
    let odd = Checkpoint::from_tensors(
        json!({"rope_interleaved": true}),
        vec![floats("model.layers.0.self_attn.q_proj.weight", &[6, 32])],
    );
    refused(&odd, &half, |_| {});
    let broken = Tensor::new("a.weight", &[2, 32], Dtype::Float(Float::F32), vec![0; 9]);
    refused(&Checkpoint::from_tensors(json!({}), vec![broken]), &half, |_| {});
    // An empty folder is as good as none.
    let dir = TempDir::new().unwrap();
    convert(&good, dir.path(), &half, &mut |_| {}).unwrap();
    assert!(dir.path().join("config.json").exists());
}
