"""The command line of `GeminiServer`: `python -m hummingbird_ai.testing.gemini_server --script module:function`."""

from __future__ import annotations

from hummingbird_ai.testing.command import serve
from hummingbird_ai.testing.server import GeminiServer

__all__ = ["GeminiServer", "main"]

_OPTIONS = {
    "api_key": ("test-key", "what the Gemini API takes as x-goog-api-key"),
    "bearer_token": ("test-token", "what Vertex AI takes"),
}


def main() -> None:
    """Serve until SIGINT or SIGTERM; the address is the first line of the output."""
    serve(GeminiServer, "Gemini", _OPTIONS)


if __name__ == "__main__":
    main()
