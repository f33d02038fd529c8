"""An AgentRun is created once, and never in place of somebody else's."""

from __future__ import annotations

from typing import Any

import pytest

from hummingbird_operator.api import labels
from hummingbird_operator.errors import Conflict, Invalid, NotFound, Unavailable
from hummingbird_operator.ingest import runs
from hummingbird_operator.ingest.intake import Intake, NameTaken, Refused, finished
from hummingbird_operator.kube.client import AGENT_RUNS, AlreadyExists, QuotaExceeded
from hummingbird_operator.kube.refusals import Forbidden
from hummingbird_operator.kube.testing import FakeKube
from tests.unit.ingest.samples import SESSION, THREAD
from tests.unit.ingest.test_runs import COMMENT

RUN = runs.command(COMMENT, "review", "")
NAME = RUN["metadata"]["name"]
ENDED: dict[str, Any] = {"conditions": [{"type": "Finished", "status": "True"}]}
BEGUN: dict[str, Any] = {
    "startTime": "2026-12-01T18:00:00Z",
    "conditions": [{"type": "Finished", "status": "False"}, {"type": "Accepted"}],
}


def intake(kube: FakeKube) -> Intake:
    return Intake(kube, "hummingbird")


async def test_the_second_creation_finds_the_first() -> None:
    kube = FakeKube()
    assert await intake(kube).create(RUN) is None
    there = await intake(kube).create(RUN)
    assert there is not None
    assert there["metadata"]["name"] == NAME
    assert len(kube.all(AGENT_RUNS)) == 1


@pytest.mark.parametrize("annotations", [{}, None, {labels.CONTENT_KEY: "gitlab:other"}])
async def test_a_name_that_belongs_to_something_else_is_no_success(annotations: dict[str, str] | None) -> None:
    """ingest.md §7 row 233."""
    kube = FakeKube()
    kube.put(AGENT_RUNS, "hummingbird", {"metadata": {"name": NAME, "annotations": annotations}, "spec": {}})
    with pytest.raises(NameTaken, match="it was made from"):
        await intake(kube).create(RUN)


async def test_one_that_was_deleted_meanwhile_is_created_again() -> None:
    kube = FakeKube()
    refusals = iter([AlreadyExists("there"), None, None])
    kube.fail = lambda verb, resource, name: next(refusals)
    assert await intake(kube).create(RUN) is None
    assert len(kube.all(AGENT_RUNS)) == 1


async def test_one_that_comes_and_goes_is_tried_later() -> None:
    kube = FakeKube()
    kube.fail = lambda verb, resource, name: AlreadyExists("there") if verb == "create" else None
    with pytest.raises(Unavailable, match="comes and goes"):
        await intake(kube).create(RUN)


@pytest.mark.parametrize(
    "error",
    [
        Unavailable("the API server", "away"),
        QuotaExceeded("the API server", "full"),
        Forbidden("create agentruns", "forbidden (is the Role applied?)"),
        NotFound("no such namespace"),
        Conflict("busy"),
    ],
)
@pytest.mark.parametrize("verb", ["create", "get", "list"])
async def test_whatever_keeps_all_runs_out_keeps_the_event_in_its_queue(error: Exception, verb: str) -> None:
    kube = FakeKube()
    await intake(kube).create(RUN)
    kube.fail = lambda asked, resource, name: error if asked == verb else None
    with pytest.raises(Unavailable):
        await (intake(kube).waiting(SESSION) if verb == "list" else intake(kube).create(RUN))


async def test_what_the_server_refuses_of_one_object_is_that_event_s_own_fault() -> None:
    """A 400, 413 or 422, or an admission policy that dislikes one message: it would be the same at every try."""
    kube = FakeKube()
    kube.fail = lambda verb, resource, name: Invalid("create agentruns", "the message holds a forbidden word")
    with pytest.raises(Refused, match="a forbidden word"):
        await intake(kube).create(RUN)


@pytest.mark.parametrize(
    ("statuses", "count"),
    [
        ([{}, ENDED], 0),  # the first goes at once
        ([{}, {}, ENDED], 1),
        ([BEGUN, {}, {}], 2),
        ([BEGUN | {"merged": [2, 3]}, {}, {}, {}], 1),
        ([ENDED | {"merged": [2]}, BEGUN, {}, {}], 1),
        ([], 0),
    ],
)
async def test_replies_that_wait_are_counted_but_neither_those_at_work_nor_those_whose_words_another_one_answers(
    statuses: list[dict[str, Any]], count: int
) -> None:
    kube = FakeKube()
    comments = [runs.Comment(COMMENT.origin, 100 + number, THREAD, internal=False) for number in range(len(statuses))]
    made = [runs.reply(comment, "review", SESSION, "") for comment in comments]
    for run, status in zip(made, statuses, strict=True):
        await intake(kube).create(run)
        merged = [made[number]["metadata"]["name"] for number in status.get("merged", ())]
        kube.set_status(AGENT_RUNS, "hummingbird", run["metadata"]["name"], status | {"merged": merged})
    first = runs.automatic(COMMENT.origin, "review", "a" * 40, 1)
    first["metadata"]["labels"][labels.SESSION] = SESSION  # as the operator labels the run that began the session
    await intake(kube).create(first)
    await intake(kube).create(RUN)
    assert await intake(kube).waiting(SESSION) == count


@pytest.mark.parametrize("status", [None, {}, {"conditions": None}, {"conditions": []}])
def test_a_run_without_conditions_has_not_ended(status: object) -> None:
    assert not finished({"metadata": {}, "status": status})
