"""Cases of dense families that are llama with a twist, or none at all."""

from .sizes import SIZES, rope, without

SMALL = {**SIZES, "head_dim": 8, "intermediate_size": 40, "num_hidden_layers": 2}
# For families that know no size of heads but hidden_size / num_attention_heads, which is 8 as well.
PLAIN = without(SMALL, "head_dim")
LAYER_NORM = without(PLAIN, "rms_norm_eps")
YARN = dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=32)
NTK = {**rope("default", 100.0), "tie_word_embeddings": False}
NTK_TIED = {**rope("default", 100.0), "tie_word_embeddings": True}
HALF = rope("default", 100.0, partial_rotary_factor=0.5)


def per_type(**full):
    """A rotation of its own for full layers."""
    return {"rope_parameters": {
        "full_attention": {"rope_theta": 100.0, **full},
        "sliding_attention": {"rope_type": "default", "rope_theta": 100.0},
    }}


CASES = {
    "arcee": ("arcee", {**SMALL, "attention_bias": True, "mlp_bias": True, **NTK}, {}, {"hidden_act": "relu"}),
    "cohere": (
        "cohere",
        {**LAYER_NORM, "use_qk_norm": True, "attention_bias": True, "logit_scale": 0.5, **NTK_TIED},
        {},
        {"logit_scale": 0.25, "layer_norm_eps": 1e-1},
    ),
    "cohere2": (
        "cohere2",
        {**LAYER_NORM, "logit_scale": 0.5, "sliding_window": 20, "num_hidden_layers": 3,
         "layer_types": ["sliding_attention", "full_attention", "sliding_attention"], **NTK_TIED},
        {},
        {"logit_scale": 0.25, "sliding_window": 21},
    ),
    "ernie4_5": ("ernie4_5", {**SMALL, "use_bias": True, **NTK_TIED}, {}, {}),
    "exaone4": (
        "exaone4",
        {**SMALL, "sliding_window": 20, "sliding_window_pattern": 2, **NTK},
        {"full": {"sliding_window": None, "layer_types": ["full_attention"] * 2}},
        {"sliding_window": 21},
    ),
    "glm": ("glm", {**SMALL, "head_dim": 16, "attention_bias": True, "tie_word_embeddings": False, **HALF}, {}, {}),
    "glm4": ("glm4", {**SMALL, "head_dim": 16, "attention_bias": True, "tie_word_embeddings": False, **HALF}, {}, {}),
    "gemma": ("gemma", {**SMALL, **NTK_TIED}, {}, {}),
    "granite": (
        "granite",
        {**PLAIN, "attention_bias": True, "mlp_bias": True, "embedding_multiplier": 3.0, "attention_multiplier": 0.2,
         "residual_multiplier": 0.4, "logits_scaling": 2.0, **NTK_TIED},
        {},
        {"embedding_multiplier": 6.0, "attention_multiplier": 0.4, "residual_multiplier": 0.8, "logits_scaling": 4.0},
    ),
    "helium": ("helium", {**SMALL, "attention_bias": True, "mlp_bias": True, **NTK}, {}, {}),
    "hunyuan_v1_dense": (
        "hunyuan_v1_dense",
        {**SMALL, **NTK_TIED},
        {"alpha": rope("dynamic", 100.0, alpha=50.0, factor=1.0)},
        {},
    ),
    "internlm3": ("internlm3", {**SMALL, "qkv_bias": True, "bias": True, **NTK}, {}, {}),
    "ministral": (
        "ministral",
        {**SMALL, "sliding_window": 20, "layer_types": ["sliding_attention", "full_attention"], **NTK},
        {},
        {"sliding_window": 21},
    ),
    "ministral3": (
        "ministral3",
        {**SMALL, "sliding_window": None, "tie_word_embeddings": False,
         "rope_parameters": {**YARN, "rope_theta": 100.0, "llama_4_scaling_beta": 0.4, "mscale": 1.0, "mscale_all_dim": 1.0}},
        {"flat": {"rope_parameters": {
            **YARN, "rope_theta": 100.0, "llama_4_scaling_beta": 0.0, "mscale": 1.0, "mscale_all_dim": 1.0}}},
        {},
    ),
    "nemotron": (
        "nemotron",
        {**without(SMALL, "rms_norm_eps"), "tie_word_embeddings": False, **HALF},
        {},
        {"norm_eps": 1e-1, "hidden_act": "relu"},
    ),
    "olmo2": ("olmo2", {**PLAIN, **NTK}, {}, {"rms_norm_eps": 1e-1}),
    "olmo3": (
        "olmo3",
        {**PLAIN, "sliding_window": 20, "layer_types": ["sliding_attention", "full_attention"],
         "tie_word_embeddings": False, **per_type(rope_type="default")},
        {"yarn": per_type(**YARN)},
        {"sliding_window": 21},
    ),
    "phi": ("phi", {**LAYER_NORM, "tie_word_embeddings": False, **HALF}, {}, {"hidden_act": "relu"}),
    "seed_oss": (
        "seed_oss",
        {**SMALL, "attention_bias": True, "attention_out_bias": False, "mlp_bias": False, **NTK},
        {},
        {},
    ),
    "smollm3": (
        "smollm3",
        {**PLAIN, "num_hidden_layers": 3, "no_rope_layer_interval": 2, **NTK_TIED},
        {"windows": {"use_sliding_window": True, "sliding_window": 20}},
        {"no_rope_layers": [1, 1, 1]},
    ),
    "stablelm": (
        "stablelm",
        {**LAYER_NORM, "use_qkv_bias": True, "tie_word_embeddings": False, **HALF},
        {},
        {"layer_norm_eps": 1e-1},
    ),
    "stablelm_parallel": (
        "stablelm",
        {**LAYER_NORM, "use_parallel_residual": True, "use_qkv_bias": False, "tie_word_embeddings": False, **HALF},
        {},
        {},
    ),
    "starcoder2": (
        "starcoder2",
        {**LAYER_NORM, "sliding_window": 20, "use_bias": True, **NTK_TIED},
        {"full": {"sliding_window": None}},
        {"sliding_window": 21, "norm_epsilon": 1e-1},
    ),
}

