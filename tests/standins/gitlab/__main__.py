"""The stand-in as a command: ``python -m tests.standins.gitlab --port 8929 --fixture project.json``."""

from __future__ import annotations

import argparse
import contextlib
import json
from pathlib import Path

from tests.standins.gitlab.server import GitLabStandIn


def main() -> None:
    """Serve until interrupted; the address is printed once the port is open."""
    parser = argparse.ArgumentParser(prog="python -m tests.standins.gitlab", description=__doc__)
    parser.add_argument("--port", type=int, default=0, help="0 picks a free one")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--fixture", type=Path, help="JSON with users and projects; a small sample without it")
    arguments = parser.parse_args()
    fixture = json.loads(arguments.fixture.read_text()) if arguments.fixture else None
    with (
        GitLabStandIn(fixture, port=arguments.port, host=arguments.host) as standin,
        contextlib.suppress(KeyboardInterrupt),
    ):
        print(standin.url, flush=True)
        standin.wait()


if __name__ == "__main__":
    main()
