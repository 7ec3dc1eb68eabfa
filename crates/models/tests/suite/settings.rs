//! Every setting that transformers reads from a config is read here too, or refused, and one that is
//! left out means the same. What it reads comes from `tools/goldens/settings.py`.

use hearth_models::recipe::{Bias, Branch, Correction, Ffn};
use hearth_models::{ModelSpec, recipe, tiny};
use serde_json::{Map, Value, json};

use crate::common::{fixtures, json};

/// What a family's config may have, as transformers has it.
struct Settings {
    model_type: String,
    /// Values of keys that are left out.
    defaults: Map<String, Value>,
    /// Other names of keys.
    aliases: Map<String, Value>,
}

fn all() -> Vec<Settings> {
    let Value::Object(all) = json(&fixtures().join("settings.json")) else { panic!("an object") };
    let object = |value: &Value| value.as_object().cloned().expect("an object");
    let settings = |(model_type, of): (String, Value)| Settings {
        model_type,
        defaults: object(&of["defaults"]),
        aliases: object(&of["aliases"]),
    };
    all.into_iter().map(settings).collect()
}

/// Spellings of rotations that `rope_parameters` stands for.
const ROTATIONS: [&str; 3] = ["rope_theta", "rope_scaling", "partial_rotary_factor"];

/// A small config without `key`, under whatever name.
fn without(config: &Value, key: &str) -> Value {
    let mut config = config.clone();
    let map = config.as_object_mut().expect("an object");
    map.remove(key);
    if key == "rope_parameters" {
        ROTATIONS.iter().for_each(|key| drop(map.remove(*key)));
    }
    config
}

fn with(config: &Value, key: &str, value: Value) -> Value {
    let mut config = without(config, key);
    config[key] = value;
    config
}

/// Configs of a family that its settings are tried in: a small one, and one as transformers makes it when
/// nothing is said, with the small sizes.
fn contexts(settings: &Settings) -> Vec<Value> {
    let mut small = tiny::config(&settings.model_type).expect("a tiny config");
    // Where it is called otherwise, this one would go before.
    if !settings.defaults.contains_key("rms_norm_eps") {
        small.as_object_mut().expect("an object").remove("rms_norm_eps");
    }
    let mut usual = Value::Object(settings.defaults.clone());
    let sizes = small.as_object().expect("an object").clone();
    let said = |value: &Value| !value.is_null();
    for (key, value) in sizes {
        let is_switch = usual.get(&key).is_some_and(|usual| usual.is_boolean());
        if !is_switch && said(&value) {
            usual[key] = value;
        }
    }
    vec![small, usual]
}

/// Keys of which an absent one does not mean what transformers makes of it, in any family: a head that is
/// there is used, and one that is not is the embedding; sizes are told by the shapes of tensors, and wrong
/// ones are an error.
const TOLD_BY_TENSORS: [&str; 6] = [
    "tie_word_embeddings",
    "q_lora_rank",
    "num_key_value_heads",
    "intermediate_size",
    "linear_head_dim",
    "linear_num_heads",
];

/// The same in one family. Files of llama.cpp have no window where there is none, and every file of the
/// others says how positions are stretched.
const OTHER_DEFAULTS: [(&str, &str); 3] = [
    ("exaone4", "sliding_window"),
    ("gpt_oss", "rope_parameters"),
    ("ministral3", "rope_parameters"),
];

