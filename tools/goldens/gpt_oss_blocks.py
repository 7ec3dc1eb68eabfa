"""A tiny gpt-oss whose experts are MXFP4 blocks, as its makers published it, with transformers' logits.

    python tools/goldens/gpt_oss_blocks.py crates/models/tests/fixtures

Blocks and scales are drawn at random; transformers' own unpacking makes the weights that its model
computes with. Everything else is as in `families.py`.
"""

import json
import sys
from pathlib import Path

import torch
from families import VOCAB, choice_margin, make_config, randomise, write_f32, logits
from cases.sizes import ROWS, SIZES, rope
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM
from transformers.integrations.mxfp4 import convert_moe_packed_tensors

VALUES = {
    **SIZES, "num_hidden_layers": 2, "intermediate_size": 32, "num_local_experts": 4, "num_experts_per_tok": 2,
    "sliding_window": 24, "tie_word_embeddings": False, **rope("default", 100.0),
}


def drawn_blocks(gen, experts, rows, cols):
    blocks = torch.randint(0, 256, (experts, rows, cols // 32, 16), generator=gen, dtype=torch.uint8)
    scales = torch.randint(122, 125, (experts, rows, cols // 32), generator=gen, dtype=torch.uint8)
    return blocks, scales


def build(seed):
    """A model and the blocks of its experts."""
    model = AutoModelForCausalLM.from_config(make_config("gpt_oss", VALUES)).float().eval()
    randomise(model, seed)
    gen, packed = torch.Generator().manual_seed(seed), {}
    for i, layer in enumerate(model.model.layers):
        experts = layer.mlp.experts
        for name in ("gate_up_proj", "down_proj"):
            n, cols, rows = getattr(experts, name).shape
            blocks, scales = drawn_blocks(gen, n, rows, cols)
            weight = convert_moe_packed_tensors(blocks.clone(), scales.clone(), dtype=torch.float32)
            getattr(experts, name).data = weight
            stem = f"model.layers.{i}.mlp.experts.{name}"
            packed |= {f"{stem}_blocks": blocks, f"{stem}_scales": scales}
    return model, packed


def main(folder):
    folder.mkdir(parents=True, exist_ok=True)
    ids = torch.randint(3, VOCAB, (1, ROWS), generator=torch.Generator().manual_seed(7))
    for seed in range(20):
        model, packed = build(seed)
        if choice_margin(lambda: logits(model, ids)) > 8e-3:
            break
    else:
        sys.exit("every seed has rows that two experts are equally good for")
    tensors = {name: p.data.to(torch.bfloat16) for name, p in model.named_parameters()}
    tensors = {name: t for name, t in tensors.items() if f"{name}_blocks" not in packed} | packed
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    config = model.config.to_dict() | {"quantization_config": {"quant_method": "mxfp4"}}
    (folder / "config.json").write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")
    (folder / "input.json").write_text(json.dumps(ids[0].tolist()) + "\n")
    write_f32(folder / "logits.f32", logits(model, ids))
    write_f32(folder / "logits_kv16.f32", logits(model, ids, "kv16"))
    print(f"seed {seed}, {(folder / 'model.safetensors').stat().st_size} bytes")


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(Path(sys.argv[1]) / "gpt_oss_mxfp4")
