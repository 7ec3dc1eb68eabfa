"""Cases of families with layers that carry a state: Mamba-2, short convolutions, Kimi's delta rule."""

from .dense import MLX
from .sizes import SIZES, rope, without

PLAIN = without(SIZES, "head_dim", "rms_norm_eps")
LFM2 = {
    **PLAIN, "norm_eps": 1e-5, "layer_types": ["conv", "full_attention", "conv"], "tie_word_embeddings": True,
    **rope("default", 100.0),
}
EXPERTS = dict(num_experts_per_tok=2, moe_intermediate_size=8)
# Steps are clamped on either side by some rows.
CLAMPED = [0.4, 1.1]
FREE = [0.0, float("inf")]
# Eight heads of eight columns.
MAMBA = dict(
    mamba_n_heads=8, mamba_d_head=8, mamba_d_state=12, mamba_n_groups=1, mamba_d_conv=4, mamba_chunk_size=16,
    mamba_expand=2, mamba_conv_bias=True, mamba_proj_bias=False,
)
GRANITE = {
    **without(SIZES, "head_dim", "intermediate_size"), **MAMBA, "shared_intermediate_size": 40,
    "layer_types": ["linear_attention", "full_attention", "linear_attention"],
    "embedding_multiplier": 3.0, "attention_multiplier": 0.5, "residual_multiplier": 0.6, "logits_scaling": 2.0,
    "position_embedding_type": None, "tie_word_embeddings": True, **rope("default", 100.0),
}
FALCON = {
    **SIZES, "num_hidden_layers": 2, **MAMBA, "mamba_n_groups": 2, "mamba_d_ssm": 48, "mamba_n_heads": 6,
    "embedding_multiplier": 2.0, "lm_head_multiplier": 0.5, "key_multiplier": 0.7, "attention_in_multiplier": 1.3,
    "attention_out_multiplier": 0.8, "ssm_in_multiplier": 1.2, "ssm_out_multiplier": 0.7,
    "ssm_multipliers": [0.8, 1.3, 0.6, 1.5, 1.2], "mlp_multipliers": [0.7, 1.4], "tie_word_embeddings": False,
    **rope("default", 100.0),
}

CASES = {
    "lfm2": (
        "lfm2",
        {**LFM2, "conv_bias": True, "conv_L_cache": 4, "block_auto_adjust_ff_dim": True, "block_multiple_of": 8,
         "block_ffn_dim_multiplier": 1.1, "intermediate_size": 60},
        {},
        {"norm_eps": 1e-1},
    ),
    "lfm2_moe": (
        "lfm2_moe",
        {**LFM2, **EXPERTS, "conv_bias": False, "conv_L_cache": 3, "num_experts": 6, "num_dense_layers": 1, "intermediate_size": 32,
         "use_expert_bias": True, "norm_topk_prob": True, "routed_scaling_factor": 1.5},
        {"plain": {"norm_topk_prob": False, "routed_scaling_factor": 1.0}},
        {"num_experts_per_tok": 3},
    ),
    "mamba2": (
        "mamba2",
        dict(vocab_size=SIZES["vocab_size"], hidden_size=32, num_hidden_layers=3, num_heads=8, head_dim=8,
             state_size=12, n_groups=2, conv_kernel=4, expand=2, use_bias=True, use_conv_bias=True, chunk_size=16,
             layer_norm_epsilon=1e-5, time_step_limit=CLAMPED, tie_word_embeddings=False, pad_token_id=0,
             bos_token_id=1, eos_token_id=2),
        {"free": {"time_step_limit": FREE}},
        {"layer_norm_epsilon": 1e-1},
    ),
    "nemotron_h": (
        "nemotron_h",
        {**without(SIZES, "num_hidden_layers", "rms_norm_eps"), **EXPERTS,
         "layers_block_type": ["linear_attention", "moe", "full_attention", "mlp", "linear_attention"],
         "mamba_num_heads": 6, "mamba_head_dim": 8, "n_groups": 2, "ssm_state_size": 12, "conv_kernel": 3,
         "chunk_size": 16, "use_conv_bias": True, "layer_norm_epsilon": 1e-5, "n_routed_experts": 6,
         "moe_shared_expert_intermediate_size": 40, "n_group": 2, "topk_group": 1, "norm_topk_prob": True,
         "routed_scaling_factor": 1.7, "mlp_hidden_act": "relu2", "tie_word_embeddings": False},
        {},
        {"num_experts_per_tok": 3, "norm_topk_prob": False, "routed_scaling_factor": 1.0, "layer_norm_epsilon": 1e-1},
    ),
    "nemotron_h_latent": (
        "nemotron_h",
        {**without(SIZES, "num_hidden_layers", "rms_norm_eps"), **EXPERTS, "layers_block_type": ["moe", "full_attention"],
         "mamba_num_heads": 6, "mamba_head_dim": 8, "n_groups": 2, "ssm_state_size": 12, "conv_kernel": 3,
         "layer_norm_epsilon": 1e-5, "n_routed_experts": 6, "moe_latent_size": 20, "mlp_bias": True,
         "moe_shared_expert_intermediate_size": 40, "n_group": 1, "topk_group": 1, "norm_topk_prob": True,
         "routed_scaling_factor": 1.7, "mlp_hidden_act": "relu2", "tie_word_embeddings": False},
        {},
        {"num_experts_per_tok": 3},
    ),
    "granitemoehybrid": (
        "granitemoehybrid",
        {**GRANITE, "num_hidden_layers": 2, "layer_types": GRANITE["layer_types"][:2], "num_local_experts": 5,
         "num_experts_per_tok": 2, "intermediate_size": 8, "shared_intermediate_size": 16},
        {"rope": {"position_embedding_type": "rope"}},
        {"num_experts_per_tok": 3, "attention_multiplier": 0.2, "residual_multiplier": 1.0, "logits_scaling": 1.0},
    ),
    "granitemoehybrid_dense": (
        "granitemoehybrid",
        {**GRANITE, "num_local_experts": 0, "num_experts_per_tok": 0, "intermediate_size": 24, "mamba_n_groups": 2,
         "mamba_proj_bias": True, "attention_bias": True, "time_step_limit": CLAMPED, "position_embedding_type": "rope"},
        {},
        {"embedding_multiplier": 1.0, "rms_norm_eps": 1e-1},
    ),
    "falcon_h1": (
        "falcon_h1",
        {**FALCON, "mamba_rms_norm": False},
        {},
        {key: 1.0 for key in FALCON if key.endswith("multiplier")}
        | {"ssm_multipliers": [1.0, 1.3, 0.6, 1.5, 1.2], "mlp_multipliers": [1.0, 1.4]},
    ),
    "falcon_h1_norm": (
        "falcon_h1",
        {**FALCON, "mamba_rms_norm": True, "mamba_norm_before_gate": True},
        {"after": {"mamba_norm_before_gate": False}},
        {"ssm_multipliers": [0.8, 1.3, 0.6, 1.5, 1.0], "mlp_multipliers": [0.7, 1.0]},
    ),
    "kimi_linear": (
        "kimi_linear",
        {**without(SIZES, "head_dim", "max_position_embeddings"), **EXPERTS, "model_max_length": 256,
         "num_hidden_layers": 3, "num_key_value_heads": 4,
         "layer_types": ["linear_attention", "full_attention", "linear_attention"],
         "mlp_layer_types": ["dense", "sparse", "sparse"], "linear_num_heads": 3, "linear_head_dim": 8,
         "linear_conv_kernel_dim": 4, "kv_lora_rank": 16, "q_lora_rank": None, "qk_rope_head_dim": 8,
         "qk_nope_head_dim": 8, "v_head_dim": 8, "num_experts": 6, "n_shared_experts": 1, "n_group": 1,
         "topk_group": 1, "norm_topk_prob": True, "routed_scaling_factor": 1.7, "tie_word_embeddings": False},
        {},
        {"num_experts_per_tok": 3, "rms_norm_eps": 1e-1},
    ),
}

