"""What one slice needs of another, in the words of the one that needs it: slices are blind to each other."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from hummingbird_operator.agentruns.objects import loss
from hummingbird_operator.api.agentrun import AgentRun, Backend
from hummingbird_operator.errors import SandboxLost
from hummingbird_operator.sandboxes.pod import PodSandbox

if TYPE_CHECKING:
    from hummingbird_ai.abort import Abort
    from hummingbird_operator.agentruns.claiming import Member
    from hummingbird_operator.config import Sandbox as Defaults
    from hummingbird_operator.kube.events import Recorder
    from hummingbird_operator.kube.exec import ExecConnection
    from hummingbird_operator.sandboxpools.claiming import Claiming as Claims
    from hummingbird_operator.sessions.sandbox import Sandbox


class ClaimedSandboxes:
    """The runs' view of pools: claims on one side, handles for the engine on the other."""

    def __init__(self, claims: Claims, exec_: ExecConnection, sandbox: Defaults, check: Callable[[], None]) -> None:
        """`check` raises where this process may not touch a sandbox (any more)."""
        self._claims = claims
        self._exec = exec_
        self._sandbox = sandbox
        self._check = check

    async def find(self, run_uid: str) -> Member | None:
        """See agentruns.claiming.Sandboxes."""
        return await self._claims.find(run_uid)

    async def claim(self, run: AgentRun, *, session: str, seconds: int) -> Member | None:
        """See agentruns.claiming.Sandboxes."""
        chosen = run.status.resolved and run.status.resolved.sandbox
        template = self._template() if chosen and chosen.backend is Backend.K8S else None
        pool = (chosen and chosen.pool) or ""
        return await self._claims.claim(
            run.metadata.uid,
            session=session,
            pool=pool,
            active_seconds=seconds,
            template=template,
            replacement=bool(loss(run)),
        )

    def shortage(self, run_uid: str) -> str:
        """See agentruns.claiming.Sandboxes."""
        return self._claims.shortage(run_uid)

    async def let_go(self, run_uid: str, *, session: str | None) -> None:
        """See agentruns.claiming.Sandboxes."""
        if session is None:
            await self._claims.release(run_uid)
        else:
            await self._claims.linger(run_uid, session=session)

    async def lost(self, run_uid: str, name: str, uid: str) -> SandboxLost | None:
        """See agentruns.claiming.Sandboxes."""
        return await self._claims.lost_of(run_uid, name, uid)

    def open(self, member: Member, abort: Abort) -> Sandbox:
        """See agentruns.claiming.Sandboxes. The engine neither deletes nor keeps it: that is `let_go`."""
        return PodSandbox(
            self._exec,
            member.namespace,
            member.name,
            member.uid,
            abort,
            on_cleanup=lambda: None,
            on_linger=lambda _: None,
            check=self._check,
        )

    def changed(self) -> asyncio.Event:
        """See agentruns.claiming.Sandboxes."""
        return self._claims.changed()

    def _template(self) -> Mapping[str, Any]:
        container: dict[str, Any] = {"name": "sandbox", "image": self._sandbox.image}
        if self._sandbox.resources:
            container["resources"] = dict(self._sandbox.resources)
        return {"spec": {"containers": [container]}}


class RunEvents:
    """Events about runs."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder

    async def emit(self, run: AgentRun, type_: str, reason: str, message: str) -> None:
        """See agentruns.accepting.Recorder."""
        reference = {
            "apiVersion": run.api_version,
            "kind": run.kind,
            "name": run.metadata.name,
            "namespace": run.metadata.namespace,
            "uid": run.metadata.uid,
        }
        await self._recorder.emit(reference, type_, reason, message)
