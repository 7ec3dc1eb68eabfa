//! The architectures of GGUF this program reads, as data: what Hugging Face calls them and their
//! tensors, and in what their stored numbers differ.
//!
//! A new architecture whose tensors have the usual names is one more line here. Hyperparameters are
//! in [`super::config`].

use super::metadata::Metadata;
use crate::Error;

/// One architecture.
#[derive(Debug)]
pub(super) struct Arch {
    /// The value of `general.architecture`, which also begins the names of its hyperparameters.
    pub(super) name: &'static str,
    /// The `model_type` of the config.
    pub(super) model_type: &'static str,
    /// The entry of `architectures` in the config.
    pub(super) class: &'static str,
    /// How the rows of q and k are arranged.
    pub(super) rope: RopeRows,
    /// What a stored norm gain is.
    pub(super) gains: Gains,
    /// Factors of the model: their keys here and in the config.
    pub(super) factors: &'static [(&'static str, &'static str)],
    /// Names per layer that differ from, or add to, [`LAYER`].
    pub(super) layer: &'static [(&'static str, &'static str)],
    /// Tensors of a layer that belong to no module: their names here without what follows the dot, and
    /// their whole names there.
    pub(super) lone: &'static [(&'static str, &'static str)],
    /// Names outside the layers that differ from [`MODEL`].
    pub(super) model: &'static [(&'static str, &'static str)],
    /// What layers that carry a state have, if there are any.
    pub(super) states: States,
    /// Where the layers belong that guess further tokens.
    pub(super) guessing: Guessing,
}

/// What layers with a state have, and what the converter has done to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum States {
    /// There are none, or nothing was done.
    Same,
    /// Gated delta rules whose projections are by kind, but for strengths and decays.
    Delta,
    /// Gated delta rules whose projections are by kind, with value heads in turn.
    DeltaInTurn,
    /// Mamba-2.
    Mamba2,
}

/// What becomes of layers that guess further tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Guessing {
    /// They are left out.
    LeftOut,
    /// Hugging Face has them behind the last layer too.
    Behind,
    /// Hugging Face has them as Qwen does, apart, and shares all but their layers.
    Apart,
}

/// The order of the rows of one head in q and k.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RopeRows {
    /// As in Hugging Face.
    Same,
    /// Rotary pairs lie side by side where Hugging Face has them half a head apart; the converter has
    /// permuted the rows.
    Interleaved,
}

/// What the numbers of a norm's gain mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Gains {
    /// The factor itself, as in Hugging Face.
    Same,
    /// One more than Hugging Face stores; the model adds the one.
    OneMore,
}