#[test]
fn what_is_left_out_means_what_transformers_takes_it_for() {
    let (mut wrong, mut n) = (Vec::new(), 0);
    for settings in all() {
        let name = settings.model_type.as_str();
        let small = tiny::config(name).expect(name);
        for (key, default) in &settings.defaults {
            // A tied head that is not said would be one that is stored.
            let is_told = TOLD_BY_TENSORS.contains(&key.as_str()) && *default != json!(true);
            if is_told || OTHER_DEFAULTS.contains(&(name, key)) {
                continue;
            }
            let Ok(said) = recipe(&with(&small, key, default.clone())) else { continue };
            let Ok(absent) = recipe(&without(&small, key)) else { continue };
            n += 1;
            if said != absent {
                wrong.push(format!("{name}: {key} = {default}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{} of {n}:\n{}", wrong.len(), wrong.join("\n"));
    assert!(n > 300, "only {n} were compared");
}

/// Values that are unlike `value`, of its type or of one that may stand there too.
fn others(key: &str, value: &Value) -> Vec<Value> {
    let kinds = || json!(["another_kind", "another_kind", "another_kind", "another_kind"]);
    match value {
        Value::Bool(is_on) => vec![json!(!is_on)],
        Value::String(_) => vec![json!("another_kind"), json!("gelu")],
        Value::Number(n) if n.is_f64() => {
            let x = n.as_f64().expect("a number");
            vec![json!(x * 2.0), json!(x + 0.5), json!(x / 2.0)]
        }
        Value::Number(n) => {
            let n = n.as_i64().expect("a whole number");
            vec![json!(n + 1), json!(n * 2), json!(n / 2)]
        }
        Value::Null if key == "rope_parameters" => vec![],
        Value::Null => vec![json!(1), json!(8), json!(true), json!(0.5), kinds()],
        Value::Array(list) => {
            let doubled = list.iter().map(|x| x.as_f64().map_or(x.clone(), |x| json!(x * 2.0)));
            vec![doubled.collect(), kinds()]
        }
        Value::Object(_) => vec![
            json!({"rope_type": "linear", "factor": 2.0, "rope_theta": 10000.0}),
            json!({"rope_type": "another_kind", "rope_theta": 10000.0}),
        ],
    }
}

/// Whether `config` makes another model than `plain`, or none.
fn differs(config: &Value, plain: &ModelSpec) -> bool {
    recipe(config).map_or(true, |spec| spec != *plain)
}

/// Keys that transformers reads and this program need not.
const NOT_READ: &[(&str, &[&str])] = &[
    // Biases that are stored and not asked for are an error.
    ("*", &["attention_bias", "mlp_bias"]),
    // Said by other sizes too, which go before.
    ("*", &["mamba_d_ssm", "mamba_expand", "expand"]),
    ("deepseek_v2", &["head_dim"]),
    ("minicpm3", &["head_dim"]),
    ("gpt2", &["n_embd", "n_head", "n_inner", "n_layer", "n_positions"]),
    ("qwen3_moe", &["num_local_experts"]),
    // For training only.
    ("gemma3n_text", &["altup_coef_clip"]),
    // Read where a switch is on or a kind of layer is there, which is so in no config that is tried here.
    ("falcon_h1", &["mamba_norm_before_gate"]),
    ("gemma4_text", &["moe_intermediate_size", "num_experts", "top_k_experts"]),
    ("*", &["topk_group"]),
    ("granitemoehybrid", &["rope_parameters"]),
    ("lfm2", &["block_ffn_dim_multiplier"]),
    ("phi3", &["original_max_position_embeddings"]),
    ("nemotron_h", &["intermediate_size"]),
    ("qwen2", &["layer_types", "sliding_window"]),
    ("qwen2_moe", &["intermediate_size", "layer_types", "sliding_window"]),
    ("qwen3", &["layer_types", "sliding_window"]),
    ("qwen3_moe", &["intermediate_size", "sliding_window"]),
    ("qwen3_next", &["intermediate_size"]),
    ("smollm3", &["layer_types", "sliding_window"]),
];

fn need_not_read(model_type: &str, key: &str) -> bool {
    let of = |(name, keys): &(&str, &[&str])| {
        (*name == "*" || *name == model_type) && keys.contains(&key)
    };
    NOT_READ.iter().any(of)
}

#[test]
fn every_setting_is_read_or_refused() {
    let (mut ignored, mut n) = (Vec::new(), 0);
    for settings in all() {
        let name = settings.model_type.as_str();
        let contexts = contexts(&settings);
        let plain: Vec<(&Value, ModelSpec)> =
            contexts.iter().filter_map(|config| Some((config, recipe(config).ok()?))).collect();
        assert!(!plain.is_empty(), "{name}: no config has a recipe");
        for (key, default) in &settings.defaults {
            n += 1;
            let is_read = plain.iter().any(|(config, spec)| {
                let value = config.get(key).unwrap_or(default);
                let mut others = others(key, value).into_iter();
                others.any(|other| differs(&with(config, key, other), spec))
            });
            if !is_read && !need_not_read(name, key) {
                ignored.push(format!("{name}: {key} = {default}"));
            }
        }
    }
    assert!(ignored.is_empty(), "{} of {n}:\n{}", ignored.len(), ignored.join("\n"));
    assert!(n > 500, "only {n} were tried");
}

/// A key under another name is read, or its absence is an error; it is not as if nothing were said.
#[test]
fn other_names_are_not_passed_over() {
    let mut wrong = Vec::new();
    for settings in all() {
        let name = settings.model_type.as_str();
        let small = tiny::config(name).expect(name);
        for (alias, key) in &settings.aliases {
            let key = key.as_str().expect("a name");
            let Some(value) = small.get(key).filter(|value| !value.is_null()) else { continue };
            let plain = recipe(&small).expect(name);
            let renamed = with(&without(&small, key), alias, value.clone());
            if recipe(&renamed).is_ok_and(|spec| spec != plain) {
                wrong.push(format!("{name}: {alias} for {key}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Settings of published configs that no class of transformers has, with values that would make another
/// model.
#[test]
fn settings_of_published_configs_are_refused_where_they_mean_something_else() {
    for (model_type, key, value) in [
        ("minimax_m2", "attn_type_list", json!([1, 0, 1])),
        ("minimax_m2", "scoring_func", json!("softmax")),
        ("minimax_m2", "shared_intermediate_size", json!(64)),
        ("glm4_moe", "scoring_func", json!("softmax")),
        ("glm4_moe", "topk_method", json!("greedy")),
        ("glm4_moe_lite", "scoring_func", json!("softmax")),
        ("glm4_moe_lite", "topk_method", json!("greedy")),
        ("deepseek_v3", "scoring_func", json!("softmax")),
        ("deepseek_v3", "moe_layer_freq", json!(2)),
        ("nemotron_h", "mamba_hidden_act", json!("gelu")),
        ("ernie4_5", "use_rmsnorm", json!(false)),
        ("ernie4_5_moe", "use_rmsnorm", json!(false)),
        ("ernie4_5_moe", "moe_gate_act", json!("sigmoid")),
        ("ernie4_5_moe", "compression_ratio", json!(2.0)),
        ("hunyuan_v1_moe", "use_cla", json!(true)),
        ("hunyuan_v1_moe", "mlp_bias", json!(true)),
        ("hunyuan_v1_moe", "moe_layer_num_skipped", json!(1)),
        ("hunyuan_v1_moe", "use_mla", json!(true)),
        ("hunyuan_v1_moe", "norm_type", json!("torch_nn")),
        ("hunyuan_v1_moe", "position_embedding_xdrope", json!(true)),
        ("hunyuan_v1_moe", "use_rotary_pos_emb", json!(false)),
        ("hunyuan_v1_moe", "group_limited_greedy", json!(true)),
        ("hunyuan_v1_moe", "norm_topk_prob", json!(false)),
        ("hunyuan_v1_moe", "routed_scaling_factor", json!(2.5)),
        ("hunyuan_v1_dense", "use_cla", json!(true)),
        ("hunyuan_v1_dense", "position_embedding_xdrope", json!(true)),
    ] {
        let small = tiny::config(model_type).expect(model_type);
        let error = recipe(&with(&small, key, value.clone())).expect_err(key).to_string();
        assert!(error.contains(key), "{model_type}: {key} = {value}: {error}");
    }
}

/// The same settings as those models are published with.
#[test]
fn settings_of_published_configs_are_taken_as_they_are() {
    for (model_type, published) in [
        (
            "minimax_m2",
            json!({
                "attn_type_list": [1, 1, 1], "scoring_func": "sigmoid", "use_routing_bias": true,
                "shared_intermediate_size": 0, "shared_moe_mode": "sigmoid", "sliding_window": null,
            }),
        ),
        (
            "hunyuan_v1_moe",
            json!({
                "attention_head_dim": 16, "cla_share_factor": 2, "dense_list": [64, 0],
                "group_limited_greedy": false, "kv_lora_rank": null, "mlp_bias": false,
                "moe_drop_tokens": false, "moe_layer_num_skipped": 0, "n_group": false,
                "norm_topk_prob": true, "norm_type": "rms", "position_embedding_xdrope": false,
                "routed_scaling_factor": false, "topk_group": false, "use_cla": false,
                "use_mla": false, "use_rotary_pos_emb": true,
            }),
        ),
        (
            "ernie4_5_moe",
            json!({
                "compression_ratio": 1.0, "moe_gate_act": "softmax", "moe_use_aux_free": true,
                "use_rmsnorm": true,
            }),
        ),
    ] {
        let small = tiny::config(model_type).expect(model_type);
        let plain = recipe(&small).expect(model_type);
        let mut config = small.clone();
        config
            .as_object_mut()
            .expect("an object")
            .extend(published.as_object().cloned().expect("one"));
        assert!(recipe(&config).expect(model_type) == plain, "{model_type}");
    }
}

/// Without a bias of their routers, those of MiniMax choose by the scores alone.
#[test]
fn a_router_without_a_bias_has_none() {
    let small = tiny::config("minimax_m2").expect("a tiny config");
    let spec = recipe(&with(&small, "use_routing_bias", json!(false))).expect("a recipe");
    let is_plain = |branch: &Branch| match branch {
        Branch::Ffn(Ffn::Moe(moe)) => moe.router.correction == Correction::Absent,
        _ => true,
    };
    assert!(spec.layers.iter().flat_map(|layer| layer.branches()).all(is_plain));
}

/// Transformers gives ERNIE's head a bias where all projections have one.
#[test]
fn the_head_has_a_bias_where_all_have_one() {
    let small = with(&tiny::config("ernie4_5_moe").expect("one"), "use_bias", json!(true));
    let untied = with(&small, "tie_word_embeddings", json!(false));
    assert_eq!(recipe(&untied).expect("a recipe").head_bias, Bias::Stored);
    let error = recipe(&with(&small, "tie_word_embeddings", json!(true))).expect_err("tied");
    assert!(error.to_string().contains("use_bias"), "{error}");
}
