"""Payloads of every age and shape: GitLab's own samples, bent ones, and any JSON at all."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hummingbird_operator.errors import Unavailable
from hummingbird_operator.ingest.event import decode_message, encode_envelope, parse_object
from hummingbird_operator.ingest.payloads import read_part
from hummingbird_operator.ingest.reasons import Outcome, Reason
from tests.data.payloads import webhooks
from tests.unit.ingest.desk import Desk, said, thread
from tests.unit.ingest.samples import THREAD, event, merge_request, note, pipeline, reply
from tests.unit.ingest.test_event import JSON, NOW, OBJECTS
from tests.unit.ingest.test_handle_notes import OURS

EVERYWHERE: dict[str, Any] = {"*": {}}

SAMPLES = {
    "build": Reason.UNKNOWN_EVENT,
    "deployment": Reason.UNKNOWN_EVENT,
    "group_merge_request": Reason.BAD_PAYLOAD,
    "issue": Reason.UNKNOWN_EVENT,
    "merge_request": Reason.FIRED,
    "note_commit": Reason.NO_TARGET,
    "note_issue": Reason.NO_TARGET,
    "note_merge_request": Reason.SELF_EVENT,
    "note_snippet": Reason.NO_TARGET,
    "pipeline": Reason.RESOLVED,
    "push": Reason.UNKNOWN_EVENT,
    "release": Reason.UNKNOWN_EVENT,
    "service_merge_request": Reason.FIRED,
    "subgroup": Reason.UNKNOWN_EVENT,
    "tag_push": Reason.UNKNOWN_EVENT,
    "wiki_page": Reason.UNKNOWN_EVENT,
}
"""What becomes of each payload of Debian's golang-github-xanzy-go-gitlab-dev where every project is admitted.

