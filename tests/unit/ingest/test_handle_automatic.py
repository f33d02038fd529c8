"""What becomes of pipelines and merge requests: gates, rules, the commit that is meant, threads that are settled."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from hummingbird_operator.delivery.markers import Marker
from hummingbird_operator.errors import Invalid, NotFound, Unavailable
from hummingbird_operator.ingest.handle import Handler, NameTaken, Outcome
from hummingbird_operator.ingest.metrics import IngestMetrics
from hummingbird_operator.ingest.reasons import Reason
from hummingbird_operator.kube.client import AGENT_RUNS
from hummingbird_operator.kube.testing import FakeKube
from tests.unit.ingest.desk import NAMESPACE, Desk, FakeForge, said, thread
from tests.unit.ingest.samples import BASE, BOT, NEWER, SESSION, SHA, configured, merge_request, pipeline, project, user

FAILURES = Marker(SESSION, wf="analyze-failures")
REVIEWS = Marker(SESSION, wf="review")
ELSEWHERE = project(path_with_namespace="other/app")


def with_rules(name: str, rules: list[dict[str, Any]]) -> Desk:
    workflows = {key: dict(entry) for key, entry in BASE["workflows"].items()}
    workflows[name]["trigger_rules"] = rules
    return Desk(workflows=workflows)


def sha_of(desk: Desk) -> str:
    return str(desk.run["spec"]["target"]["gitlab"]["sha"])


# --- pipelines ---


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        (pipeline(source="push"), Reason.NOT_A_MERGE_REQUEST_PIPELINE),
        (pipeline(source=None), Reason.NOT_A_MERGE_REQUEST_PIPELINE),
        (pipeline() | {"merge_request": None}, Reason.NOT_A_MERGE_REQUEST_PIPELINE),
        (pipeline("running"), Reason.STATUS_FILTERED),
        (pipeline("waiting_for_resource"), Reason.STATUS_FILTERED),
        (pipeline("manual"), Reason.STATUS_FILTERED),
        (pipeline(on={"target_project_id": 99}), Reason.NO_TARGET),
        (pipeline() | {"project": ELSEWHERE}, Reason.NO_PROJECT),
        (pipeline("canceled"), Reason.RULES_DENIED),
        (pipeline("skipped", finished_at=None), Reason.RULES_DENIED),
        (pipeline(on={"state": "closed"}), Reason.CLOSED),
        (pipeline(on={"state": "merged"}), Reason.CLOSED),
    ],
)
async def test_a_pipeline_that_starts_nothing_asks_gitlab_nothing(payload: dict[str, Any], reason: Reason) -> None:
    desk = Desk()
    assert (await desk.see(payload)).reason is reason
    assert not desk.forge.calls
    assert not desk.runs


async def test_a_failed_pipeline_starts_its_workflow() -> None:
    desk = Desk()
    outcome = await desk.see(pipeline())
    assert (outcome.reason, len(outcome.runs)) == (Reason.FIRED, 1)
    spec = desk.run["spec"]
    assert (spec["workflow"], spec["trigger"]["event"], spec["trigger"]["automatic"]) == (
        "analyze-failures",
        "pipeline",
        True,
    )
    assert sha_of(desk) == SHA
    assert "head" not in desk.forge.calls


async def test_no_workflow_for_pipelines_is_its_own_reason() -> None:
    assert (await Desk(workflows={"review": {"prompt": "r.md"}}).see(pipeline())).reason is Reason.NO_WORKFLOW


async def test_a_pipeline_that_fails_twice_is_two_events_and_one_that_is_told_twice_is_one() -> None:
    """sources.md §6 rows 14 and 15: the key holds what changed."""
    desk = Desk()
    again = pipeline(finished_at="2026-11-30 11:00:00 UTC")
    reasons = [(await desk.see(payload)).reason for payload in (pipeline(), pipeline(), again, again, pipeline())]
    assert reasons == [Reason.FIRED, Reason.DUPLICATE, Reason.FIRED, Reason.DUPLICATE, Reason.DUPLICATE]
    assert len(desk.runs) == 2


@pytest.mark.parametrize("kind", ["merge", "train"])
async def test_of_a_generated_commit_the_merge_requests_head_is_looked_at(kind: str) -> None:
    """sources.md §6 rows 12 and 13."""
    desk = Desk()
    desk.forge.ref, desk.forge.pipeline_sha = f"refs/merge-requests/42/{kind}", "0" * 40
    desk.forge.now = replace(desk.forge.now, sha=NEWER)
    assert (await desk.see(pipeline())).reason is Reason.FIRED
    assert sha_of(desk) == NEWER


@pytest.mark.parametrize(("latest", "reason"), [(32, Reason.STALE_EVENT), (31, Reason.FIRED), (None, Reason.FIRED)])
async def test_of_a_generated_commit_an_older_pipeline_is_stale(latest: int | None, reason: Reason) -> None:
    desk = Desk()
    desk.forge.ref = "refs/merge-requests/42/merge"
    desk.forge.now = replace(desk.forge.now, pipeline_id=latest)
    assert (await desk.see(pipeline())).reason is reason
    assert bool(desk.runs) is (reason is Reason.FIRED)


@pytest.mark.parametrize("method", ["pipeline", "head"])
async def test_what_gitlab_knows_no_more_has_no_target(method: str) -> None:
    desk = Desk()
    desk.forge.ref = "refs/merge-requests/42/merge"
    desk.forge.fail = lambda asked: NotFound("gone") if asked == method else None
    assert (await desk.see(pipeline())).reason is Reason.NO_TARGET


async def test_a_fork_is_told_by_its_project_also_when_that_is_gone() -> None:
    """ingest.md §5 row 41."""
    for source in (11, None):
        desk = with_rules("analyze-failures", [{"action": "deny", "fork": True}, {"action": "allow"}])
        assert (await desk.see(pipeline(on={"source_project_id": source}))).reason is Reason.RULES_DENIED
    assert (await Desk().see(pipeline(on={"source_project_id": 11}))).reason is Reason.FIRED


async def test_rules_look_at_actor_branch_title_and_status() -> None:
    desk = with_rules("analyze-failures", [{"action": "deny", "user": "bot-*"}, {"action": "allow", "status": "c*"}])
    assert (await desk.see(pipeline("canceled"))).reason is Reason.FIRED
    assert (await desk.see(pipeline("failed"))).reason is Reason.RULES_DENIED
    assert (await desk.see(pipeline("canceled") | {"user": user(username="bot-1")})).reason is Reason.DUPLICATE


async def test_a_pipeline_without_a_person_passes() -> None:
    assert (await Desk().see(pipeline() | {"user": None})).reason is Reason.FIRED


# --- success ---


def with_threads() -> Desk:
    desk = Desk()
    threads = {
        "ours": thread(said(1, FAILURES), said(2, by_bot=False)),
        "review": thread(said(3, REVIEWS)),
        "plain": thread(said(4, FAILURES), resolvable=False),
        "done": thread(said(5, FAILURES), resolved=True),
        "old": thread(said(6, Marker(SESSION))),
        "unmarked": thread(said(7)),
        "retired": thread(said(8, Marker(SESSION, wf="retired"))),
        "begun-by-a-person": thread(said(9, by_bot=False), said(10, FAILURES)),
        "ours-too": thread(said(11, FAILURES)),
    }
    desk.forge.threads = {name: replace(found, discussion=name) for name, found in threads.items()}
    return desk


async def test_success_resolves_what_the_bot_began_about_pipelines_and_nothing_else() -> None:
    desk = with_threads()
    assert await desk.see(pipeline("success")) == Outcome(Reason.RESOLVED, "2 threads")
    assert desk.forge.resolved == ["ours", "ours-too"]


@pytest.mark.parametrize("payload", [pipeline("success", on={"state": "merged"}), pipeline("success")])
async def test_success_resolves_whatever_the_rules_say(payload: dict[str, Any]) -> None:
    desk = with_rules("analyze-failures", [{"action": "deny", "status": "*"}])
    desk.forge.threads = with_threads().forge.threads
    assert (await desk.see(payload)).reason is Reason.RESOLVED
    assert len(desk.forge.resolved) == 2


async def test_success_starts_a_workflow_whose_rules_want_it_after_threads_are_resolved() -> None:
    desk = with_rules("analyze-failures", [{"action": "allow", "status": "success"}])
    desk.forge.threads = with_threads().forge.threads
    assert (await desk.see(pipeline("success"))).reason is Reason.FIRED
    assert len(desk.forge.resolved) == 2


async def test_a_thread_that_is_gone_does_not_keep_the_others_open() -> None:
    desk = with_threads()
    errors = iter([NotFound("gone")])
    desk.forge.fail = lambda method: next(errors, None) if method == "resolve" else None
    assert (await desk.see(pipeline("success"))).detail == "1 threads"


async def test_a_right_to_resolve_that_is_missing_keeps_no_run_from_being_made() -> None:
    for rules, reason in (([], Reason.FORBIDDEN), ([{"action": "allow", "status": "*"}], Reason.FIRED)):
        desk = with_rules("analyze-failures", rules)
        desk.forge.threads = with_threads().forge.threads
        desk.forge.fail = lambda method: Invalid("a thread", "403") if method == "resolve" else None
        assert (await desk.see(pipeline("success"))).reason is reason


@pytest.mark.parametrize("method", ["bot_threads", "resolve"])
async def test_success_comes_again_when_gitlab_is_away(method: str) -> None:
    desk = with_threads()
    desk.forge.fail = lambda asked: Unavailable("GitLab", "502") if asked == method else None
    with pytest.raises(Unavailable):
        await desk.see(pipeline("success"))


# --- merge requests ---


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        (merge_request(action="close"), Reason.ACTION_FILTERED),
        (merge_request(action="merge"), Reason.ACTION_FILTERED),
        (merge_request(action="approved"), Reason.ACTION_FILTERED),
        (merge_request(without=("action",)), Reason.ACTION_FILTERED),
        (merge_request(draft=True), Reason.DRAFT),
        (merge_request(without=("draft",), work_in_progress=True), Reason.DRAFT),
        (merge_request(draft=None, work_in_progress=True), Reason.DRAFT),
        (merge_request(action="update", state="closed"), Reason.CLOSED),
        (merge_request(action="update", state="merged"), Reason.CLOSED),
        (merge_request() | {"project": ELSEWHERE}, Reason.NO_PROJECT),
        (merge_request(last_commit=None), Reason.NO_TARGET),
        (merge_request(without=("last_commit",)), Reason.NO_TARGET),
    ],
)
async def test_a_merge_request_that_starts_nothing(payload: dict[str, Any], reason: Reason) -> None:
    desk = Desk()
    assert (await desk.see(payload)).reason is reason
    assert not desk.forge.calls
    assert not desk.runs


@pytest.mark.parametrize("action", ["open", "reopen", "update"])
@pytest.mark.parametrize("without", [(), ("draft", "work_in_progress", "source", "state", "url")])
async def test_a_merge_request_starts_its_workflow_without_a_look_at_it(action: str, without: tuple[str, ...]) -> None:
    desk = Desk()
    assert (await desk.see(merge_request(action=action, without=without))).reason is Reason.FIRED
    assert (desk.run["spec"]["workflow"], sha_of(desk)) == ("review", SHA)
    assert desk.forge.calls == {"bot_id": 1}  # which the forge keeps


async def test_draft_to_ready_is_an_update_like_any_other() -> None:
    """The seed's rule holds: neither oldrev nor changes are looked at; the operator's gate skips a known commit."""
    desk = Desk()
    assert (await desk.see(merge_request(action="update", draft=True))).reason is Reason.DRAFT
    ready = merge_request(action="update", updated_at="2026-11-30 10:09:00 UTC") | {"changes": {"draft": {}}}
    assert (await desk.see(ready)).reason is Reason.FIRED


async def test_the_key_of_a_merge_request_holds_head_and_time() -> None:
    desk = Desk()
    events = [
        merge_request(),
        merge_request(action="update"),
        merge_request(updated_at="2026-11-30 10:09:00 UTC"),
        merge_request(last_commit={"id": NEWER}),
        merge_request(updated_at=None),
    ]
    reasons = [(await desk.see(payload)).reason for payload in events]
    assert reasons == [Reason.FIRED, Reason.DUPLICATE, Reason.FIRED, Reason.FIRED, Reason.FIRED]


@pytest.mark.parametrize(
    "fork", [{"source_project_id": 11}, {"source": None}, {"source": None, "source_project_id": None}]
)
async def test_a_merge_request_from_a_fork_is_known_by_project_or_null_source(fork: dict[str, Any]) -> None:
    desk = with_rules("review", [{"action": "deny", "fork": True}, {"action": "allow"}])
    assert (await desk.see(merge_request(**fork))).reason is Reason.RULES_DENIED
    assert (await desk.see(merge_request())).reason is Reason.FIRED
    assert (await Desk().see(merge_request(**fork))).reason is Reason.FIRED


TWO = {"review": {"prompt": "r.md", "action": "merge_request"}, "style": {"prompt": "s.md", "action": "merge_request"}}


async def test_every_workflow_for_the_event_gets_a_run() -> None:
    """Race 8 of the issue: two workflows on one merge request."""
    desk = Desk(workflows=TWO)
    outcome = await desk.see(merge_request())
    assert sorted(run["spec"]["workflow"] for run in desk.runs.values()) == ["review", "style"]
    assert set(outcome.runs) == set(desk.runs)
    await desk.kube.delete(AGENT_RUNS, NAMESPACE, outcome.runs[0])
    assert (await desk.see(merge_request())).reason is Reason.FIRED
    assert (await desk.see(merge_request())).reason is Reason.DUPLICATE


async def test_the_api_server_may_die_between_two_runs_of_an_event() -> None:
    desk = Desk(workflows=TWO)
    refusals = iter([None, Unavailable("the API server", "away")])
    desk.kube.fail = lambda verb, resource, name: next(refusals, None)
    with pytest.raises(Unavailable):
        await desk.see(merge_request())
    assert (await desk.see(merge_request())).reason is Reason.FIRED
    assert len(desk.runs) == 2


async def test_a_name_that_is_taken_keeps_no_other_workflow_from_its_run() -> None:
    desk = Desk(workflows=TWO)
    names = (await Desk(workflows=TWO).see(merge_request())).runs
    desk.kube.put(AGENT_RUNS, NAMESPACE, {"metadata": {"name": names[0]}, "spec": {}})
    with pytest.raises(NameTaken):
        await desk.see(merge_request())
    assert set(desk.runs) == set(names)


# --- all ---


async def test_many_of_one_event_at_once_are_one_run() -> None:
    desk = Desk()
    outcomes = await asyncio.gather(*(desk.see(pipeline()) for _ in range(20)))
    assert sorted(outcome.reason for outcome in outcomes) == [Reason.DUPLICATE] * 19 + [Reason.FIRED]
    assert len(desk.runs) == 1


@pytest.mark.parametrize(
    ("payload", "source"),
    [
        ({}, "gitlab"),
        ({"object_kind": "push"}, "gitlab"),
        ({"object_kind": ["note"]}, "gitlab"),
        ({"object_kind": None}, "gitlab"),
        ({"object_kind": "note"}, "agent"),
        (pipeline(), "github"),
    ],
)
async def test_events_of_no_handler_are_unknown(payload: dict[str, Any], source: str) -> None:
    assert (await Desk().see(payload, source=source)).reason is Reason.UNKNOWN_EVENT


async def test_the_kind_is_what_the_payload_says_and_not_the_transport() -> None:
    assert (await Desk().see(pipeline(), "note")).reason is Reason.FIRED


async def test_labels_of_metrics_stay_few_whatever_comes_in() -> None:
    desk = Desk()
    for number in range(50):
        await desk.see({"object_kind": f"kind-{number}"}, source=f"source-{number}")
    assert desk.metrics.events.labels("other", "other", "unknown_event")._value.get() == 50


async def test_ingestion_needs_a_gitlab() -> None:
    config, workflows = configured(gitlab=None)
    with pytest.raises(Invalid, match="gitlab: is required"):
        Handler(config, workflows, FakeForge(), FakeKube(), NAMESPACE, IngestMetrics.on())


async def test_what_the_bot_does_to_a_merge_request_starts_nothing() -> None:
    """GitLab tells of the last thread that the bot resolves as of any update."""
    desk = Desk()
    event = {**merge_request(action="update"), "user": user(id=BOT, username="hummingbird-bot")}
    assert (await desk.see(event)).reason is Reason.SELF_EVENT
    assert desk.runs == {}
