"""Objects for tests, made from the schemas themselves: a new field is covered the day it is written."""

from __future__ import annotations

from typing import Any

from hummingbird_operator.api.agentrun import AgentRunSpec
from hummingbird_operator.api.fields import Model
from hummingbird_operator.api.runstatus import AgentRunStatus
from hummingbird_operator.api.sandboxpool import SandboxPoolStatus
from hummingbird_operator.api.schema import structural

Object = dict[str, Any]

SESSION = "3f0c4b8e-51f2-4c7d-9a43-0b6c1f0e7d55"
TIME = "2026-11-30T19:29:00Z"

POD_TEMPLATE: Object = {
    "metadata": {"labels": {"team": "ci"}},
    "spec": {
        "containers": [
            {"name": "sandbox", "image": "sandbox:1", "resources": {"limits": {"cpu": "1", "memory": "1Gi"}}},
        ]
    },
}

LONGEST = {
    "workflow": "w" * 40,
    "project": "g/" + "p" * 510,
    "sha": "a" * 64,
    "repository": "o" * 39 + "/" + "r" * 100,
    "session": SESSION,
    "event": "e" * 40,
    "url": "https://" + "u" * 2040,
    "discussion": "d" * 64,
    "model": "m" * 128,
    "pool": "p" * 63,
    "maxCostUSD": "999999.999999",
    "costUSD": "9999999999999.999999",
}
"""The longest value of each field that must match a pattern."""


def longest(schema: Object, name: str = "", *, factor: int = 1, number: int = 0) -> Any:
    """The largest object that the schema allows; with `factor`, free texts that many times longer than it does."""
    if "enum" in schema:
        return max(schema["enum"], key=len)
    match schema["type"]:
        case "object":
            return {
                key: longest(one, key, factor=factor, number=number)
                for key, one in schema.get("properties", {}).items()
            }
        case "array":
            return [longest(schema["items"], factor=factor, number=n) for n in range(schema["maxItems"])]
        case "boolean":
            return True
        case "integer":
            return schema.get("maximum", 2**53)
        case _:
            return _string(schema, name, factor, number)


def _string(schema: Object, name: str, factor: int, number: int) -> str:
    if schema.get("format") == "date-time":
        return TIME
    if name == "reason":
        return "R" * int(schema["maxLength"])
    if "pattern" in schema:
        return LONGEST[name]
    # entries of a list are told apart by their first character
    return chr(0x4E00 + number) + "é" * (int(schema["maxLength"]) * factor - 1)


def fullest_spec() -> Object:
    """A run's spec with every field at its longest (the target's other half left out)."""
    spec: Object = longest(structural(AgentRunSpec, defaults=False))
    del spec["target"]["github"]
    return spec


def _fullest(model: type[Model]) -> Object:
    found: Object = longest(structural(model, defaults=False))
    return found


def fullest_run_status() -> AgentRunStatus:
    """A run's status with every field at its longest."""
    return AgentRunStatus.parse(_fullest(AgentRunStatus))


def fullest_pool_status() -> SandboxPoolStatus:
    """A pool's status with every field at its longest."""
    return SandboxPoolStatus.parse(_fullest(SandboxPoolStatus))


def overlong_run_status() -> AgentRunStatus:
    """A status whose free texts are three times too long: the models cut them."""
    raw = longest(structural(AgentRunStatus, defaults=False), factor=3)
    del raw["conditions"]
    return AgentRunStatus.parse(raw)


def condition(type_: str, status: str, reason: str) -> Object:
    """One condition on the wire."""
    return {
        "type": type_,
        "status": status,
        "reason": reason,
        "message": "",
        "lastTransitionTime": TIME,
        "observedGeneration": 1,
    }


def plain_run_status() -> AgentRunStatus:
    """A run that is over."""
    return AgentRunStatus.parse(
        {
            "phase": "Succeeded",
            "target": "group/app!42",
            "conditions": [condition("Succeeded", "True", "Completed"), condition("Finished", "True", "Completed")],
            "usage": {"iterations": 7, "totalTokens": 1234, "costUSD": "0.042"},
            "session": {"id": SESSION},
            "sandbox": {"backend": "k8spool", "name": "default-x7k2p"},
            "resolved": {"model": "gemini-3.8-flash"},
            "message": "answered",
        }
    )


def plain_pool_status() -> SandboxPoolStatus:
    """A pool that is being filled."""
    return SandboxPoolStatus.parse(
        {
            "standby": 2,
            "pending": 1,
            "active": 4,
            "lingering": 1,
            "replicas": 3,
            "conditions": [condition("Ready", "False", "StandbyMissing")],
        }
    )
