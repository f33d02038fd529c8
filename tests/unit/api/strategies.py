"""Any object that a structural schema allows."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from hypothesis import strategies as st

from hummingbird_operator.api.agentrun import AgentRunSpec
from hummingbird_operator.api.runstatus import AgentRunStatus
from hummingbird_operator.api.schema import structural

Object = dict[str, Any]

_TIMES = st.datetimes(min_value=datetime(1970, 1, 1)).map(lambda moment: moment.strftime("%Y-%m-%dT%H:%M:%SZ"))  # noqa: DTZ001


def objects(schema: Object) -> st.SearchStrategy[Any]:
    """Values of that schema; its CEL rules are not known here."""
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    match schema["type"]:
        case "object":
            return _with_properties(schema)
        case "array":
            unique = (lambda one: one["type"]) if "x-kubernetes-list-map-keys" in schema else None
            return st.lists(objects(schema["items"]), max_size=3, unique_by=unique)
        case "boolean":
            return st.booleans()
        case "integer":
            return st.integers(schema.get("minimum", 0), schema.get("maximum", 2**53))
        case _:
            return _strings(schema)


def _with_properties(schema: Object) -> st.SearchStrategy[Object]:
    required = set(schema.get("required", ()))
    fields = {name: objects(one) for name, one in schema.get("properties", {}).items()}
    return st.fixed_dictionaries(
        {name: one for name, one in fields.items() if name in required},
        optional={name: one for name, one in fields.items() if name not in required},
    )


def _strings(schema: Object) -> st.SearchStrategy[str]:
    if schema.get("format") == "date-time":
        return _TIMES
    if "pattern" in schema:
        made = st.from_regex(schema["pattern"].removesuffix("$") + r"\Z")
        return made.filter(lambda text: len(text) <= schema["maxLength"])
    letters = st.characters(exclude_categories=["Cs"])
    return st.text(letters, min_size=schema.get("minLength", 0), max_size=min(schema["maxLength"], 50))


def _by_the_rules(spec: Object) -> Object:
    """What the CEL rules ask for beside the schema."""
    target = spec.get("target", {})
    if len(target) != 1:
        spec = {key: one for key, one in spec.items() if key not in ("target", "notice", "delivery")}
        if target:
            spec["target"] = {"gitlab": target["gitlab"]}
    cost = spec.get("limits", {}).get("maxCostUSD", "1")
    return spec if cost.strip("0.") else {key: one for key, one in spec.items() if key != "limits"}


def _without_orphans(spec: Object) -> Object:
    kept = ("notice", "delivery") if "target" not in spec else ()
    return {key: one for key, one in spec.items() if key not in kept}


SPECS = objects(structural(AgentRunSpec, defaults=False)).map(_by_the_rules).map(_without_orphans)
STATUSES = objects(structural(AgentRunStatus, defaults=False))
