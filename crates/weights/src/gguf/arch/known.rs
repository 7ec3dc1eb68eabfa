//! The list of architectures of GGUF that this program reads, and what several of them share.
//!
//! What the words of a line mean is in [`super`].

use super::{Arch, Gains, Guessing, RopeRows, States};

/// Architectures of which some files are of another `model_type`, as their hyperparameters tell.
pub(in crate::gguf) const OTHERS: [(&str, &str); 3] =
    [("llama", "mixtral"), ("olmo2", "olmo3"), ("deepseek2", "deepseek_v3")];

/// The architectures, in the order of the message that lists them.
pub(in crate::gguf) const ARCHS: &[Arch] = &[
    Arch {
        layer: &[
            ("ffn_gate_inp", "block_sparse_moe.gate"),
            ("ffn_gate_exps", "block_sparse_moe.switch_mlp.gate_proj"),
            ("ffn_up_exps", "block_sparse_moe.switch_mlp.up_proj"),
            ("ffn_down_exps", "block_sparse_moe.switch_mlp.down_proj"),
        ],
        ..permuted("llama", "llama", "LlamaForCausalLM")
    },
    plain("qwen2", "qwen2", "Qwen2ForCausalLM"),
    plain("qwen2moe", "qwen2_moe", "Qwen2MoeForCausalLM"),
    plain("qwen3", "qwen3", "Qwen3ForCausalLM"),
    plain("qwen3moe", "qwen3_moe", "Qwen3MoeForCausalLM"),
    Arch { gains: Gains::OneMore, ..plain("gemma", "gemma", "GemmaForCausalLM") },
    Arch {
        gains: Gains::OneMore,
        layer: SANDWICH,
        ..plain("gemma2", "gemma2", "Gemma2ForCausalLM")
    },
    Arch {
        gains: Gains::OneMore,
        layer: SANDWICH,
        ..plain("gemma3", "gemma3_text", "Gemma3ForCausalLM")
    },
    Arch {
        layer: GEMMA_3N,
        lone: &[("altup_correct_scale", "altup.correct_output_scale")],
        model: LAYER_INPUTS,
        ..plain("gemma3n", "gemma3n_text", "Gemma3nForCausalLM")
    },
    Arch {
        layer: GEMMA_4,
        lone: &[
            ("layer_output_scale", "layer_scalar"),
            ("ffn_gate_inp.scale", "router.scale"),
            ("ffn_down_exps.scale", "router.per_expert_scale"),
        ],
        model: LAYER_INPUTS,
        ..plain("gemma4", "gemma4_text", "Gemma4ForCausalLM")
    },
    Arch {
        layer: &[("attn_qkv", "self_attn.qkv_proj"), ("ffn_up", "mlp.gate_up_proj")],
        ..plain("phi3", "phi3", "Phi3ForCausalLM")
    },
    Arch { factors: GRANITE, ..permuted("granite", "granite", "GraniteForCausalLM") },
    Arch {
        factors: GRANITE,
        layer: &[
            ("ffn_gate_inp", "block_sparse_moe.router.layer"),
            ("ffn_gate_exps", "block_sparse_moe.switch_mlp.gate_proj"),
            ("ffn_up_exps", "block_sparse_moe.switch_mlp.up_proj"),
            ("ffn_down_exps", "block_sparse_moe.switch_mlp.down_proj"),
        ],
        ..permuted("granitemoe", "granitemoe", "GraniteMoeForCausalLM")
    },
    Arch {
        layer: &[
            ("post_attention_norm", "post_attention_layernorm"),
            ("ffn_gate_inp", "mlp.router"),
            ("ffn_gate_exps", "mlp.experts.gate_proj"),
            ("ffn_up_exps", "mlp.experts.up_proj"),
            ("ffn_down_exps", "mlp.experts.down_proj"),
        ],
        lone: &[("attn_sinks", "self_attn.sinks")],
        ..plain("gpt-oss", "gpt_oss", "GptOssForCausalLM")
    },
    Arch {
        layer: &[
            ("ffn_gate_inp", "block_sparse_moe.gate"),
            ("ffn_gate_exps", "block_sparse_moe.switch_mlp.gate_proj"),
            ("ffn_up_exps", "block_sparse_moe.switch_mlp.up_proj"),
            ("ffn_down_exps", "block_sparse_moe.switch_mlp.down_proj"),
        ],
        lone: &[("exp_probs_b", "block_sparse_moe.e_score_correction_bias")],
        ..plain("minimax-m2", "minimax_m2", "MiniMaxM2ForCausalLM")
    },
    plain("olmoe", "olmoe", "OlmoeForCausalLM"),
    permuted("smollm3", "smollm3", "SmolLM3ForCausalLM"),
    permuted("mistral3", "ministral3", "Ministral3ForCausalLM"),
    plain("ernie4_5", "ernie4_5", "Ernie4_5ForCausalLM"),
    Arch { layer: POST_NORMS, ..plain("olmo2", "olmo2", "Olmo2ForCausalLM") },
    Arch { layer: POST_NORMS, ..plain("exaone4", "exaone4", "Exaone4ForCausalLM") },
    Arch {
        layer: &[
            ("post_attention_norm", "post_self_attn_layernorm"),
            ("post_ffw_norm", "post_mlp_layernorm"),
            ("ffn_up", "mlp.gate_up_proj"),
        ],
        ..plain("glm4", "glm4", "Glm4ForCausalLM")
    },
    Arch {
        factors: &[("logit_scale", "logit_scale")],
        ..plain("cohere2", "cohere2", "Cohere2ForCausalLM")
    },
    Arch {
        factors: &[("logit_scale", "logit_scale")],
        ..plain("command-r", "cohere", "CohereForCausalLM")
    },
    Arch {
        layer: &[("post_attention_norm", "post_attention_layernorm")],
        ..plain("seed_oss", "seed_oss", "SeedOssForCausalLM")
    },
    Arch {
        layer: &[
            ("attn_q_norm", "self_attn.query_layernorm"),
            ("attn_k_norm", "self_attn.key_layernorm"),
        ],
        ..plain("hunyuan-dense", "hunyuan_v1_dense", "HunYuanDenseV1ForCausalLM")
    },
    Arch {
        layer: &[
            ("attn_norm", "operator_norm"),
            ("attn_output", "self_attn.out_proj"),
            ("attn_q_norm", "self_attn.q_layernorm"),
            ("attn_k_norm", "self_attn.k_layernorm"),
            ("shortconv.in_proj", "conv.in_proj"),
            ("shortconv.conv", "conv.conv"),
            ("shortconv.out_proj", "conv.out_proj"),
            ("ffn_norm", "ffn_norm"),
            ("ffn_gate", "feed_forward.w1"),
            ("ffn_up", "feed_forward.w3"),
            ("ffn_down", "feed_forward.w2"),
        ],
        ..plain("lfm2", "lfm2", "Lfm2ForCausalLM")
    },
    Arch {
        layer: &[
            ("attn_norm", "operator_norm"),
            ("attn_output", "self_attn.out_proj"),
            ("attn_q_norm", "self_attn.q_layernorm"),
            ("attn_k_norm", "self_attn.k_layernorm"),
            ("shortconv.in_proj", "conv.in_proj"),
            ("shortconv.conv", "conv.conv"),
            ("shortconv.out_proj", "conv.out_proj"),
            ("ffn_norm", "ffn_norm"),
            ("ffn_gate", "feed_forward.w1"),
            ("ffn_up", "feed_forward.w3"),
            ("ffn_down", "feed_forward.w2"),
            ("ffn_gate_inp", "feed_forward.gate"),
            ("ffn_gate_exps", "feed_forward.switch_mlp.gate_proj"),
            ("ffn_up_exps", "feed_forward.switch_mlp.up_proj"),
            ("ffn_down_exps", "feed_forward.switch_mlp.down_proj"),
        ],
        lone: &[("exp_probs_b", "feed_forward.expert_bias")],
        ..plain("lfm2moe", "lfm2_moe", "Lfm2MoeForCausalLM")
    },
    Arch {
        layer: &[
            ("attn_q_a", "self_attn.q_a_proj"),
            ("attn_q_a_norm", "self_attn.q_a_layernorm"),
            ("attn_q_b", "self_attn.q_b_proj"),
            ("attn_kv_a_mqa", "self_attn.kv_a_proj_with_mqa"),
            ("attn_kv_a_norm", "self_attn.kv_a_layernorm"),
            ("attn_kv_b", "self_attn.kv_b_proj"),
            ("attn_k_b", "self_attn.embed_q"),
            ("attn_v_b", "self_attn.unembed_out"),
            ("ffn_gate_shexp", "mlp.shared_experts.gate_proj"),
            ("ffn_up_shexp", "mlp.shared_experts.up_proj"),
            ("ffn_down_shexp", "mlp.shared_experts.down_proj"),
        ],
        lone: &[("exp_probs_b", "mlp.gate.e_score_correction_bias")],
        guessing: Guessing::Behind,
        ..plain("deepseek2", "deepseek_v2", "DeepseekV2ForCausalLM")
    },
    Arch {
        layer: &[
            ("post_attention_norm", "post_attention_layernorm"),
            ("ffn_gate_shexp", "mlp.shared_experts.gate_proj"),
            ("ffn_up_shexp", "mlp.shared_experts.up_proj"),
            ("ffn_down_shexp", "mlp.shared_experts.down_proj"),
        ],
        lone: &[("exp_probs_b", "mlp.gate.e_score_correction_bias")],
        guessing: Guessing::Behind,
        ..plain("glm4moe", "glm4_moe", "Glm4MoeForCausalLM")
    },
    Arch {
        layer: DELTA,
        lone: DELTA_LONE,
        states: States::Delta,
        guessing: Guessing::Apart,
        ..plain("qwen3next", "qwen3_next", "Qwen3NextForCausalLM")
    },
    Arch {
        layer: DELTA,
        lone: DELTA_LONE,
        states: States::DeltaInTurn,
        guessing: Guessing::Apart,
        ..plain("qwen35", "qwen3_5_text", "Qwen3_5ForCausalLM")
    },
    Arch {
        layer: DELTA,
        lone: DELTA_LONE,
        states: States::DeltaInTurn,
        guessing: Guessing::Apart,
        ..plain("qwen35moe", "qwen3_5_moe_text", "Qwen3_5MoeForCausalLM")
    },
    Arch {
        factors: GRANITE,
        layer: &[
            ("ssm_in", "mamba.in_proj"),
            ("ssm_conv1d", "mamba.conv1d"),
            ("ssm_norm", "mamba.norm"),
            ("ssm_out", "mamba.out_proj"),
            ("ffn_gate_inp", "block_sparse_moe.router.layer"),
            ("ffn_gate_exps", "block_sparse_moe.switch_mlp.gate_proj"),
            ("ffn_up_exps", "block_sparse_moe.switch_mlp.up_proj"),
            ("ffn_down_exps", "block_sparse_moe.switch_mlp.down_proj"),
            ("ffn_gate_shexp", "mlp.gate_proj"),
            ("ffn_up_shexp", "mlp.up_proj"),
            ("ffn_down_shexp", "mlp.down_proj"),
        ],
        lone: &[("ssm_a", "mamba.A_log"), ("ssm_d", "mamba.D"), ("ssm_dt", "mamba.dt_bias")],
        states: States::Mamba2,
        ..permuted("granitehybrid", "granitemoehybrid", "GraniteMoeHybridForCausalLM")
    },
    Arch {
        layer: &[
            ("attn_norm", "ln_1"),
            ("attn_qkv", "attn.c_attn"),
            ("attn_output", "attn.c_proj"),
            ("ffn_norm", "ln_2"),
            ("ffn_up", "mlp.c_fc"),
            ("ffn_down", "mlp.c_proj"),
        ],
        model: &[
            ("token_embd", "model.wte"),
            ("position_embd", "model.wpe"),
            ("output_norm", "model.ln_f"),
        ],
        ..plain("gpt2", "gpt2", "GPT2LMHeadModel")
    },
    Arch {
        layer: &[("ffn_up", "mlp.c_fc"), ("ffn_down", "mlp.c_proj")],
        ..plain("starcoder2", "starcoder2", "Starcoder2ForCausalLM")
    },
    Arch {
        layer: MAMBA_ALONE,
        lone: MAMBA_LONE,
        model: &[("token_embd", "model.embeddings"), ("output_norm", "model.norm_f")],
        states: States::Mamba2,
        ..plain("mamba2", "mamba2", "Mamba2ForCausalLM")
    },
    Arch {
        layer: &[
            ("ssm_in", "mamba.in_proj"),
            ("ssm_conv1d", "mamba.conv1d"),
            ("ssm_norm", "mamba.norm"),
            ("ssm_out", "mamba.out_proj"),
            ("ffn_gate", "feed_forward.gate_proj"),
            ("ffn_up", "feed_forward.up_proj"),
            ("ffn_down", "feed_forward.down_proj"),
        ],
        lone: &[
            ("ssm_a", "mamba.A_log"),
            ("ssm_d", "mamba.D"),
            ("ssm_dt", "mamba.dt_bias"),
            // Its name ends here, with nothing behind it.
            ("ffn_norm", "pre_ff_layernorm.weight"),
        ],
        model: &[("output_norm", "model.final_layernorm")],
        states: States::Mamba2,
        ..plain("falcon-h1", "falcon_h1", "FalconH1ForCausalLM")
    },
    Arch {
        layer: &[
            ("attn_q_a", "self_attn.q_a_proj"),
            ("attn_q_a_norm", "self_attn.q_a_layernorm"),
            ("attn_q_b", "self_attn.q_b_proj"),
            ("attn_kv_a_mqa", "self_attn.kv_a_proj_with_mqa"),
            ("attn_kv_a_norm", "self_attn.kv_a_layernorm"),
            ("attn_kv_b", "self_attn.kv_b_proj"),
            ("attn_k_b", "self_attn.embed_q"),
            ("attn_v_b", "self_attn.unembed_out"),
            ("ssm_conv1d_q", "self_attn.q_conv1d"),
            ("ssm_conv1d_k", "self_attn.k_conv1d"),
            ("ssm_conv1d_v", "self_attn.v_conv1d"),
            ("ssm_f_a", "self_attn.f_a_proj"),
            ("ssm_f_b", "self_attn.f_b_proj"),
            ("ssm_beta", "self_attn.b_proj"),
            ("ssm_g_a", "self_attn.g_a_proj"),
            ("ssm_g_b", "self_attn.g_b_proj"),
            ("ssm_norm", "self_attn.o_norm"),
            ("ffn_gate_inp", "block_sparse_moe.gate"),
            ("ffn_gate_exps", "block_sparse_moe.switch_mlp.gate_proj"),
            ("ffn_up_exps", "block_sparse_moe.switch_mlp.up_proj"),
            ("ffn_down_exps", "block_sparse_moe.switch_mlp.down_proj"),
            ("ffn_gate_shexp", "block_sparse_moe.shared_experts.gate_proj"),
            ("ffn_up_shexp", "block_sparse_moe.shared_experts.up_proj"),
            ("ffn_down_shexp", "block_sparse_moe.shared_experts.down_proj"),
        ],
        lone: &[
            ("ssm_a", "self_attn.A_log"),
            ("ssm_dt", "self_attn.dt_bias"),
            ("exp_probs_b", "block_sparse_moe.gate.e_score_correction_bias"),
        ],
        states: States::Mamba2,
        ..plain("kimi-linear", "kimi_linear", "KimiLinearForCausalLM")
    },
    Arch {
        layer: &[
            ("attn_qkv", "attention.query_key_value"),
            ("attn_output", "attention.dense"),
            ("attn_q_norm", "attention.query_layernorm"),
            ("attn_k_norm", "attention.key_layernorm"),
            ("ffn_gate_shexp", "mlp.shared_experts.gate_proj"),
            ("ffn_up_shexp", "mlp.shared_experts.up_proj"),
            ("ffn_down_shexp", "mlp.shared_experts.down_proj"),
        ],
        lone: &[("exp_probs_b", "mlp.gate.expert_bias")],
        model: &[("token_embd", "model.word_embeddings")],
        guessing: Guessing::Behind,
        ..plain("bailingmoe2", "bailing_moe_v2", "BailingMoeV2ForCausalLM")
    },
    nemotron("nemotron_h"),
    nemotron("nemotron_h_moe"),
    Arch {
        layer: &[
            ("attn_q", "attention.self.query"),
            ("attn_k", "attention.self.key"),
            ("attn_v", "attention.self.value"),
            ("attn_output", "attention.output.dense"),
            ("attn_output_norm", "attention.output.LayerNorm"),
            ("ffn_up", "intermediate.dense"),
            ("ffn_down", "output.dense"),
            ("layer_output_norm", "output.LayerNorm"),
        ],
        ..plain("bert", "bert", "BertModel")
    },
];

