#!/usr/bin/env python3
"""Has coding agents work with a server, each started by `hearth launch` without a terminal and in a home that
is otherwise empty. With a scripted server each makes a round trip: a question, a call of its shell, its result,
an answer. With a real model, if one is named, each gives an answer.

    npm install --prefix target/agents $(cat tools/clients/agents.txt)
    cargo build -p hearth-cli -p hearth-server --example scripted --bin hearth
    python tools/clients/agents.py target/debug/hearth target/debug/examples/scripted target/agents [MODEL]

What is not installed in that folder (in `node_modules/.bin` or `bin`) is left out, and said so. Prints one line
per agent and exits with 1 if any failed.
"""

import contextlib
import dataclasses
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

MARK = "goats-42"
# What it writes is not what is asked for, so that only a shell can have written it.
SHELL = "echo goats-$((40+2)) > mark"
BASH = ("Bash", {"command": SHELL, "description": "Say it"})


@dataclasses.dataclass
class Agent:
    name: str
    program: str
    # In front of the question.
    args: list
    # The call that the scripted model makes; None for those that offer no tools.
    call: tuple | None
    # Files of the project where it is started.
    files: dict = dataclasses.field(default_factory=dict)


AGENTS = [
    Agent(
        "claude", "claude",
        ["--allowedTools", "Bash", "--output-format", "stream-json", "--verbose", "-p"],
        BASH,
    ),
    Agent(
        "codex", "codex",
        ["exec", "--skip-git-repo-check", "--json", "--dangerously-bypass-approvals-and-sandbox"],
        ("exec_command", {"cmd": SHELL}),
    ),
    Agent(
        "opencode", "opencode", ["run", "--format", "json"],
        ("bash", BASH[1]),
        {"opencode.json": json.dumps({"permission": {"bash": "allow"}})},
    ),
    Agent("continue", "cn", ["--auto", "-p"], ("Bash", {"command": SHELL})),
    Agent("cline", "cline", ["--json"], ("run_commands", {"commands": [SHELL]})),
    Agent(
        "aider", "aider",
        ["--yes-always", "--no-git", "--no-check-update", "--analytics-disable", "--no-pretty",
         "--no-show-release-notes", "--no-fancy-input", "--message"],
        None,
    ),
]


@contextlib.contextmanager
def server(command):
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        yield re.search(r"http://[^\s/]+", process.stdout.readline())[0]
    finally:
        process.terminate()
        process.wait(timeout=60)


def ask(agent, url, hearth, paths, question, seconds):
    """The agent's status, what it printed, and what its shell has written."""
    with tempfile.TemporaryDirectory() as folder:
        home, project = pathlib.Path(folder, "home"), pathlib.Path(folder, "project")
        home.mkdir()
        project.mkdir()
        for name, text in agent.files.items():
            (project / name).write_text(text)
        command = [hearth, "launch", agent.name, "--url", url, "--", *agent.args, question]
        environment = {"PATH": os.pathsep.join([*paths, os.environ["PATH"]]), "HOME": str(home)}
        try:
            done = subprocess.run(
                command, cwd=project, env=environment, stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=seconds,
            )
        except subprocess.TimeoutExpired as late:
            return "no end", (late.stdout or b"").decode(errors="replace"), ""
        mark = project / "mark"
        return done.returncode, done.stdout, mark.read_text() if mark.exists() else ""


def tell(name, what, good, said):
    print("ok  " if good else "FAIL", name, what, flush=True)
    if not good:
        print(said[-3000:])
    return good


def check_scripted(agent, hearth, scripted, paths):
    tool, arguments = agent.call or ("none", {})
    with server([scripted, "0", tool, json.dumps(arguments)]) as url:
        status, said, written = ask(agent, url, hearth, paths, "Say it", 180)
    # What the model says when it has the result; and the call.
    answered = status == 0 and "word0 word1" in said
    called = agent.call is None or MARK in written
    return tell(agent.name, "scripted", answered and called, f"{status}\n{said}")


def check_real(agent, url, hearth, paths):
    status, said, _ = ask(agent, url, hearth, paths, "What is the capital of France? One word.", 1500)
    return tell(agent.name, "real model", status == 0 and "Paris" in said, f"{status}\n{said}")


def main():
    hearth, scripted, folder = (str(pathlib.Path(path).resolve()) for path in sys.argv[1:4])
    model = sys.argv[4:5]
    paths = [f"{folder}/node_modules/.bin", f"{folder}/bin"]
    results = []
    here = [agent for agent in AGENTS if any(os.path.exists(f"{p}/{agent.program}") for p in paths)]
    for agent in AGENTS:
        if agent not in here:
            print("    ", agent.name, "is not installed")
    for agent in here:
        results.append(check_scripted(agent, hearth, scripted, paths))
    if model:
        command = [hearth, "serve", *model, "--port", "0", "--no-disk-cache"]
        with server(command) as url:
            results += [check_real(agent, url, hearth, paths) for agent in here]
    sys.exit(not results or not all(results))


if __name__ == "__main__":
    main()
