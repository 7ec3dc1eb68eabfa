#!/usr/bin/env python3
"""Has Claude Code, Codex and OpenCode make one round trip each with a scripted server: a question, a call of
their shell, its result, an answer. Nothing of them is changed but where they send their requests.

    npm install --prefix target/agents @anthropic-ai/claude-code @openai/codex opencode-ai
    cargo build -p hearth-server --example scripted
    python tools/clients/agents.py target/debug/examples/scripted target/agents

Prints one line per agent and exits with 1 if any failed.
"""

import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

MARK = "goats-42"
CODEX = """
model = "default"
model_provider = "hearth"
[model_providers.hearth]
name = "hearth"
base_url = "{url}/v1"
wire_api = "responses"
"""


def claude(url, home, bin):
    (home / ".claude").mkdir()
    environment = {
        "ANTHROPIC_BASE_URL": url,
        "ANTHROPIC_API_KEY": "none",
        "ANTHROPIC_MODEL": "default",
        "ANTHROPIC_SMALL_FAST_MODEL": "default",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    }
    command = [bin / "claude", "-p", "Say it", "--allowedTools", "Bash"]
    return command + ["--output-format", "stream-json", "--verbose"], environment


def codex(url, home, bin):
    (home / ".codex").mkdir()
    (home / ".codex" / "config.toml").write_text(CODEX.format(url=url))
    command = [bin / "codex", "exec", "--skip-git-repo-check", "--json"]
    return command + ["--dangerously-bypass-approvals-and-sandbox", "Say it"], {}


def opencode(url, home, bin):
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "options": {"baseURL": f"{url}/v1", "apiKey": "none"},
        "models": {"default": {}},
    }
    settings = {
        "provider": {"hearth": provider},
        "model": "hearth/default",
        "small_model": "hearth/default",
        "permission": {"bash": "allow"},
    }
    (home / "opencode.json").write_text(json.dumps(settings))
    return [bin / "opencode", "run", "--format", "json", "Say it"], {}


def check(agent, tool, arguments, scripted, bin):
    server = subprocess.Popen([scripted, "0", tool, arguments], stdout=subprocess.PIPE, text=True)
    try:
        url = re.search(r"http://\S+", server.stdout.readline())[0]
        with tempfile.TemporaryDirectory() as folder:
            home = pathlib.Path(folder)
            command, environment = agent(url, home, bin)
            environment = {"PATH": os.environ["PATH"], "HOME": folder} | environment
            done = subprocess.run(
                command, cwd=folder, env=environment, stdin=subprocess.DEVNULL,
                capture_output=True, text=True, timeout=120,
            )
    finally:
        server.terminate()
        server.wait(timeout=60)
    # The result of the call, and what the model says when it has it.
    good = done.returncode == 0 and MARK in done.stdout and "word0 word1" in done.stdout
    print("ok  " if good else "FAIL", agent.__name__)
    if not good:
        print(done.stdout[-2000:], done.stderr[-2000:])
    return good


def main():
    scripted, bin = sys.argv[1], pathlib.Path(sys.argv[2]).resolve() / "node_modules" / ".bin"
    # What is printed is not what is asked for, so that only a shell can have said it.
    shell = "echo goats-$((40+2))"
    results = [
        check(claude, "Bash", f'{{"command": "{shell}", "description": "Say it"}}', scripted, bin),
        check(codex, "exec_command", f'{{"cmd": "{shell}"}}', scripted, bin),
        check(opencode, "bash", f'{{"command": "{shell}", "description": "Say it"}}', scripted, bin),
    ]
    sys.exit(not all(results))


if __name__ == "__main__":
    main()