/// Nemotron-H, which has another name where there are experts.
const fn nemotron(name: &'static str) -> Arch {
    Arch {
        layer: &[
            ("attn_norm", "norm"),
            ("attn_q", "mixer.q_proj"),
            ("attn_k", "mixer.k_proj"),
            ("attn_v", "mixer.v_proj"),
            ("attn_output", "mixer.o_proj"),
            ("ssm_in", "mixer.in_proj"),
            ("ssm_conv1d", "mixer.conv1d"),
            ("ssm_norm", "mixer.norm"),
            ("ssm_out", "mixer.out_proj"),
            ("ffn_up", "mixer.up_proj"),
            ("ffn_down", "mixer.down_proj"),
            ("ffn_gate_inp", "mixer.gate"),
            ("ffn_up_exps", "mixer.switch_mlp.fc1"),
            ("ffn_down_exps", "mixer.switch_mlp.fc2"),
            ("ffn_latent_down", "mixer.fc1_latent_proj"),
            ("ffn_latent_up", "mixer.fc2_latent_proj"),
            ("ffn_up_shexp", "mixer.shared_experts.up_proj"),
            ("ffn_down_shexp", "mixer.shared_experts.down_proj"),
        ],
        lone: &[
            ("ssm_a", "mixer.A_log"),
            ("ssm_d", "mixer.D"),
            ("ssm_dt", "mixer.dt_bias"),
            ("exp_probs_b", "mixer.gate.e_score_correction_bias"),
        ],
        model: &[("token_embd", "model.embeddings"), ("output_norm", "model.norm_f")],
        states: States::Mamba2,
        guessing: Guessing::Folded,
        ..plain(name, "nemotron_h", "NemotronHForCausalLM")
    }
}

