//! Models in llama.cpp's files compute what transformers computes on their dequantised weights. The
//! goldens come from `tools/goldens/gguf_logits.py`.

use std::path::PathBuf;

use backend::reference::Reference;
use hearth_models::{Decoder, recipe};
use weights::Checkpoint;

use crate::common::{Golden, fixtures, floats, tokens};

#[track_caller]
fn check(case: &str) {
    let folder = fixtures().join("gguf");
    let checkpoint = Checkpoint::open(&folder.join(format!("{case}.gguf"))).expect(case);
    let golden = Golden {
        name: case,
        spec: &recipe(&checkpoint.config).expect(case),
        checkpoint: &checkpoint,
        tokens: tokens(&folder.join("input.json")),
        logits: floats(&folder.join(format!("{case}_kv16.f32"))),
    };
    golden.check_all();
}

#[test]
fn llama_with_rotary_pairs_side_by_side_in_every_packing() {
    check("llama");
    check("llama_k");
}

#[test]
fn a_scaled_rotation_from_its_table() {
    check("llama3");
    check("phi3");
}

#[test]
fn qwen_dense_and_mixed() {
    for case in ["qwen2", "qwen2moe", "qwen3", "qwen3moe"] {
        check(case);
    }
}

#[test]
fn gemma3_with_gains_that_hold_the_one() {
    check("gemma3");
}

#[test]
fn gemmas_before_it() {
    check("gemma");
    check("gemma2");
}

/// Stacks of matrices, inputs that tokens bring along, keys and values of lower layers, heads of two sizes,
/// keys that are values too, experts beside every feed-forward layer.
#[test]
fn gemmas_after_it() {
    check("gemma3n");
    check("gemma4");
    check("gemma4_experts");
}

#[test]
fn biases_everywhere() {
    check("starcoder2");
}

#[test]
fn mamba_alone() {
    check("mamba2");
}

#[test]
fn kimis_delta_rule_and_latents() {
    check("kimi_linear");
}

#[test]
fn side_by_side_and_scaled() {
    for case in ["cohere", "cohere2", "granite"] {
        check(case);
    }
}

#[test]
fn norms_elsewhere() {
    for case in ["exaone4", "glm4", "hunyuan_dense", "olmo2", "olmo3", "seed_oss"] {
        check(case);
    }
}

#[test]
fn other_rotations() {
    for case in ["ernie4_5", "ministral3", "smollm3"] {
        check(case);
    }
}

/// Sinks, biases of experts, corrections; tensors that are no module's.
#[test]
fn mixtures_of_experts() {
    for case in ["gpt_oss", "granitemoe", "minimax_m2", "olmoe"] {
        check(case);
    }
}

/// The projection from latents as two and as one, by corrected sigmoids and by a softmax, and a layer
/// that guesses further tokens.
#[test]
fn latents_and_mixtures_like_deepseeks() {
    for case in ["deepseek2", "deepseek2_lite", "glm4moe"] {
        check(case);
    }
}

#[test]
fn convolutions_and_attention() {
    check("lfm2");
    check("lfm2moe");
}

#[test]
fn a_table_of_positions() {
    check("gpt2");
}

/// Value heads by key head and in turn.
#[test]
fn gated_delta_rules() {
    for case in ["qwen3next", "qwen35", "qwen35moe"] {
        check(case);
    }
}

#[test]
fn mamba_beside_attention() {
    for case in ["granitehybrid", "granitehybrid_dense", "nemotron_h", "nemotron_h_moe"] {
        check(case);
    }
}

/// In every layer, with all factors in the weights.
#[test]
fn mamba_and_attention_side_by_side() {
    check("falcon_h1");
}

#[test]
fn experts_of_a_width_of_their_own() {
    check("nemotron_h_latent");
}

/// Where a key of a file begins.
fn place_of(key: &str, bytes: &[u8]) -> usize {
    let at = bytes.windows(key.len()).position(|part| part == key.as_bytes());
    at.expect("the file has the key")
}

/// The file of a case with another number under a key.
fn file_with(case: &str, key: &str, n: u32) -> (PathBuf, Vec<u8>) {
    let path = fixtures().join("gguf").join(format!("{case}.gguf"));
    let mut bytes = std::fs::read(&path).expect(case);
    // Behind the key there is the number of its type, then its value.
    let at = place_of(key, &bytes) + key.len() + 4;
    bytes[at..at + 4].copy_from_slice(&u32::to_le_bytes(n));
    (path, bytes)
}

/// llama.cpp has 20 layers with keys and values of their own where a file does not say how many.
#[test]
fn layers_of_gemma3n_share_keys_as_llama_cpp_has_it() {
    const KEY: &str = "gemma3n.attention.shared_kv_layers";
    let (path, mut bytes) = file_with("gemma3n", "gemma3n.block_count", 24);
    let end = place_of(KEY, &bytes) + KEY.len();
    bytes[end - 1] = b'?';
    let model = weights::gguf::from_bytes(&path, bytes.into()).expect("a config");
    assert_eq!(model.config["num_kv_shared_layers"], 4);
}

/// Layers that slide may turn a part of their heads only.
#[test]
fn a_part_of_the_heads_of_gemma4_turns() {
    let (path, bytes) = file_with("gemma4", "gemma4.rope.dimension_count_swa", 4);
    let model = weights::gguf::from_bytes(&path, bytes.into()).expect("a model");
    let sliding = &model.config["rope_parameters"]["sliding_attention"];
    assert_eq!(sliding["partial_rotary_factor"], 0.25);
    assert_eq!(recipe(&model.config).expect("a recipe").ropes[0].inv_freq.len(), 2);
}

/// Whether the file of a case is refused, by whoever notices, with another number under a key.
fn is_refused_with(case: &str, key: &str, n: u32) -> bool {
    let (path, bytes) = file_with(case, key, n);
    let Ok(model) = weights::gguf::from_bytes(&path, bytes.into()) else { return true };
    let Ok(spec) = recipe(&model.config) else { return true };
    Decoder::load(&spec, &model, &Reference).is_err()
}

/// Sizes that no tensor has are an error that names one, and nothing is made of them before.
#[test]
fn absurd_heads_are_refused() {
    for (case, arch) in [("qwen35", "qwen35"), ("qwen3next", "qwen3next")] {
        for (key, n) in
            [("group_count", 6), ("time_step_rank", 2_000_000_000), ("inner_size", 192_000)]
        {
            let key = format!("{arch}.ssm.{key}");
            assert!(is_refused_with(case, &key, n), "{case}: {key} = {n}");
        }
    }
}

#[test]
fn absurd_gemmas_are_refused() {
    for (case, key, n) in [
        ("gemma4", "gemma4.attention.shared_kv_layers", 1),
        ("gemma4", "gemma4.attention.shared_kv_layers", 4_000_000_000),
        ("gemma4", "gemma4.attention.key_length_swa", 12),
        ("gemma4", "gemma4.embedding_length_per_layer_input", 0x4000_0000),
        ("gemma4_experts", "gemma4.expert_feed_forward_length", 31),
        ("gemma3n", "gemma3n.altup.num_inputs", 3_000_000_000),
        ("gemma3n", "gemma3n.altup.num_inputs", 5),
        ("gemma3n", "gemma3n.altup.active_idx", 4),
        ("gemma3n", "gemma3n.attention.shared_kv_layers", 3),
    ] {
        assert!(is_refused_with(case, key, n), "{case}: {key} = {n}");
    }
}
