"""Random blocks of every GGUF type this project reads, and what gguf-py says they mean.

Writes crates/weights/tests/fixtures/gguf/blocks/TYPE.bin: the packed bytes of 1,024 elements (512 of
them in blocks whose scales are tiny, the rest in ordinary ones), then their 1,024 values as
little-endian f32. Bytes are uniformly random; only the half-precision scales are kept finite, since
the bits of a NaN are nobody's promise.

    pip install gguf==0.19.0
    python tools/goldens/gguf_blocks.py
"""

from pathlib import Path

import numpy as np
from gguf import GGMLQuantizationType as T, GGML_QUANT_SIZES, dequantize

OUT = Path(__file__).resolve().parents[2] / "crates/weights/tests/fixtures/gguf/blocks"
N_ELEMENTS = 1024

# Byte offsets of the half-precision fields in one block.
HALVES = {
    T.Q4_0: [0], T.Q4_1: [0, 2], T.Q5_0: [0], T.Q5_1: [0, 2], T.Q8_0: [0],
    T.Q2_K: [80, 82], T.Q3_K: [108], T.Q4_K: [0, 2], T.Q5_K: [0, 2], T.Q6_K: [208],
    T.IQ4_NL: [0], T.MXFP4: [],
}


def main():
    OUT.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(20261127)
    for ty, halves in HALVES.items():
        elements, size = GGML_QUANT_SIZES[ty]
        n = N_ELEMENTS // elements
        blocks = rng.integers(0, 256, (n, size), dtype=np.uint8)
        for at in halves:
            scale = blocks[:, at : at + 2].copy().view(np.uint16)
            scale[(scale & 0x7C00) == 0x7C00] ^= 0x4000  # no infinities, no NaNs
            scale[: n // 2] &= 0x87FF  # subnormals and the smallest normals
            blocks[:, at : at + 2] = scale.view(np.uint8)
        with np.errstate(over="ignore"):
            values = dequantize(blocks.reshape(-1), ty).astype("<f4")
        assert values.size == N_ELEMENTS and not np.isnan(values).any(), ty
        (OUT / f"{ty.name}.bin").write_bytes(blocks.tobytes() + values.tobytes())


if __name__ == "__main__":
    main()
