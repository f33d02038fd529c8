"""The ingest processes whole, between a GitLab and an API server on loopback: what they refuse, bear and finish."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import signal
import socket
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

from hummingbird_operator.config import HOOK_PATH, Config
from hummingbird_operator.errors import Invalid
from hummingbird_operator.ingest.event import Event, decode_message
from hummingbird_operator.ingest.hooks.hooks import WANTED, Hooks
from hummingbird_operator.ingest.serve import EventQueue, Options, serve_sqs, serve_webhook
from hummingbird_operator.kube.client import AGENT_RUNS
from hummingbird_operator.settings import Settings
from hummingbird_operator.workflows import Workflow, Workflows
from tests.standins.gitlab import GitLabStandIn
from tests.unit.ingest.webhook.test_signatures import SIGNING
from tests.unit.kube.apiserver import ApiServer, Refusal

APP = "group/app"
ENVIRON = {"BOT": "bot-token", "HOOKS": "maintainer-token", "SECRET": SIGNING}


@dataclass
class Place:
    """A GitLab and an API server, and settings for an ingestor between them."""

    gitlab: GitLabStandIn
    api: ApiServer
    folder: Path
    port: int
    health: int
    changes: dict[str, Any] = field(default_factory=dict)
    environ: dict[str, str] = field(default_factory=lambda: dict(ENVIRON))

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}{HOOK_PATH}"

    def settings(self) -> Settings:
        config = {
            "gitlab": {
                "url": self.gitlab.url,
                "token_env": "BOT",
                "hooks_token_env": "HOOKS",
                "webhook_secret_env": ["SECRET"],
            },
            "models": {"default": "gemini-3.8-flash"},
            "sessions": {"store": "file:///tmp/x"},
            "projects": {APP: {}, "team/*": {}},
            "workflows": {"look": {"prompt": "look.md"}},
            "ingest": {"webhook_url": self.url},
            **self.changes,
        }
        return Settings(Config.model_validate(config), self.folder / "config.yaml", self.environ)

    def workflows(self) -> Workflows:
        return Workflows({"look": Workflow("look", "Look.", self.settings().config.workflows["look"], "0")})

    def options(self) -> Options:
        path = self.folder / "kubeconfig"
        clusters = [{"name": "c", "cluster": {"server": self.api.url}}]
        contexts = [{"name": "x", "context": {"cluster": "c", "user": "u"}}]
        users = [{"name": "u", "user": {"token": "t"}}]
        path.write_text(
            yaml.safe_dump({"clusters": clusters, "users": users, "contexts": contexts, "current-context": "x"})
        )
        return Options("runs", str(path), None, self.health, self.port, drain_seconds=0)

    @contextlib.asynccontextmanager
    async def webhook(self) -> AsyncIterator[None]:
        """The process, from Ready to the end that SIGTERM orders."""
        serving = asyncio.create_task(serve_webhook(self.settings(), self.workflows(), self.options()))
        while await asyncio.to_thread(self.ready) != 200:
            assert not serving.done(), serving.exception()
            await asyncio.sleep(0.02)
        try:
            yield
        finally:
            os.kill(os.getpid(), signal.SIGTERM)
            await asyncio.wait_for(serving, 20)

    def ready(self) -> int:
        return self.fetch("readyz")[0]

    def fetch(self, path: str) -> tuple[int, str]:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.health}/{path}", timeout=5) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, ""
        except OSError:
            return 0, ""

    def hook(self) -> None:
        hooks = Hooks(self.gitlab.url, "maintainer-token")
        hooks.create(APP, self.url, {**WANTED, "signing_token": SIGNING})
        hooks.close()

    async def says(self, text: str) -> int:
        """Alice writes; the id of her note, once GitLab has sent it."""
        note = await asyncio.to_thread(self.gitlab.people.comments, APP, 42, "alice", text)
        assert await asyncio.to_thread(self.gitlab.hooks_wait, 20)
        return int(note.id)

    async def runs(self) -> list[dict[str, Any]]:
        async def listed(kube: Any) -> list[dict[str, Any]]:
            return list(kube.all(AGENT_RUNS))

        return await asyncio.to_thread(self.api.do, listed)

    async def some_runs(self) -> list[dict[str, Any]]:
        """Once there are any."""
        while True:
            if found := await self.runs():
                return found
            await asyncio.sleep(0.05)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    with GitLabStandIn() as gitlab, ApiServer() as api:
        yield Place(gitlab, api, tmp_path, free_port(), free_port())


async def test_a_command_becomes_an_agentrun_and_sigterm_ends_the_process(place: Place) -> None:
    place.hook()
    async with place.webhook():
        note = await place.says("/hummingbird look why only arm64?")
        (run,) = await place.runs()
        assert run["metadata"]["namespace"] == "runs"
        assert (run["spec"]["workflow"], run["spec"]["message"]) == ("look", "why only arm64?")
        assert run["spec"]["trigger"]["noteId"] == note
        _, metrics = await asyncio.to_thread(place.fetch, "metrics")
        assert 'hummingbird_ingest_events_total{event="note",reason="fired",source="gitlab"} 1.0' in metrics
        assert 'hummingbird_ingest_answers_total{status="200"} 1.0' in metrics
    assert await asyncio.to_thread(place.ready) == 0


async def test_what_came_while_the_api_server_was_away_is_replayed_when_it_is_back(place: Place) -> None:
    """The process starts without an API server, is Ready all the same, refuses, and makes it good."""
    place.hook()
    place.api.refuse()
    async with place.webhook():
        note = await place.says("/hummingbird look")
        assert await place.runs() == []
        place.api.listen()
        assert [run["spec"]["trigger"]["noteId"] for run in await place.some_runs()] == [note]


async def test_no_secret_is_in_any_log_of_the_whole_process_at_debug(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    """Libraries log, too: HTTP clients, the server, asyncio."""
    caplog.set_level(logging.DEBUG)
    place.hook()
    async with place.webhook():
        await place.says("/hummingbird look")
        assert await place.some_runs()
    (sent,) = (hook.log[-1] for hook in _hooks(place.gitlab))
    text = caplog.text + "\n".join(str(vars(record)) for record in caplog.records)
    assert "note" in text
    hidden = [*ENVIRON.values(), SIGNING.removeprefix("whsec_"), sent["request_headers"]["webhook-signature"]]
    assert [secret for secret in hidden if secret in text] == []


def _hooks(gitlab: GitLabStandIn) -> list[Any]:
    project = gitlab.state.project(APP)
    assert project is not None
    return list(project.hooks.values())


@pytest.mark.parametrize(
    ("changes", "environ", "said"),
    [
        ({"gitlab": None}, {}, "gitlab: an ingestor needs a GitLab"),
        ({}, {"BOT": ""}, "gitlab.token_env: the environment variable BOT is not set"),
        ({}, {"SECRET": ""}, "gitlab.webhook_secret_env: the environment variable SECRET is not set"),
        ({}, {"SECRET": "whsec_!"}, "gitlab.webhook_secret_env: a signing token"),
        ({}, {"HOOKS": ""}, "gitlab.hooks_token_env: the environment variable HOOKS is not set"),
    ],
)
async def test_a_webhook_process_does_not_start_without_what_it_needs(
    place: Place, changes: dict[str, Any], environ: dict[str, str], said: str
) -> None:
    place.changes, place.environ = changes, {**ENVIRON, **environ}
    with pytest.raises(Invalid) as error:
        await serve_webhook(place.settings(), place.workflows(), place.options())
    assert str(error.value).startswith(said)


@pytest.mark.parametrize(
    ("environ", "said"), [({"NEW": ""}, "variable NEW is not set"), ({"NEW": "whsec_!"}, "1 of 2 secrets can check")]
)
async def test_a_webhook_is_served_with_the_secret_that_is_there(
    place: Place, environ: dict[str, str], said: str, caplog: pytest.LogCaptureFixture
) -> None:
    gitlab = {"url": place.gitlab.url, "token_env": "BOT", "webhook_secret_env": ["NEW", "SECRET"]}
    place.changes, place.environ = {"gitlab": gitlab}, {**ENVIRON, **environ}
    place.hook()
    async with place.webhook():
        await place.says("/hummingbird look")
        assert len(await place.runs()) == 1
    assert said in caplog.text


async def test_no_webhook_is_served_without_any_secret(place: Place) -> None:
    place.changes = {"gitlab": {"url": place.gitlab.url, "token_env": "BOT"}}
    with pytest.raises(Invalid, match=r"gitlab\.webhook_secret_env"):
        await serve_webhook(place.settings(), place.workflows(), place.options())


async def test_a_consumer_needs_a_queue(place: Place) -> None:
    with pytest.raises(Invalid, match=r"ingest\.queue_url"):
        await serve_sqs(place.settings(), place.workflows(), place.options())


@pytest.mark.parametrize(
    ("status", "said"), [(403, "is the Role applied"), (404, "kubectl apply --server-side -k crds")]
)
@pytest.mark.parametrize("serve", [serve_webhook, serve_sqs])
async def test_a_missing_role_or_crd_ends_the_process_with_what_to_do(
    place: Place, serve: Any, status: int, said: str
) -> None:
    place.changes = {"ingest": {"queue_url": "http://127.0.0.1:9/queue", "sqs_region": "us-east-1"}}
    place.api.fault = lambda asked: Refusal(status) if "agentruns" in asked.path else None
    with pytest.raises(Invalid) as error:
        await serve(place.settings(), place.workflows(), place.options())
    assert said in str(error.value)


async def test_without_a_token_for_hooks_it_is_said_once_that_nothing_is_replayed(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    place.changes = {"gitlab": {"url": place.gitlab.url, "token_env": "BOT", "webhook_secret_env": ["SECRET"]}}
    async with place.webhook():
        pass
    assert caplog.text.count("failed deliveries cannot be replayed: gitlab.hooks_token_env") == 1


async def test_globs_of_the_allow_list_are_said_as_they_are_not_replayed(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    place.hook()
    async with place.webhook():
        pass
    assert "failed deliveries of team/* are not replayed" in caplog.text


@dataclass
class Kept:
    """A queue that keeps what it is given."""

    sent: list[tuple[str, str, str]] = field(default_factory=list)

    async def send(self, body: str, *, group: str, once: str) -> None:
        self.sent.append((body, group, once))


async def test_an_event_on_the_queue_is_what_the_consumer_reads() -> None:
    kept = Kept()
    payload = {"object_kind": "note", "project": {"id": 10}, "words": "é\u2028" * 1000}
    queue = EventQueue(kept)  # type: ignore[arg-type] # only sends
    for event in (Event("gitlab", "Note Hook", payload, "delivery-1"), Event("gitlab", "", {"project": []})):
        await queue.send(event)
        body, group, once = kept.sent[-1]
        read = decode_message(body, {})
        assert (read.source, read.type, read.payload) == (event.source, event.type, event.payload)
        assert 0 < len(once) <= 128
        assert group.startswith("gitlab")
    assert kept.sent[0][1] == "gitlab-10"
    assert len(json.dumps(payload)) > len(kept.sent[0][0])


async def test_a_delivery_that_is_sent_again_on_purpose_is_a_message_again() -> None:
    """A FIFO queue swallows for five minutes what has the same identity; names make one run of two messages."""
    kept = Kept()
    for _ in range(2):
        await EventQueue(kept).send(Event("gitlab", "", {}, "delivery-1"))  # type: ignore[arg-type] # only sends
    assert kept.sent[0][2] != kept.sent[1][2]
