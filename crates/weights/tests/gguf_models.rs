//! Tensors of every architecture appear under Hugging Face names, with a Hugging Face config
//! (fixtures: `tools/goldens/gguf_models.py`). Not here: hostile files, tokenizers.

use std::path::{Path, PathBuf};

use hearth_weights::{Checkpoint, Format, GgufType, Packing};
use serde_json::{Value, json};

fn path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/fixtures/gguf/models/{name}.gguf"))
}

fn open(name: &str) -> Checkpoint {
    Checkpoint::open(&path(name)).unwrap()
}

/// Checks that the model has exactly these tensors outside its layers and in layer 1, and that its
/// config says what `config` says.
fn check(name: &str, outside: &[&str], layer: &[&str], config: Value) {
    let model = open(name);
    assert_eq!(model.format(), Format::Gguf);
    let (mut inside, mut found): (Vec<&str>, Vec<&str>) =
        model.names().partition(|name| name.starts_with("model.layers."));
    let mut outside = outside.to_vec();
    outside.sort_unstable();
    found.sort_unstable();
    assert_eq!(found, outside, "{name}");
    let mut expected: Vec<String> =
        layer.iter().map(|name| format!("model.layers.1.{name}")).collect();
    expected.sort_unstable();
    inside.retain(|name| name.starts_with("model.layers.1."));
    inside.sort_unstable();
    assert_eq!(inside, expected, "{name}");
    for (key, expected) in config.as_object().unwrap() {
        assert_eq!(&model.config[key], expected, "{name}: {key}");
    }
}

const TIED: [&str; 2] = ["model.embed_tokens.weight", "model.norm.weight"];
const UNTIED: [&str; 3] = ["model.embed_tokens.weight", "model.norm.weight", "lm_head.weight"];
const ATTENTION: [&str; 6] = [
    "input_layernorm.weight",
    "self_attn.q_proj.weight",
    "self_attn.k_proj.weight",
    "self_attn.v_proj.weight",
    "self_attn.o_proj.weight",
    "post_attention_layernorm.weight",
];
const BIASES: [&str; 3] =
    ["self_attn.q_proj.bias", "self_attn.k_proj.bias", "self_attn.v_proj.bias"];
const NORMS: [&str; 2] = ["self_attn.q_norm.weight", "self_attn.k_norm.weight"];
const DENSE: [&str; 3] = ["mlp.gate_proj.weight", "mlp.up_proj.weight", "mlp.down_proj.weight"];
const EXPERTS: [&str; 4] = [
    "mlp.gate.weight",
    "mlp.switch_mlp.gate_proj.weight",
    "mlp.switch_mlp.up_proj.weight",
    "mlp.switch_mlp.down_proj.weight",
];
const SHARED: [&str; 4] = [
    "mlp.shared_expert_gate.weight",
    "mlp.shared_expert.gate_proj.weight",
    "mlp.shared_expert.up_proj.weight",
    "mlp.shared_expert.down_proj.weight",
];

#[test]
fn llama() {
    check(
        "llama",
        &TIED,
        &[&ATTENTION[..], &DENSE].concat(),
        json!({
            "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 32,
            "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4,
            "num_key_value_heads": 1, "head_dim": 16, "vocab_size": 40,
            "max_position_embeddings": 512, "rms_norm_eps": 1e-5, "rope_theta": 500000.0,
            "hidden_act": "silu", "attention_bias": false, "mlp_bias": false,
            "tie_word_embeddings": true, "rope_interleaved": true,
            "rope_scaling": {
                "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
                "high_freq_factor": 4.0, "original_max_position_embeddings": 8192
            },
        }),
    );
}

