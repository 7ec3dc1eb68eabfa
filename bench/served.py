"""A running `hearth serve` for the measurements of this folder: starting it, asking it, watching it."""

import contextlib
import http.client
import json
import os
import pathlib
import re
import subprocess
import threading
import time
import urllib.parse

REPOSITORY = pathlib.Path(__file__).resolve().parent.parent
HEARTH = REPOSITORY / "target/release/hearth"


@contextlib.contextmanager
def serve(hearth, model, more=()):
    """A server on a free port; stopped at the end, when it must exit cleanly."""
    command = [str(hearth), "serve", model, "--port", "0", "--log-level", "warn", *more]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        for line in process.stdout:
            if found := re.search(r"http://([^/\s]+)", line):
                break
        else:
            raise SystemExit("the server ended before it was ready")
        threading.Thread(target=process.stdout.read, daemon=True).start()
        yield Server(found[1], process.pid)
    finally:
        process.terminate()
        status = process.wait(timeout=120)
    assert status == 0, f"the server ended with status {status}"


class Server:
    def __init__(self, address, pid=None):
        self.where = urllib.parse.urlparse(address).netloc or address
        self.pid = pid

    def connect(self):
        return http.client.HTTPConnection(self.where, timeout=600)

    def request(self, method, path, body=None, headers=()):
        """Status and body of one request."""
        with contextlib.closing(self.connect()) as connection:
            text = None if body is None else json.dumps(body)
            connection.request(method, path, text, {"content-type": "application/json", **dict(headers)})
            response = connection.getresponse()
            return response.status, response.read()

    def json(self, method, path, body=None):
        status, answer = self.request(method, path, body)
        assert status == 200, (path, status, answer)
        return json.loads(answer)

    @contextlib.contextmanager
    def stream(self, path, body, headers=()):
        """Begins a stream; gives its response, or what was said instead of one."""
        with contextlib.closing(self.connect()) as connection:
            text = json.dumps(body | {"stream": True})
            connection.request("POST", path, text, {"content-type": "application/json", **dict(headers)})
            yield connection.getresponse()

    def metrics(self):
        """Samples of `/metrics` by their name and labels."""
        status, page = self.request("GET", "/metrics")
        assert status == 200
        lines = [line for line in page.decode().splitlines() if not line.startswith("#")]
        return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines)}

    def open_files(self):
        """How many files the process has open; `None` where that cannot be known."""
        try:
            return len(os.listdir(f"/proc/{self.pid}/fd"))
        except OSError:
            return None


def frames(response):
    """The JSON of each frame of a stream, as it arrives."""
    for line in response:
        if line.startswith(b"data: ") and line.strip() != b"data: [DONE]":
            yield json.loads(line[6:])


def total(samples, name):
    """Sum of a number over all models."""
    return sum(value for series, value in samples.items() if series.split("{")[0] == name)


def percentile(values, share):
    """The value below which this share of them lies, `values` not empty."""
    values = sorted(values)
    return values[min(len(values) - 1, int(share * len(values)))]


def wait_until(what, done, seconds=120):
    """Waits until `done()` is true."""
    end = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < end, f"never: {what}"
        time.sleep(0.1)