/// Gated delta rules, and the second norm of their layers.
const DELTA: &[(&str, &str)] = &[
    ("post_attention_norm", "post_attention_layernorm"),
    ("attn_qkv", "linear_attn.in_proj_qkv"),
    ("attn_gate", "linear_attn.in_proj_z"),
    ("ssm_beta", "linear_attn.in_proj_b"),
    ("ssm_alpha", "linear_attn.in_proj_a"),
    ("ssm_ba", "linear_attn.in_proj_ba"),
    ("ssm_conv1d", "linear_attn.conv1d"),
    ("ssm_norm", "linear_attn.norm"),
    ("ssm_out", "linear_attn.out_proj"),
    ("ffn_gate_up_exps", "mlp.experts.gate_up_proj"),
];

/// What they have beside modules.
const DELTA_LONE: &[(&str, &str)] =
    &[("ssm_a", "linear_attn.A_log"), ("ssm_dt", "linear_attn.dt_bias")];

/// Factors of Granite.
const GRANITE: &[(&str, &str)] = &[
    ("attention.scale", "attention_multiplier"),
    ("embedding_scale", "embedding_multiplier"),
    ("residual_scale", "residual_multiplier"),
    ("logit_scale", "logits_scaling"),
];

/// Norms before and behind the branches of a layer.
const SANDWICH: &[(&str, &str)] = &[
    ("post_attention_norm", "post_attention_layernorm"),
    ("ffn_norm", "pre_feedforward_layernorm"),
    ("post_ffw_norm", "post_feedforward_layernorm"),
];

