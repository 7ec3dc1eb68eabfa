//! What loading accepts, settles, ignores and refuses; and that a batch computes what each sequence
//! computes alone.

use crate::common::{Runner, distance, golden_cases, json as read_json};
use backend::{BLOCK, Batch, Span, TokenId, reference::Reference};
use hearth_models::modules::Module;
use hearth_models::recipe::Head;
use hearth_models::{Decoder, Error, FAMILIES, Footprint, ModelSpec, SUPPORTED, recipe, tiny};
use serde_json::{Value, json};
use weights::{Checkpoint, Dtype, Tensor};

const SEED: u64 = 11;

fn spec_of(model_type: &str, changes: Value) -> (ModelSpec, Value) {
    let mut config = tiny::config(model_type).expect(model_type);
    let changes = changes.as_object().expect("an object").clone();
    config.as_object_mut().expect("an object").extend(changes);
    (recipe(&config).expect(model_type), config)
}

fn tokens(n: usize) -> Vec<TokenId> {
    (0..n as u32).map(|i| (i * i * 31 + i * 7 + 5) % tiny::VOCAB as u32).collect()
}

fn logits(spec: &ModelSpec, checkpoint: &Checkpoint) -> Vec<f32> {
    Runner::new(&Reference, spec, checkpoint).logits(&tokens(50), 50)
}

fn load(spec: &ModelSpec, tensors: Vec<Tensor>) -> Result<Decoder<Reference>, Error> {
    Decoder::load(spec, &Checkpoint::from_tensors(json!({}), tensors), &Reference)
}

#[test]
fn every_tiny_model_runs_and_its_terms_count() {
    for model_type in SUPPORTED {
        let config = tiny::config(model_type).expect("every family has a tiny model");
        let spec = recipe(&config).expect(model_type);
        let checkpoint = tiny::checkpoint(config, SEED).expect(model_type);
        let mut runner = Runner::new(&Reference, &spec, &checkpoint);
        let logits = runner.logits(&tokens(50), 50);
        assert!(logits.iter().all(|x| x.is_finite()), "{model_type}");
        let mean = logits.iter().sum::<f32>() / logits.len() as f32;
        let var = logits.iter().map(|x| (x - mean).powi(2)).sum::<f32>() / logits.len() as f32;
        assert!(var > 0.1, "{model_type}: logits of variance {var}");
    }
}

/// One whose columns are of length one says the same, one that is packed is taken as it is, and one that
/// is the embedding is refused.
#[test]
fn a_head_is_divided_by_its_columns_where_the_config_says_so() {
    let (plain, _) = spec_of("bailing_moe", json!({}));
    let (divided, config) = spec_of("bailing_moe", json!({"norm_head": true}));
    let tensors = tiny::tensors(&plain, SEED);
    let head = |tensor: &Tensor| tensor.name == "lm_head.weight";
    let (rows, cols) = (plain.vocab, plain.hidden);
    let stored = Checkpoint::from_tensors(config.clone(), tensors.clone());
    let mut values = stored.vector("lm_head.weight", rows * cols).expect("floats");
    for col in 0..cols {
        let squares = values.iter().skip(col).step_by(cols).map(|x| f64::from(*x).powi(2));
        let length = squares.sum::<f64>().sqrt();
        let column = values.iter_mut().skip(col).step_by(cols);
        column.for_each(|x| *x = (f64::from(*x) / length) as f32);
    }
    let unit = Tensor::from_f32("lm_head.weight", &[rows, cols], &values);
    let others = tensors.iter().filter(|tensor| !head(tensor)).cloned();
    let unit = Checkpoint::from_tensors(config, others.chain([unit]).collect());
    let expected = logits(&plain, &unit);
    for checkpoint in [&stored, &unit] {
        let (worst, _) = distance(&logits(&divided, checkpoint), &expected);
        assert!(worst < 1e-4, "{worst}");
    }
    assert!(distance(&logits(&plain, &stored), &expected).0 > 1.0);
    let tied = json!({"norm_head": true, "tie_word_embeddings": true});
    let mut config = tiny::config("bailing_moe").expect("a tiny one");
    config.as_object_mut().expect("an object").extend(tied.as_object().expect("an object").clone());
    let error = recipe(&config).expect_err("there is no head to divide").to_string();
    assert!(error.contains("norm_head"), "{error}");
}

