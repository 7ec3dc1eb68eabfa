"""The models that are compared, and how each comes about. Nothing here measures."""

import dataclasses
import json
import os
import pathlib
import shutil
import subprocess

from .setup import Unavailable, run_logged


@dataclasses.dataclass(frozen=True)
class Source:
    """One model: what `hearth pull` calls it, and what becomes of it."""

    key: str
    title: str
    alias: str
    # GGUF type that llama-quantize makes of it; none: as it was shipped.
    requantise: str | None = None
    # Converted to MLX's 4 bits in groups of 64 by `hearth convert`.
    mlx: bool = False


def _family(key, title, alias, shipped, requantised):
    yield Source(f"{key}-{shipped.lower()}", f"{title} {shipped}", alias)
    for kind in requantised:
        yield Source(f"{key}-{kind.lower()}", f"{title} {kind}", alias, requantise=kind)
    yield Source(f"{key}-mlx4", f"{title} MLX 4-bit", alias, mlx=True)


SOURCES = {
    source.key: source
    for source in [
        *_family("smollm2", "SmolLM2-135M", "smollm2-135m-4bit", "Q4_1", ["Q4_0", "Q8_0"]),
        *_family("qwen0.5b", "Qwen2.5-Coder-0.5B", "qwen2.5-0.5b-coder-q4_k_m", "Q4_K_M", ["Q4_0"]),
        *_family("qwen1.5b", "Qwen2.5-Coder-1.5B", "qwen2.5-1.5b-coder-q4_k_m", "Q4_K_M", ["Q4_0"]),
    ]
}


def prepare(source, setup):
    """The path of the model, made or fetched if it is not there yet."""
    shipped = _pull(source, setup)
    if source.mlx:
        return _convert(source, shipped, setup)
    if source.requantise:
        return _requantise(source, shipped, setup)
    return shipped


def _pull(source, setup):
    # A place that the user chose is honoured; else the work folder holds the models too.
    env = {"HEARTH_CACHE": str(setup.work), **os.environ}
    run_logged([setup.hearth, "pull", source.alias], setup.log("pull"), env=env)
    info = [setup.hearth, "info", "--json", "--offline", source.alias]
    found = subprocess.run(info, env=env, capture_output=True, text=True, check=True)
    return pathlib.Path(json.loads(found.stdout)["path"])


def _requantise(source, shipped, setup):
    """Quantised anew from what is quantised already: good for speed, not for judging answers."""
    target = setup.work / "models" / f"{source.key}.gguf"
    if not target.exists():
        if not setup.llama:
            raise Unavailable("made by llama-quantize, and llama.cpp is not here")
        part = target.with_suffix(".part")
        command = [setup.llama / "llama-quantize", "--allow-requantize", shipped, part]
        run_logged([*command, source.requantise, "2"], setup.log(f"quantise-{source.key}"))
        _in_large_pieces(part, target)
    return target


def _in_large_pieces(part, target):
    """Moves a file, writing it anew: the system keeps it in memory in pieces as large as they came, and
    llama-quantize writes small ones, which every engine that maps the file would suffer from."""
    whole = part.with_suffix(".whole")
    with open(part, "rb") as old, open(whole, "wb", buffering=0) as new:
        shutil.copyfileobj(old, new, 8 << 20)
    part.unlink()
    whole.rename(target)


def _convert(source, shipped, setup):
    """Scales are f32: with 16-bit ones mlx-lm is many times slower on a CPU without their arithmetic."""
    target = setup.work / "models" / source.key
    if not target.exists():
        shutil.rmtree(target, ignore_errors=True)
        options = ["--bits", "4", "--group-size", "64", "--dtype", "f32"]
        command = [setup.hearth, "convert", shipped, target, *options]
        run_logged(command, setup.log(f"convert-{source.key}"))
    return target
