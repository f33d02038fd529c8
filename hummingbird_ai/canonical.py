"""The stored form of a conversation, readable by every adapter.

A message is `{"version": 1, "role": "user" | "assistant", "parts": […], "producer"?, "extra"?}`. An assistant one names
its `producer` (`provider`, `transport`, `model`), because signatures and server-side blocks mean something only to that
one; `extra` holds the producer's own notes about the turn. A user's message has a producer only if it holds something
that others cannot read. Parts:

    {"type": "text", "text", "signature"?}
    {"type": "thinking", "text", "signature"?}                   assistant; only its producer can read it
    {"type": "tool_call", "id", "name", "arguments", "signature"?, "minted"?}                     assistant
    {"type": "tool_result", "id", "name", "result", "signature"?, "minted"?}                      user
    {"type": "opaque", "data", "text"?}                          only its producer can read it; `text` is for others

`minted`: the provider gave no id, so none is sent back to it. Any part may carry `extra`, further keys of its producer,
none of which is called like one of the part's own (`OWN_KEYS`); a call or result also `payload_extra`, keys from inside
the provider's call or result other than its id and name. `arguments`, `result`, `data` and
both kinds of extra are JSON objects. Signatures and ids are strings that nobody decodes or changes.

`checked` refuses what is not this form, `repaired` puts messages in an order every provider accepts, and `readable_by`
makes them fit to be sent to one producer.
"""

from hummingbird_ai.canonical_form import (
    OWN_KEYS,
    VERSION,
    Message,
    Producer,
    checked,
    is_blank,
    is_local_id,
    is_own,
    local_id,
    message,
)
from hummingbird_ai.canonical_repair import NO_RESULT, NO_START, readable_by, repaired

__all__ = [
    "NO_RESULT",
    "NO_START",
    "OWN_KEYS",
    "VERSION",
    "Message",
    "Producer",
    "checked",
    "is_blank",
    "is_local_id",
    "is_own",
    "local_id",
    "message",
    "readable_by",
    "repaired",
]
