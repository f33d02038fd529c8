"""A sandbox that is a pod: commands over the websocket exec, causes from the pod's own status."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager

from hummingbird_ai.abort import Abort
from hummingbird_operator.errors import SandboxLost, Unavailable
from hummingbird_operator.kube.exec import ExecConnection, ExecStream, NotStarted
from hummingbird_operator.sandboxes.causes import cause_of
from hummingbird_operator.sandboxes.shell import ShellSandbox


class PodTransport:
    """Commands into the first container of one pod, known by uid: a pod of the same name is another sandbox."""

    def __init__(self, connection: ExecConnection, namespace: str, name: str, uid: str) -> None:
        self._connection = connection
        self._namespace = namespace
        self._name = name
        self._uid = uid
        self._container = ""

    def open(
        self, argv: Sequence[str], *, deadline_seconds: float | None, abort: Abort | None
    ) -> AbstractContextManager[ExecStream]:
        """See ExecConnection.open. The first one looks at the pod: is it ours, and what is its container called."""
        if not self._container:
            self._container = self._first_container()
        return self._connection.open(
            self._namespace,
            self._name,
            argv,
            container=self._container,
            deadline_seconds=deadline_seconds,
            abort=abort,
        )

    def _first_container(self) -> str:
        try:
            pod = self._connection.pod(self._namespace, self._name)
        except Unavailable as error:
            raise NotStarted(error.service, error.problem) from error
        lost = cause_of(pod, self._uid)
        if lost is not None or pod is None:
            raise lost or SandboxLost("Deleted", "the pod no longer exists")
        return str(pod["spec"]["containers"][0]["name"])

    def lost(self) -> SandboxLost | None:
        """From a live GET of the pod."""
        return cause_of(self._connection.pod(self._namespace, self._name), self._uid)


class PodSandbox(ShellSandbox):
    """Implements sessions.sandbox.Sandbox for a pod that is Running."""

    def __init__(
        self,
        exec: ExecConnection,  # noqa: A002 - the word of the API
        namespace: str,
        name: str,
        uid: str,
        abort: Abort | None = None,
        *,
        on_cleanup: Callable[[], None],
        on_linger: Callable[[str], None],
        check: Callable[[], None] = lambda: None,
    ) -> None:
        transport = PodTransport(exec, namespace, name, uid)
        super().__init__(transport, abort=abort, on_cleanup=on_cleanup, on_linger=on_linger, check=check)
