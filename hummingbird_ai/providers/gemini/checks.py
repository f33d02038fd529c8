"""What this package relies on in parts that it did not make itself: an answer's, or a stored session's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic.alias_generators import to_camel

from hummingbird_ai.providers.wire import first_problem

WIRE = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="ignore")
"""Fields that this version does not know are let through: providers add some every month."""


class _Wire(BaseModel):
    model_config = WIRE


class _Call(_Wire):
    id: str | None = None
    name: str | None = None
    args: dict[str, Any] | None = None


class _Response(_Wire):
    id: str | None = None
    name: str | None = None
    response: dict[str, Any] | None = None


class Part(_Wire):
    """What this version looks into; parts are kept as they came, with whatever else they hold."""

    text: str | None = None
    thought_signature: str | None = None
    function_call: _Call | None = None
    function_response: _Response | None = None


def part_problem(part: Mapping[str, Any]) -> str:
    """What is wrong with a stored part, "" if it can be sent again. Only an answer's fields may be null."""
    for name in ("text", "thoughtSignature", "functionCall", "functionResponse"):
        if part.get(name, "") is None:
            return f"{name}: must not be null"
    try:
        Part.model_validate(part)
    except ValidationError as error:
        return first_problem(error)
    return ""
