//! From a config to a spec: sizes that are published, spellings that mean the same, and errors that
//! name the key.

use std::path::{Path, PathBuf};

use backend::reference::Reference;
use backend::{BLOCK, KvFormat, KvGroup, Rope, RopeLayout};
use hearth_models::recipe::{AttentionMixer, Head, KeysValues, Mixer};
use hearth_models::{
    Cache, Error, FAMILIES, ModelSpec, Room, SUPPORTED, Store, recipe, recipe_for_context, tiny,
};
use proptest::prelude::*;
use serde_json::{Value, json};

fn with(mut config: Value, changes: Value) -> Value {
    let Value::Object(changes) = changes else { unreachable!("changes are objects") };
    config.as_object_mut().expect("an object").extend(changes);
    config
}

fn without(mut config: Value, key: &str) -> Value {
    config.as_object_mut().expect("an object").remove(key);
    config
}

fn tiny(model_type: &str) -> Value {
    tiny::config(model_type).expect(model_type)
}

fn spec(config: &Value) -> ModelSpec {
    let spec = recipe(config).unwrap_or_else(|e| panic!("{config}: {e}"));
    // What others publish of caches is two bytes a number.
    spec.with_kv_format(KvFormat::F16)
}

/// The base of a rotation without scaling, from the frequency of its second pair.
fn base(rope: &Rope) -> f64 {
    let pairs = rope.inv_freq.len() as f64;
    f64::from(rope.inv_freq[1]).powf(-pairs)
}

/// The mixers of a model that has nothing but attention.
fn attentions(spec: &ModelSpec) -> Vec<&AttentionMixer> {
    let attentions = spec.mixers().map(|mixer| {
        let Mixer::Attention(attention) = mixer else { panic!("a mixer is no attention") };
        attention
    });
    attentions.collect()
}

#[track_caller]
fn check_base(config: &Value, layer: usize, expected: f64) {
    let spec = spec(config);
    let found = base(&spec.ropes[attentions(&spec)[layer].rope.expect("a rotation")]);
    assert!((found / expected - 1.0).abs() < 1e-4, "base {found}, expected {expected}");
}

#[track_caller]
fn check_error(config: &Value, words: &[&str]) {
    let error = recipe(config).expect_err("the config is wrong").to_string();
    for word in words {
        assert!(error.contains(word), "\"{error}\" does not say \"{word}\"");
    }
}

#[test]
fn parameters_are_those_the_authors_publish() {
    let check = |config: Value, n_params: u64, kv_bytes_per_token: usize| {
        let spec = spec(&config);
        assert_eq!(spec.n_params(), n_params, "{config}");
        assert_eq!(spec.kv_bytes_per_token(), kv_bytes_per_token, "{config}");
    };
    let smollm2_135m = json!({
        "model_type": "llama", "vocab_size": 49152, "hidden_size": 576, "intermediate_size": 1536,
        "num_hidden_layers": 30, "num_attention_heads": 9, "num_key_value_heads": 3,
        "max_position_embeddings": 8192, "rope_theta": 100000, "tie_word_embeddings": true,
    });
    check(smollm2_135m, 134_515_008, 23_040);
    let llama_3_2_1b = json!({
        "model_type": "llama", "vocab_size": 128256, "hidden_size": 2048, "intermediate_size": 8192,
        "num_hidden_layers": 16, "num_attention_heads": 32, "num_key_value_heads": 8,
        "head_dim": 64, "max_position_embeddings": 131072, "rope_theta": 500000.0,
        "tie_word_embeddings": true,
    });
    check(llama_3_2_1b, 1_235_814_400, 32_768);
    let qwen2_5_0_5b = json!({
        "model_type": "qwen2", "vocab_size": 151936, "hidden_size": 896, "intermediate_size": 4864,
        "num_hidden_layers": 24, "num_attention_heads": 14, "num_key_value_heads": 2,
        "max_position_embeddings": 32768, "rope_theta": 1000000.0, "tie_word_embeddings": true,
    });
    check(qwen2_5_0_5b, 494_032_768, 12_288);
    let gemma_3_1b = json!({
        "model_type": "gemma3_text", "vocab_size": 262144, "hidden_size": 1152,
        "intermediate_size": 6912, "num_hidden_layers": 26, "num_attention_heads": 4,
        "num_key_value_heads": 1, "head_dim": 256, "max_position_embeddings": 32768,
        "sliding_window": 512,
    });
    check(gemma_3_1b, 999_885_952, 26_624);
    let phi_3_mini = json!({
        "model_type": "phi3", "vocab_size": 32064, "hidden_size": 3072, "intermediate_size": 8192,
        "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 32,
        "max_position_embeddings": 4096, "tie_word_embeddings": false,
    });
    check(phi_3_mini, 3_821_079_552, 393_216);
    let qwen3_30b_a3b = json!({
        "model_type": "qwen3_moe", "vocab_size": 151936, "hidden_size": 2048,
        "intermediate_size": 6144, "num_hidden_layers": 48, "num_attention_heads": 32,
        "num_key_value_heads": 4, "head_dim": 128, "max_position_embeddings": 40960,
        "num_experts": 128, "num_experts_per_tok": 8, "moe_intermediate_size": 768,
        "norm_topk_prob": true, "rope_theta": 1000000.0, "tie_word_embeddings": false,
    });
    check(qwen3_30b_a3b.clone(), 30_532_122_624, 98_304);
    let active = spec(&qwen3_30b_a3b).n_active_params() as f64;
    assert!((3.0e9..3.4e9).contains(&active), "A3B has {active} active parameters");
}

