from __future__ import annotations

import threading
import time
from decimal import Decimal
from typing import Any

import pytest

from hummingbird_ai.abort import Abort
from hummingbird_ai.errors import BadRequest, CallAborted, Overloaded
from hummingbird_ai.messages import Content, Finish, ModelAdapter, ModelResponse, ToolCall, ToolDef, Usage
from hummingbird_ai.testing import ScriptedModel, Wait

RUN = ToolDef("run", "Run a command", {"type": "object"})
LS = ToolCall("1", "run", {"command": "ls"})


def ask(model: ModelAdapter, contents: list[Content] | None = None, **more: Any) -> ModelResponse:
    return model.generate(contents or [model.make_user_content("go")], system="s", tools=[RUN], **more)


def test_a_script_of_text_calls_responses_and_errors() -> None:
    whole = ModelResponse(text="w", usage=Usage(1, 2, 3, 4, 5), cost_usd=Decimal(7), model_version="v")
    model = ScriptedModel(["hello", LS, [LS, ToolCall("2", "run", {})], Overloaded("busy"), whole, ""])

    assert ask(model).text == "hello"
    assert ask(model).tool_calls == (LS,)
    assert len(ask(model).tool_calls) == 2
    with pytest.raises(Overloaded, match="busy"):
        ask(model)
    given = ask(model)
    assert (given.usage, given.cost_usd, given.model_version) == (whole.usage, whole.cost_usd, "v")
    assert ask(model).finish is Finish.EMPTY
    with pytest.raises(BadRequest, match="no step for call 7"):
        ask(model)
    assert len(model.calls) == 7


def test_a_whole_conversation_with_growing_usage() -> None:
    model = ScriptedModel([LS, "done"])
    contents = [model.make_user_content("go")]
    first = ask(model, contents)
    assert first.finish is Finish.TOOL_CALLS
    assert first.raw_content is not None
    contents += [first.raw_content, model.make_tool_responses(first.tool_calls, [{"out": "x" * 100}])]
    second = ask(model, contents)

    assert second.finish is Finish.STOP
    assert second.usage.context_tokens > first.usage.context_tokens + 20
    assert second.cost_usd == Decimal(second.usage.total_tokens) / 1_000_000
    assert model.from_canonical(model.to_canonical(contents)) == contents


def test_a_step_may_look_at_the_conversation_and_a_callable_may_be_the_whole_script() -> None:
    def count(contents: Any) -> str:
        return f"{len(contents)} contents"

    assert ask(ScriptedModel([count])).text == "1 contents"
    endless = ScriptedModel(count)
    assert [ask(endless).text for _ in range(3)] == ["1 contents"] * 3


def test_what_was_asked_is_recorded_as_it_was_then() -> None:
    model = ScriptedModel(["a"])
    contents = [model.make_user_content("go")]
    ask(model, contents, ephemeral=["hurry"], allow_tools=False, max_output_tokens=5)
    contents[0]["parts"].clear()

    asked = model.calls[0]
    assert asked.contents[0]["parts"][0]["text"] == "go"
    assert (asked.system, asked.tools, asked.ephemeral) == ("s", (RUN,), ("hurry",))
    assert (asked.allow_tools, asked.max_output_tokens) == (False, 5)


def test_a_history_that_providers_refuse_is_refused() -> None:
    model = ScriptedModel([[LS, ToolCall("2", "run", {})], *["x"] * 9])
    contents = [model.make_user_content("go")]
    calls = ask(model, contents)
    assert calls.raw_content is not None
    contents.append(calls.raw_content)
    half = model.make_tool_responses(calls.tool_calls[:1], [{}])

    for bad in ([calls.raw_content], contents, [*contents, half], [*contents, model.make_user_content("no results")]):
        with pytest.raises(BadRequest):
            ask(model, bad)
    with pytest.raises(BadRequest, match="no text is blank"):
        ask(model, [model.make_user_content(" ")])


def test_a_wait_ends_by_release_or_by_abort() -> None:
    abort = Abort()
    model = ScriptedModel([Wait(), Wait(), Wait("released"), Wait("at once")])
    threading.Timer(0.1, abort.set, ["Cancelled"]).start()
    started = time.monotonic()
    for _ in range(2):
        with pytest.raises(CallAborted, match="Cancelled"):
            ask(model, abort=abort)
    assert time.monotonic() - started < 1

    threading.Timer(0.1, model.release).start()
    assert ask(model, abort=Abort()).text == ""


def test_a_released_wait_gives_its_step() -> None:
    model = ScriptedModel([Wait("first"), Wait(Overloaded("second"))])
    threading.Timer(0.05, model.release).start()

    assert ask(model).text == "first"
    with pytest.raises(Overloaded):
        ask(model)


def test_a_price_may_be_unknown() -> None:
    assert ask(ScriptedModel(["a"], usd_per_million=None)).cost_usd is None


def test_a_step_of_another_kind_is_named() -> None:
    with pytest.raises(BadRequest, match="not 3"):
        ask(ScriptedModel([3]))  # type: ignore[list-item]
