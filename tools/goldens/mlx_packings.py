"""Random matrices packed and unpacked by MLX itself, in every mode it has.

Writes crates/weights/tests/fixtures/packings/{affine,fp}.safetensors. For each scheme KEY
(`affine.BITS.GROUP.TYPE`, `mxfp4.TYPE`, `mxfp8.TYPE`, `nvfp4.TYPE`) they hold what a module of a
checkpoint would, KEY.weight, KEY.scales and KEY.biases, and KEY.dequantized. What was quantised is
`source.TYPE`: an ordinary row, rows of one sign, tiny, huge and constant groups, zeros,
largest values at the borders between powers of two.

    pip install 'mlx[cpu]==0.32.4'
    python tools/goldens/mlx_packings.py
"""

from pathlib import Path

import mlx.core as mx
import numpy as np

OUT = Path(__file__).resolve().parents[2] / "crates/weights/tests/fixtures/packings"
TYPES = {"f32": mx.float32, "f16": mx.float16, "bf16": mx.bfloat16}
COLS = 128


def source():
    rng = np.random.default_rng(20261127)
    normal = lambda: rng.standard_normal(COLS)
    rows = [normal(), np.abs(normal()) + 0.5, -np.abs(normal()) - 0.5]
    mixed = normal()
    mixed[:32] *= 1e-5
    mixed[32:64] = 0.75
    mixed[64:96] *= 300
    mixed[96:] = 0
    border = rng.uniform(-0.9, 0.9, COLS) * 2.0 ** np.repeat([-9, -1, 0, 7], 32)
    border[::32] = 6 * 2.0**-9, 6 * 0.5 * (1 + 1e-6), 448, 448 / 64 * (1 - 1e-6)
    return np.stack([*rows, mixed, border]).astype(np.float32)


def pack(name, w, out, **how):
    parts = dict(zip(("weight", "scales", "biases"), mx.quantize(w, **how)))
    out.update({f"{name}.{part}": value for part, value in parts.items()})
    out[f"{name}.dequantized"] = mx.dequantize(
        parts["weight"], parts["scales"], parts.get("biases"), dtype=w.dtype, **how
    )


def main():
    mx.set_default_device(mx.cpu)
    OUT.mkdir(parents=True, exist_ok=True)
    affine, fp = {}, {}
    for name, dtype in TYPES.items():
        w = mx.array(source()).astype(dtype)
        affine[f"source.{name}"] = fp[f"source.{name}"] = w
        for bits in (2, 3, 4, 5, 6, 8):
            for group in (32, 64, 128):
                pack(f"affine.{bits}.{group}.{name}", w, affine, group_size=group, bits=bits)
        for mode, bits, group in (("mxfp4", 4, 32), ("mxfp8", 8, 32), ("nvfp4", 4, 16)):
            pack(f"{mode}.{name}", w, fp, group_size=group, bits=bits, mode=mode)
    mx.save_safetensors(str(OUT / "affine.safetensors"), affine)
    mx.save_safetensors(str(OUT / "fp.safetensors"), fp)


if __name__ == "__main__":
    main()