/// Qwen3-Next-80B-A3B, whose authors count its parameters without the draft head.
#[test]
fn a_hybrid_has_the_published_size_and_remembers_little() {
    let config = json!({
        "model_type": "qwen3_next", "vocab_size": 151936, "hidden_size": 2048,
        "intermediate_size": 5120, "num_hidden_layers": 48, "num_attention_heads": 16,
        "num_key_value_heads": 2, "head_dim": 256, "max_position_embeddings": 262144,
        "num_experts": 512, "num_experts_per_tok": 10, "moe_intermediate_size": 512,
        "shared_expert_intermediate_size": 512, "norm_topk_prob": true, "decoder_sparse_step": 1,
        "full_attention_interval": 4, "linear_num_key_heads": 16, "linear_num_value_heads": 32,
        "linear_key_head_dim": 128, "linear_value_head_dim": 128, "linear_conv_kernel_dim": 4,
        "partial_rotary_factor": 0.25, "rope_theta": 10000000, "tie_word_embeddings": false,
    });
    let spec = spec(&config);
    let (all, active) = (spec.n_params() as f64, spec.n_active_params() as f64);
    assert!((79.5e9..80.5e9).contains(&all), "{all}");
    assert!((3.0e9..4.0e9).contains(&active), "{active}");
    // Twelve layers of pages, and 36 of 32 matrices and three rows to look back at.
    assert_eq!(spec.kv_bytes_per_token(), 12 * 2 * 512 * 2);
    assert_eq!(spec.state_bytes(), 36 * 4 * (32 * 128 * 128 + 3 * 8192));
    assert_eq!(spec.ropes[0].inv_freq.len(), 32);
    let cache = |mixer: &Mixer| mixer.cache(KvFormat::F16);
    let pages = spec.mixers().map(|mixer| matches!(cache(mixer), Cache::Pages { .. }));
    let expected = (0..48).map(|i| i % 4 == 3);
    assert!(pages.eq(expected));
    assert_eq!(self::spec(&tiny("llama")).state_bytes(), 0);
}