#[test]
fn mixtral() {
    let layer = [
        "block_sparse_moe.gate.weight",
        "block_sparse_moe.switch_mlp.gate_proj.weight",
        "block_sparse_moe.switch_mlp.up_proj.weight",
        "block_sparse_moe.switch_mlp.down_proj.weight",
    ];
    check(
        "mixtral",
        &UNTIED,
        &[&ATTENTION[..], &layer].concat(),
        json!({
            "model_type": "mixtral", "num_local_experts": 3, "num_experts_per_tok": 2,
            "tie_word_embeddings": false, "rope_interleaved": true, "rope_scaling": null,
        }),
    );
}

#[test]
fn bailingmoe2() {
    let layer = [
        "input_layernorm.weight",
        "attention.query_key_value.weight",
        "attention.dense.weight",
        "attention.query_layernorm.weight",
        "attention.key_layernorm.weight",
        "post_attention_layernorm.weight",
        "mlp.gate.expert_bias",
        "mlp.shared_experts.gate_proj.weight",
        "mlp.shared_experts.up_proj.weight",
        "mlp.shared_experts.down_proj.weight",
    ];
    check(
        "bailingmoe2",
        &["model.word_embeddings.weight", "model.norm.weight", "lm_head.weight"],
        &[&layer[..], &EXPERTS].concat(),
        json!({
            "model_type": "bailing_moe_v2", "vocab_size": 40, "num_experts": 3,
            "num_experts_per_tok": 2, "moe_intermediate_size": 64, "n_shared_experts": 1,
            "moe_shared_expert_intermediate_size": 96, "score_function": "sigmoid", "n_group": 3,
            "topk_group": 1, "norm_topk_prob": true, "routed_scaling_factor": 2.5,
            "first_k_dense_replace": 0, "use_qk_norm": true, "use_qkv_bias": false,
            "use_bias": false, "partial_rotary_factor": 0.5,
        }),
    );
}

#[test]
fn qwen2() {
    check(
        "qwen2",
        &UNTIED,
        &[&ATTENTION[..], &BIASES, &DENSE].concat(),
        json!({
            "model_type": "qwen2", "attention_bias": true, "rope_interleaved": null,
            "rms_norm_eps": 1e-6, "rope_theta": 1000000.0,
            "rope_scaling": {
                "rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 128
            },
        }),
    );
}

#[test]
fn qwen2_moe() {
    check(
        "qwen2moe",
        &UNTIED,
        &[&ATTENTION[..], &BIASES, &EXPERTS, &SHARED].concat(),
        json!({
            "model_type": "qwen2_moe", "num_experts": 3, "num_experts_per_tok": 2,
            "moe_intermediate_size": 64, "shared_expert_intermediate_size": 96,
            "norm_topk_prob": false,
        }),
    );
    let model = open("qwen2moe");
    let gate = model.tensor("model.layers.0.mlp.shared_expert_gate.weight").unwrap();
    assert_eq!(gate.shape, [1, 32]);
    let up = model.experts("model.layers.0.mlp.switch_mlp.up_proj", 3, 64, 32).unwrap();
    assert_eq!((up.rows, up.cols, up.packing), (192, 32, Packing::Gguf(GgufType::Q8_0)));
}

#[test]
fn qwen3() {
    check(
        "qwen3",
        &TIED,
        &[&ATTENTION[..], &NORMS, &DENSE].concat(),
        json!({"model_type": "qwen3", "attention_bias": false}),
    );
}

#[test]
fn qwen3_moe() {
    check(
        "qwen3moe",
        &UNTIED,
        &[&ATTENTION[..], &NORMS, &EXPERTS].concat(),
        json!({"model_type": "qwen3_moe", "norm_topk_prob": true, "moe_intermediate_size": 64}),
    );
}

#[test]
fn gemma3() {
    let sandwich = ["pre_feedforward_layernorm.weight", "post_feedforward_layernorm.weight"];
    check(
        "gemma3",
        &TIED,
        &[&ATTENTION[..], &NORMS, &DENSE, &sandwich].concat(),
        json!({
            "model_type": "gemma3_text", "hidden_activation": "gelu_pytorch_tanh",
            "query_pre_attn_scalar": 16, "sliding_window": 16, "sliding_window_pattern": 6,
            "rope_local_base_freq": 10000.0,
            "rope_scaling": {"rope_type": "linear", "factor": 8.0},
        }),
    );
    // Stored as 1.5: the model itself adds one.
    let model = open("gemma3");
    for (name, len) in [("model.norm", 32), ("model.layers.1.self_attn.q_norm", 16)] {
        assert_eq!(model.vector(&format!("{name}.weight"), len).unwrap(), vec![0.5; len]);
    }
}

