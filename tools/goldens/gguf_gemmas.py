"""What llama.cpp's converter makes of Gemma 3n and 4: cases, names and metadata for `gguf_logits.py`.

No program of its own.
"""

import numpy as np
import torch
from torch.distributions.normal import Normal

S, F = "sliding_attention", "full_attention"
ARCHS = ("gemma3n", "gemma4")
STACKS = ("model.altup_projections", "model.altup_unembed_projections")
# The share of the pairs of a full layer of Gemma 4 that turn.
TURNING = 0.25


def cases(small, q8, q4):
    """name -> (architecture, model_type, config, packings)"""
    ropes = lambda full: {"rope_parameters": {
        F: {"rope_theta": 1000.0, **full}, S: {"rope_type": "default", "rope_theta": 100.0}}}
    three = ropes({"rope_type": "default"})
    four = ropes({"rope_type": "proportional", "partial_rotary_factor": TURNING})
    shared = {
        **small, "num_hidden_layers": 4, "layer_types": [S, F, S, F], "sliding_window": 20, "num_kv_shared_layers": 2,
        "hidden_size_per_layer_input": 32, "vocab_size_per_layer_input": small["vocab_size"], "final_logit_softcapping": 4.0,
    }
    return {
        "gemma3n": ("gemma3n", "gemma3n_text", {
            **shared, **three, "num_hidden_layers": 3, "layer_types": [S, F, S], "num_kv_shared_layers": 1,
            "intermediate_size": [64] * 3, "laurel_rank": 32, "activation_sparsity_pattern": [0.6, 0.0, 0.4]}, [q8, q4]),
        "gemma4": ("gemma4", "gemma4_text", {
            **shared, **four, "intermediate_size": 32, "global_head_dim": 32, "use_double_wide_mlp": True}, [q8, q4]),
        "gemma4_experts": ("gemma4", "gemma4_text", {
            **small, **four, "num_hidden_layers": 2, "layer_types": [S, F], "sliding_window": 20, "intermediate_size": 64,
            "global_head_dim": 32, "attention_k_eq_v": True, "num_global_key_value_heads": 1, "hidden_size_per_layer_input": 0,
            "enable_moe_block": True, "num_experts": 4, "top_k_experts": 2, "moe_intermediate_size": 32}, [q8, q4]),
    }


# What differs from the names that most have.
TWISTS = {
    "post_attention_layernorm": "post_attention_norm", "pre_feedforward_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "post_ffw_norm", "per_layer_input_gate": "inp_gate", "per_layer_projection": "proj",
    "post_per_layer_input_norm": "post_norm", "altup.correction_coefs": "altup_correct_coef",
    "altup.prediction_coefs": "altup_predict_coef", "altup.modality_router": "altup_router",
    "altup.router_norm": "altup_router_norm", "laurel.linear_left": "laurel_l", "laurel.linear_right": "laurel_r",
    "laurel.post_laurel_norm": "laurel_post_norm", "post_feedforward_layernorm_1": "post_ffw_norm_1",
    "pre_feedforward_layernorm_2": "pre_ffw_norm_2", "post_feedforward_layernorm_2": "post_ffw_norm_2",
    "router.proj": "ffn_gate_inp", "experts.gate_up_proj": "ffn_gate_up_exps", "experts.down_proj": "ffn_down_exps",
}
TOP = {
    "model.embed_tokens_per_layer": "per_layer_token_embd", "model.per_layer_model_projection": "per_layer_model_proj",
    "model.per_layer_projection_norm": "per_layer_proj_norm", "model.altup_projections": "altup_proj",
    "model.altup_unembed_projections": "altup_unembd_proj",
}
LONE = {
    "layer_scalar": "layer_output_scale.weight", "altup.correct_output_scale": "altup_correct_scale.weight",
    "router.scale": "ffn_gate_inp.scale", "router.per_expert_scale": "ffn_down_exps.scale",
}


def name(path):
    """The name of a tensor that is no module's, if it is one."""
    parts = path.split(".", 3)
    return f"blk.{parts[2]}.{LONE[parts[3]]}" if path.startswith("model.layers.") and parts[3] in LONE else None


def stacked(state):
    """Streams begin and end with matrices that the converter stacks; experts it has as they are."""
    out = {}
    for path, w in state.items():
        stack, _, rest = path.rpartition(".")[0].rpartition(".")
        if stack in STACKS:
            out.setdefault(f"{stack}.weight", []).append(w)
        else:
            out[f"{path}.weight" if ".experts." in path else path] = w
    return {path: torch.stack(w) if isinstance(w, list) else w for path, w in out.items()}


def unstack(state, stacks):
    """Puts what packing made of stacks back into the matrices they are of."""
    for path, w in state.items():
        stack, _, i = path.rpartition(".")[0].rpartition(".")
        if stack in STACKS:
            w.copy_(stacks[f"{stack}.weight"][int(i)])


def metadata(writer, arch, config):
    layers = range(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_head_count(config.num_attention_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_sliding_window(config.sliding_window)
    writer.add_sliding_window_pattern([kind == S for kind in config.layer_types])
    writer.add_rope_freq_base(config.rope_parameters[F]["rope_theta"])
    writer.add_rope_freq_base_swa(config.rope_parameters[S]["rope_theta"])
    writer.add_embedding_length_per_layer_input(config.hidden_size_per_layer_input)
    writer.add_shared_kv_layers(config.num_kv_shared_layers)
    if config.final_logit_softcapping:
        writer.add_final_logit_softcapping(config.final_logit_softcapping)
    if arch == "gemma3n":
        writer.add_feed_forward_length(config.intermediate_size)
        writer.add_head_count_kv(config.num_key_value_heads)
        writer.add_key_length(config.head_dim)
        writer.add_value_length(config.head_dim)
        writer.add_altup_active_idx(config.altup_active_idx)
        writer.add_altup_num_inputs(config.altup_num_inputs)
        shares = torch.tensor(config.activation_sparsity_pattern)
        return writer.add_activation_sparsity_scale(Normal(0, 1).icdf(shares).tolist())
    full, sliding = (config.per_layer_config[config.layer_types.index(kind)] for kind in (F, S))
    for add, length in ((writer.add_key_length, full.head_dim), (writer.add_value_length, full.head_dim),
                        (writer.add_key_length_swa, sliding.head_dim), (writer.add_value_length_swa, sliding.head_dim),
                        (writer.add_rope_dimension_count, full.head_dim), (writer.add_rope_dimension_count_swa, sliding.head_dim)):
        add(length)
    kv_heads = [config.per_layer_config[i].num_key_value_heads for i in layers]
    writer.add_head_count_kv(kv_heads if len(set(kv_heads)) > 1 else kv_heads[0])
    first = config.num_hidden_layers - config.num_kv_shared_layers
    width = config.intermediate_size
    wide = config.use_double_wide_mlp
    writer.add_feed_forward_length([width if i < first else 2 * width for i in layers] if wide else width)
    if config.enable_moe_block:
        writer.add_expert_count(config.num_experts)
        writer.add_expert_used_count(config.top_k_experts)
        writer.add_expert_feed_forward_length(config.moe_intermediate_size)
    return None


def factors(config):
    """Divisors that stop the pairs of full layers that do not turn."""
    pairs = config.per_layer_config[config.layer_types.index(F)].head_dim // 2
    turning = int(TURNING * pairs)
    return np.array([1.0] * turning + [1e30] * (pairs - turning), np.float32)
