"""Small floats, and FP8 weights with their scales, as PyTorch reads them.

Writes crates/weights/tests/fixtures/packings/floats.safetensors: X and X.f32 for X = f16 and bf16
(random bit patterns) and e4m3 (every byte); and for each KIND of FP8 scales a weight of 40 x 70 as
Hugging Face checkpoints store it, with KIND.expected, the product in f32.

    pip install torch==2.15.0 safetensors==0.8.0 numpy
    python tools/goldens/torch_floats.py
"""

from pathlib import Path

import torch
from safetensors.torch import save_file

OUT = Path(__file__).resolve().parents[2] / "crates/weights/tests/fixtures/packings"
ROWS, COLS, BLOCK = 40, 70, (16, 32)


def main():
    torch.manual_seed(20261127)
    out = {}
    patterns = torch.randint(0, 1 << 16, (512,), dtype=torch.int32).to(torch.uint16)
    for name, dtype in (("f16", torch.float16), ("bf16", torch.bfloat16)):
        out[name] = patterns.clone().view(dtype)
    out["e4m3"] = torch.arange(256, dtype=torch.uint8).view(torch.float8_e4m3fn).reshape(1, 256)
    out.update({f"{name}.f32": out[name].float() for name in ("f16", "bf16", "e4m3")})

    weight = (torch.randn(ROWS, COLS) * 50).to(torch.float8_e4m3fn)
    grid = [-(-size // block) for size, block in zip((ROWS, COLS), BLOCK)]
    blocks = torch.rand(grid) * 0.01
    kinds = {
        "blocks": ("weight_scale_inv", blocks),
        "blocks_e8m0": ("weight_scale_inv", blocks.to(torch.float8_e8m0fnu)),
        "per_row": ("weight_scale", (torch.rand(ROWS, 1) * 0.01).bfloat16()),
        "per_tensor": ("weight_scale", torch.tensor(0.0173)),
    }
    for kind, (name, scale) in kinds.items():
        full = scale.float()
        if name == "weight_scale_inv":
            full = full.repeat_interleave(BLOCK[0], 0).repeat_interleave(BLOCK[1], 1)
            full = full[:ROWS, :COLS]
        out[f"{kind}.weight"] = weight.clone()
        out[f"{kind}.{name}"] = scale
        out[f"{kind}.expected"] = weight.float() * full
    OUT.mkdir(parents=True, exist_ok=True)
    save_file(out, OUT / "floats.safetensors")


if __name__ == "__main__":
    main()