/// Sizes that are published, and what is remembered of a sequence: pages, states, or one without the
/// other.
#[test]
fn models_with_states_have_the_published_sizes() {
    let check = |config: Value, n_params: u64, kv_bytes_per_token: usize, state_bytes: usize| {
        let spec = spec(&config);
        assert_eq!(spec.n_params(), n_params, "{config}");
        assert_eq!(spec.kv_bytes_per_token(), kv_bytes_per_token, "{config}");
        assert_eq!(spec.state_bytes(), state_bytes, "{config}");
    };
    let lfm2_1_2b = json!({
        "model_type": "lfm2", "vocab_size": 65536, "hidden_size": 2048, "block_ff_dim": 12288,
        "block_multiple_of": 256, "block_ffn_dim_multiplier": 1.0, "block_auto_adjust_ff_dim": true,
        "num_hidden_layers": 16, "num_attention_heads": 32, "num_key_value_heads": 8,
        "max_position_embeddings": 128000, "norm_eps": 1e-5, "conv_L_cache": 3, "conv_bias": false,
        "full_attn_idxs": [2, 5, 8, 10, 12, 14], "rope_theta": 1000000.0, "tie_embedding": true,
    });
    check(lfm2_1_2b, 1_170_340_608, 6 * 2 * 512 * 2, 10 * 4 * 2 * 2048);
    let mamba2_130m = json!({
        "model_type": "mamba2", "vocab_size": 50288, "hidden_size": 768, "num_hidden_layers": 24,
        "num_heads": 24, "head_dim": 64, "state_size": 128, "n_groups": 1, "conv_kernel": 4,
        "time_step_limit": [0.0, "Infinity"], "tie_word_embeddings": true,
    });
    check(mamba2_130m, 128_989_632, 0, 24 * 4 * (24 * 64 * 128 + 3 * 1792));
    let granite_4_h_micro = json!({
        "model_type": "granitemoehybrid", "vocab_size": 100352, "hidden_size": 2048,
        "shared_intermediate_size": 8192, "num_local_experts": 0, "num_hidden_layers": 40,
        "num_attention_heads": 32, "num_key_value_heads": 8, "max_position_embeddings": 131072,
        "layer_types": (0..40).map(|i| if i % 10 == 5 { "attention" } else { "mamba" })
            .collect::<Vec<_>>(),
        "mamba_n_heads": 64, "mamba_d_head": 64, "mamba_d_state": 128, "mamba_n_groups": 1,
        "mamba_d_conv": 4, "position_embedding_type": "nope", "tie_word_embeddings": true,
    });
    let state = 36 * 4 * (64 * 64 * 128 + 3 * 4352);
    check(granite_4_h_micro, 3_191_396_096, 4 * 2 * 512 * 2, state);
    let falcon_h1_0_5b = json!({
        "model_type": "falcon_h1", "vocab_size": 32784, "hidden_size": 1024,
        "intermediate_size": 2048, "num_hidden_layers": 36, "num_attention_heads": 8,
        "num_key_value_heads": 2, "head_dim": 64, "max_position_embeddings": 16384,
        "mamba_d_ssm": 1536, "mamba_n_heads": 24, "mamba_d_head": 64, "mamba_d_state": 128,
        "mamba_n_groups": 1, "mamba_d_conv": 4, "mamba_rms_norm": false,
        "tie_word_embeddings": false,
    });
    check(falcon_h1_0_5b, 521_411_104, 36 * 2 * 128 * 2, 36 * 4 * (24 * 64 * 128 + 3 * 1792));
}

#[test]
fn configs_of_models_with_states_are_checked() {
    check_error(&with(tiny("mamba2"), json!({"n_groups": 3})), &["n_groups", "num_heads 8"]);
    check_error(&with(tiny("mamba2"), json!({"conv_kernel": 1})), &["conv_kernel", "2 to 64"]);
    check_error(
        &with(tiny("mamba2"), json!({"time_step_limit": [1.0, 0.5]})),
        &["time_step_limit"],
    );
    check_error(&with(tiny("mamba2"), json!({"hidden_act": "gelu"})), &["hidden_act", "silu"]);
    let kinds = json!({"layer_types": ["conv", "full_attention", "mamba"]});
    check_error(&with(tiny("lfm2"), kinds), &["layer_types", "mamba", "conv, full_attention"]);
    let factors = json!({"ssm_multipliers": [1.0, 2.0]});
    check_error(&with(tiny("falcon_h1"), factors), &["ssm_multipliers", "5 numbers"]);
    let biased = json!({"mamba_proj_bias": true});
    check_error(&with(tiny("falcon_h1"), biased), &["mamba_proj_bias"]);
    let auto = json!({"mamba_d_head": "auto", "mamba_n_heads": 7});
    check_error(&with(tiny("granitemoehybrid"), auto), &["mamba_d_head", "7 heads"]);
}

