"""ministack as a process: S3 and SQS on loopback, from an environment of its own that `make setup` prepares."""

from __future__ import annotations

import os
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

START_SECONDS = 60.0


@contextmanager
def ministack(folder: Path) -> Iterator[str]:
    """Run it as long as the block lasts; yields the endpoint's address. `folder` gets its log."""
    servers = os.environ.get("HUMMINGBIRD_SERVERS", "")
    program = Path(servers) / "bin" / "ministack"
    if not servers or not program.exists():
        raise RuntimeError("ministack is not installed: run the tests by `make test-e2e`, which prepares it")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    with (folder / "ministack.log").open("wb") as log:
        process = subprocess.Popen(
            [str(program)],
            env={"PATH": os.environ["PATH"], "GATEWAY_PORT": str(port), "BIND_HOST": "127.0.0.1", "HOME": str(folder)},
            stdout=log,
            stderr=log,
            stdin=subprocess.DEVNULL,
        )
        try:
            _wait(process, port, folder / "ministack.log")
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()
            process.wait(20)


def _wait(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    end = time.monotonic() + START_SECONDS
    while time.monotonic() < end and process.poll() is None:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/_ministack/health", timeout=2):
                return
        except OSError:
            time.sleep(0.2)
    raise RuntimeError(f"ministack did not start:\n{log.read_text(errors='replace')[-2000:]}")
