"""GitLab's lists as the hooks' token reads them: what is filtered, what is passed over, what a refusal says."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from itertools import islice

import pytest

from hummingbird_operator.delivery.bounded import Turns
from hummingbird_operator.delivery.refusals import TooLarge
from hummingbird_operator.errors import Invalid, NotFound, Unavailable
from hummingbird_operator.ingest.missed.lists import Lists
from tests.standins.gitlab import GitLabStandIn
from tests.unit.ingest.missed.scenes import APP, IID, MR, TOKEN
from tests.unit.ingest.samples import SHA

LONG_AGO = datetime(2000, 1, 1, tzinfo=UTC)
TO_COME = datetime(2100, 1, 1, tzinfo=UTC)


@contextmanager
def gitlab(token: str = TOKEN) -> Iterator[tuple[GitLabStandIn, Lists]]:
    with GitLabStandIn() as standin, closing(Lists(standin.url, token)) as lists:
        yield standin, lists


def test_a_project_and_what_changed_in_it_are_listed_as_far_as_they_are_read() -> None:
    with gitlab() as (standin, lists):
        home = lists.project(APP)
        assert (home.id, home.path_with_namespace, home.web_url) == (10, APP, f"https://gitlab.example.com/{APP}")
        assert list(lists.projects(LONG_AGO)) == [APP]
        assert not [*lists.projects(TO_COME), *lists.merge_requests(APP, TO_COME), *lists.pipelines(APP, TO_COME)]
        for number in range(150):
            standin.people.comments(*MR, "alice", str(number))
        before = len(standin.calls)
        assert [note.body for note in islice(lists.notes(APP, IID), 2)] == ["149", "148"]
        assert len(standin.calls) == before + 1, "one page"
        assert len(dict(lists.threads(APP, IID))) == 150
        assert [change.iid for change in lists.merge_requests(APP, LONG_AGO)] == [IID]


def test_a_row_of_another_shape_hides_no_other_and_one_alone_is_no_answer() -> None:
    with gitlab() as (standin, lists):
        standin.people.opens(APP, 50, "alice", SHA)
        project = standin.state.project(APP)
        assert project is not None
        project.merge_requests[50].fields["author"] = "nobody"
        project.merge_requests[IID].fields |= {"title": None, "draft": None, "updated_at": "2030-01-10T12:00:00.000Z"}
        (change,) = lists.merge_requests(APP, LONG_AGO)
        assert (change.iid, change.title, change.draft) == (IID, "", False)
        with pytest.raises(Unavailable, match=r"group/app!50 cannot be read"):
            lists.merge_request(APP, 50)


def test_refusals_name_the_token_of_the_hooks() -> None:
    with (
        gitlab("wrong-token") as (_, lists),
        pytest.raises(Unavailable, match=r"\(401\): renew gitlab\.hooks_token_env"),
    ):
        lists.project(APP)
    with gitlab() as (standin, lists):
        with pytest.raises(Invalid, match="no such project"):
            lists.project("group/none")
        with pytest.raises(NotFound):
            list(lists.notes(APP, 999))
        body = '{"message": "403 Forbidden"}'
        standin.fault("status", status=403, method="GET", path="merge_requests", body=body)
        with pytest.raises(Invalid, match="the role Maintainer in the project"):
            list(lists.merge_requests(APP, LONG_AGO))


def test_notes_and_threads_that_are_too_long_at_once_are_read_in_smaller_pages_each_once() -> None:
    turns = Turns()
    with GitLabStandIn() as standin, closing(Lists(standin.url, TOKEN, most=40_000, turns=turns)) as lists:
        for number in range(30):
            standin.people.comments(*MR, "alice", str(number) + "x" * 5000)
        assert lists.turns is turns, "large answers of the handler wait for those"
        numbers = [note.body.partition("x")[0] for note in lists.notes(APP, IID)]
        assert numbers == [str(number) for number in range(29, -1, -1)]
        assert len(list(lists.threads(APP, IID))) == 30
        standin.people.comments(*MR, "alice", "x" * 50_000)
        with pytest.raises(TooLarge):
            list(lists.notes(APP, IID))