/// Norms likewise, what tokens bring along, residuals of low rank, and what makes several streams.
const GEMMA_3N: &[(&str, &str)] = &[
    ("post_attention_norm", "post_attention_layernorm"),
    ("ffn_norm", "pre_feedforward_layernorm"),
    ("post_ffw_norm", "post_feedforward_layernorm"),
    ("inp_gate", "per_layer_input_gate"),
    ("proj", "per_layer_projection"),
    ("post_norm", "post_per_layer_input_norm"),
    ("altup_correct_coef", "altup.correction_coefs"),
    ("altup_predict_coef", "altup.prediction_coefs"),
    ("altup_router", "altup.modality_router"),
    ("altup_router_norm", "altup.router_norm"),
    ("laurel_l", "laurel.linear_left"),
    ("laurel_r", "laurel.linear_right"),
    ("laurel_post_norm", "laurel.post_laurel_norm"),
];

/// Norms likewise, what tokens bring along, and experts beside every feed-forward layer.
const GEMMA_4: &[(&str, &str)] = &[
    ("post_attention_norm", "post_attention_layernorm"),
    ("ffn_norm", "pre_feedforward_layernorm"),
    ("post_ffw_norm", "post_feedforward_layernorm"),
    ("inp_gate", "per_layer_input_gate"),
    ("proj", "per_layer_projection"),
    ("post_norm", "post_per_layer_input_norm"),
    ("post_ffw_norm_1", "post_feedforward_layernorm_1"),
    ("pre_ffw_norm_2", "pre_feedforward_layernorm_2"),
    ("post_ffw_norm_2", "post_feedforward_layernorm_2"),
    ("ffn_gate_inp", "router.proj"),
    ("ffn_gate_exps", "experts.gate_proj"),
    ("ffn_up_exps", "experts.up_proj"),
    ("ffn_gate_up_exps", "experts.gate_up_proj"),
    ("ffn_down_exps", "experts.down_proj"),
];

