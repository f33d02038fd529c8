"""Models for tests and demonstrations, shipped so that nobody has to imitate a model by patching.

`ScriptedModel` answers in the process; `GeminiServer` speaks Gemini's wire format over HTTP, refuses what Gemini
refuses, and breaks on request. `hummingbird_ai.testing.replies` has the answers a server's script can give.
"""

from hummingbird_ai.testing.replies import (
    Answer,
    Body,
    Drip,
    Drop,
    HttpError,
    Reply,
    Script,
    Stall,
    call,
    say,
)
from hummingbird_ai.testing.scripted import ScriptedModel, Wait
from hummingbird_ai.testing.server import GeminiServer

__all__ = [
    "Answer",
    "Body",
    "Drip",
    "Drop",
    "GeminiServer",
    "HttpError",
    "Reply",
    "Script",
    "ScriptedModel",
    "Stall",
    "Wait",
    "call",
    "say",
]
