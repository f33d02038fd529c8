"""Webhooks in the GitLab stand-in: who may make them, what is sent, and that nothing is ever sent a second time."""

from __future__ import annotations

import json
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import gitlab
import pytest
import trustme
from gitlab.exceptions import GitlabError
from standardwebhooks import Webhook

from tests.standins.gitlab import GitLabStandIn, sample_fixture

PROJECT = "group/app"
MR = (PROJECT, 42)
ALL = {"note_events": True, "confidential_note_events": True, "merge_requests_events": True, "pipeline_events": True}
SIGNING = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="


@dataclass
class Receiver:
    """Somebody's webhook endpoint: answers with the next of `answers`, else 200, and calls `meanwhile` before."""

    answers: list[int] = field(default_factory=list)
    got: list[tuple[dict[str, str], bytes]] = field(default_factory=list)
    meanwhile: Callable[[], object] = lambda: None
    url: str = ""

    @property
    def notes(self) -> list[str]:
        return [json.loads(body)["object_attributes"]["note"] for _, body in self.got]


class Quiet(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """GitLab goes away where a test says so."""


@contextmanager
def served(certificate: trustme.LeafCert | None = None) -> Iterator[Receiver]:
    """A receiver on a port of its own, with TLS if it has a certificate."""
    made = Receiver()

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class names it so
            pass

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            made.got.append((dict(self.headers.items()), body))
            made.meanwhile()
            self.send_response(made.answers.pop(0) if made.answers else 200)
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"ok")

    with Quiet(("127.0.0.1", 0), Handler) as server:
        if certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            certificate.configure_cert(context)
            server.socket = context.wrap_socket(server.socket, server_side=True)
        made.url = f"{'https' if certificate else 'http'}://127.0.0.1:{server.server_address[1]}/webhooks/gitlab"
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        yield made
        server.shutdown()
        thread.join()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with served() as made:
        yield made


@pytest.fixture
def standin() -> Iterator[GitLabStandIn]:
    with GitLabStandIn({**sample_fixture(), "hook_timeout_seconds": 5}) as running:
        yield running


class Clock:
    """GitLab's time, which stands still until a test moves it."""

    def __init__(self, standin: GitLabStandIn) -> None:
        self.now = datetime(2026, 11, 30, 18, 0, tzinfo=UTC)
        standin.state.clock = lambda: self.now

    def skip(self, **delta: float) -> None:
        self.now += timedelta(**delta)


def project(standin: GitLabStandIn, token: str = "maintainer-token") -> Any:  # noqa: S107 - a stand-in's
    return gitlab.Gitlab(standin.url, private_token=token).projects.get(PROJECT)


def says(standin: GitLabStandIn, *texts: str) -> None:
    """Alice writes notes, and GitLab has told everybody."""
    for text in texts:
        standin.people.comments(*MR, "alice", text)
        assert standin.hooks_wait(20)


def log(standin: GitLabStandIn, hook: Any, **query: Any) -> list[dict[str, Any]]:
    path = f"/projects/10/hooks/{hook.id}/events"
    found: Any = project(standin).manager.gitlab.http_list(path, query_data=query, get_all=True)
    return list(found)


def resend(standin: GitLabStandIn, hook: Any, event: dict[str, Any]) -> Any:
    path = f"/projects/10/hooks/{hook.id}/events/{event['id']}/resend"
    return project(standin).manager.gitlab.http_post(path, obey_rate_limit=False)


def refused(call: Callable[..., Any], *arguments: Any, **fields: Any) -> tuple[int, Any]:
    with pytest.raises(GitlabError) as caught:
        call(*arguments, **fields)
    return caught.value.response_code or 0, caught.value.error_message


# --- made and shown ---


@pytest.mark.parametrize("token", ["bot-token", "read-token"])
def test_only_a_maintainer_sees_or_makes_hooks(standin: GitLabStandIn, token: str) -> None:
    http = project(standin, token).manager.gitlab
    assert refused(http.http_get, "/projects/10/hooks") == (403, "403 Forbidden")
    assert refused(http.http_post, "/projects/10/hooks", post_data={"url": "https://x.example"})[0] == 403


def test_a_hook_is_made_changed_and_removed_and_never_shows_its_secrets(standin: GitLabStandIn) -> None:
    hooks = project(standin).hooks
    made = hooks.create({"url": "https://a.example/hook", "token": "s3cret", "signing_token": SIGNING, **ALL})
    found = hooks.get(made.id)
    assert "s3cret" not in str(found.attributes) + str(hooks.list(get_all=True))
    assert SIGNING not in str(found.attributes)
    assert (found.token_present, found.signing_token_present) == (True, True)
    assert (found.push_events, found.note_events, found.issues_events) == (True, True, False)
    assert (found.enable_ssl_verification, found.alert_status, found.disabled_until) == (True, "executable", None)
    found.push_events = False
    found.save()
    assert (hooks.get(made.id).push_events, hooks.get(made.id).token_present) == (False, True)
    found.delete()
    assert hooks.list(get_all=True) == []


