from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from hummingbird_ai.testing import Answer, ClaudeServer, say
from hummingbird_ai.testing.claude.models import MODELS
from tests.unit.hummingbird_ai.testing.claude.talk import (
    BINDING,
    CLEAR_AT,
    HIT,
    MARKER,
    NEWEST,
    OLDEST,
    RUN,
    WEB_SEARCH,
    answered,
    ask,
    assistant,
    body_of,
    refused,
    text,
    user,
)

BOUND = "The block is bound to a different conversation."
THINKS_AND_CALLS = Answer(thought="hm", text="let me see", searches=(HIT,), calls=(("run", {"a": 1, "b": 2}),))


def talked(server: ClaudeServer, model: str, turns: int = 2, **more: Any) -> dict[str, Any]:
    """A conversation of some turns with thinking and calls, ready to be sent again."""
    body = body_of(user([text("go")]), **more)
    for _ in range(turns):
        content = ask(server, body, model)["content"]
        body["messages"] += [assistant(content), answered(content)]
    return body


def thoughts(body: dict[str, Any]) -> list[dict[str, Any]]:
    found = [block for message in body["messages"] for block in message["content"]]
    return [block for block in found if block["type"] in ("thinking", "redacted_thinking")]


def drop_thinking(body: dict[str, Any]) -> None:
    for message in body["messages"]:
        message["content"] = [block for block in message["content"] if "thinking" not in block["type"]]


def mark(body: dict[str, Any]) -> None:
    body["messages"][0]["content"][0]["cache_control"] = MARKER
    body["tools"][0]["cache_control"] = MARKER


def reorder_keys(body: dict[str, Any]) -> None:
    call = body["messages"][1]["content"][-1]
    call["input"] = dict(reversed(call["input"].items()))


def as_string(body: dict[str, Any]) -> None:
    body["messages"][0]["content"] = "go"


UNCHANGED: dict[str, Callable[[dict[str, Any]], object]] = {
    "nothing": lambda b: None,
    "markers": mark,
    "text as a string": as_string,
    "system as a list": lambda b: b.update(system=[text("be brief")]),
    "more said after it": lambda b: b["messages"].append(user([text("hurry")])),
    "no tool allowed": lambda b: b.update(tool_choice={"type": "none"}),
    "all thoughts left out": drop_thinking,
    "another limit": lambda b: b.update(max_tokens=5),
}


@pytest.mark.parametrize("case", UNCHANGED)
def test_thoughts_are_taken_back_when_nothing_before_them_has_changed(case: str) -> None:
    with ClaudeServer(lambda body, n: THINKS_AND_CALLS) as server:
        body = talked(server, NEWEST)
        UNCHANGED[case](body)
        ask(server, body)


CHANGED: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    "the system prompt": (lambda b: b.update(system="be brief!"), "messages.1.content.0"),
    "a tool less": (lambda b: b["tools"].pop(0), "messages.1.content.0"),
    "a tool's description": (lambda b: b["tools"][0].update(description="e"), "messages.1.content.0"),
    "the first question": (lambda b: b["messages"][0]["content"][0].update(text="gone"), "messages.1.content.0"),
    "words put in": (lambda b: b["messages"][0]["content"].append(text("hurry")), "messages.1.content.0"),
    "a result": (lambda b: b["messages"][2]["content"][0].update(content="other"), "messages.3.content.0"),
    "an earlier answer": (lambda b: b["messages"][1]["content"][3].update(text="no"), "messages.3.content.0"),
    "the order of keys in a call": (reorder_keys, "messages.3.content.0"),
    "an earlier thought left out": (lambda b: b["messages"][1]["content"].pop(0), "messages.3.content.0"),
}


@pytest.mark.parametrize("case", CHANGED)
def test_a_changed_prefix_is_refused_by_models_that_are_bound_to_it_and_by_no_other(case: str) -> None:
    change, path = CHANGED[case]
    with ClaudeServer(lambda body, n: THINKS_AND_CALLS) as server:
        body = talked(server, NEWEST)
        change(body)
        message = refused(server, body)
        older = talked(server, OLDEST)
        change(older)
        ask(server, older, OLDEST)

    assert message.startswith(f"{path}: Invalid `signature` in `thinking` block. {BOUND} Remove the block, or set ")
    assert '`thinking.block_binding.prefix_mismatch_behavior` to "drop_block"' in message
    assert ("differ from those it was created with" in message) == (
        case in ("the system prompt", "a tool less", "a tool's description")
    )


def test_the_very_models_of_preserved_thinking_are_bound() -> None:
    assert {name for name, traits in MODELS.items() if traits.prefix_bound} == {
        "claude-fable-5-1",
        "claude-fable-5-2",
        "claude-mythos-5-1",
        "claude-mythos-5-2",
        "claude-opus-5-5",
        "claude-sonnet-5-5",
        "claude-haiku-5-5",
    }


def test_a_cleared_system_message_belongs_to_the_prefix_for_good() -> None:
    with ClaudeServer(lambda body, n: THINKS_AND_CALLS) as server:
        body = body_of(user(), {"role": "system", "content": "hurry", "clear_at": "next_user_message"})
        content = ask(server, body, **CLEAR_AT)["content"]
        body["messages"] += [assistant(content), answered(content)]
        ask(server, body, **CLEAR_AT)
        body["messages"].pop(1)
        assert BOUND in refused(server, body)