#[test]
fn a_hybrid_says_what_is_wrong_with_its_config() {
    let hybrid = || tiny("qwen3_next");
    let heads = json!({"linear_num_key_heads": 3});
    check_error(&with(hybrid(), heads), &["linear_num_key_heads", "linear_num_value_heads 4"]);
    for taps in [1, 65] {
        let taps = json!({"linear_conv_kernel_dim": taps});
        check_error(&with(hybrid(), taps), &["linear_conv_kernel_dim", "2 to 64"]);
    }
    check_error(&with(hybrid(), json!({"hidden_act": "gelu"})), &["hidden_act", "silu"]);
    let kinds = json!({"layer_types": ["linear_attention", "mamba", "full_attention"]});
    check_error(&with(hybrid(), kinds), &["layer_types", "mamba", "linear_attention"]);
    check_error(&without(hybrid(), "linear_key_head_dim"), &["linear_key_head_dim", "missing"]);
}

#[test]
fn a_window_bounds_what_is_read_of_the_cache() {
    let spec = spec(&tiny("gemma3_text"));
    let per_layer = 2 * 2 * 16 * 2;
    assert_eq!(spec.kv_bytes_per_token(), 3 * per_layer);
    assert_eq!(spec.kv_bytes_read(1000), (40 + 40 + 1000) * per_layer);
    assert_eq!(spec.kv_bytes_read(10), 3 * 10 * per_layer);
    assert_eq!(spec.window(), Some(40));
    assert_eq!(spec.group_bytes_per_block(KvGroup::Windowed), 2 * per_layer * BLOCK);
    assert_eq!(spec.group_bytes_per_block(KvGroup::Full), per_layer * BLOCK);
}

/// What a layer reads of another one has not been given up by it.
#[test]
fn a_borrower_looks_no_further_back_than_the_owner() {
    let mut n = 0;
    for (family, names) in FAMILIES {
        let spec = spec(&tiny(names[0]));
        let caches: Vec<Cache> = spec.mixers().map(|mixer| mixer.cache(spec.kv_format)).collect();
        for mixer in spec.mixers() {
            let Mixer::Attention(own) = mixer else { continue };
            let KeysValues::OfMixer(owner) = own.keys_values else { continue };
            let Cache::Pages { window, .. } = caches[owner] else { panic!("{family}: no pages") };
            let far = |window: Option<usize>| window.unwrap_or(usize::MAX);
            assert!(far(own.shape.window) <= far(window), "{family}");
            assert_eq!(own.shape.window.is_some(), window.is_some(), "{family}");
            n += 1;
        }
    }
    assert!(n > 0);
}

/// The formula, and what a block of a device really has.
#[test]
fn the_cache_costs_what_its_format_takes() {
    for family in ["llama", "gemma3_text", "phi3"] {
        for format in KvFormat::ALL {
            let spec = spec(&tiny(family)).with_kv_format(format);
            let store =
                Store::new(&spec, Room { n_blocks: 2, n_windowed: 3, n_slots: 1 }, &Reference);
            for group in [KvGroup::Full, KvGroup::Windowed] {
                let bytes = store.block_bytes(&Reference, group);
                assert_eq!(bytes, spec.group_bytes_per_block(group), "{family}");
            }
        }
    }
    // Two heads of 16 in each of three layers: 16 codes and two scales of a key, of which 32 share a
    // base; 16 codes and one scale of a value.
    let eight_bit = spec(&tiny("gemma3_text")).with_kv_format(KvFormat::Int8);
    assert_eq!(eight_bit.kv_bytes_per_token(), 3 * 2 * (16 + 4 + 1 + 16 + 2));
}

