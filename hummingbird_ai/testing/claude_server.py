"""The command line of `ClaudeServer`: `python -m hummingbird_ai.testing.claude_server --script module:function`."""

from __future__ import annotations

from hummingbird_ai.testing.command import serve
from hummingbird_ai.testing.server import ClaudeServer

__all__ = ["ClaudeServer", "main"]


def main() -> None:
    """Serve until SIGINT or SIGTERM; the address is the first line, `POST /token` there is a `token_uri`."""
    serve(ClaudeServer, "Claude on Vertex AI", {"bearer_token": ("test-token", "what it takes, and gives at /token")})


if __name__ == "__main__":
    main()
