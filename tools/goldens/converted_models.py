"""Loads a folder that `hearth convert` wrote in mlx-lm (CPU wheel) and compares its logits with
Hearth's on the same folder, both with f32 activations.

    hearth convert MODEL FOLDER --bits 4 --group-size 64 --dtype f32
    python tools/goldens/converted_models.py FOLDER HEARTH_BINARY [POSITIONS]

Use f32: MLX is hundreds of times slower in f16 on a CPU.
"""

import json
import pathlib
import subprocess
import sys
import tempfile

import mlx.core as mx
import mlx_lm
import numpy as np

PASSAGES = pathlib.Path(__file__).parent / "passages.txt"


def log_softmax(logits):
    logits = logits.astype(np.float64)
    logits -= logits.max(axis=-1, keepdims=True)
    return logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))


def hearth_logits(hearth, folder, ids):
    with tempfile.TemporaryDirectory() as scratch:
        ids_file, out = pathlib.Path(scratch) / "ids.json", pathlib.Path(scratch) / "logits.npy"
        ids_file.write_text(json.dumps(ids))
        command = [hearth, "perplexity", folder, ids_file, "--exact-activations", "--logits", out]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        return np.load(out)


def main():
    folder, hearth = sys.argv[1:3]
    positions = int(sys.argv[3]) if len(sys.argv) > 3 else 64
    model, tokenizer = mlx_lm.load(folder)
    ids = tokenizer.encode(PASSAGES.read_text(), add_special_tokens=False)[:positions]
    theirs = log_softmax(np.array(model(mx.array([ids]))[0].astype(mx.float32)))
    ours = log_softmax(hearth_logits(hearth, folder, ids))
    kl = (np.exp(theirs) * (theirs - ours)).sum(axis=-1)
    agree = (theirs.argmax(axis=-1) == ours.argmax(axis=-1)).mean()
    print(f"{folder}: mean KL {kl.mean():.3e}, worst {kl.max():.3e}, top-1 {100 * agree:.2f} %")
    chat = tokenizer.apply_chat_template(
        [{"role": "user", "content": "What is the capital of France?"}], add_generation_prompt=True
    )
    print(mlx_lm.generate(model, tokenizer, chat, max_tokens=12))
    assert kl.mean() < 1e-4 and agree >= 0.98


if __name__ == "__main__":
    main()