/// The architectures, in the order of the message that lists them.
pub(super) const ARCHS: &[Arch] = &[
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
    Arch {
        gains: Gains::OneMore,
        layer: &[
            ("post_attention_norm", "post_attention_layernorm"),
            ("ffn_norm", "pre_feedforward_layernorm"),
            ("post_ffw_norm", "post_feedforward_layernorm"),
        ],
        ..plain("gemma3", "gemma3_text", "Gemma3ForCausalLM")
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

/// Modules of a layer that guesses, where they lie behind the last one.
const GUESSING: [(&str, &str); 6] = [
    ("nextn.eh_proj", "eh_proj"),
    ("nextn.enorm", "enorm"),
    ("nextn.hnorm", "hnorm"),
    ("nextn.shared_head_norm", "shared_head.norm"),
    ("nextn.shared_head_head", "shared_head.head"),
    ("nextn.embed_tokens", "embed_tokens"),
];

/// What several of Qwen's share.
const GUESSING_APART: [(&str, &str); 6] = [
    ("nextn.eh_proj", "mtp.fc"),
    ("nextn.enorm", "mtp.pre_fc_norm_embedding"),
    ("nextn.hnorm", "mtp.pre_fc_norm_hidden"),
    ("nextn.shared_head_norm", "mtp.norm"),
    ("nextn.shared_head_head", "mtp.lm_head"),
    ("nextn.embed_tokens", "mtp.embed_tokens"),
];

/// Factors of Granite.
const GRANITE: &[(&str, &str)] = &[
    ("attention.scale", "attention_multiplier"),
    ("embedding_scale", "embedding_multiplier"),
    ("residual_scale", "residual_multiplier"),
    ("logit_scale", "logits_scaling"),
];

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

/// Modules outside the layers.
const MODEL: [(&str, &str); 4] = [
    ("token_embd", "model.embed_tokens"),
    ("output_norm", "model.norm"),
    ("output", "lm_head"),
    // The last norm of LFM2, for all its name.
    ("token_embd_norm", "model.embedding_norm"),
];

/// Modules outside the layers of a bert, whose layers are an `encoder` rather than the `model`.
const BERT_MODEL: [(&str, &str); 4] = [
    ("token_embd", "embeddings.word_embeddings"),
    ("position_embd", "embeddings.position_embeddings"),
    ("token_types", "embeddings.token_type_embeddings"),
    ("token_embd_norm", "embeddings.LayerNorm"),
];

/// Modules of a layer.
const LAYER: [(&str, &str); 19] = [
    ("attn_norm", "input_layernorm"),
    ("attn_q", "self_attn.q_proj"),
    ("attn_k", "self_attn.k_proj"),
    ("attn_v", "self_attn.v_proj"),
    ("attn_output", "self_attn.o_proj"),
    ("attn_q_norm", "self_attn.q_norm"),
    ("attn_k_norm", "self_attn.k_norm"),
    ("ffn_norm", "post_attention_layernorm"),
    ("ffn_gate", "mlp.gate_proj"),
    ("ffn_up", "mlp.up_proj"),
    ("ffn_down", "mlp.down_proj"),
    ("ffn_gate_inp", "mlp.gate"),
    ("ffn_gate_exps", "mlp.switch_mlp.gate_proj"),
    ("ffn_up_exps", "mlp.switch_mlp.up_proj"),
    ("ffn_down_exps", "mlp.switch_mlp.down_proj"),
    ("ffn_gate_inp_shexp", "mlp.shared_expert_gate"),
    ("ffn_gate_shexp", "mlp.shared_expert.gate_proj"),
    ("ffn_up_shexp", "mlp.shared_expert.up_proj"),
    ("ffn_down_shexp", "mlp.shared_expert.down_proj"),
];

impl Arch {
    /// The architecture of a file.
    pub(super) fn of(metadata: &Metadata) -> Result<&'static Arch, Error> {
        const KEY: &str = "general.architecture";
        let name = metadata.text(KEY)?.ok_or_else(|| metadata.missing(KEY, "a string"))?;
        ARCHS.iter().find(|arch| arch.name == name).ok_or_else(|| {
            let known: Vec<&str> = ARCHS.iter().map(|arch| arch.name).collect();
            Error::Unsupported {
                file: metadata.file.to_path_buf(),
                what: format!("the architecture {name:?}"),
                advice: format!("these are: {}", known.join(", ")),
            }
        })
    }

    /// The Hugging Face name of a module outside the layers.
    pub(super) fn model_module(&self, name: &str) -> Option<&'static str> {
        if self.model_type == "bert" {
            return look_up(&BERT_MODEL, name);
        }
        look_up(self.model, name).or_else(|| look_up(&MODEL, name))
    }

    /// The Hugging Face name of a module of the `i`th layer that guesses, behind `n` others.
    pub(super) fn guessing_module(&self, i: usize, n: usize, name: &str) -> Option<String> {
        match self.guessing {
            Guessing::LeftOut => None,
            Guessing::Behind => {
                let module = look_up(&GUESSING, name).or_else(|| self.layer_module(name))?;
                Some(format!("model.layers.{}.{module}", n + i))
            }
            Guessing::Apart => match look_up(&GUESSING_APART, name) {
                Some(module) => Some(module.to_owned()),
                None => Some(format!("mtp.layers.{i}.{}", self.layer_module(name)?)),
            },
        }
    }

    /// The Hugging Face name of a module of a layer, from there on.
    pub(super) fn layer_module(&self, name: &str) -> Option<&'static str> {
        look_up(self.layer, name).or_else(|| look_up(&LAYER, name))
    }

    /// The Hugging Face name of a tensor of a layer that belongs to no module, from there on.
    pub(super) fn lone_tensor(&self, name: &str) -> Option<&'static str> {
        look_up(self.lone, name)
    }

    /// What the names of layers begin with.
    pub(super) fn layers(&self) -> &'static str {
        match self.model_type {
            "bert" => "encoder.layer",
            "gpt2" => "model.h",
            _ => "model.layers",
        }
    }
}

fn look_up(table: &[(&'static str, &'static str)], name: &str) -> Option<&'static str> {
    table.iter().find(|(ours, _)| *ours == name).map(|(_, theirs)| *theirs)
}