/// Case L03 of public reports, (a); (b) is below, (c) to (f) are in `recipes.rs`, (g) in the tests of `weights`.
#[test]
fn a_stored_head_beside_a_tied_one_is_ignored_with_a_note() {
    let (separate, _) = spec_of("llama", json!({}));
    let (tied, config) = spec_of("llama", json!({"tie_word_embeddings": true}));
    let checkpoint = Checkpoint::from_tensors(config, tiny::tensors(&separate, SEED));
    let decoder = Decoder::load(&tied, &checkpoint, &Reference).expect("loads");
    let [note] = decoder.notes() else { panic!("{:?}", decoder.notes()) };
    assert!(note.contains("lm_head.weight"), "{note}");
    let without = Checkpoint::from_tensors(json!({}), tiny::tensors(&tied, SEED));
    assert!(logits(&tied, &checkpoint) == logits(&tied, &without));
}

/// L03 (b).
#[test]
fn a_missing_head_is_an_error_unless_the_config_leaves_it_open() {
    let (separate, _) = spec_of("llama", json!({}));
    let (tied, _) = spec_of("llama", json!({"tie_word_embeddings": true}));
    let (open, _) = spec_of("llama", json!({"tie_word_embeddings": null}));
    match load(&separate, tiny::tensors(&tied, SEED)) {
        Err(Error::MissingHead { tensor }) => assert_eq!(tensor, "lm_head.weight"),
        other => panic!("{:?}", other.map(|_| "loaded")),
    }
    let decoder = load(&open, tiny::tensors(&tied, SEED)).expect("loads");
    assert_eq!(decoder.spec().head, Head::Tied);
    assert!(decoder.notes()[0].contains("lm_head.weight"), "{:?}", decoder.notes());
    let decoder = load(&open, tiny::tensors(&separate, SEED)).expect("loads");
    assert_eq!(decoder.spec().head, Head::Separate);
    assert!(decoder.notes().is_empty(), "{:?}", decoder.notes());
}

#[test]
fn weights_of_another_architecture_are_refused() {
    let check = |stored: &str, asked: &str, term: &str| {
        let (stored, _) = spec_of(stored, json!({"tie_word_embeddings": false}));
        let (asked, _) = spec_of(asked, json!({}));
        match load(&asked, tiny::tensors(&stored, SEED)) {
            Err(Error::UnusedTerm { tensor, .. }) => assert!(tensor.contains(term), "{tensor}"),
            other => panic!("{term}: {:?}", other.map(|_| "loaded")),
        }
    };
    check("qwen2", "llama", "q_proj.bias");
    check("qwen3", "llama", "q_norm");
    check("gemma2", "llama", "pre_feedforward_layernorm");
    check("hunyuan_v1_dense", "llama", "query_layernorm");
    check("nemotron", "llama", "input_layernorm.bias");
    check("glm4", "glm", "post_self_attn_layernorm");
    let (llama, _) = spec_of("llama", json!({}));
    let (qwen3, _) = spec_of("qwen3", json!({}));
    let error = load(&qwen3, tiny::tensors(&llama, SEED)).err().expect("q_norm is missing");
    assert!(error.to_string().contains("self_attn.q_norm.weight"), "{error}");
}

#[test]
fn a_wrong_shape_names_the_tensor() {
    let (spec, _) = spec_of("llama", json!({}));
    let (wider, _) = spec_of("llama", json!({"intermediate_size": 128}));
    let error = load(&wider, tiny::tensors(&spec, SEED)).err().expect("too narrow").to_string();
    assert!(error.contains("model.layers.0.mlp.gate_proj.weight"), "{error}");
    assert!(error.contains("[128, 64]") && error.contains("[96, 64]"), "{error}");
}

