"""What a sandbox that is reached through a shell needs of the way there."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from hummingbird_ai.abort import Abort
from hummingbird_operator.errors import SandboxLost
from hummingbird_operator.kube.exec import ExecStream


class Transport(Protocol):
    """How commands get into the sandbox."""

    def open(
        self, argv: Sequence[str], *, deadline_seconds: float | None, abort: Abort | None
    ) -> AbstractContextManager[ExecStream]:
        """Start a command; see kube.exec.ExecConnection.open for the errors."""

    def lost(self) -> SandboxLost | None:
        """Whether the sandbox is gone, by a live look. Raises Unavailable when that cannot be told."""