@pytest.mark.parametrize("model", [NEWEST, OLDEST])
@pytest.mark.parametrize("redacted", [False, True])
def test_foreign_broken_and_other_models_signatures_are_refused(model: str, redacted: bool) -> None:
    name, kind = ("data", "redacted_thinking") if redacted else ("signature", "thinking")
    words = f"messages.1.content.0: Invalid `{name}` in `{kind}` block"
    with ClaudeServer(lambda body, n: Answer(thought="hm", text="hi", redacted=redacted)) as server:
        for other in ("c2ln", "", "not base64", "MTI="):
            body = talked(server, model, turns=1)
            body["messages"][2] = user("next")
            body["messages"][1]["content"][0][name] = other
            assert refused(server, body, model) == words
        body = talked(server, "claude-fable-5", turns=1)
        body["messages"][2] = user("next")
        assert refused(server, body, model) == words


@pytest.mark.parametrize("model", [NEWEST, OLDEST])
def test_a_thought_of_the_latest_answer_cannot_be_modified(model: str) -> None:
    answer = Answer(
        parts=({"type": "thinking", "thinking": "a"}, text("x"), {"type": "thinking", "thinking": "b"}, text("y"))
    )
    latest = "blocks in the latest assistant message cannot be modified. These blocks must remain as they were in the"
    changes: list[Callable[[list[dict[str, Any]]], object]] = [
        lambda content: content[0].update(thinking="c"),
        lambda content: content.insert(0, content.pop(2)),
        lambda content: content.pop(0),
        lambda content: content[1].update(text="z"),
    ]
    with ClaudeServer(lambda body, n: answer) as server:
        for change in changes:
            body = body_of(user())
            content = ask(server, body, model)["content"]
            body["messages"] += [assistant(content), user("next")]
            change(content)
            assert latest in refused(server, body, model)


def test_a_changed_thought_of_an_earlier_answer_has_an_invalid_signature() -> None:
    with ClaudeServer(lambda body, n: THINKS_AND_CALLS) as server:
        body = talked(server, OLDEST)
        body["messages"][1]["content"][0]["thinking"] = "changed"
        assert refused(server, body, OLDEST) == "messages.1.content.0: Invalid `signature` in `thinking` block"


def test_a_blank_text_of_an_answer_may_be_left_out_on_models_that_are_not_bound() -> None:
    answer = Answer(parts=(text("\n"), {"type": "thinking", "thinking": "b"}, text("y")))
    with ClaudeServer(lambda body, n: answer) as server:
        for model in (OLDEST, NEWEST):
            body = body_of(user())
            content = ask(server, body, model)["content"]
            body["messages"] += [assistant(content[1:]), user("next")]
            if model == OLDEST:
                ask(server, body, model)
            else:
                assert BOUND in refused(server, body, model)


def test_thoughts_are_taken_back_by_another_server() -> None:
    with ClaudeServer(lambda body, n: THINKS_AND_CALLS) as server:
        body = talked(server, NEWEST, turns=1)
    with ClaudeServer(lambda body, n: THINKS_AND_CALLS) as server:
        content = ask(server, body)["content"]
        body["messages"] += [assistant(content), answered(content)]
        ask(server, body)


def test_dropped_thoughts_are_listed_and_the_rest_of_their_turn_goes_with_them() -> None:
    answer = Answer(parts=({"type": "thinking", "thinking": "a"}, {"type": "thinking", "thinking": "b"}, text("x")))
    drop = {"type": "adaptive", "block_binding": {"prefix_mismatch_behavior": "drop_block"}}
    with ClaudeServer(lambda body, n: answer if n == 0 else say("hi")) as server:
        body = body_of(user(), thinking=drop)
        body["messages"] += [assistant(ask(server, body, **BINDING)["content"]), user("next")]
        assert "input_transformations" not in ask(server, body, **BINDING)
        kept = ask(server, body, **BINDING)["usage"]["input_tokens"]
        body["system"] = "be verbose"
        document = ask(server, body, **BINDING)

    assert document["usage"]["input_tokens"] < kept
    assert document["input_transformations"] == [
        {"type": "thinking_dropped", "reason": "prefix_binding_mismatch", "path": f"messages.1.content.{index}"}
        for index in range(2)
    ]


@pytest.mark.parametrize(
    ("model", "thinking", "shown"),
    [
        (NEWEST, None, ""),
        (NEWEST, {"type": "adaptive"}, ""),
        (NEWEST, {"type": "adaptive", "display": "summarized"}, "hm, hm, hm"),
        (OLDEST, None, "hm, hm, hm"),
        (OLDEST, {"type": "enabled", "budget_tokens": 2000, "display": "omitted"}, ""),
    ],
)
def test_newer_models_show_a_thought_only_when_asked(model: str, thinking: dict[str, Any] | None, shown: str) -> None:
    more = {} if thinking is None else {"thinking": thinking}
    with ClaudeServer(lambda body, n: Answer(thought="hm, hm, hm", text="hi")) as server:
        document = ask(server, body_of(user(), **more), model)

    assert document["content"][0]["thinking"] == shown
    assert document["content"][0]["signature"]
    assert document["usage"]["output_tokens_details"] == {"thinking_tokens": 2}
    assert document["usage"]["output_tokens"] > 2


def test_manual_thinking_wants_its_thought_first_while_the_turn_is_under_way() -> None:
    thinking = {"type": "enabled", "budget_tokens": 2000}
    with ClaudeServer(lambda body, n: THINKS_AND_CALLS) as server:
        body = talked(server, OLDEST, thinking=thinking, tools=[RUN, WEB_SEARCH])
        ask(server, body, OLDEST)
        del body["messages"][3]["content"][0]
        assert "Expected `thinking` or `redacted_thinking`, but found `server_tool_use`" in refused(
            server, body, OLDEST
        )
        body["messages"].append(user("next"))
        ask(server, body, OLDEST)
