"""GitLab says when to come back: the hint is passed on, nobody sleeps, and no form of it breaks the step."""

from __future__ import annotations

from typing import Any

import pytest

from hummingbird_operator.delivery.notes import Notes
from hummingbird_operator.errors import Unavailable
from tests.standins.gitlab import GitLabStandIn
from tests.unit.delivery.pens import BODY, WHERE, posts, stored

HINTS = [
    ({}, None),
    ({"Retry-After": "0"}, 0.0),
    ({"Retry-After": "30"}, 30.0),
    ({"Retry-After": "1.5"}, 1.5),
    ({"Retry-After": "86400"}, 86_400.0),
    ({"Retry-After": "9999999"}, 86_400.0),
    ({"Retry-After": "Wed, 21 Oct 2015 07:28:00 GMT"}, 0.0),
    ({"Retry-After": "Wed, 21 Oct 2099 07:28:00 GMT"}, 86_400.0),
    ({"Retry-After": "soon"}, None),
    ({"RateLimit-Reset": "4102444800"}, None),
]
BODIES = ['{"message": {"error": "This endpoint has been requested too many times."}}', "Retry later\n", ""]


@pytest.mark.parametrize(("headers", "hint"), HINTS)
@pytest.mark.parametrize("body", BODIES)
def test_a_rate_limit_on_a_write_carries_the_hint_and_the_write_is_sent_once(
    gitlab: GitLabStandIn, notes: Notes, headers: dict[str, str], hint: float | None, body: str
) -> None:
    """sources.md §1.4, §6 row 5 and §9 row 2; the last form of the text is GitLab Dedicated's and a proxy's."""
    gitlab.fault("status", status=429, headers=headers, body=body)
    with pytest.raises(Unavailable, match=r"too many requests \(429\)") as caught:
        notes.create(*WHERE, BODY, internal=False)
    assert caught.value.retry_after == hint
    assert posts(gitlab) == 1
    assert stored(gitlab) == []


@pytest.mark.parametrize(("headers", "hint"), HINTS)
def test_a_rate_limit_on_a_read_or_an_edit_is_not_waited_out_either(
    gitlab: GitLabStandIn, notes: Notes, headers: dict[str, str], hint: float | None
) -> None:
    note = notes.create(*WHERE, BODY, internal=False)
    for step in (
        lambda: notes.head(*WHERE),
        lambda: notes.marked(*WHERE),
        lambda: notes.update(*WHERE, note.id, "x"),
        lambda: notes.react(*WHERE, "eyes"),
        lambda: notes.access_level("group/app", 7),
    ):
        gitlab.fault("status", status=429, headers=headers)
        before = len(gitlab.calls)
        with pytest.raises(Unavailable) as caught:
            step()
        assert caught.value.retry_after == hint
        assert len(gitlab.calls) == before + 1


@pytest.mark.parametrize("value", ["86400", "Wed, 21 Oct 2099 07:28:00 GMT"])
def test_a_server_in_maintenance_that_names_its_end_is_believed_and_not_slept_through(
    gitlab: GitLabStandIn, notes: Notes, value: str
) -> None:
    """python-gitlab would sleep a day in the read, or break on the date."""
    gitlab.fault("status", status=503, headers={"Retry-After": value})
    with pytest.raises(Unavailable, match="503") as caught:
        notes.head(*WHERE)
    assert caught.value.retry_after == 86_400.0
    assert len(gitlab.calls) == 1


@pytest.mark.parametrize("headers", [{}, {"Retry-After": "soon"}, {"RateLimit-Reset": "4102444800"}])
def test_a_read_that_met_a_moments_weakness_is_tried_again_whatever_else_the_answer_says(
    gitlab: GitLabStandIn, notes: Notes, headers: dict[str, Any]
) -> None:
    gitlab.fault("status", method="GET", status=502, headers=headers)
    assert notes.head(*WHERE).sha
