//! The projection from latents as one matrix and as two, and what a cache of latents costs.

use backend::KvGroup;
use backend::reference::Reference;
use hearth_models::recipe::Mixer;
use hearth_models::{Decoder, Footprint, ModelSpec, Room, Store, recipe, tiny};
use weights::{Checkpoint, Tensor};

use crate::common::Runner;

const SEED: u64 = 11;
const FAMILIES: [&str; 4] = ["youtu", "minicpm3", "deepseek_v2", "deepseek_v3"];

fn tiny_spec(model_type: &str) -> (ModelSpec, Checkpoint) {
    let config = tiny::config(model_type).expect("every family has a tiny model");
    let checkpoint = tiny::checkpoint(config, SEED).expect(model_type);
    (recipe(&checkpoint.config).expect(model_type), checkpoint)
}

/// Every `kv_b_proj` of two-byte numbers as MLX has it: transposed keys of each head, and values.
fn split(tensors: Vec<Tensor>, spec: &ModelSpec) -> Vec<Tensor> {
    let latent = spec.mixers().find_map(|mixer| match mixer {
        Mixer::Latent(latent) => Some(&latent.shape),
        _ => None,
    });
    let shape = latent.expect("a layer with latents");
    let (heads, rank, plain, v_dim) = (shape.heads, shape.rank, shape.plain, shape.v_dim);
    let cut = |tensor: Tensor| {
        let Some(parent) = tensor.name.strip_suffix("kv_b_proj.weight") else {
            return vec![tensor];
        };
        let number = |head: usize, row: usize, col: usize| {
            let at = ((head * (plain + v_dim) + row) * rank + col) * 2;
            [tensor.data[at], tensor.data[at + 1]]
        };
        let (mut keys, mut values) = (Vec::new(), Vec::new());
        for head in 0..heads {
            for col in 0..rank {
                keys.extend((0..plain).flat_map(|row| number(head, row, col)));
            }
            for row in plain..plain + v_dim {
                values.extend((0..rank).flat_map(|col| number(head, row, col)));
            }
        }
        let new = |part: &str, shape: [usize; 3], data| {
            Tensor::new(format!("{parent}{part}.weight"), &shape, tensor.dtype, data)
        };
        vec![
            new("embed_q", [heads, rank, plain], keys),
            new("unembed_out", [heads, v_dim, rank], values),
        ]
    };
    tensors.into_iter().flat_map(cut).collect()
}

#[test]
fn the_projection_from_latents_may_be_one_or_two() {
    for model_type in FAMILIES {
        let (spec, joined) = tiny_spec(model_type);
        let apart = split(tiny::tensors(&spec, SEED), &spec);
        assert!(apart.iter().any(|tensor| tensor.shape.len() == 3), "{model_type}");
        let apart = Checkpoint::from_tensors(joined.config.clone(), apart);
        let tokens: Vec<u32> = (0..50).map(|i| (i * i * 31 + 5) % tiny::VOCAB as u32).collect();
        let logits =
            |checkpoint| Runner::new(&Reference, &spec, checkpoint).logits(&tokens, tokens.len());
        assert!(logits(&joined) == logits(&apart), "{model_type}");
        let footprint = |checkpoint| Footprint::of(&spec, checkpoint).expect(model_type);
        assert_eq!(footprint(&joined), footprint(&apart));
        let decoder = Decoder::load(&spec, &apart, &Reference).expect(model_type);
        assert!(decoder.notes().is_empty(), "{model_type}: {:?}", decoder.notes());
    }
}

/// The formula, and what a block of a device really has.
#[test]
fn a_position_costs_one_latent_and_one_key() {
    for model_type in FAMILIES {
        let (spec, _) = tiny_spec(model_type);
        assert_eq!(spec.kv_bytes_per_token(), 3 * (48 + 8) * 2, "{model_type}");
        let store = Store::new(&spec, Room { n_blocks: 2, n_windowed: 0, n_slots: 1 }, &Reference);
        assert_eq!(
            store.block_bytes(&Reference, KvGroup::Full),
            spec.kv_bytes_per_block(),
            "{model_type}"
        );
    }
}
