"""Models for tests and demonstrations, shipped so that nobody has to imitate a model by patching.

`ScriptedModel` answers in the process; `GeminiServer` and `ClaudeServer` speak their provider's wire format over HTTP,
refuse what the provider refuses, and break on request. `hummingbird_ai.testing.replies` has the answers a server's
script can give; `observing` sees every request that any of them accepts.
"""

from hummingbird_ai.testing.observing import observing
from hummingbird_ai.testing.received import ReceivedCall
from hummingbird_ai.testing.replies import (
    Answer,
    Body,
    Drip,
    Drop,
    HttpError,
    Reply,
    Script,
    Search,
    Stall,
    call,
    say,
)
from hummingbird_ai.testing.scripted import ScriptedModel, Wait
from hummingbird_ai.testing.server import ClaudeServer, GeminiServer

__all__ = [
    "Answer",
    "Body",
    "ClaudeServer",
    "Drip",
    "Drop",
    "GeminiServer",
    "HttpError",
    "ReceivedCall",
    "Reply",
    "Script",
    "ScriptedModel",
    "Search",
    "Stall",
    "Wait",
    "call",
    "observing",
    "say",
]
