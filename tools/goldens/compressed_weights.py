"""Weights as the compressed-tensors library writes them, and what they stand for.

Writes crates/weights/tests/fixtures/packings/compressed.safetensors: for each KIND the tensors of one
module of 10 x 128 (KIND.weight_packed, KIND.weight_scale, ...) and KIND.expected, what the library makes of
them in f32: scales are widened before it multiplies.

    pip install torch==2.15.0 safetensors==0.8.0 compressed-tensors==0.20.0
    python tools/goldens/compressed_weights.py
"""

from pathlib import Path

import torch
from compressed_tensors.compressors import BaseCompressor
from compressed_tensors.compressors.nvfp4.helpers import unpack_fp4_from_uint8
from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme
from compressed_tensors.quantization.lifecycle.forward import dequantize
from safetensors.torch import save_file

OUT = Path(__file__).resolve().parents[2] / "crates/weights/tests/fixtures/packings"
ROWS, COLS = 10, 128


def scheme(**args):
    return QuantizationScheme(targets=["Linear"], weights=QuantizationArgs(**args))


def compress(kind, how, state, fmt):
    """The stored tensors of a module, and its weight in f32."""
    compressor = BaseCompressor.get_value_from_registry(fmt)
    stored = compressor.compress(dict(state), how)
    wide = {k: v.float() if k == "weight_scale" else v for k, v in stored.items()}
    expected = compressor.decompress(wide, how)["weight"].float()
    return {f"{kind}.{k}": v.contiguous() for k, v in stored.items()} | {f"{kind}.expected": expected}


def integers(kind, bits, group, fmt="pack-quantized", symmetric=True, dtype=torch.bfloat16):
    """Groups of so many columns; None is a scale per row, 0 one for all."""
    args = dict(num_bits=bits, type="int", symmetric=symmetric)
    if group:
        args |= dict(strategy="group", group_size=group)
    else:
        args |= dict(strategy="channel" if group is None else "tensor")
    shape = {None: (ROWS, 1), 0: (1,)}.get(group, (ROWS, COLS // (group or 1)))
    state = {"weight": torch.randn(ROWS, COLS), "weight_scale": (torch.rand(shape) * 0.1 + 0.05).to(dtype)}
    top = 1 << (bits - 1)
    zeros = torch.zeros(shape) if symmetric else torch.randint(-top, top, shape)
    state["weight_zero_point"] = zeros.to(torch.int8)
    return compress(kind, scheme(**args), state, fmt)


def nvfp4():
    how = scheme(num_bits=4, type="float", symmetric=True, strategy="tensor_group", group_size=16)
    by = torch.tensor([37.3])
    state = {"weight": torch.randn(ROWS, COLS), "weight_scale": torch.rand(ROWS, COLS // 16) * 20 + 1,
             "weight_global_scale": by}
    stored = BaseCompressor.get_value_from_registry("nvfp4-pack-quantized").compress(dict(state), how)
    codes = unpack_fp4_from_uint8(stored["weight_packed"], ROWS, COLS, dtype=torch.float32)
    expected = dequantize(x_q=codes, scale=stored["weight_scale"].float(), args=how.weights, global_scale=by,
                          dtype=torch.float32)
    return {f"nvfp4.{k}": v.contiguous() for k, v in stored.items()} | {"nvfp4.expected": expected}


def main():
    torch.manual_seed(20261128)
    out = {}
    for bits in (4, 8):
        for group in (32, 64, 128, None):
            out |= integers(f"int{bits}.{group or 'row'}", bits, group)
    out |= integers("int4.f16", 4, 64, dtype=torch.float16)
    out |= integers("int4.zeros", 4, 32, symmetric=False)
    out |= integers("int8.zeros_per_row", 8, None, symmetric=False)
    out |= integers("bytes.row", 8, None, fmt="int-quantized")
    out |= integers("bytes.all", 8, 0, fmt="int-quantized")
    out |= integers("bytes.64", 8, 64, fmt="int-quantized")
    out |= nvfp4()
    save_file(out, OUT / "compressed.safetensors")
    print(len(out), "tensors,", (OUT / "compressed.safetensors").stat().st_size, "bytes")


if __name__ == "__main__":
    main()