#[test]
fn what_belongs_to_other_parts_of_a_file_is_ignored() {
    let (spec, _) = spec_of("gemma3_text", json!({}));
    let plain = Checkpoint::from_tensors(json!({}), tiny::tensors(&spec, SEED));
    for prefix in ["language_model.model.", "model.language_model."] {
        let rename = |mut tensor: Tensor| {
            tensor.name = tensor.name.replacen("model.", prefix, 1);
            tensor
        };
        let mut tensors: Vec<Tensor> = tiny::tensors(&spec, SEED).into_iter().map(rename).collect();
        tensors.push(Tensor::from_f32("vision_tower.layers.0.self_attn.q_proj.bias", &[1], &[1.0]));
        tensors.push(Tensor::from_f32("language_model.rotary_emb.inv_freq", &[1], &[1.0]));
        let wrapped = Checkpoint::from_tensors(json!({}), tensors);
        let decoder = Decoder::load(&spec, &wrapped, &Reference).expect("loads");
        let [note] = decoder.notes() else { panic!("{:?}", decoder.notes()) };
        assert!(note.contains("ignored 1 tensors") && note.contains("vision_tower"), "{note}");
        assert!(logits(&spec, &wrapped) == logits(&spec, &plain), "{prefix}");
    }
}

/// Puts the experts of every layer on top of one another, as MLX files have them.
fn stacked(tensors: Vec<Tensor>, n: usize) -> Vec<Tensor> {
    let (experts, mut rest): (Vec<_>, Vec<_>) =
        tensors.into_iter().partition(|tensor| tensor.name.contains(".experts."));
    for first in experts.iter().filter(|tensor| tensor.name.contains(".experts.0.")) {
        let one = |e: usize| {
            let name = first.name.replace(".experts.0.", &format!(".experts.{e}."));
            experts.iter().find(|tensor| tensor.name == name).expect("an expert")
        };
        let data: Vec<u8> = (0..n).flat_map(|e| one(e).data.to_vec()).collect();
        let shape: Vec<usize> = [&[n], first.shape.as_slice()].concat();
        let name = first.name.replace(".experts.0.", ".switch_mlp.");
        rest.push(Tensor::new(name, &shape, first.dtype, data));
    }
    rest
}

/// Puts gate and up of each stacked expert together, as transformers has them in newer files.
fn joined(stacked: &Checkpoint) -> Vec<Tensor> {
    let mut list = Vec::new();
    for tensor in stacked.tensors() {
        let mut joined = tensor.clone();
        let Some(name) = tensor.name.strip_suffix(".weight") else { continue };
        if let Some(parent) = name.strip_suffix(".switch_mlp.gate_proj") {
            let up = stacked.tensor(&format!("{parent}.switch_mlp.up_proj.weight")).expect("up");
            let [n, rows, cols] = tensor.shape[..] else { panic!("{name} is a stack") };
            let len = rows * cols * 2;
            let both =
                |e: usize| [&tensor.data[e * len..][..len], &up.data[e * len..][..len]].concat();
            let data: Vec<u8> = (0..n).flat_map(both).collect();
            let name = format!("{parent}.experts.gate_up_proj");
            list.push(Tensor::new(name, &[n, 2 * rows, cols], tensor.dtype, data));
        } else if let Some(parent) = name.strip_suffix(".switch_mlp.down_proj") {
            joined.name = format!("{parent}.experts.down_proj");
            list.push(joined);
        } else if !name.ends_with(".switch_mlp.up_proj") {
            list.push(joined);
        }
    }
    let bare = stacked.tensors().filter(|tensor| !tensor.name.ends_with(".weight"));
    list.extend(bare.cloned());
    list
}

/// MLX moves the axes of the convolution and adds the one to all gains but that inside the layer.
#[test]
fn gains_of_mlx_files_hold_the_one() {
    for model_type in ["qwen3_next", "qwen3_5_text"] {
        let (spec, config) = spec_of(model_type, json!({}));
        let plain = Checkpoint::from_tensors(config.clone(), tiny::tensors(&spec, SEED));
        let convert = |tensor: Tensor| {
            if tensor.name.ends_with("conv1d.weight") {
                let [cols, 1, taps] = tensor.shape[..] else { panic!("{:?}", tensor.shape) };
                return Tensor::new(tensor.name, &[cols, taps, 1], tensor.dtype, tensor.data);
            }
            if !tensor.name.contains("norm") || tensor.name.contains("linear_attn") {
                return tensor;
            }
            let gains = plain.vector(&tensor.name, tensor.shape[0]).expect("a gain");
            let gains: Vec<f32> = gains.iter().map(|gain| 1.0 + gain).collect();
            Tensor::from_f32(tensor.name, &tensor.shape, &gains)
        };
        let converted: Vec<Tensor> = tiny::tensors(&spec, SEED).into_iter().map(convert).collect();
        let converted = Checkpoint::from_tensors(config, converted);
        let (worst, _) = distance(&logits(&spec, &converted), &logits(&spec, &plain));
        assert!(worst < 1e-5, "{model_type}: {worst}");
    }
}

