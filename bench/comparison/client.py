"""A client that costs little: it notes when bytes came and looks at them after all is over."""

import http.client
import json
import threading
import time


class Failed(Exception):
    """The server did not do what was asked."""


def is_ready(port):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request("GET", "/health")
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


class Answer:
    """One streamed completion: when it was asked for, when its texts came, how many tokens it has."""

    def __init__(self, port, body, timeout):
        body = json.dumps(body)
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)
        self.received = []
        self.asked = time.perf_counter()
        connection.request("POST", "/v1/completions", body, {"Content-Type": "application/json"})
        response = connection.getresponse()
        while data := response.read1(1 << 16):
            self.received.append((time.perf_counter(), data))
        connection.close()
        if response.status != 200:
            raise Failed(f"status {response.status}: {self._all()[:200]!r}")

    def _all(self):
        return b"".join(data for _, data in self.received)

    def parse(self):
        """Reads the frames: sets `first` and `last`, times of texts, and `n_tokens`, as the usage says."""
        self.first = self.last = self.n_tokens = None
        pending = b""
        for at, data in self.received:
            *lines, pending = (pending + data).split(b"\n")
            for line in lines:
                if line.startswith(b"data:") and (frame := line[5:].strip()) != b"[DONE]":
                    self._frame(json.loads(frame), at)
        if self.first is None or self.n_tokens is None:
            raise Failed(f"no text or no usage in {self._all()[-300:]!r}")
        return self

    def _frame(self, frame, at):
        if "error" in frame:
            raise Failed(f"an error in the stream: {frame['error']}")
        if any(choice.get("text") for choice in frame.get("choices", [])):
            self.first = self.first or at
            self.last = at
        if usage := frame.get("usage"):
            self.n_tokens = usage["completion_tokens"]


class Client:
    """Asks one server for completions of exact lengths, greedily and past end-of-text tokens."""

    def __init__(self, port, extra, timeout):
        self.port, self.extra, self.timeout = port, extra, timeout

    def complete(self, prompts, n_tokens):
        """All prompts at once, each on a thread of its own."""
        bodies = [
            {"prompt": prompt, "max_tokens": n_tokens, "temperature": 0, "stream": True,
             "stream_options": {"include_usage": True}, **self.extra}
            for prompt in prompts
        ]
        results = [None] * len(bodies)

        def ask(i):
            try:
                results[i] = Answer(self.port, bodies[i], self.timeout)
            except (OSError, http.client.HTTPException, Failed) as error:
                results[i] = error

        threads = [threading.Thread(target=ask, args=(i,)) for i in range(len(bodies))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for result in results:
            if isinstance(result, Exception):
                raise Failed(f"{type(result).__name__}: {result}")
            if result.parse().n_tokens != n_tokens:
                raise Failed(f"asked for {n_tokens} tokens, got {result.n_tokens}")
        return results


def together(answers):
    """Tokens per second of all answers, from the first question to the last text: prompts included."""
    seconds = max(a.last for a in answers) - min(a.asked for a in answers)
    return sum(a.n_tokens for a in answers) / seconds


def writing(answers):
    """Tokens per second of all answers while they are written, without their prompts."""
    return sum((a.n_tokens - 1) / (a.last - a.first) for a in answers)
