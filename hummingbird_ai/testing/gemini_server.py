"""The command line of `GeminiServer`: `python -m hummingbird_ai.testing.gemini_server --script module:function`."""

from __future__ import annotations

import argparse
import importlib
import signal
import sys
from collections.abc import Sequence

from hummingbird_ai.testing.replies import Script
from hummingbird_ai.testing.server import GeminiServer

__all__ = ["GeminiServer", "main"]


def main(arguments: Sequence[str] | None = None) -> None:
    """Serve until SIGINT or SIGTERM; the address is the first line of the output."""
    parser = argparse.ArgumentParser(prog="gemini_server", description="A scripted Gemini for tests and demonstrations")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0, help="0: any free one")
    parser.add_argument("--api-key", default="test-key")
    parser.add_argument("--script", required=True, metavar="MODULE:FUNCTION", help="(request body, n) -> reply")
    chosen = parser.parse_args(arguments)
    stop = {signal.SIGINT, signal.SIGTERM}
    signal.pthread_sigmask(signal.SIG_BLOCK, stop)  # before any thread exists: it is for sigwait alone
    with GeminiServer(_script(chosen.script), api_key=chosen.api_key, host=chosen.host, port=chosen.port) as server:
        sys.stdout.write(f"{server.url}\n")
        sys.stdout.flush()
        signal.sigwait(stop)


def _script(name: str) -> Script:
    module, _, function = name.partition(":")
    if not module or not function:
        raise SystemExit(f"--script {name}: write it as module:function")
    script: Script = getattr(importlib.import_module(module), function)
    return script


if __name__ == "__main__":
    main()