def test_another_address_loses_the_secrets_that_do_not_come_with_it(standin: GitLabStandIn) -> None:
    hook = project(standin).hooks.create({"url": "https://a.example/hook", "token": "one", "signing_token": SIGNING})
    hook.url = "https://b.example/hook"
    hook.save()
    assert (hook.token_present, hook.signing_token_present) == (False, False)
    hook.url, hook.token = "https://c.example/hook", "two"
    hook.save()
    assert standin.state.projects[10].hooks[hook.id].token == "two"


def test_what_is_no_hook_is_refused(standin: GitLabStandIn) -> None:
    http = project(standin).manager.gitlab
    assert refused(http.http_post, "/projects/10/hooks", post_data={}) == (400, "url is missing")
    bad = {"url": "ftp://a.example"}
    assert refused(http.http_post, "/projects/10/hooks", post_data=bad) == (422, "Invalid url given")
    bad = {"url": "https://a.example", "signing_token": "plain"}
    assert refused(http.http_post, "/projects/10/hooks", post_data=bad)[0] == 400
    assert refused(http.http_get, "/projects/10/hooks/1")[0] == 404


def test_a_server_before_19_ignores_a_signing_token_and_does_not_say_so(standin: GitLabStandIn) -> None:
    standin.state.signing_tokens = False
    hook = project(standin).hooks.create({"url": "https://a.example", "signing_token": SIGNING})
    assert "signing_token_present" not in hook.attributes
    assert standin.state.projects[10].hooks[hook.id].signing_token == ""


# --- sent ---


def test_events_go_to_the_hooks_that_want_them_with_gitlabs_headers(standin: GitLabStandIn, receiver: Receiver) -> None:
    hooks = project(standin).hooks
    hooks.create({"url": receiver.url, "token": "s3cret", "push_events": False, **ALL})
    hooks.create({"url": receiver.url, "push_events": False, "note_events": True})
    says(standin, "grüße")
    standin.people.pushes(*MR, "alice", "ab12" * 10)
    standin.people.pipeline(*MR, "alice", "failed")
    assert standin.hooks_wait(20)
    assert sorted(headers["X-Gitlab-Event"] for headers, _ in receiver.got) == [
        "Merge Request Hook", "Note Hook", "Note Hook", "Pipeline Hook",
    ]  # fmt: skip
    [first, second] = [headers for headers, _ in receiver.got if headers["X-Gitlab-Event"] == "Note Hook"]
    assert {first.get("X-Gitlab-Token"), second.get("X-Gitlab-Token")} == {"s3cret", None}
    for name in ("Idempotency-Key", "X-Gitlab-Webhook-UUID"):
        assert first[name] != second[name]
    assert first["X-Gitlab-Event-UUID"] == second["X-Gitlab-Event-UUID"]
    assert first["X-Gitlab-Instance"] == "https://gitlab.example.com"
    assert {json.loads(body)["object_kind"] for _, body in receiver.got} == {"note", "merge_request", "pipeline"}
    assert "grüße".encode() in next(body for headers, body in receiver.got if headers == first)


def test_internal_notes_need_their_own_switch(standin: GitLabStandIn, receiver: Receiver) -> None:
    hook = project(standin).hooks.create({"url": receiver.url, "note_events": True})
    standin.people.comments(*MR, "alice", "secret", internal=True)
    says(standin, "public")
    hook.note_events, hook.confidential_note_events = False, True
    hook.save()
    standin.people.comments(*MR, "alice", "secret 2", internal=True)
    says(standin, "public 2")
    assert receiver.notes == ["public", "secret 2"]


def test_a_signing_token_signs_as_standard_webhooks_do(standin: GitLabStandIn, receiver: Receiver) -> None:
    project(standin).hooks.create({"url": receiver.url, "signing_token": SIGNING, "token": "both", **ALL})
    says(standin, "hello")
    [(headers, body)] = receiver.got
    Webhook(SIGNING).verify(body, headers)
    assert headers["webhook-id"] == headers["Idempotency-Key"]
    assert headers["X-Gitlab-Token"] == "both"


def test_a_hook_gets_its_events_in_order_and_the_receiver_may_call_gitlab(
    standin: GitLabStandIn, receiver: Receiver
) -> None:
    project(standin).hooks.create({"url": receiver.url, **ALL})
    receiver.meanwhile = lambda: project(standin, "bot-token").mergerequests.get(42)
    texts = [str(number) for number in range(5)]
    for text in texts:
        standin.people.comments(*MR, "alice", text)
    assert standin.hooks_wait(20)
    assert receiver.notes == texts