MLX = dict(
    vocab_size=96, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4,
    num_key_value_heads=2, max_position_embeddings=256, rms_norm_eps=1e-5, rope_theta=100.0,
)
WINDOWS = dict(sliding_window=16, layer_types=["sliding_attention", "full_attention"])

# name -> (module of mlx-lm, config, group, bits)
MLX_CASES = {
    "cohere2_affine4": (
        "cohere2",
        {"model_type": "cohere2", **without(MLX, "rms_norm_eps"), "head_dim": 16, "layer_norm_eps": 1e-5,
         "logit_scale": 0.5, "sliding_window": 16, "sliding_window_pattern": 2, "attention_bias": False,
         "layer_norm_bias": False},
        32, 4,
    ),
    "exaone4_affine4": (
        "exaone4",
        {"model_type": "exaone4", **MLX, "head_dim": 16, "tie_word_embeddings": False, "sliding_window": 16,
         "sliding_window_pattern": "LG", "rope_scaling": None},
        32, 4,
    ),
    "granite_affine4": (
        "granite",
        {"model_type": "granite", **MLX, "attention_bias": False, "mlp_bias": False, "tie_word_embeddings": True,
         "embedding_multiplier": 3.0, "attention_multiplier": 0.2, "residual_multiplier": 0.4, "logits_scaling": 2.0},
        32, 4,
    ),
    "hunyuan_v1_dense_affine4": (
        "hunyuan_v1_dense",
        {"model_type": "hunyuan_v1_dense", **MLX, "head_dim": 16, "tie_word_embeddings": True, "use_qk_norm": True,
         "rope_scaling": {"type": "dynamic", "alpha": 50.0, "factor": 1.0}},
        32, 4,
    ),
    "mimo_affine4": ("mimo", {"model_type": "mimo", **MLX, "tie_word_embeddings": False}, 32, 4),
    "minicpm_affine4": (
        "minicpm",
        {"model_type": "minicpm", **MLX, "scale_emb": 6, "scale_depth": 1.2, "dim_model_base": 32,
         "tie_word_embeddings": False},
        32, 4,
    ),
    "mistral3_affine4": (
        "mistral3",
        {"model_type": "mistral3", "text_config": {
            "model_type": "ministral3", **without(MLX, "rope_theta"), "head_dim": 16, "tie_word_embeddings": False,
            "rope_parameters": {**YARN, "type": "yarn", "original_max_position_embeddings": 16, "rope_theta": 100.0,
                                "llama_4_scaling_beta": 0.4, "mscale": 1.0, "mscale_all_dim": 1.0}}},
        32, 4,
    ),
    "olmo3_affine4": (
        "olmo3",
        {"model_type": "olmo3", **MLX, **WINDOWS, "head_dim": 16, "attention_bias": False, "tie_word_embeddings": False,
         "rope_scaling": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32}},
        32, 4,
    ),
    "starcoder2_affine4": (
        "starcoder2",
        {"model_type": "starcoder2", **without(MLX, "rms_norm_eps"), "norm_epsilon": 1e-5, "tie_word_embeddings": True},
        32, 4,
    ),
}
