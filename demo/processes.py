"""Processes of ours that run beside a test or the demo, and how to wait for them."""

from __future__ import annotations

import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path


@dataclass
class Operator:
    """A running operator or ingest process; `port` is its health's."""

    process: subprocess.Popen[bytes]
    log: Path
    port: int

    def wait_until_ready(self, seconds: float = 60) -> None:
        """Until it answers /readyz; raises with the end of its log if it dies instead."""

        def answers() -> bool:
            if self.process.poll() is not None:
                raise RuntimeError(f"the process ended with {self.process.returncode}:\n{self.tail()}")
            return self.probe("readyz") == 200

        wait_for(answers, seconds, lambda: f"the process is not ready:\n{self.tail()}")

    def wait_until_leading(self, seconds: float = 60) -> None:
        """Until it leads."""
        wait_for(lambda: "hummingbird_leader 1.0" in self.metrics(), seconds, lambda: f"not leading:\n{self.tail()}")

    def probe(self, path: str) -> int:
        """The HTTP status of a health path; 0 while nothing answers."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/{path}", timeout=2) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            return error.code
        except OSError:
            return 0

    def metrics(self) -> str:
        """The metrics page; empty while nothing answers."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=2) as answer:
                return str(answer.read().decode())
        except OSError:
            return ""

    def tail(self, lines: int = 40) -> str:
        """The end of its log."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])

    def kill(self) -> None:
        """End it at once, as a crash does."""
        self.process.kill()
        self.process.wait()

    def stop(self, seconds: float = 30) -> None:
        """End it by SIGTERM; safe to repeat."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(seconds)
            except subprocess.TimeoutExpired:
                self.kill()
                raise


@dataclass
class Ingestor(Operator):
    """A running ingest process; `webhook_port` takes events where it is a webhook."""

    webhook_port: int

    @property
    def url(self) -> str:
        """Where a hook sends to."""
        return f"http://127.0.0.1:{self.webhook_port}/webhooks/gitlab"


def wait_for(done: Callable[[], bool], seconds: float, why: Callable[[], str], *, pause: float = 0.1) -> None:
    """Look until it is so; raise TimeoutError with `why` after that many seconds."""
    end = time.monotonic() + seconds
    while not done():
        if time.monotonic() > end:
            raise TimeoutError(why())
        time.sleep(pause)


def free_port() -> int:
    """A port of this computer that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
