#!/usr/bin/env python3
"""Hearth beside other engines on this machine: fetches the models, installs the peers, lets everybody
take turns, prints the table. `docs/speed.md` says what each line of it means.

    python3 bench/compare.py run --out results.json          # everything; hours
    python3 bench/compare.py run --out results.json --minutes 9   # again and again, until it says done
    python3 bench/compare.py report results.json

Needs Python 3.11, a C compiler, and for llama.cpp a C++ compiler; Linux only.
"""

import argparse
import pathlib
import sys

from comparison.cells import CELLS, PEERS
from comparison.models import SOURCES
from comparison.report import report
from comparison.run import Results, Run, check_names
from comparison.setup import Setup

REPOSITORY = pathlib.Path(__file__).resolve().parent.parent


def names(known):
    def split(text):
        return list(known) if text == "all" else [name for name in text.split(",") if name]

    return split


def arguments():
    as_written = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=as_written)
    commands = parser.add_subparsers(dest="command", required=True)
    shared = argparse.ArgumentParser(add_help=False)
    add = shared.add_argument
    add("--out", default="results.json", metavar="FILE",
        help="where all values are kept; taken up if it exists")
    add("--work", default=REPOSITORY / "target/compare", metavar="DIR",
        help="peers and models are put here, and reused")
    add("--hearth", default=REPOSITORY / "target/release/hearth", metavar="PATH")
    add("--llama", metavar="DIR",
        help="a folder with llama-bench, llama-quantize and llama-server; else they are built")
    add("--models", default="all", metavar="A,B", help=f"of {', '.join(SOURCES)}")
    add("--peers", default="all", metavar="A,B", help=f"of {', '.join(PEERS)}")
    add("--cells", default="all", metavar="A,B", help=f"of {', '.join(CELLS)}")
    add("--rounds", type=int, default=5, metavar="N")
    add("--minutes", type=float, default=0, metavar="N", help="stop before this is over, to go on later")
    add("--threads", type=int, default=2, metavar="N", help="of every engine")
    add("--limit", type=float, default=300, metavar="SECONDS",
        help="longest turn of one engine; what is slower is left out")
    add("--cooldown", type=float, default=2, metavar="SECONDS", help="pause before every turn")
    add("--seed", default="1", help="of the orders and the prompts")
    add("--anyway", action="store_true", help="measure even while other programs keep the machine busy")
    commands.add_parser("prepare", parents=[shared], help="fetch and install only")
    commands.add_parser("run", parents=[shared], help="prepare, measure, print the table")
    commands.add_parser("report", help="print the table of a file").add_argument("file", metavar="FILE")
    return parser.parse_args()


def main():
    options = arguments()
    if options.command == "report":
        print(report(Results(options.file)))
        return
    options.models, options.peers, options.cells = (
        names(known)(text)
        for known, text in ((SOURCES, options.models), (PEERS, options.peers), (CELLS, options.cells))
    )
    check_names(options.cells, options.models, options.peers)
    setup = Setup(options.work, options.hearth, options.llama, options.threads)
    run = Run(setup, options)
    run.prepare()
    if options.command == "run":
        done = run.measure()
        print(report(run.results))
        if not done:
            sys.exit("The time is up and rounds are left: run the same command again.")


if __name__ == "__main__":
    main()