/// Case L03 of public reports, (c), (d) and (e).
#[test]
fn the_base_is_found_wherever_it_is_written() {
    let llama = without(tiny("llama"), "rope_theta");
    let flat = json!({"rope_parameters": {"rope_type": "default", "rope_theta": 5_000_000}});
    check_base(&with(llama.clone(), flat), 0, 5e6);
    check_base(&with(llama.clone(), json!({"rope_scaling": null, "rope_theta": 500_000})), 0, 5e5);
    check_base(&llama, 0, 1e4);
    let nested = json!({"rope_parameters": {
        "full_attention": {"rope_type": "default", "rope_theta": 1_000_000},
        "sliding_attention": {"rope_type": "default", "rope_theta": 10_000},
    }});
    let gemma = with(without(tiny("gemma3_text"), "rope_theta"), nested.clone());
    check_base(&gemma, 0, 1e4);
    check_base(&gemma, 2, 1e6);
    check_base(&with(llama, nested), 0, 1e6);
}

#[test]
fn gemma3_knows_its_bases_when_nothing_is_written() {
    let gemma = without(tiny("gemma3_text"), "rope_theta");
    check_base(&gemma, 0, 1e4);
    check_base(&gemma, 2, 1e6);
    let local = json!({"rope_theta": 5e5, "rope_local_base_freq": 2e4});
    check_base(&with(gemma.clone(), local.clone()), 0, 2e4);
    check_base(&with(gemma, local), 2, 5e5);
}

#[test]
fn old_and_new_spellings_make_the_same_model() {
    let check = |model_type: &str, old: Value, new: Value| {
        let plain = without(tiny(model_type), "rope_theta");
        assert_eq!(spec(&with(plain.clone(), old)), spec(&with(plain, new)), "{model_type}");
    };
    check(
        "llama",
        json!({"rope_theta": 5e5, "rope_scaling": {"rope_type": "llama3", "factor": 8.0,
            "low_freq_factor": 1.0, "high_freq_factor": 4.0,
            "original_max_position_embeddings": 512}}),
        json!({"rope_parameters": {"rope_theta": 5e5, "rope_type": "llama3", "factor": 8.0,
            "low_freq_factor": 1.0, "high_freq_factor": 4.0,
            "original_max_position_embeddings": 512}}),
    );
    check(
        "qwen2",
        json!({"rope_theta": 1e6, "rope_scaling": {"type": "yarn", "factor": 4.0,
            "original_max_position_embeddings": 1024}}),
        json!({"rope_parameters": {"rope_theta": 1e6, "rope_type": "yarn", "factor": 4.0,
            "original_max_position_embeddings": 1024}}),
    );
    check(
        "gemma3_text",
        json!({"rope_theta": 1e6, "rope_local_base_freq": 1e4,
            "rope_scaling": {"rope_type": "linear", "factor": 8.0}}),
        json!({"rope_parameters": {
            "full_attention": {"rope_theta": 1e6, "rope_type": "linear", "factor": 8.0},
            "sliding_attention": {"rope_theta": 1e4, "rope_type": "default"}}}),
    );
    let factors = |long: f64| json!([1.0, long, 1.0, 1.0, 1.0, 1.0]);
    check(
        "phi3",
        json!({"rope_theta": 1e4, "original_max_position_embeddings": 1024, "rope_scaling":
            {"type": "su", "short_factor": factors(1.1), "long_factor": factors(4.0)}}),
        json!({"rope_parameters": {"rope_theta": 1e4, "rope_type": "longrope",
            "original_max_position_embeddings": 1024,
            "short_factor": factors(1.1), "long_factor": factors(4.0)}}),
    );
}

#[test]
fn the_interleaved_order_and_explicit_factors_of_gguf_files() {
    let factors = [1.0, 1.0, 2.0, 2.0, 3.0, 3.0, 4.0, 8.0];
    let plain = spec(&tiny("llama")).ropes.remove(0);
    let scaling = json!({"rope_interleaved": true,
        "rope_scaling": {"rope_type": "explicit", "factors": factors}});
    let scaled = spec(&with(tiny("llama"), scaling)).ropes.remove(0);
    assert_eq!(scaled.layout, RopeLayout::Interleaved);
    for (i, factor) in factors.iter().enumerate() {
        let ratio = f64::from(plain.inv_freq[i]) / f64::from(scaled.inv_freq[i]);
        assert!((ratio / factor - 1.0).abs() < 1e-6, "pair {i}: {ratio}, expected {factor}");
    }
}

