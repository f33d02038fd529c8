"""What Vertex AI takes though the anthropic package, our oracle elsewhere, does not know it (any more, or yet)."""

from __future__ import annotations

import pytest

from hummingbird_ai.testing import Answer, ClaudeServer, say
from tests.unit.hummingbird_ai.testing.claude.talk import (
    NEWEST,
    OLDEST,
    ask,
    assistant,
    body_of,
    conversation,
    post,
    refused,
    text,
    user,
)


@pytest.fixture(autouse=True, scope="module")
def requests_pass_their_oracle() -> None:
    """Not in this module."""


def test_an_older_model_takes_sampling_and_a_newer_one_the_usual_temperature_only() -> None:
    with ClaudeServer(lambda body, n: say("hi")) as server:
        ask(server, conversation(temperature=0.5, top_p=0.5, top_k=3), OLDEST)
        ask(server, conversation(temperature=1), NEWEST)


def test_the_newer_version_knows_no_sampling_and_no_citations_of_a_user() -> None:
    citation = {
        "type": "web_search_result_location",
        "url": "u",
        "title": "t",
        "encrypted_index": "i",
        "cited_text": "c",
    }
    with ClaudeServer(lambda body, n: say("hi")) as server:
        for more, words in (
            ({"temperature": 1}, "temperature: `temperature` is not supported"),
            (
                {"messages": [user([text("x", citations=[citation])])]},
                "messages.0.content.0.text.citations: Extra inputs",
            ),
        ):
            ask(server, conversation(**more), OLDEST)
            assert words in refused(server, conversation(anthropic_version="2026-10-21", **more), OLDEST)


def test_a_block_of_a_type_yet_unknown_is_taken_back_from_who_got_it_here() -> None:
    novel = {"type": "hologram", "data": {"a": 1}}
    with ClaudeServer(lambda body, n: Answer(parts=(novel, {"type": "text", "text": "hi"}))) as server:
        content = [novel, text("hi")]
        assert "Input tag 'hologram'" in refused(server, body_of(user(), assistant(content), user()))
        assert post(server, conversation()).json()["content"] == content
        assert post(server, body_of(user(), assistant(content), user())).status_code == 200
        changed = [{**novel, "data": {"a": 2}}, text("hi")]
        assert "Input tag 'hologram'" in refused(server, body_of(user(), assistant(changed), user()))