#[test]
fn phi3() {
    let layer = [
        "input_layernorm.weight",
        "self_attn.qkv_proj.weight",
        "self_attn.o_proj.weight",
        "post_attention_layernorm.weight",
        "mlp.gate_up_proj.weight",
        "mlp.down_proj.weight",
    ];
    check(
        "phi3",
        &UNTIED,
        &layer,
        json!({
            "model_type": "phi3", "partial_rotary_factor": 0.5, "sliding_window": 128,
            "original_max_position_embeddings": 128,
            "rope_scaling": {
                "rope_type": "longrope", "long_factor": [1.0, 3.3333333, 5.6666665, 8.0],
                "short_factor": [1.0, 1.3333334, 1.6666666, 2.0], "attention_factor": 1.25
            },
        }),
    );
}

#[test]
fn a_split_model_is_the_sum_of_its_parts() {
    let whole: Vec<String> = open("llama").names().map(str::to_owned).collect();
    let split: Vec<String> = open("split-00001-of-00002").names().map(str::to_owned).collect();
    assert_eq!(split, whole);
    let matrix = open("split-00001-of-00002").matrix("model.layers.1.mlp.down_proj", 32, 96);
    assert_eq!(matrix.unwrap().packing, Packing::Gguf(GgufType::Q8_0));
}

#[test]
fn a_split_model_without_all_its_parts_names_the_missing_one() {
    let dir = std::env::temp_dir().join(format!("hearth-gguf-split-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let part = dir.join("split-00001-of-00002.gguf");
    std::fs::copy(path("split-00001-of-00002"), &part).unwrap();
    let error = Checkpoint::open(&part).unwrap_err().to_string();
    std::fs::remove_dir_all(&dir).unwrap();
    assert!(error.contains("split-00002-of-00002.gguf is missing"), "{error}");
}

#[test]
fn opening_a_later_part_points_to_the_first() {
    let error = Checkpoint::open(&path("split-00002-of-00002")).unwrap_err().to_string();
    assert!(error.contains("opening part 2 of 2"), "{error}");
    assert!(error.contains("split-00001-of-00002.gguf"), "{error}");
}

/// What a file says of sampling has Transformers' names where there are any, and bad ids are refused.
#[test]
fn sampling_is_said_as_transformers_does() {
    let expected = json!({
        "temperature": 0.5, "do_sample": true, "top_k": 64, "top_p": 0.95, "min_p": 0.0,
        "repetition_penalty": 1.25, "suppress_tokens": [38, 7],
        "penalty_last_n": 32, "xtc_probability": 0.25, "xtc_threshold": 0.125, "mirostat": 2,
    });
    assert_eq!(open("gemma3").generation_config, Some(expected));
    assert_eq!(open("qwen3").generation_config, Some(json!({})));

    let file = std::fs::read(path("gemma3")).unwrap();
    let ids = [38i32, 7].map(i32::to_le_bytes).concat();
    let at: Vec<usize> = (0..file.len() - 8).filter(|&i| file[i..i + 8] == ids).collect();
    let [at] = at[..] else { panic!("{at:?}") };
    let mut bad = file;
    bad[at..at + 4].copy_from_slice(&(-1i32).to_le_bytes());
    let error = hearth_weights::gguf::from_bytes(Path::new("bad.gguf"), bad.into()).unwrap_err();
    let said = error.to_string();
    assert!(said.contains("tokenizer.ggml.suppress_tokens: expected ids of tokens"), "{said}");
}