#[test]
fn dynamic_scaling_is_the_identity_within_the_trained_length() {
    let dynamic =
        with(tiny("llama"), json!({"rope_scaling": {"rope_type": "dynamic", "factor": 2.0}}));
    assert_eq!(spec(&dynamic), spec(&tiny("llama")));
    let error = recipe_for_context(&dynamic, 4097).expect_err("too long").to_string();
    assert!(error.contains("rope_type") && error.contains("4096"), "{error}");
}

#[test]
fn wrappers_are_looked_through() {
    let text = tiny("gemma3_text");
    let wrapper = json!({"model_type": "gemma3", "text_config": text, "vision_config": {}});
    assert_eq!(spec(&wrapper), spec(&tiny("gemma3_text")));
    // Older wrappers name no type inside and leave what is usual out.
    let sparse = json!({"model_type": "gemma3", "text_config": {
        "hidden_size": 2560, "intermediate_size": 10240, "num_hidden_layers": 34,
        "sliding_window": 1024, "rope_scaling": {"rope_type": "linear", "factor": 8.0}}});
    let spec = spec(&sparse);
    assert_eq!((spec.vocab, spec.hidden, spec.head), (262_208, 2560, Head::Tied));
    let windows = attentions(&spec).into_iter().map(|attention| attention.shape.window);
    assert_eq!(windows.filter(Option::is_none).count(), 5, "every sixth of 34 layers is full");
}

#[test]
fn errors_name_the_key() {
    let llama = || tiny("llama");
    check_error(&without(llama(), "hidden_size"), &["hidden_size", "missing"]);
    check_error(&with(llama(), json!({"hidden_size": "many"})), &["hidden_size", "\"many\""]);
    check_error(&with(llama(), json!({"num_hidden_layers": 1e12})), &["num_hidden_layers"]);
    check_error(&with(llama(), json!({"num_key_value_heads": 3})), &["num_key_value_heads", "4"]);
    check_error(&with(llama(), json!({"hidden_act": "relu6"})), &["hidden_act", "relu6", "silu"]);
    // L03 (f).
    let spiral = json!({"rope_scaling": {"rope_type": "spiral", "factor": 2.0}});
    check_error(&with(llama(), spiral), &["rope_scaling.rope_type", "spiral", "yarn"]);
    let bare = json!({"rope_parameters": {"rope_type": "linear"}});
    check_error(&with(llama(), bare), &["rope_parameters.factor", "missing"]);
    let short = json!({"rope_scaling": {"rope_type": "explicit", "factors": [1.0, 2.0]}});
    check_error(&with(llama(), short), &["rope_scaling.factors", "2 entries", "8"]);
    let few = json!({"num_experts_per_tok": 9});
    check_error(&with(tiny("qwen3_moe"), few), &["num_experts_per_tok", "6 experts"]);
    for eps in [json!(-1e-6), json!(0), json!(1e-60), json!(1e60)] {
        check_error(&with(llama(), json!({"rms_norm_eps": eps})), &["rms_norm_eps", "above 0"]);
    }
    for key in ["attn_logit_softcapping", "final_logit_softcapping", "query_pre_attn_scalar"] {
        check_error(&with(tiny("gemma2"), json!({key: 0.0})), &[key, "above 0"]);
    }
    let layers = json!({"layer_types": ["full_attention"]});
    check_error(&with(llama(), layers), &["layer_types", "3 layers"]);
    let ahead = json!({"use_bidirectional_attention": true});
    check_error(&with(tiny("gemma3_text"), ahead), &["use_bidirectional_attention"]);
    check_error(&json!({}), &["model_type", "missing"]);
    check_error(&json!([]), &["model_type", "missing"]);
}

