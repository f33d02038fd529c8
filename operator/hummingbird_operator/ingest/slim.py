"""What of an event is kept while it waits in memory: that which a decision reads, and no job, commit or description."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from hummingbird_operator.ingest.payloads import MergeRequestEvent, NoteEvent, PipelineEvent

_READ = frozenset({"object_kind", "oversize"}).union(
    NoteEvent.model_fields, MergeRequestEvent.model_fields, PipelineEvent.model_fields
)
_UNREAD = frozenset({"description"})
"""Within a part: up to a megabyte, and for a comment its text once more."""


def slim(payload: Mapping[str, Any]) -> tuple[dict[str, Any], int]:
    """The payload without what nothing here reads, and its size in characters of JSON."""
    kept = {name: _part(value) for name, value in payload.items() if name in _READ}
    return kept, len(json.dumps(kept, ensure_ascii=False))


def _part(value: Any) -> Any:
    if not isinstance(value, Mapping):
        return value
    return {name: inner for name, inner in value.items() if name not in _UNREAD}
