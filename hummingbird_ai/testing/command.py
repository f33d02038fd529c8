"""The command line of the provider servers; `gemini_server` and `claude_server` are its two names."""

from __future__ import annotations

import argparse
import importlib
import signal
import sys
from collections.abc import Callable

from hummingbird_ai.testing.replies import Script
from hummingbird_ai.testing.server import ProviderServer

Options = dict[str, tuple[str, str]]
"""Options of one provider: its keyword argument, with the default and the help."""


def serve(make: Callable[..., ProviderServer], title: str, options: Options) -> None:
    """Serve until SIGINT or SIGTERM; the address is the first line of the output."""
    parser = argparse.ArgumentParser(description=f"A scripted {title} for tests and demonstrations")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0, help="0: any free one")
    parser.add_argument("--script", required=True, metavar="MODULE:FUNCTION", help="(request body, n) -> reply")
    for name, (default, explained) in options.items():
        parser.add_argument(f"--{name.replace('_', '-')}", default=default, help=explained)
    chosen = vars(parser.parse_args())
    stop = {signal.SIGINT, signal.SIGTERM}
    signal.pthread_sigmask(signal.SIG_BLOCK, stop)  # before any thread exists: it is for sigwait alone
    try:
        made = make(_script(chosen.pop("script")), **chosen)
    except OSError as error:
        raise SystemExit(f"--host {chosen['host']} --port {chosen['port']}: {error}") from None
    with made as server:
        sys.stdout.write(f"{server.url}\n")
        sys.stdout.flush()
        signal.sigwait(stop)


def _script(name: str) -> Script:
    module, _, function = name.partition(":")
    if not module or not function:
        raise SystemExit(f"--script {name}: write it as module:function")
    try:
        script: Script = getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError) as error:
        raise SystemExit(f"--script {name}: {error}") from None
    return script
