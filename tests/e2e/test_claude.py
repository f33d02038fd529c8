"""Runs on Claude: a real google-auth gets the token, the session crosses from Gemini, the thinking stays bound."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from cluster import Cluster
from hummingbird_ai.testing import ClaudeServer
from hummingbird_ai.testing.replies import Answer, Reply, say
from tests.e2e.scene import Scene, scene

MODEL = "claude-opus-5-5"
LOOK = (("sandbox_exec", {"command": "echo one"}), ("sandbox_exec", {"command": "echo two"}))


def gemini(body: dict[str, Any], _: int) -> Reply:
    """Thinks, runs two commands at once, and answers."""
    if any("functionResponse" in part for content in body["contents"] for part in content["parts"]):
        return say("first answer: two lines")
    return Answer(thought="I look twice.", calls=LOOK)


def claude(body: dict[str, Any], _: int) -> Reply:
    """The same, once after each message of the user; tells whether it was told of a limit and of an earlier answer."""
    blocks = [block for message in body["messages"] for block in message["content"] if isinstance(block, dict)]
    results = [block for block in body["messages"][-1]["content"] if block["type"] == "tool_result"]
    if not results and body["messages"][-1]["role"] == "user":
        return Answer(thought="I look twice.", calls=LOOK)
    seen = any("first answer" in str(block.get("text")) for block in blocks)
    return Answer(thought="That is all.", text=f"earlier answer seen: {seen}; {results[-1]['content']}")


def service_account(token_uri: str) -> dict[str, str]:
    """What Google gives out as a key file, with a token service on loopback."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    encoding, form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    return {
        "type": "service_account",
        "project_id": "another-project",
        "private_key_id": "1",
        "private_key": key.private_bytes(encoding, form, serialization.NoEncryption()).decode(),
        "client_email": "agent@example.iam.gserviceaccount.com",
        "client_id": "1",
        "token_uri": token_uri,
    }


@pytest.fixture(scope="module")
def server() -> Iterator[ClaudeServer]:
    with ClaudeServer(claude) as made:
        yield made


@pytest.fixture(scope="module")
def world(shared_cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    with scene(shared_cluster, tmp_path_factory.mktemp("claude"), "claude") as found:
        found.script = gemini
        with found.stage.operator():
            found.run("on-gemini")
            assert found.finished("on-gemini")["reason"] == "Completed"
        yield found


@pytest.fixture(scope="module")
def on_claude(world: Scene, server: ClaudeServer) -> Iterator[Scene]:
    """The same place with Claude as its model, by Application Default Credentials."""
    account = world.stage.folder / "account.json"
    account.write_text(json.dumps(service_account(f"{server.url}/token")))
    world.stage.environ["GOOGLE_APPLICATION_CREDENTIALS"] = str(account)
    world.configure(
        models={
            "default": MODEL,
            "google_api_key_env": None,
            "google_cloud_project": "my-project",
            "endpoint": server.url,
        }
    )
    world.free_lease()
    with world.stage.operator("operator-1"):
        yield world


def test_a_run_on_claude_ends_well_and_says_what_it_cost(on_claude: Scene, server: ClaudeServer) -> None:
    on_claude.run("claude-one")
    assert on_claude.finished("claude-one")["reason"] == "Completed", on_claude.conditions("claude-one")
    status = on_claude.status("claude-one")
    assert status["resolved"]["model"] == MODEL
    assert "two" in status["answer"]["text"]
    assert float(status["usage"]["costUSD"]) > 0
    assert [call.refused for call in server.calls] == [None] * len(server.calls)
    assert "projects/my-project/locations/global/publishers/anthropic" in server.calls[-1].path
    assert len(on_claude.notes()) == 2


def test_a_session_of_gemini_goes_on_with_claude_and_then_with_claude_again(
    on_claude: Scene, server: ClaudeServer
) -> None:
    session = on_claude.status("on-gemini")["session"]["id"]
    for name in ("reply-one", "reply-two"):
        on_claude.run(name, session=session, message="why only arm64?")
        assert on_claude.finished(name)["reason"] == "Completed"
        assert "earlier answer seen: True" in on_claude.status(name)["answer"]["text"]
    assert [call.refused for call in server.calls] == [None] * len(server.calls)
    last = server.calls[-1].body
    assert sum(block["type"] == "thinking" for m in last["messages"] for block in m["content"]) == 3
    assert "I look twice" not in json.dumps(next(m for m in last["messages"] if m["role"] == "assistant"))