#[test]
fn an_unknown_family_is_told_its_neighbours() {
    let check = |model_type: &str, nearest: &str| {
        let config = with(tiny("llama"), json!({"model_type": model_type}));
        match recipe(&config) {
            Err(Error::UnknownFamily { found, nearest: names }) => {
                assert_eq!(found, model_type);
                let listed = names.split(", ").any(|name| name == nearest);
                assert!(listed, "{model_type}: {names}");
            }
            other => panic!("{model_type}: {other:?}"),
        }
    };
    check("qwen4_next", "qwen3_next");
    check("lama", "llama");
    check("gemma5", "gemma3");
    check("phi4", "phi3");
    check("mistral4", "mistral");
}

/// Configs as transformers and mlx-lm write them, of every family.
fn written_configs() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
    let folders = [root.clone(), root.join("mlx")].map(std::fs::read_dir).into_iter();
    let folders = folders.flat_map(|folders| folders.expect("fixtures").flatten());
    folders.map(|entry| entry.path().join("config.json")).filter(|path| path.is_file()).collect()
}

#[test]
fn every_family_has_goldens_and_a_tiny_model() {
    let types: Vec<String> = written_configs()
        .iter()
        .map(|path| serde_json::from_slice::<Value>(&std::fs::read(path).expect("readable")))
        .map(|config| config.expect("JSON")["model_type"].as_str().expect("a type").to_owned())
        .collect();
    for (family, names) in FAMILIES {
        let has_goldens = names.iter().any(|name| types.iter().any(|t| t == name));
        assert!(has_goldens, "no goldens of {family}");
        for name in *names {
            let spec = spec(&tiny(name));
            assert_eq!(spec.layers.len(), 3);
            assert_eq!(spec.vocab, tiny::VOCAB);
        }
    }
}

/// Anything that may stand in a config where something else is expected.
fn odd_values() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        (0u64..70).prop_map(Value::from),
        (0.0f64..2.0).prop_map(Value::from),
        prop::sample::select(vec!["yarn", "longrope", "llama3", "linear", "gelu", "x"])
            .prop_map(Value::from),
        prop::collection::vec(any::<f64>(), 0..9).prop_map(Value::from),
        Just(json!({})),
        Just(json!({"rope_type": "yarn", "factor": 4.0})),
        Just(json!({"full_attention": {"rope_theta": 2.0}})),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever a config says, there is a spec or an error, soon and within memory.
    #[test]
    fn no_config_breaks_a_recipe(
        family in prop::sample::select(SUPPORTED.to_vec()),
        changes in prop::collection::vec((any::<prop::sample::Index>(), odd_values()), 1..4),
    ) {
        let mut config = tiny(family);
        let keys = [
            "vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers",
            "num_attention_heads", "num_key_value_heads", "head_dim", "max_position_embeddings",
            "rms_norm_eps", "rope_theta", "rope_scaling", "rope_parameters", "layer_types",
            "sliding_window", "partial_rotary_factor", "num_experts", "moe_intermediate_size",
            "original_max_position_embeddings", "text_config", "tie_word_embeddings",
            "query_pre_attn_scalar", "mlp_only_layers", "decoder_sparse_step",
            "final_logit_softcapping", "attn_logit_softcapping", "num_experts_per_tok",
            "full_attention_interval", "linear_num_key_heads", "linear_num_value_heads",
            "linear_key_head_dim", "linear_value_head_dim", "linear_conv_kernel_dim",
            "mamba_n_heads", "mamba_d_head", "mamba_d_ssm", "mamba_d_state", "mamba_n_groups",
            "mamba_d_conv", "mamba_expand", "num_heads", "n_groups", "state_size", "conv_kernel",
            "time_step_limit", "ssm_multipliers", "mlp_multipliers", "conv_L_cache", "block_multiple_of",
            "block_ffn_dim_multiplier", "block_auto_adjust_ff_dim", "full_attn_idxs",
        ];
        for (key, value) in changes {
            config[*key.get(&keys)] = value;
        }
        if let Ok(spec) = recipe(&config) {
            spec.n_params();
            spec.n_active_params();
            spec.kv_bytes_read(usize::MAX);
            spec.state_bytes();
        }
    }
}
