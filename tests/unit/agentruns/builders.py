"""One builder per kind: a run at any point of its life, from the smallest valid one."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from hummingbird_operator.agentruns.facts import Facts
from hummingbird_operator.agentruns.resolve import Order, resolve
from hummingbird_operator.agentruns.turns import GRANTED, Turn
from hummingbird_operator.api.agentrun import AgentRun, RunnerRef
from hummingbird_operator.config import Config, WorkflowEntry
from hummingbird_operator.errors import Invalid
from hummingbird_operator.workflows import Workflow, Workflows

NOW = datetime(2026, 11, 30, 10, 0, 0, tzinfo=UTC)
ME = RunnerRef(identity="operator-0-abcd", epoch=3)
UID = "0f9b7c1e-8a51-4f5e-9d2e-1c5a3f0b7d11"
SHA = "9f2c" * 10

CONFIG = Config.model_validate(
    {
        "gitlab": {"url": "https://gitlab.example.com", "token_env": "BOT"},
        "models": {"default": "gemini-3.8-flash"},
        "sessions": {"store": "file:///var/lib/hummingbird"},
        "projects": {"group/app": {}, "secret/*": {"internal_notes": True}},
        "workflows": {
            "analyze-failures": {"prompt": "workflows/analyze-failures.md", "projects": ["group/*", "secret/*"]},
            "short": {"prompt": "workflows/short.md", "max_iterations": 7, "model": "gemini-3.5-flash-lite"},
        },
    }
)
WORKFLOWS = Workflows(
    {name: Workflow(name, "Look into it.", entry, "0123456789abcdef") for name, entry in CONFIG.workflows.items()}
)


def entry(**changes: Any) -> WorkflowEntry:
    return WorkflowEntry.model_validate({"prompt": "workflows/any.md", **changes})


def run(spec: dict[str, Any] | None = None, status: dict[str, Any] | None = None, **metadata: Any) -> AgentRun:
    return AgentRun.parse(
        {
            "metadata": {
                "name": "why",
                "namespace": "hummingbird",
                "uid": UID,
                "resourceVersion": "7",
                "generation": 1,
                "creationTimestamp": "2026-11-30T09:59:00Z",
                "finalizers": ["hummingbird-project.io/operator"],
                **metadata,
            },
            "spec": {
                "workflow": "analyze-failures",
                "target": {"gitlab": {"project": "group/app", "mergeRequest": 42}},
                **(spec or {}),
            },
            "status": status or {},
        }
    )


def conditions(**found: str) -> list[dict[str, Any]]:
    """`conditions(Accepted="True", Succeeded="Unknown/Running")`."""
    entries = []
    for type_, text in found.items():
        status, _, reason = text.partition("/")
        entries.append(
            {
                "type": type_,
                "status": status,
                "reason": reason or type_,
                "message": "",
                "lastTransitionTime": "2026-11-30T09:59:30Z",
                "observedGeneration": 1,
            }
        )
    return entries


def mine(*, note: bool | str = True, **found: str) -> dict[str, Any]:
    """The status of a run that this process has, with these conditions."""
    status: dict[str, Any] = {
        "runner": {"identity": ME.identity, "epoch": ME.epoch},
        "attempts": 1,
        "startTime": "2026-11-30T09:59:40Z",
        "resolved": {"limits": {"timeoutSeconds": 1800}},
        "conditions": conditions(**found),
    }
    if note:
        status["note"] = {"id": 5, "url": "https://gitlab.example.com/n/5"}
    return status


def facts(subject: AgentRun, *, turn: Turn = GRANTED, now: datetime = NOW, **changes: Any) -> Facts:
    order: Order | Invalid
    try:
        order = resolve(subject.spec, CONFIG, WORKFLOWS)
    except Invalid as refusal:
        order = refusal
    values: dict[str, Any] = {"sandbox_held": False, "max_attempts": 50, "order": order, **changes}
    return Facts(now=now, me=ME, run=subject, turn=turn, **values)
