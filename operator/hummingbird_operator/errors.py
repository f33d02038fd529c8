"""Every error that this package raises on purpose, named after who must act.

    HummingbirdError
    ├── Invalid            a person must mend the named field, file or setting
    ├── Unavailable        a service is away or over its limit: the same step is tried again later
    │   └── Doubt          nobody can tell whether this process still leads: wait, and count it against no service
    ├── NotFound           what was asked for does not exist
    ├── Conflict           somebody else wrote first: read again, decide again
    ├── LeadershipLost     another process leads now: stop at once, write nothing
    ├── SandboxLost        the sandbox is gone, with its cause
    └── Aborted            cancel, delete, deadline or shutdown asked for the end

Vendor and transport exceptions never leave their adapter: they are chained to one of these.
`hummingbird_ai` has a tree of its own (`hummingbird_ai.errors`), which the engine turns into an outcome.
"""

from __future__ import annotations


class HummingbirdError(Exception):
    """The root: its text is one sentence that a person can act on."""


class Invalid(HummingbirdError):
    """A person must mend something: `where` names the field, file or setting."""

    def __init__(self, where: str, problem: str) -> None:
        super().__init__(f"{where}: {problem}")
        self.where = where
        self.problem = problem


class Unavailable(HummingbirdError):
    """`service` does not answer or refuses for now; `retry_after` is its own hint in seconds, if it gave one."""

    def __init__(self, service: str, problem: str, *, retry_after: float | None = None) -> None:
        super().__init__(f"{service} is not available: {problem}")
        self.service = service
        self.problem = problem
        self.retry_after = retry_after


class Doubt(Unavailable):
    """The Lease could not be renewed in time: nothing is written until it can, or until it turns out to be lost.

    It ends by itself, one way or the other: whoever meets it waits, and gives nobody else's service up for it.
    """


class NotFound(HummingbirdError):
    """The object, file, session or merge request does not exist (any more)."""


class Conflict(HummingbirdError):
    """A precondition failed: the caller reads again and decides again; it never writes blindly."""


class LeadershipLost(HummingbirdError):
    """Another process leads now: this one must not write anything more. No Conflict, which is answered by a new try."""


class SandboxLost(HummingbirdError):
    """The sandbox is gone; `cause` is the reason's name in CamelCase, such as OOMKilled or Evicted."""

    def __init__(self, cause: str, detail: str) -> None:
        super().__init__(f"the sandbox was lost ({cause}): {detail}")
        self.cause = cause
        self.detail = detail


class Aborted(HummingbirdError):
    """The work was ended from outside; `reason` is one of Cancelled, TimedOut, Deleted, ShuttingDown."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"ended from outside: {reason}")
        self.reason = reason
