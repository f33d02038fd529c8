"""Laws: what the server answers it takes back from a client that keeps the rules, whatever the answers are."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hummingbird_ai.testing import Answer, ClaudeServer, Search
from hummingbird_ai.testing.claude.models import MODELS
from tests.unit.hummingbird_ai.testing.claude.talk import MARKER, answered, ask, assistant, body_of, post, text, user

SERVED = [name + f"@{traits.date}" * bool(traits.date) for name, traits in MODELS.items()]
searches = st.builds(
    Search,
    query=st.just("q"),
    results=st.lists(st.tuples(st.sampled_from(["A", "B|C"]), st.just("https://example.org")), max_size=2).map(tuple),
    pending=st.booleans(),
    error=st.sampled_from(["", "", "unavailable"]),
)
answers = st.builds(
    Answer,
    text=st.sampled_from(["", "words"]),
    thought=st.sampled_from(["", "hm"]),
    redacted=st.booleans(),
    searches=st.lists(searches, max_size=2).map(tuple),
    calls=st.lists(st.just(("run", {"b": 1, "a": 2})), max_size=2).map(tuple),
).filter(lambda answer: not answer.thought or answer.text or answer.calls or answer.searches)
"""Answers that a client can keep: one that ends in a thought is refused when it is sent again."""


def go_on(body: dict[str, Any], document: dict[str, Any]) -> None:
    """What a client adds to its history after an answer."""
    messages, content = body["messages"], document["content"]
    if content and messages[-1]["role"] == "assistant":
        messages[-1]["content"] += content
    elif content:
        messages.append(assistant(content))
    if document["stop_reason"] == "tool_use":
        messages.append(answered(messages[-1]["content"][-len(content) :]))
    elif document["stop_reason"] != "pause_turn":
        messages.append(user([text("next")]))


def move_markers(body: dict[str, Any]) -> None:
    """Onto the last two messages that can bear one."""
    blocks = [block for message in body["messages"] for block in message["content"]]
    for block in blocks:
        block.pop("cache_control", None)
    for block in [block for block in blocks if block["type"] in ("text", "tool_result")][-2:]:
        block["cache_control"] = MARKER


@pytest.fixture(scope="module")
def server() -> Any:
    given_answers: list[Answer] = []
    with ClaudeServer(lambda body, n: given_answers.pop(0)) as running:
        yield running, given_answers


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(model=st.sampled_from(SERVED), script=st.lists(answers, min_size=1, max_size=6))
def test_what_is_answered_is_taken_back(server: Any, model: str, script: list[Answer]) -> None:
    running, given_answers = server
    body = body_of(user([text("go " * 3000)]))
    for answer in script:
        given_answers[:] = [answer]
        move_markers(body)
        document = ask(running, body, model)
        usage = document["usage"]
        written = usage["cache_creation"]
        assert usage["cache_creation_input_tokens"] == sum(written.values())
        assert usage["input_tokens"] > 0
        go_on(body, document)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-1, 3) | st.sampled_from(["", " ", "text", "tool_use", "user", "system"]),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(st.sampled_from(["type", "text", "id", "role", "content"]), inner, max_size=3)
    ),
    max_leaves=5,
)


def places(value: Any) -> list[tuple[Any, Any]]:
    """Every (container, key) in a JSON value."""
    keys = list(value) if isinstance(value, dict) else list(range(len(value))) if isinstance(value, list) else []
    return [place for key in keys for place in [(value, key), *places(value[key])]]


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(model=st.sampled_from(SERVED), data=st.data())
def test_whatever_is_sent_is_answered_with_200_or_a_refusal(server: Any, model: str, data: st.DataObject) -> None:
    running, given_answers = server
    body = body_of(user([text("go")]), system=[text("s")], tool_choice={"type": "auto"})
    given_answers[:] = [Answer(thought="hm", searches=(Search("q", (("A", "u"),)),), text="hi", calls=(("run", {}),))]
    go_on(body, ask(running, body, model))
    body["thinking"] = {"type": "adaptive", "display": None}
    for _ in range(data.draw(st.integers(1, 2))):
        found = places(body)
        container, key = found[data.draw(st.integers(0, len(found) - 1))]
        container[key] = data.draw(json_values)
    given_answers[:] = [Answer(text="hi")]
    assert post(running, body, model).status_code in (200, 400, 404)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(script=st.lists(answers, min_size=2, max_size=4), data=st.data())
def test_no_message_can_be_left_out_under_a_thought(server: Any, script: list[Answer], data: st.DataObject) -> None:
    running, given_answers = server
    body = body_of(user([text("go")]))
    for answer in [*script, Answer(thought="last", text="hi")]:
        given_answers[:] = [answer]
        go_on(body, ask(running, body))
    body["messages"].pop(data.draw(st.integers(0, len(body["messages"]) - 3)))
    given_answers[:] = [Answer(text="hi")]
    assert post(running, body).status_code == 400