def test_nothing_goes_out_to_a_hook_that_is_gone(standin: GitLabStandIn, receiver: Receiver) -> None:
    hook = project(standin).hooks.create({"url": receiver.url, **ALL})
    says(standin, "one")
    hook.delete()
    says(standin, "two")
    assert receiver.notes == ["one"]


# --- failed ---


def test_a_failed_delivery_is_logged_and_never_tried_again(standin: GitLabStandIn, receiver: Receiver) -> None:
    hook = project(standin).hooks.create({"url": receiver.url, "token": "s3cret", "signing_token": SIGNING, **ALL})
    receiver.answers = [503, 404]
    says(standin, "one", "two", "three")
    assert receiver.notes == ["one", "two", "three"]
    rows = log(standin, hook)
    assert [row["response_status"] for row in rows] == ["200", "404", "503"]
    assert [row["trigger"] for row in rows] == ["note_hooks"] * 3
    assert rows[-1]["request_data"]["object_attributes"]["note"] == "one"
    assert rows[0]["request_headers"]["X-Gitlab-Token"] == "[REDACTED]"
    assert "s3cret" not in str(rows)
    for status, expected in {
        "successful": ["200"], "client_failure": ["404"], "server_failure": ["503"],
        "404,server_failure": ["404", "503"],
    }.items():  # fmt: skip
        assert [row["response_status"] for row in log(standin, hook, status=status)] == expected


def test_the_log_is_read_twenty_at_a_time_and_kept_for_a_week(standin: GitLabStandIn, receiver: Receiver) -> None:
    clock = Clock(standin)
    hook = project(standin).hooks.create({"url": receiver.url, **ALL})
    says(standin, *(str(number) for number in range(25)))
    assert len(log(standin, hook)) == 25
    assert refused(log, standin, hook, per_page=100)[0] == 400
    assert refused(log, standin, hook, status="lost")[0] == 400
    clock.skip(days=8)
    assert log(standin, hook) == []


def test_a_redirect_counts_as_delivered_and_is_not_followed(standin: GitLabStandIn, receiver: Receiver) -> None:
    hook = project(standin).hooks.create({"url": receiver.url, **ALL})
    receiver.answers = [302] * 5
    says(standin, *"abcde")
    assert len(receiver.got) == 5
    assert project(standin).hooks.get(hook.id).alert_status == "executable"


def test_four_failures_in_a_row_disable_a_hook_for_a_time_that_doubles(
    standin: GitLabStandIn, receiver: Receiver
) -> None:
    """While it is disabled nothing is sent and nothing is noted: those events are lost."""
    clock = Clock(standin)
    hook = project(standin).hooks.create({"url": receiver.url, **ALL})
    receiver.answers = [500, 401, 500, 400, 500]
    says(standin, "1", "2", "3", "4", "lost")
    shown = project(standin).hooks.get(hook.id)
    assert (shown.alert_status, shown.disabled_until) == ("temporarily_disabled", "2026-11-30T18:01:00.000Z")
    assert len(log(standin, hook)) == 4
    clock.skip(seconds=61)
    says(standin, "5", "lost")
    assert project(standin).hooks.get(hook.id).disabled_until == "2026-11-30T18:03:01.000Z"
    clock.skip(seconds=121)
    says(standin, "6")
    assert project(standin).hooks.get(hook.id).disabled_until is None
    assert receiver.notes == ["1", "2", "3", "4", "5", "6"]


def test_forty_failures_disable_it_for_good_and_what_is_queued_behind_them_is_dropped(
    standin: GitLabStandIn, receiver: Receiver
) -> None:
    clock = Clock(standin)
    hook = project(standin).hooks.create({"url": receiver.url, **ALL})
    receiver.answers = [500] * 100
    for number in range(44):
        standin.people.comments(*MR, "alice", str(number))
        assert standin.hooks_wait(20)
        clock.skip(days=1, seconds=1)
    assert len(receiver.got) == 40
    assert project(standin).hooks.get(hook.id).alert_status == "disabled"


def test_a_receiver_that_is_away_or_stalls_is_an_internal_error(standin: GitLabStandIn, receiver: Receiver) -> None:
    standin.state.deliveries.timeout = 0.2
    over = threading.Event()
    receiver.meanwhile = lambda: over.wait(20)
    hooks = project(standin).hooks
    stalled = hooks.create({"url": receiver.url, **ALL})
    away = hooks.create({"url": "http://127.0.0.1:1/", **ALL})
    says(standin, "one")
    over.set()
    for hook in (stalled, away):
        assert [row["response_status"] for row in log(standin, hook, status="server_failure")] == ["internal error"]