/// MLX moves the axes of convolutions and, in one family, multiplies factors into the weights.
#[test]
fn convolutions_of_mlx_files() {
    for model_type in ["lfm2", "mamba2", "granitemoehybrid", "falcon_h1"] {
        let (spec, config) = spec_of(model_type, json!({}));
        let plain = Checkpoint::from_tensors(config.clone(), tiny::tensors(&spec, SEED));
        let convert = |tensor: Tensor| match tensor.shape[..] {
            [cols, 1, taps] => {
                Tensor::new(tensor.name, &[cols, taps, 1], tensor.dtype, tensor.data)
            }
            _ => tensor,
        };
        let converted: Vec<Tensor> = tiny::tensors(&spec, SEED).into_iter().map(convert).collect();
        let converted = Checkpoint::from_tensors(config, converted);
        if model_type == "falcon_h1" {
            let error = Decoder::load(&spec, &converted, &Reference).err().expect("refused");
            assert!(error.to_string().contains("ssm_multipliers"), "{error}");
        } else {
            assert!(logits(&spec, &converted) == logits(&spec, &plain), "{model_type}");
        }
    }
}

/// A draft head, a vision tower, the prefixes of both kinds of wrapper.
#[test]
fn a_hybrid_runs_as_the_text_part_of_a_wrapper() {
    let (spec, config) = spec_of("qwen3_5_text", json!({}));
    let plain = Checkpoint::from_tensors(config.clone(), tiny::tensors(&spec, SEED));
    let wrapper = json!({"model_type": "qwen3_5", "text_config": config, "vision_config": {}});
    assert_eq!(recipe(&wrapper).expect("a recipe"), spec);
    for prefix in ["language_model.model.", "model.language_model."] {
        let rename = |mut tensor: Tensor| {
            tensor.name = tensor.name.replacen("model.", prefix, 1);
            tensor
        };
        let mut tensors: Vec<Tensor> = tiny::tensors(&spec, SEED).into_iter().map(rename).collect();
        for name in [
            "mtp.fc.weight",
            "mtp.norm.weight",
            "mtp.layers.0.input_layernorm.weight",
            "mtp.layers.0.self_attn.q_proj.bias",
            "model.visual.blocks.0.attn.qkv.bias",
            "vision_tower.blocks.0.norm1.bias",
        ] {
            tensors.push(Tensor::from_f32(name, &[1], &[1.0]));
        }
        let wrapped = Checkpoint::from_tensors(wrapper.clone(), tensors);
        let decoder = Decoder::load(&spec, &wrapped, &Reference).expect("loads");
        let [note] = decoder.notes() else { panic!("{:?}", decoder.notes()) };
        assert!(note.contains("ignored 2 tensors"), "{note}");
        assert!(logits(&spec, &wrapped) == logits(&spec, &plain), "{prefix}");
    }
}

#[test]
fn experts_may_be_stacked_joined_or_apart() {
    for model_type in ["qwen2_moe", "qwen3_moe", "qwen3_next"] {
        let (spec, config) = spec_of(model_type, json!({}));
        let apart = tiny::checkpoint(config.clone(), SEED).expect(model_type);
        let stacked = stacked(tiny::tensors(&spec, SEED), 6);
        assert!(stacked.iter().any(|tensor| tensor.shape.len() == 3), "{model_type}");
        let stacked = Checkpoint::from_tensors(config, stacked);
        assert!(logits(&spec, &apart) == logits(&spec, &stacked), "{model_type}");
        let joined = Checkpoint::from_tensors(apart.config.clone(), joined(&stacked));
        assert!(logits(&spec, &apart) == logits(&spec, &joined), "{model_type}: joined");
        let footprint = Footprint::of(&spec, &apart).expect(model_type);
        for other in [&stacked, &joined] {
            assert_eq!(footprint, Footprint::of(&spec, other).expect(model_type));
            let decoder = Decoder::load(&spec, other, &Reference).expect(model_type);
            assert!(decoder.notes().is_empty(), "{model_type}: {:?}", decoder.notes());
        }
    }
}

