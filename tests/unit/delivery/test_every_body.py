"""Whatever a model, a person, a workflow or an error says: no body of ours acts, created or updated.

The real pen writes each body to the stand-in, which executes what any known reading of GitLab's rules would execute.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hummingbird_operator.delivery import bodies
from hummingbird_operator.delivery.markers import Marker, parse, parse_all
from hummingbird_operator.delivery.notes import MAXIMUM_CHARACTERS, Notes
from tests.standins.gitlab import GitLabStandIn
from tests.standins.gitlab.markdown import extract, mentions
from tests.unit.delivery.pens import WHERE
from tests.unit.delivery.texts import ATTACKS, TEXTS


@dataclass(frozen=True)
class Words:
    """What others say in one body: `a` and `b` stand in turn in each of its places."""

    a: str
    b: str

    @property
    def marker(self) -> Marker:
        """Its values are names that the API server has bounded."""
        a, b = self.a[:253], self.b[:63]
        return Marker("3f0c4b8e-1111-4222-8333-444455556666", wf=b, sha=a, run="uid-1", key=a, state="done")

    @property
    def notice(self) -> Marker:
        return Marker(wf=self.b[:63], run="uid-1", key=self.a[:253], state="done")

    @property
    def footer(self) -> bodies.Footer:
        incomplete = [self.a[:9_000], self.b[:9_000]] * 6
        return bodies.Footer(self.b, 3, 100, 20, Decimal("0.01"), self.a, incomplete=incomplete, pipeline_green=True)

    @property
    def workflows(self) -> dict[str, str]:
        return {self.a: self.b, f"{self.a}{self.b}": self.a, "review": self.b}


BODIES: dict[str, Callable[[Words], str]] = {
    "placeholder": lambda w: bodies.placeholder(workflow=w.a, marker=w.marker),
    "answer": lambda w: bodies.answer(
        w.a, footer=w.footer, marker=w.marker, transcript=w.b, reply_prompt=True, notices=[w.b, w.a]
    ),
    "answer to an AgentRun": lambda w: bodies.answer(
        w.b, footer=w.footer, marker=w.marker, transcript=w.a, reply_prompt=True, by_comment=False
    ),
    "failure": lambda w: bodies.failure(
        w.a, marker=w.marker, workflow=w.b, partial=w.b, footer=w.footer, transcript=w.a
    ),
    "failure alone": lambda w: bodies.failure(w.a, marker=w.marker),
    "cancelled": lambda w: bodies.cancelled(marker=w.marker, by=w.a, partial=w.b, footer=w.footer, transcript=w.a),
    "cancelled without a footer": lambda w: bodies.cancelled(marker=w.marker, partial=w.a, transcript=w.b),
    "timed out": lambda w: bodies.timed_out(1800, marker=w.marker, partial=w.a, footer=w.footer, transcript=w.b),
    "superseded": lambda w: bodies.superseded(
        marker=w.marker, newer_sha=w.a, partial=w.b, footer=w.footer, transcript=w.a
    ),
    "too long": lambda w: bodies.too_long(marker=w.marker, partial=w.a, footer=w.footer),
    "expired": lambda w: bodies.session_expired(marker=w.marker),
    "never saved": lambda w: bodies.session_never_saved(marker=w.marker, why=w.a),
    "unreadable": lambda w: bodies.session_unreadable(marker=w.marker, why=w.b),
    "Help": lambda w: bodies.help_text(w.workflows, marker=w.notice, command=w.a),
    "UnknownCommand": lambda w: bodies.unknown_command(w.a, w.workflows, marker=w.notice),
    "Denied": lambda w: bodies.denied(marker=w.notice),
    "QueueFull": lambda w: bodies.queue_full(marker=w.notice),
}
NOTICES = {"Help", "UnknownCommand", "Denied", "QueueFull"}


@pytest.fixture(scope="module")
def standing(lasting_notes: Notes) -> int:
    """A note that every other text replaces: a placeholder at first."""
    return lasting_notes.create(*WHERE, bodies.placeholder(workflow="review", marker=Marker("id")), internal=False).id


def made(name: str, words: Words) -> tuple[str, Marker]:
    """A body, and the marker that must be read from it."""
    if name in NOTICES:
        return BODIES[name](words), dataclasses.replace(words.notice, notice=name)
    return BODIES[name](words), words.marker


@pytest.mark.parametrize("name", BODIES)
@settings(max_examples=40)
@given(words=st.builds(Words, TEXTS, TEXTS))
def test_no_body_acts_whatever_is_said_in_it(
    lasting_gitlab: GitLabStandIn, lasting_notes: Notes, standing: int, name: str, words: Words
) -> None:
    """Issue 6, "Must be shown" 3; sources.md §6 rows 8, 9, 21 and §9 rows 7 and 8: created, edited, edited again."""
    body, marker = made(name, words)
    created = lasting_notes.create(*WHERE, body, internal=False)
    edited = lasting_notes.update(*WHERE, standing, body)
    again = lasting_notes.update(*WHERE, created.id, body)
    lasting_notes.delete(*WHERE, created.id)
    assert (created.body, edited.body, again.body) == (body, body, body)
    assert (edited.id, again.id) == (standing, created.id)
    assert parse(again.body) == marker
    assert parse_all(again.body) == [marker]
    assert lasting_gitlab.state.executed == []
    assert lasting_gitlab.state.mentions == []
    assert lasting_gitlab.state.destroyed == []


@pytest.mark.parametrize("name", BODIES)
def test_no_body_acts_with_any_known_attack_in_all_its_places(name: str) -> None:
    for attack, other in zip(ATTACKS, [*ATTACKS[1:], ATTACKS[0]], strict=True):
        body, marker = made(name, Words(attack, other))
        assert extract(body) == (body, [])
        assert mentions(body) == []
        assert parse_all(body) == [marker]
        assert body.split("\n")[-1] == marker.render()


@pytest.mark.parametrize("name", BODIES)
def test_no_body_is_longer_than_gitlab_takes(name: str) -> None:
    """sources.md §6 rows 6 and 7: by characters, so one of four bytes counts once."""
    for unit in ("word @alice <b> " * 20 + "\n", "\U0001f426"):
        body, _ = made(name, Words(unit * (1_050_000 // len(unit)), unit * (120_000 // len(unit))))
        assert len(body) <= MAXIMUM_CHARACTERS


def test_a_project_with_thousands_of_workflows_is_told_of_some() -> None:
    workflows = {f"workflow-{number}": "x" * 1000 for number in range(5_000)}
    for body in (bodies.help_text(workflows, marker=Marker()), bodies.unknown_command("w", workflows, marker=Marker())):
        assert len(body) < 50_000
        assert "- and 4900 more" in body
