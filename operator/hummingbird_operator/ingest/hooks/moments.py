"""Moments in GitLab's two forms: hooks say `2015-05-17 18:21:36 UTC`, the API ISO 8601. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

_MOMENT = re.compile(r"(\d{4}-\d\d-\d\d)[ T](\d\d:\d\d:\d\d)(\.\d{1,6})?\d* ?(UTC|Z|[+-]\d\d:?\d\d)?")


def moment(text: object) -> datetime | None:
    """The moment, aware of its zone; None for anything else."""
    found = _MOMENT.fullmatch(text) if isinstance(text, str) else None
    if found is None:
        return None
    zone = "+00:00" if found[4] in (None, "UTC", "Z") else found[4]
    try:
        return datetime.fromisoformat(f"{found[1]}T{found[2]}{found[3] or ''}{zone}")
    except ValueError:
        return None


def happened(payload: Mapping[str, Any]) -> datetime | None:
    """When an event happened, by its own words."""
    attributes = payload.get("object_attributes")
    named = attributes if isinstance(attributes, Mapping) else {}
    moments = [moment(named.get(name)) for name in ("finished_at", "updated_at", "created_at")]
    return max(filter(None, moments), default=None)


def hook_time(when: datetime) -> str:
    """A moment as a hook says it: content keys hold that text."""
    return when.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def api_time(when: datetime) -> str:
    """A moment as the API's filters take it."""
    return when.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