#[test]
fn the_footprint_counts_bytes_as_stored() {
    let (spec, config) = spec_of("llama", json!({"tie_word_embeddings": true}));
    let checkpoint = tiny::checkpoint(config, SEED).expect("a model");
    let footprint = Footprint::of(&spec, &checkpoint).expect("loads");
    // Vectors are held in f32, and all others in bf16 here.
    let gains = 7 * spec.hidden as u64;
    assert_eq!(footprint.weight_bytes, 2 * spec.n_params() + 2 * gains);
    assert_eq!(footprint.bytes_per_token, footprint.weight_bytes + 2 * spec.hidden as u64);
}

#[test]
fn a_spec_names_exactly_the_tensors_that_transformers_writes() {
    for folder in golden_cases() {
        let case = &folder.display().to_string();
        let checkpoint = Checkpoint::open(&folder).expect(case);
        let spec = recipe(&read_json(&folder.join("config.json"))).expect(case);
        // Of stacks of experts, and of packed ones, it is enough that all is used.
        let is_stack = |t: &Tensor| t.name.contains("moe.") || t.name.contains("experts.");
        let has_stacks = checkpoint.tensors().any(|t| t.shape.len() > 2 && is_stack(t));
        if !checkpoint.tensors().any(|t| t.dtype == Dtype::U8) {
            let numbers = |t: &Tensor| t.shape.iter().product::<usize>() as u64;
            let stored: u64 = checkpoint.tensors().map(numbers).sum();
            assert_eq!(spec.n_params(), stored, "{case}");
        }
        if !has_stacks {
            let n_names: usize = spec.modules().iter().map(n_tensors).sum();
            assert_eq!(n_names, checkpoint.names().count(), "{case}");
        }
        let decoder = Decoder::load(&spec, &checkpoint, &Reference).expect(case);
        assert!(decoder.notes().is_empty(), "{case}: {:?}", decoder.notes());
    }
}

fn n_tensors(module: &Module) -> usize {
    match module {
        Module::Linear(linear) => 1 + linear.bias.len(1),
        Module::Experts(experts) => experts.n,
        Module::LatentUp(_)
        | Module::Embedding(_)
        | Module::Gain { .. }
        | Module::Vector { .. } => 1,
    }
}

// The block tables below are for blocks of 32.
const _: () = assert!(BLOCK == 32);

/// Three sequences in one pass, one of them in the middle of its life, only some rows wanted.
#[test]
fn neighbours_in_a_batch_change_nothing() {
    for model_type in FAMILIES.iter().map(|(_, names)| names[0]) {
        let (spec, config) = spec_of(model_type, json!({}));
        let checkpoint = tiny::checkpoint(config, SEED).expect(model_type);
        let text = tokens(70);
        let alone = logits_alone(&spec, &checkpoint, &text);
        let mut runner = Runner::new(&Reference, &spec, &checkpoint);
        let span = |rows: std::ops::Range<usize>, start: usize, blocks: &[u32]| {
            let mut span = Span::new(rows, start, blocks.to_vec());
            // Used by layers with states alone.
            span.state_in = (start > 0).then_some(5);
            span.states_out = vec![(span.rows.len() - 1, if start > 0 { 2 } else { blocks[0] })];
            span
        };
        // The first 40 tokens of one sequence, nothing of them wanted.
        let first = Batch {
            tokens: text[..40].to_vec(),
            spans: vec![span(0..40, 0, &[5, 2])],
            want: vec![],
        };
        assert!(runner.pass(&first).is_empty());
        let batch = Batch {
            tokens: [&text[..3], &text[40..70], &text[..33]].concat(),
            spans: vec![span(0..3, 0, &[1]), span(3..33, 40, &[5, 2, 9]), span(33..66, 0, &[7, 0])],
            want: vec![2, 3, 32, 65],
        };
        let rows = runner.pass(&batch);
        for (row, position) in rows.chunks_exact(spec.vocab).zip([2, 40, 69, 32]) {
            let expected = &alone[position * spec.vocab..][..spec.vocab];
            assert!(row == expected, "{model_type}: position {position}");
        }
    }
}

fn logits_alone(spec: &ModelSpec, checkpoint: &Checkpoint, text: &[TokenId]) -> Vec<f32> {
    Runner::new(&Reference, spec, checkpoint).logits(text, text.len())
}
