"""Renders any chat templates with transformers, for a comparison outside of the repository.

    python tools/goldens/other_templates.py FOLDER OUT.json
    cargo run -p hearth-text --example templates -- OUT.json

FOLDER holds *.jinja files as publishers ship them (llama.cpp's wheels have a collection in models/templates).
OUT.json has the shape of crates/text/tests/fixtures/templates.json; the example renders the same conversations
and reports where a prompt differs. Publishers' texts stay out of the repository.
"""

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from templates import attempt, conversations  # noqa: E402


def main(folder, out):
    talks = conversations()
    golden = {
        "conversations": [{"messages": m, "tools": t, "kwargs": k} for m, t, k in talks],
        "templates": {},
    }
    for file in sorted(Path(folder).glob("*.jinja")):
        source = file.read_text(encoding="utf-8")
        golden["templates"][file.stem] = {"source": source, "prompts": [attempt(source, talk) for talk in talks]}
    Path(out).write_text(json.dumps(golden, ensure_ascii=False), encoding="utf-8")
    print(len(golden["templates"]), "templates")


if __name__ == "__main__":
    main(*sys.argv[1:])