# name -> (module of mlx-lm, config, group, bits)
MLX_CASES = {
    "lfm2_moe_affine4": (
        "lfm2_moe",
        {"model_type": "lfm2_moe", **without(MLX, "rms_norm_eps"), "norm_eps": 1e-5, "intermediate_size": 64,
         "moe_intermediate_size": 32, "num_experts": 4, "num_experts_per_tok": 2, "norm_topk_prob": True,
         "use_expert_bias": True, "num_dense_layers": 1, "conv_bias": False, "conv_L_cache": 3,
         "layer_types": ["conv", "full_attention"], "tie_word_embeddings": True},
        32, 4,
    ),
    "nemotron_h_affine4": (
        "nemotron_h",
        {"model_type": "nemotron_h", **without(MLX, "num_hidden_layers", "rms_norm_eps"), "head_dim": 16,
         "attention_bias": False, "layer_norm_epsilon": 1e-5, "num_hidden_layers": 4,
         "hybrid_override_pattern": "ME*-", "intermediate_size": 64, "mamba_num_heads": 4,
         "mamba_head_dim": 16, "mamba_proj_bias": False, "ssm_state_size": 16, "conv_kernel": 4, "n_groups": 2,
         "mlp_bias": False, "use_bias": False, "use_conv_bias": True, "moe_intermediate_size": 32,
         "moe_shared_expert_intermediate_size": 32, "n_group": 1, "topk_group": 1, "n_routed_experts": 4,
         "n_shared_experts": 1, "num_experts_per_tok": 2, "norm_topk_prob": True, "routed_scaling_factor": 1.7,
         "tie_word_embeddings": False},
        32, 4,
    ),
    "granitemoehybrid_affine4": (
        "granitemoehybrid",
        {"model_type": "granitemoehybrid", **MLX, "intermediate_size": 32, "shared_intermediate_size": 64,
         "num_local_experts": 4, "num_experts_per_tok": 2, "layer_types": ["mamba", "attention"],
         "attention_bias": False, "embedding_multiplier": 2.0, "attention_multiplier": 0.25, "logits_scaling": 2.0,
         "residual_multiplier": 0.6, "mamba_n_heads": 4, "mamba_d_head": 16, "mamba_proj_bias": False,
         "mamba_d_state": 16, "mamba_d_conv": 4, "mamba_n_groups": 1, "mamba_conv_bias": True,
         "position_embedding_type": "nope", "tie_word_embeddings": True},
        32, 4,
    ),
    "kimi_linear_affine4": (
        "kimi_linear",
        {"model_type": "kimi_linear", **without(MLX, "max_position_embeddings"), "num_key_value_heads": 4,
         "intermediate_size": 64, "head_dim": 16, "model_max_length": 256, "num_experts": 4,
         "num_experts_per_token": 2, "num_shared_experts": 1, "moe_intermediate_size": 32, "kv_lora_rank": 32,
         "qk_nope_head_dim": 32, "qk_rope_head_dim": 8, "v_head_dim": 16, "mla_use_nope": True,
         "moe_router_activation_func": "sigmoid", "moe_renormalize": True, "routed_scaling_factor": 1.7,
         "first_k_dense_replace": 1, "moe_layer_freq": 1, "num_expert_group": 1, "topk_group": 1,
         "linear_attn_config": {"num_heads": 2, "head_dim": 32, "short_conv_kernel_size": 4, "kda_layers": [1],
                                "full_attn_layers": [2]},
         "tie_word_embeddings": False},
        32, 4,
    ),
}
