"""Create an AgentRun once: its name is the claim, and a name that is taken must be taken by the same event."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from hummingbird_operator.api import labels
from hummingbird_operator.api.conditions import RunCondition, rfc3339
from hummingbird_operator.errors import Conflict, Invalid, NotFound, Unavailable
from hummingbird_operator.ingest import runs
from hummingbird_operator.ingest.away import Barred
from hummingbird_operator.ingest.payloads import BadPayload
from hummingbird_operator.kube.client import AGENT_RUNS, AlreadyExists, KubeApi
from hummingbird_operator.kube.refusals import SERVICE, Forbidden

Object = dict[str, Any]

BUDGET = timedelta(hours=1)
"""What people ask for is counted over so long (ingest decision D10: a budget that no agent can change)."""


class NameTaken(Invalid):
    """An AgentRun of that name was made from something else: its creator, or two equal hashes, need a person."""


class Refused(BadPayload):
    """The API server, or an admission policy in it, takes this one object never: in its own words."""


class Intake:
    """AgentRuns of one namespace. Raises Barred for whatever keeps all events out.

    A missing Role, namespace or CRD does: such an event waits in its queue as it would for a server that is away, for
    acknowledging it would lose it, and every other one, in silence. So does a create that fails in the server: one
    whose store takes no writes still lists.
    """

    def __init__(self, kube: KubeApi, namespace: str, now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self._kube = kube
        self._namespace = namespace
        self._now = now

    async def create(self, run: Object) -> Object | None:
        """Create it; None when that was done now, else the run that the same event made before.

        Raises NameTaken, and Refused.
        """
        for _ in range(2):
            try:
                await self._kube.create(AGENT_RUNS, self._namespace, run)
                return None
            except AlreadyExists:
                found = await self.there(run)
            except (NotFound, Forbidden) as error:
                raise Barred(SERVICE, f"it takes no AgentRun in {self._namespace}: {error}") from error
            except Unavailable as error:
                raise Barred(error.service, error.problem, retry_after=error.retry_after) from error
            except Conflict as error:
                raise Unavailable(SERVICE, f"it takes no AgentRun in {self._namespace}: {error}") from error
            except Invalid as error:
                raise Refused(error.where, f"{error.problem} (the API server refuses this AgentRun)") from error
            if found is not None:
                return found
        raise Unavailable(SERVICE, f"AgentRun {run['metadata']['name']} comes and goes")

    async def made(self, key: str) -> Object | None:
        """The run or notice that a comment's key made before."""
        try:
            there = await self._kube.get(AGENT_RUNS, self._namespace, runs.name_of(key))
        except NotFound:
            return None
        except (Conflict, Invalid) as error:
            raise Barred(SERVICE, f"it shows no AgentRun in {self._namespace}: {error}") from error
        return there if _key(there) == key else None

    async def waiting(self, session: str) -> int:
        """How many replies wait for a turn of the session, as the operator counts them before it drops the oldest.

        Neither those at work nor those whose words another one answers, nor the next one where none is at work.
        """
        found = await self._list(f"{labels.SESSION}={session}")
        live = [run for run in found if not finished(run)]
        carried = {name for run in found for name in _status(run).get("merged") or ()}
        replies = [run for run in live if run["spec"].get("session") and run["metadata"]["name"] not in carried]
        busy = any(_begun(run) for run in live)
        return max(0, sum(not _begun(run) for run in replies) - (not busy))

    async def asked_lately(self, run: Object) -> int:
        """How many runs of its lane people asked for within an hour; 0 where this very one exists, however old it is:

        what was made once is no request more, and an event that comes late must not be told that it is one too many.
        """
        lane, since = run["metadata"]["labels"][labels.LANE], rfc3339(self._now() - BUDGET)
        found = await self._list(f"{labels.LANE}={lane}")
        if any(each["metadata"]["name"] == run["metadata"]["name"] for each in found):
            return 0
        lately = [each for each in found if _created(each) >= since]
        return sum(not (each["spec"].get("trigger") or {}).get("automatic") for each in lately)

    async def _list(self, selector: str) -> list[Object]:
        try:
            return await self._kube.list(AGENT_RUNS, self._namespace, label_selector=selector)
        except (NotFound, Conflict, Invalid) as error:
            raise Unavailable(SERVICE, f"it lists no AgentRuns in {self._namespace}: {error}") from error

    async def there(self, run: Object) -> Object | None:
        """The run that stands there already; None when it is gone again. Raises NameTaken."""
        name = run["metadata"]["name"]
        try:
            there = await self._kube.get(AGENT_RUNS, self._namespace, name)
        except NotFound:
            return None
        except (Conflict, Invalid) as error:
            raise Unavailable(SERVICE, f"it shows no AgentRun in {self._namespace}: {error}") from error
        key, theirs = run["metadata"]["annotations"][labels.CONTENT_KEY], _key(there)
        if theirs != key:
            raise NameTaken(f"AgentRun {name}", f"it was made from {theirs or 'no event'}, not from {key}")
        return there


def finished(run: Object) -> bool:
    """Whether a run has ended, by its condition Finished."""
    conditions = _status(run).get("conditions") or []
    return any(one.get("type") == RunCondition.FINISHED and one.get("status") == "True" for one in conditions)


def _created(run: Object) -> str:
    """RFC 3339 sorts as text."""
    return str(run["metadata"].get("creationTimestamp") or "")


def _begun(run: Object) -> bool:
    """Whether its turn came."""
    return _status(run).get("startTime") is not None


def _status(run: Object) -> Object:
    return run.get("status") or {}


def _key(run: Object) -> str:
    return str((run["metadata"].get("annotations") or {}).get(labels.CONTENT_KEY, ""))
