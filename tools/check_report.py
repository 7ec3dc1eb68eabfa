#!/usr/bin/env python3
"""Opens reports of `hearth lab report` in a headless Chromium: nothing may be written to the console, and
every picture must be there and have a size. Needs `chromium` (or what --browser names), nothing else.

    python3 tools/check_report.py target/lab/small/report.html target/lab/small/report.zh-TW.html
"""

import argparse
import pathlib
import re
import subprocess
import sys
import tempfile

CONSOLE = re.compile(r":CONSOLE[:(]")


def open_page(browser, page, *more):
    """What the page became, and what was written to the console."""
    with tempfile.TemporaryDirectory() as profile:
        command = [browser, "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run"]
        command += [f"--user-data-dir={profile}", "--enable-logging=stderr", "--v=0"]
        command += ["--virtual-time-budget=5000", *more, page.resolve().as_uri()]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
    return done.stdout, [line for line in done.stderr.splitlines() if CONSOLE.search(line)]


def check(browser, page):
    """What is wrong with it."""
    # A copy that says what it looks like, because the report itself runs nothing.
    look = """<script>addEventListener("load", () => {
      const empty = [...document.querySelectorAll("figure svg")].filter(
        svg => svg.getBoundingClientRect().width < 100 || !svg.querySelector("text"));
      document.documentElement.dataset.figures = document.querySelectorAll("figure svg").length;
      document.documentElement.dataset.empty = empty.length;
      document.documentElement.dataset.wide = document.body.scrollWidth > innerWidth;
    })</script>"""
    _, wrong = open_page(browser, page, "--dump-dom")
    with tempfile.TemporaryDirectory() as folder:
        copy = pathlib.Path(folder, page.name)
        copy.write_text(page.read_text() + look)
        dom, _ = open_page(browser, copy, "--dump-dom", "--window-size=1200,900")
    found = dict(re.findall(r'data-(figures|empty|wide)="(\w+)"', dom[:2000]))
    if int(found.get("figures", 0)) == 0:
        wrong.append("there are no pictures")
    if found.get("empty") != "0":
        wrong.append(f"{found.get('empty')} pictures show nothing")
    if found.get("wide") != "false":
        wrong.append("the page is wider than a screen of 1200")
    return found.get("figures"), wrong


def main():
    """Checks all of them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("reports", nargs="+", type=pathlib.Path)
    parser.add_argument("--browser", default="chromium")
    args = parser.parse_args()
    failed = False
    for page in args.reports:
        figures, wrong = check(args.browser, page)
        failed = failed or bool(wrong)
        print(f"{page}: {figures} pictures, {'; '.join(wrong) or 'nothing on the console'}")
    sys.exit(failed)


if __name__ == "__main__":
    main()
