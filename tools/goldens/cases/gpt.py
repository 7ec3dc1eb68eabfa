"""Cases of families with a table of positions."""

from .sizes import VOCAB

GPT2 = dict(vocab_size=VOCAB, n_embd=32, n_head=4, n_layer=3, n_positions=96, bos_token_id=1, eos_token_id=2)

CASES = {
    "gpt2": (
        "gpt2",
        {**GPT2, "n_inner": 40, "layer_norm_epsilon": 1e-5},
        {"unscaled": {"scale_attn_weights": False}},
        {"layer_norm_epsilon": 1e-1, "activation_function": "silu"},
    ),
}

# name -> (module of mlx-lm, config, group, bits)
MLX_CASES = {
    "gpt2_affine4": (
        "gpt2",
        {"model_type": "gpt2", "vocab_size": 96, "n_ctx": 128, "n_embd": 64, "n_head": 4, "n_layer": 2,
         "n_positions": 128, "layer_norm_epsilon": 1e-5},
        32, 4,
    ),
}
