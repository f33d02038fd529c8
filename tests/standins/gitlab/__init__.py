"""A stateful HTTP stand-in for the part of GitLab's REST API that Hummingbird uses.

In process:

    with GitLabStandIn(fixture) as gitlab:
        Notes(gitlab.url, token)

or as a command: ``python -m tests.standins.gitlab --port 8929 --fixture project.json``, steered through ``/_standin/``.
People act through ``gitlab.people``; what GitLab tells of it is in ``gitlab.events``, goes to ``gitlab.on_event`` and,
with hooks, over HTTP (``gitlab.hooks_wait()`` waits until all of it is out).

No real GitLab was run to make it: its rules come from GitLab's published source and documentation.
"""

from __future__ import annotations

from tests.standins.gitlab.events import Emitted
from tests.standins.gitlab.faults import Fault
from tests.standins.gitlab.people import NothingWritten, People
from tests.standins.gitlab.server import GitLabStandIn
from tests.standins.gitlab.state import Call, State, sample_fixture
from tests.standins.gitlab.wire import ApiError

__all__ = [
    "ApiError",
    "Call",
    "Emitted",
    "Fault",
    "GitLabStandIn",
    "NothingWritten",
    "People",
    "State",
    "sample_fixture",
]
