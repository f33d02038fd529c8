"""Hooks of a project over the API, on the GitLab stand-in: what is made, what failed, what a refusal says."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from hummingbird_operator.config import HOOK_PATH
from hummingbird_operator.errors import Invalid, NotFound, Unavailable
from hummingbird_operator.ingest.event import Event
from hummingbird_operator.ingest.hooks.hooks import WANTED, Hook, Hooks
from hummingbird_operator.ingest.missed.patience import Patience
from hummingbird_operator.ingest.missed.replay import Replay
from hummingbird_operator.ingest.reasons import Outcome, Reason
from hummingbird_operator.ingest.webhook.listener import listening
from hummingbird_operator.ingest.webhook.receiver import Webhook
from tests.standins.gitlab import GitLabStandIn, sample_fixture
from tests.unit.ingest.webhook.test_signatures import SIGNING

APP, MAINTAINER = "group/app", "maintainer-token"
NOWHERE = "http://127.0.0.1:9/webhooks/gitlab"


@contextmanager
def gitlab(token: str = MAINTAINER, **fixture: Any) -> Iterator[tuple[GitLabStandIn, Hooks]]:
    with GitLabStandIn({**sample_fixture(), **fixture}) as standin:
        hooks = Hooks(standin.url, token)
        try:
            yield standin, hooks
        finally:
            hooks.close()


def test_a_hook_is_made_with_the_events_that_we_need_and_read_back() -> None:
    with gitlab() as (_, hooks):
        assert hooks.hooks(APP) == []
        made = hooks.create(APP, NOWHERE, {**WANTED, "token": "secret-token"})
        assert hooks.hooks(APP) == [made]
        assert {name: getattr(made, name) for name in WANTED} == dict(WANTED)
        assert made.disabled == ""
        assert (made.token_present, made.signing_token_present) == (True, False)


def test_an_update_changes_what_is_named_and_keeps_the_secret() -> None:
    with gitlab() as (_, hooks):
        made = hooks.create(APP, NOWHERE, {**WANTED, "signing_token": SIGNING, "note_events": False})
        changed = hooks.update(APP, made, {"note_events": True})
        assert (changed.note_events, changed.pipeline_events, changed.signing_token_present) == (True, True, True)


def test_refusals_name_the_token_of_the_hooks_and_what_it_lacks() -> None:
    with (
        gitlab("wrong-token") as (_, hooks),
        pytest.raises(Unavailable, match=r"token \(401\): renew gitlab\.hooks"),
    ):
        hooks.hooks(APP)
    with gitlab("bot-token") as (_, hooks), pytest.raises(Invalid, match="the role Maintainer in the project"):
        hooks.hooks(APP)
    with gitlab() as (_, hooks):
        with pytest.raises(Invalid, match="no such project"):
            hooks.hooks("group/none")
        with pytest.raises(NotFound):
            list(hooks.failed(APP, 12345))


def test_failed_deliveries_come_newest_first_over_pages_without_those_that_went_well() -> None:
    with gitlab(hook_timeout_seconds=2) as (standin, hooks):
        made = hooks.create(APP, NOWHERE, WANTED)
        project = standin.state.project(APP)
        assert project is not None
        log = project.hooks[made.id].log
        row: dict[str, Any] = {
            "url": NOWHERE,
            "request_headers": {"X-Gitlab-Event": "Note Hook"},
            "response_headers": {},
        }
        row |= {"created_at": standin.state.now(), "response_body": "", "execution_duration": 0.1}
        for number in range(45):
            status = ["200", "503", "internal error"][number % 3]
            keyed = {"Idempotency-Key": f"k{number}", "X-Gitlab-Event": "Note Hook"}
            log.append(
                row | {"id": number, "response_status": status, "request_headers": keyed, "request_data": {"n": number}}
            )
        found = list(hooks.failed(APP, made.id))
        assert [delivery.id for delivery in found] == [n for n in range(44, -1, -1) if n % 3]
        assert (found[0].type, found[0].key, found[0].payload) == ("Note Hook", "k44", {"n": 44})
        assert not found[0].oversize


def test_what_was_refused_and_what_went_well_are_told_apart_by_one_list_each() -> None:
    with gitlab() as (standin, hooks):
        made = hooks.create(APP, NOWHERE, WANTED)
        project = standin.state.project(APP)
        assert project is not None
        row: dict[str, Any] = {"url": NOWHERE, "request_headers": {}, "response_headers": {}, "request_data": {}}
        row |= {"created_at": standin.state.now(), "response_body": "", "execution_duration": 0.1}
        for number, status in enumerate(["200", "401", "503", "internal error", "204"], 1):
            project.hooks[made.id].log.append(row | {"id": number, "response_status": status})
        before = len(standin.calls)
        assert [(one.id, one.refused) for one in hooks.failed(APP, made.id)] == [(4, False), (3, False), (2, True)]
        assert [(one.id, one.went_well) for one in hooks.succeeded(APP, made.id)] == [(5, True), (1, True)]
        assert len(standin.calls) == before + 2


def test_a_test_that_fails_is_not_followed_by_one_of_another_kind() -> None:
    with gitlab() as (standin, hooks):
        made = hooks.create(APP, NOWHERE, WANTED)
        with pytest.raises(Invalid):
            hooks.enable(APP, made)
        assert [call.path.rsplit("/", 1)[-1] for call in standin.calls if "/test/" in call.path] == [
            "merge_requests_events"
        ]


def test_rows_of_another_shape_hide_no_other() -> None:
    with gitlab() as (standin, hooks):
        made, odd = (hooks.create(APP, NOWHERE, WANTED) for _ in range(2))
        project = standin.state.project(APP)
        assert project is not None
        project.hooks[odd.id].url = None  # type: ignore[assignment]
        assert {hook.id: hook.url for hook in hooks.hooks(APP)} == {made.id: NOWHERE, odd.id: None}
        row: dict[str, Any] = {"url": NOWHERE, "response_headers": {}, "created_at": standin.state.now()}
        row |= {"response_body": "", "execution_duration": 0.1, "response_status": "503", "request_headers": {}}
        project.hooks[made.id].log += [
            row | {"id": 1, "request_data": {"n": 1}, "request_headers": ["none"]},
            row | {"id": 2, "request_data": ["a template may make an array"]},
            row | {"id": 3, "request_data": {"n": 3}},
        ]
        found = list(hooks.failed(APP, made.id))
    assert [(one.id, one.unreadable, one.payload) for one in found] == [
        (3, False, {"n": 3}),
        (2, True, {}),
        (1, False, {"n": 1}),
    ]


@pytest.mark.parametrize("fault", [{"kind": "html"}, {"kind": "status", "status": 200}])
def test_an_answer_of_another_shape_is_a_service_that_is_away(fault: dict[str, Any]) -> None:
    """A sign-in page, and a JSON object where a list should be."""
    with gitlab() as (standin, hooks):
        standin.fault(method="GET", path="hooks", **fault)
        with pytest.raises(Unavailable):
            hooks.hooks(APP)
        standin.fault(method="GET", path="events", **fault)
        with pytest.raises(Unavailable):
            list(hooks.failed(APP, 7))


def test_what_gitlab_leaves_out_or_sends_as_null_is_unknown_and_not_wrong() -> None:
    hook = Hook.model_validate({"id": 1, "url": NOWHERE, "alert_status": None, "note_events": None, "new_field": 1})
    assert (hook.disabled, hook.note_events, hook.token_present) == ("", None, None)


class Handling:
    """Away until it is told otherwise."""

    def __init__(self) -> None:
        self.is_away = True
        self.outage: Unavailable | None = Unavailable("the API server", "away")
        self.events: list[Event] = []

    async def handle(self, event: Event) -> Outcome:
        if self.is_away:
            raise Unavailable("the API server", "away")
        self.events.append(event)
        return Outcome(Reason.FIRED)

    async def away(self) -> Unavailable | None:
        return self.outage if self.is_away else None


async def test_four_events_that_fail_by_themselves_do_not_disable_the_hook_for_everybody() -> None:
    handler, registry = Handling(), CollectorRegistry()
    handler.outage = None
    with gitlab() as (standin, hooks):
        webhook = Webhook(handler, lambda: (SIGNING,), registry=registry)
        async with listening(webhook.app(), 0, host="127.0.0.1") as port:
            url = f"http://127.0.0.1:{port}{HOOK_PATH}"
            await asyncio.to_thread(hooks.create, APP, url, {**WANTED, "signing_token": SIGNING})
            for number in range(4):
                await asyncio.to_thread(standin.people.comments, APP, 42, "alice", f"words {number}")
            assert await asyncio.to_thread(standin.hooks_wait, 10)
            assert (await asyncio.to_thread(hooks.hooks, APP))[0].disabled == ""
            handler.is_away = False
            await webhook.put_off.close()
    assert len(handler.events) == 4


async def test_what_an_outage_refused_is_handled_after_it_and_the_disabled_hook_is_enabled_again() -> None:
    """GitLab sends each event once, is refused four times, disables the hook; then the API server comes back."""
    handler, registry = Handling(), CollectorRegistry()
    with gitlab() as (standin, hooks):
        webhook = Webhook(handler, lambda: (SIGNING,), registry=registry)
        async with listening(webhook.app(), 0, host="127.0.0.1") as port:
            url = f"http://127.0.0.1:{port}{HOOK_PATH}"
            made = await asyncio.to_thread(hooks.create, APP, url, {**WANTED, "signing_token": SIGNING})
            for number in range(4):
                await asyncio.to_thread(standin.people.comments, APP, 42, "alice", f"words {number}")
                assert await asyncio.to_thread(standin.hooks_wait, 10)
            assert (await asyncio.to_thread(hooks.hooks, APP))[0].disabled.startswith("temporarily_disabled until")
            handler.is_away = False
            replay = Replay(hooks, Patience(handler, (0, 0)), url, [APP], registry)
            await replay.until_done()
            said = [event.payload["object_attributes"] for event in handler.events[:4]]
            assert [note["note"] for note in said] == [f"words {number}" for number in range(4)]
            assert (await asyncio.to_thread(hooks.hooks, APP))[0].disabled == ""
            await asyncio.to_thread(standin.people.comments, APP, 42, "alice", "after it")
            assert await asyncio.to_thread(standin.hooks_wait, 10)
            assert handler.events[-1].payload["object_attributes"]["note"] == "after it"
            assert made.id == (await asyncio.to_thread(hooks.hooks, APP))[0].id
