"""How a command ended, by the frame of channel 3 that the kubelet sends last."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass


@dataclass(frozen=True)
class ExecStatus:
    """What the kubelet says of the end. `exit_code` is None when the command was not started or not waited for."""

    exit_code: int | None
    message: str


def parse_status(raw: bytes) -> ExecStatus:
    """Read the frame of channel 3; whatever stands in it, no KeyError."""
    try:
        status = json.loads(raw)
    except ValueError:
        return ExecStatus(None, raw[:500].decode(errors="replace"))
    if not isinstance(status, dict):
        return ExecStatus(None, str(status)[:500])
    if status.get("status") == "Success":
        return ExecStatus(0, "")
    message = str(status.get("message") or status.get("reason") or "failed without a message")
    details = status.get("details")
    causes = details.get("causes") if isinstance(details, dict) else None
    for cause in causes if isinstance(causes, list) else []:
        if isinstance(cause, dict) and cause.get("reason") == "ExitCode":
            with suppress(TypeError, ValueError):
                return ExecStatus(int(cause.get("message")), message)  # type: ignore[arg-type]
    return ExecStatus(None, message)
