"""Starts `hearth serve` with the default model and has real clients use it: the official OpenAI SDK,
every curl command of README.md, Prometheus' parser, and clients that behave badly.

    python tools/clients/check.py HEARTH_BINARY
"""

import json
import pathlib
import re
import subprocess
import sys
import tempfile
import threading

HERE = pathlib.Path(__file__).parent
README = HERE.parent.parent / "README.md"


def start(hearth, cache):
    """A server on a free port that has nothing cached, and its address."""
    # The name that the README gives to a second model.
    command = [hearth, "serve", "--port", "0", "--alias", "coder", "--cache-disk-dir", cache]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    for line in server.stdout:
        if found := re.search(r"http://\S+", line):
            threading.Thread(target=server.stdout.read, daemon=True).start()
            return server, found[0].removesuffix("/v1")
    sys.exit("the server ended before it was ready")


def curl_examples():
    """The curl commands of the README, as they are written."""
    blocks = re.findall(r"```sh\n(.*?)```", README.read_text(), re.DOTALL)
    commands = [c for block in blocks for c in re.split(r"\n(?=curl )", block)]
    return [c.strip() for c in commands if c.strip().startswith("curl ")]


def check_curl(command, address):
    command = command.replace("http://127.0.0.1:8000", address)
    command = command.replace("curl ", "curl --silent --show-error --fail-with-body ", 1)
    result = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, f"{command}\n{result.stdout}{result.stderr}"
    if '"stream": true' in command:
        frames = [f.removeprefix("data: ") for f in result.stdout.split("\n\n") if f.startswith("data: ")]
        assert frames[-1] == "[DONE]", frames[-3:]
        assert json.loads(frames[-2])["usage"]["completion_tokens"] > 0
    else:
        assert json.loads(result.stdout), command
    print("ok", command.split("\n")[0])


def main():
    with tempfile.TemporaryDirectory() as cache:
        check(*start(sys.argv[1], cache))


def check(server, address):
    try:
        examples = curl_examples()
        assert len(examples) >= 5, examples
        for command in examples:
            check_curl(command, address)
        subprocess.run([sys.executable, HERE / "openai_sdk.py", address], check=True)
        subprocess.run([sys.executable, HERE / "metrics.py", address], check=True)
        stress = [sys.executable, HERE / "stress.py", address, str(server.pid)]
        subprocess.run(stress, check=True)
    finally:
        server.terminate()
        assert server.wait(timeout=60) == 0, "the server must end cleanly when it is told to"


if __name__ == "__main__":
    main()