That of a group's hook has neither its project's id nor the merge request's number.
"""


def everywhere() -> Desk:
    workflows = {"fix": {"prompt": "f.md", "action": "pipeline"}, "look": {"prompt": "l.md", "action": "merge_request"}}
    desk = Desk(projects=EVERYWHERE, workflows=workflows)
    desk.forge.calls_itself = ""  # each sample is of another GitLab
    return desk


def test_every_sample_has_its_reason_in_the_table() -> None:
    assert set(webhooks()) == set(SAMPLES)


@pytest.mark.parametrize(("name", "reason"), SAMPLES.items(), ids=list(SAMPLES))
async def test_each_sample_of_gitlab_passes_with_its_reason(name: str, reason: Reason) -> None:
    assert (await everywhere().see(webhooks()[name])).reason is reason


@pytest.mark.parametrize("name", SAMPLES)
async def test_each_sample_of_gitlab_passes_through_a_queue_unchanged(name: str) -> None:
    payload = webhooks()[name]
    assert decode_message(encode_envelope(event(payload), now=NOW), {}).payload == payload
    assert parse_object(json.dumps(payload).encode()) == payload


@pytest.mark.parametrize("name", SAMPLES)
async def test_each_sample_passes_where_its_project_is_not_admitted(name: str) -> None:
    outcome = await Desk(projects={}).see(webhooks()[name])
    assert outcome.reason is not Reason.FIRED


BENT: list[tuple[dict[str, Any], str]] = [
    ({"object_kind": "note"}, "object_attributes"),
    ({"object_kind": "pipeline"}, "object_attributes"),
    ({"object_kind": "merge_request", "object_attributes": []}, "object_attributes"),
    (note(id="1244"), "object_attributes.id"),
    (note(id=True), "object_attributes.id"),
    (note(id=2**53), "object_attributes.id"),
    (note(id=1.0), "object_attributes.id"),
    (note(author_id=None), "object_attributes.author_id"),
    (note(note=None), "object_attributes.note"),
    (note(noteable_type=7), "object_attributes.noteable_type"),
    (note(internal="yes"), "object_attributes.internal"),
    (note(discussion_id="../../../users"), "object_attributes.discussion_id"),
    (note() | {"merge_request": None}, "merge_request"),
    (note() | {"merge_request": {"iid": -1}}, "merge_request.iid"),
    (note() | {"project": None}, "project"),
    (note() | {"project": {"id": 1, "path_with_namespace": "no path"}}, "project.path_with_namespace"),
    (note() | {"user": "alice"}, "user"),
    (pipeline(id=0), "object_attributes.id"),
    (pipeline() | {"object_attributes": {"id": 1, "status": None}}, "object_attributes.status"),
    (pipeline(finished_at="a\nb"), "object_attributes.finished_at"),
    (pipeline(on={"iid": None}), "merge_request.iid"),
    (merge_request(last_commit={"id": "HEAD"}), "object_attributes.last_commit.id"),
    (merge_request(last_commit="9f2c"), "object_attributes.last_commit"),
    (merge_request(updated_at=1), "object_attributes.updated_at"),
    (merge_request(draft="false"), "object_attributes.draft"),
]


@pytest.mark.parametrize(("payload", "field"), BENT, ids=[f"{index}-{field}" for index, (_, field) in enumerate(BENT)])
async def test_a_bent_payload_is_named_by_its_field(payload: dict[str, Any], field: str) -> None:
    """ingest.md §7 row 254: a webhook template of an administrator may change any shape."""
    desk = Desk()
    outcome = await desk.see(payload)
    assert outcome.reason is Reason.BAD_PAYLOAD
    assert outcome.detail.startswith(f"{field}: ")
    assert len(outcome.detail) < 500
    assert not desk.runs


def busy() -> Desk:
    desk = Desk(projects=EVERYWHERE)
    desk.forge.threads[THREAD] = thread(said(10, OURS))
    return desk


def decided(payload: dict[str, Any]) -> Outcome | None:
    """Hand it in as it would come over a wire; None where it has to come again."""

    async def see() -> Outcome | None:
        try:
            return await busy().see(payload)
        except Unavailable:
            return None

    return asyncio.run(see())


@given(OBJECTS, st.sampled_from(["note", "pipeline", "merge_request", "push"]))
def test_any_object_has_an_outcome(payload: dict[str, Any], kind: str) -> None:
    assert decided(payload | {"object_kind": kind})
    assert decided(payload)


REAL = [note(), reply(), pipeline(), pipeline("success"), merge_request()]


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(found for key, one in inner for found in places(one, (*path, key)))]


@given(st.data())
def test_any_real_event_with_anything_in_it_replaced_or_missing_has_an_outcome(data: st.DataObject) -> None:
    samples = [*REAL, *webhooks().values()]
    payload = json.loads(json.dumps(data.draw(st.sampled_from(samples))))
    for _ in range(data.draw(st.integers(1, 3))):
        path = data.draw(st.sampled_from(places(payload)[1:] or [("object_kind",)]))
        holder = payload
        for key in path[:-1]:
            holder = holder[key]
        if data.draw(st.booleans()):
            holder[path[-1]] = data.draw(JSON)
        elif isinstance(holder, dict):
            holder.pop(path[-1], None)
    assert decided(payload)


@pytest.mark.parametrize("payload", REAL)
def test_what_nobody_looks_at_is_left_out_and_changes_no_outcome(payload: dict[str, Any]) -> None:
    long = {"builds": [{"id": 1}] * 1_000, "commits": [{}] * 1_000, "changes": {"title": {"current": "x" * 100_000}}}
    attributes = {**payload["object_attributes"], "description": "x" * 1_000_000, "title": "t" * 100_000}
    kept = read_part({**payload, **long, "object_attributes": attributes})
    assert len(json.dumps(kept)) < 20_000
    assert decided(kept) == decided(payload)


def test_a_note_keeps_its_words_up_to_what_gitlab_takes() -> None:
    assert len(read_part(note("x" * 2_000_000))["object_attributes"]["note"]) == 1_000_001


def test_a_merge_request_of_a_fork_that_is_gone_still_says_so() -> None:
    assert read_part(merge_request(source=None))["object_attributes"]["source"] is None
    assert read_part(merge_request(source={"name": "App"}))["object_attributes"]["source"] == {}
