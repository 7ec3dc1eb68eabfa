"""Sizes that tiny golden models share, and words for configs. No cases."""

VOCAB = 80
ROWS = 72
SIZES = dict(
    vocab_size=VOCAB, hidden_size=32, intermediate_size=48, num_hidden_layers=3,
    num_attention_heads=4, num_key_value_heads=2, head_dim=16, max_position_embeddings=256,
    rms_norm_eps=1e-5, pad_token_id=0, bos_token_id=1, eos_token_id=2,
)


def rope(kind, theta=10000.0, **more):
    return {"rope_parameters": {"rope_type": kind, "rope_theta": theta, **more}}


def without(sizes, *keys):
    return {k: v for k, v in sizes.items() if k not in keys}