def test_a_certificate_is_checked_unless_the_hook_says_not_to(standin: GitLabStandIn, tmp_path: Path) -> None:
    authority = trustme.CA()
    with served(authority.issue_cert("127.0.0.1")) as receiver:
        hook = project(standin).hooks.create({"url": receiver.url, **ALL})
        says(standin, "not trusted")
        hook.enable_ssl_verification = False
        hook.save()
        says(standin, "not checked")
        hook.enable_ssl_verification = True
        hook.save()
        authority.cert_pem.write_to_path(tmp_path / "ca.pem")
        standin.state.deliveries.ca_file = str(tmp_path / "ca.pem")
        says(standin, "trusted")
        assert receiver.notes == ["not checked", "trusted"]
        assert [row["response_status"] for row in log(standin, hook)] == ["200", "200", "internal error"]


def test_a_payload_over_25_megabytes_is_not_sent(standin: GitLabStandIn, receiver: Receiver) -> None:
    hook = project(standin).hooks.create({"url": receiver.url, **ALL})
    standin.state.projects[10].merge_requests[42].fields["description"] = "x" * (25 * 1024 * 1024)
    says(standin, "one")
    assert receiver.got == []
    assert standin.state.projects[10].hooks[hook.id].log[0]["response_status"] == "internal error"


# --- sent again ---


def test_a_resend_is_the_same_body_under_the_same_key_and_a_new_row(standin: GitLabStandIn, receiver: Receiver) -> None:
    hook = project(standin).hooks.create({"url": receiver.url, **ALL})
    receiver.answers = [503, 500]
    says(standin, "one")
    [failed] = log(standin, hook)
    assert resend(standin, hook, failed) == {"response_status": 500}
    assert resend(standin, hook, failed) == {"response_status": 200}
    assert len({body for _, body in receiver.got}) == 1
    assert len({headers["Idempotency-Key"] for headers, _ in receiver.got}) == 1
    assert len({headers["X-Gitlab-Webhook-UUID"] for headers, _ in receiver.got}) == 3
    assert [row["response_status"] for row in log(standin, hook)] == ["200", "500", "503"]


def test_nothing_is_resent_while_the_hook_is_disabled_or_after_its_address_changed(
    standin: GitLabStandIn, receiver: Receiver
) -> None:
    clock = Clock(standin)
    hook = project(standin).hooks.create({"url": receiver.url, **ALL})
    receiver.answers = [500] * 4
    says(standin, *"abcd")
    failed = log(standin, hook)[0]
    status, message = refused(resend, standin, hook, failed)
    assert (status, "Hook disabled" in message) == (422, True)
    clock.skip(minutes=2)
    assert resend(standin, hook, failed) == {"response_status": 200}
    hook.url = f"{receiver.url}/other"
    hook.save()
    status, message = refused(resend, standin, hook, failed)
    assert (status, "URL has changed" in message) == (422, True)


def test_five_resends_a_minute(standin: GitLabStandIn, receiver: Receiver) -> None:
    clock = Clock(standin)
    hook = project(standin).hooks.create({"url": receiver.url, **ALL})
    says(standin, "one")
    [row] = log(standin, hook)
    for _ in range(5):
        resend(standin, hook, row)
    assert refused(resend, standin, hook, row)[0] == 429
    clock.skip(seconds=61)
    resend(standin, hook, row)


def test_the_test_of_a_hook_has_no_action_and_reaches_one_that_is_disabled(
    standin: GitLabStandIn, receiver: Receiver
) -> None:
    Clock(standin)
    hook = project(standin).hooks.create({"url": receiver.url, **ALL})
    receiver.answers = [500] * 4
    says(standin, *"abcd")
    hook.test("merge_requests_events")
    assert "action" not in json.loads(receiver.got[-1][1])["object_attributes"]
    assert project(standin).hooks.get(hook.id).alert_status == "executable"
    hook.test("note_events")
    assert json.loads(receiver.got[-1][1])["object_attributes"]["note"] == "d"
    assert refused(hook.test, "pipeline_events")[0] == 422


def test_hooks_come_from_a_fixture_too_and_a_request_carries_the_recursion_id_on(receiver: Receiver) -> None:
    fixture = sample_fixture()
    fixture["projects"][0]["hooks"] = [{"id": 5, "url": receiver.url, "token": "s3cret", "note_events": True}]
    with GitLabStandIn(fixture) as standin:
        client = gitlab.Gitlab(standin.url, private_token="bot-token")
        client.headers["X-Gitlab-Event-UUID"] = "chain"
        client.projects.get(PROJECT).mergerequests.get(42).notes.create({"body": "by the bot"})
        assert standin.hooks_wait(20)
        assert project(standin).hooks.get(5).note_events
    assert receiver.notes == ["by the bot"]
    assert receiver.got[0][0]["X-Gitlab-Event-UUID"] == "chain"
