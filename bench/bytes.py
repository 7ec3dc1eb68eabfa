#!/usr/bin/env python3
"""How many bytes a pass really reads: counted, not timed, beside what it has to read.

    python3 bench/bytes.py [--work DIR] [--hearth FILE] [--cases 4b,4b-rows,30b,30b-same,30b-rows]

Runs `hearth bench` under Valgrind's cachegrind on one thread: a simulated cache of 8 MiB that forgets what was
not used for longest, and every line that is read and not in it counts 64 bytes. The same command with more
passes, less the one with fewer, is what the passes between read. The shapes are those of shapes.py with few
layers and a small vocabulary, which still are many times the cache.

What has to be read: the weights that the rows meet, of the experts only those that are chosen, the output
matrix once, and the states once for each sequence. Writes are not counted on either side, nor are keys and
values, of which a few positions are there.

Needs Valgrind. It knows no AVX-512, so that the kernels of AVX2 run: they read the same weights in the same order.
"""

import argparse
import dataclasses
import pathlib
import re
import subprocess

import shapes
from served import HEARTH, REPOSITORY

LINE = 64
CACHE = 8 << 20
VOCABULARY = 16_384


@dataclasses.dataclass
class Case:
    """One kind of pass on one shape."""

    shape: str
    layers: int
    what: str
    # Rows of the pass, all of one sequence.
    rows: int = 1
    # The router has no opinion, and every row gets the experts with the lowest numbers.
    same_experts: bool = False


CASES = {
    "4b": Case("qwen3.5-4b", 4, "one row"),
    "4b-rows": Case("qwen3.5-4b", 4, "4 rows", rows=4),
    "30b": Case("qwen3-30b-a3b", 2, "one row"),
    "30b-same": Case("qwen3-30b-a3b", 2, "4 rows, the same 8 experts", rows=4, same_experts=True),
    "30b-rows": Case("qwen3-30b-a3b", 2, "4 rows", rows=4),
}


def needed(config):
    """Bytes that one row has to read."""
    made = shapes.tensors(config)
    return made.bytes - made.state_bytes // 2


def folder_of(args, case):
    config = shapes.SHAPES[case.shape] | {"num_hidden_layers": case.layers, "vocab_size": VOCABULARY}
    name = f"{case.shape}-{case.layers}-{VOCABULARY}" + ("-same" if case.same_experts else "")
    folder = args.work / "shapes" / name
    shapes.write(folder, config, router=0.0 if case.same_experts else 1.0)
    return config, folder


def misses(args, folder, more):
    """Lines of the last cache that were read and not there."""
    cache = f"--LL={CACHE},16,{LINE}"
    valgrind = ["valgrind", "--tool=cachegrind", "--cache-sim=yes", cache, "--cachegrind-out-file=/dev/null"]
    bench = [str(args.hearth), "bench", str(folder), "--threads", "1", "--context", "256", *more]
    run = subprocess.run([*valgrind, *bench], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    found = re.search(r"LLd misses: +[\d,]+ +\( *([\d,]+) rd", run.stderr)
    return int(found[1].replace(",", ""))


def measured(args, case):
    """Bytes that a pass has to read, and those that it reads."""
    config, folder = folder_of(args, case)
    if case.rows == 1:
        # A warm-up and a run, each with a pass for each token.
        few, many = (["--prompt", "0", "--gen", str(n), "--runs", "1"] for n in (1, 3))
        passes = 4
    else:
        few, many = (["--prompt", str(case.rows), "--gen", "0", "--runs", str(n)] for n in (1, 4))
        passes = 3
    read = (misses(args, folder, many) - misses(args, folder, few)) * LINE / passes
    return needed(config), read


def report(args, name):
    case = CASES[name]
    need, read = measured(args, case)
    print(f"{case.shape}, {case.layers} layers, {case.what}: has to read {need / 1e6:.1f} MB, reads {read / 1e6:.1f} MB,"
          f" {read / need:.3f} times", flush=True)
    shape = shapes.SHAPES[case.shape]
    if case.rows > 1 and not case.same_experts and (experts := shape.get("num_experts")):
        # What one row has to read is in it, the experts of the others come on top.
        top_k = shape["num_experts_per_tok"]
        chosen = top_k + (read - need) / case.layers / expert_bytes(shape)
        alike = experts * (1 - (1 - top_k / experts) ** case.rows)
        print(f"  as many as {chosen:.1f} experts a layer; {case.rows} rows choose at most {case.rows * top_k},"
              f" and {alike:.1f} on average if none is preferred", flush=True)


def expert_bytes(c):
    """Of one expert of a layer."""
    some = shapes.Tensors()
    for rows, cols in [(c["moe_intermediate_size"], c["hidden_size"])] * 2 + [(c["hidden_size"], c["moe_intermediate_size"])]:
        some.matrix("expert", rows, cols)
    return some.bytes


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=pathlib.Path, default=REPOSITORY / "target/compare")
    parser.add_argument("--hearth", type=pathlib.Path, default=HEARTH)
    parser.add_argument("--cases", default=",".join(CASES))
    args = parser.parse_args()
    for name in args.cases.split(","):
        report(args, name)


if __name__ == "__main__":
    main()