/// What makes the inputs of all layers, and streams, where there are several.
const LAYER_INPUTS: &[(&str, &str)] = &[
    ("per_layer_token_embd", "model.embed_tokens_per_layer"),
    ("per_layer_model_proj", "model.per_layer_model_projection"),
    ("per_layer_proj_norm", "model.per_layer_projection_norm"),
    ("altup_proj", "model.altup_projections"),
    ("altup_unembd_proj", "model.altup_unembed_projections"),
];

/// Mamba-2 and its norm.
const MAMBA_ALONE: &[(&str, &str)] = &[
    ("attn_norm", "norm"),
    ("ssm_in", "mixer.in_proj"),
    ("ssm_conv1d", "mixer.conv1d"),
    ("ssm_norm", "mixer.norm"),
    ("ssm_out", "mixer.out_proj"),
];

/// What it has beside modules.
const MAMBA_LONE: &[(&str, &str)] =
    &[("ssm_a", "mixer.A_log"), ("ssm_d", "mixer.D"), ("ssm_dt", "mixer.dt_bias")];

/// Norms behind the branches of a layer.
const POST_NORMS: &[(&str, &str)] = &[
    ("post_attention_norm", "post_attention_layernorm"),
    ("post_ffw_norm", "post_feedforward_layernorm"),
];

/// An architecture that differs from the common tables in nothing.
const fn plain(name: &'static str, model_type: &'static str, class: &'static str) -> Arch {
    let (rope, gains, states) = (RopeRows::Same, Gains::Same, States::Same);
    let (guessing, factors, layer, lone, model) = (Guessing::LeftOut, &[], &[], &[], &[]);
    Arch { name, model_type, class, rope, gains, factors, layer, lone, model, states, guessing }
}

/// The same with permuted rows of q and k.
const fn permuted(name: &'static str, model_type: &'static str, class: &'static str) -> Arch {
    Arch { rope: RopeRows::Interleaved, ..plain(name, model_type, class) }
}
