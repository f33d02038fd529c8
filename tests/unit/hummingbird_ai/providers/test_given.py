"""Mistakes of a caller are told at once and by name, alike for both families."""

from __future__ import annotations

from typing import Any

import pytest

from hummingbird_ai.auth import VertexAuth
from hummingbird_ai.errors import BadRequest
from hummingbird_ai.messages import ModelAdapter, ToolCall, ToolDef
from hummingbird_ai.models import build_model

GEMINI = build_model("gemini-3.8-flash", google_api_key="k", base_url="http://127.0.0.1:1")
CLAUDE = build_model("claude-opus-5-5", auth=VertexAuth("p"), base_url="http://127.0.0.1:1")
on_both = pytest.mark.parametrize("model", [GEMINI, CLAUDE], ids=lambda model: model.name)


def asked(model: ModelAdapter, contents: Any = None, tools: Any = (), ephemeral: Any = ()) -> str:
    with pytest.raises(BadRequest) as raised:
        model.generate(
            [model.make_user_content("go")] if contents is None else contents,
            system="",
            tools=tools,
            ephemeral=ephemeral,
        )
    return raised.value.problem


@on_both
def test_contents_that_are_none_say_which_and_why(model: ModelAdapter) -> None:
    other = CLAUDE if model is GEMINI else GEMINI
    user = model.make_user_content("go")
    assert asked(model, "go") == "contents is a list of contents, not a str"
    assert asked(model, user) == "contents is a list of contents, not a dict"
    assert asked(model, ["go"]) == "contents[0] is a str: make it with `make_user_content`"
    assert asked(model, [user, None]) == "contents[1] is None: append `raw_content` only where there is one"
    assert "contents[1] was not made by this adapter" in asked(model, [user, other.make_user_content("go")])
    assert "contents[0] was not made by this adapter" in asked(model, [{"role": "user", "text": "go"}])


@on_both
def test_words_that_are_no_list_of_texts_are_not_taken_letter_by_letter(model: ModelAdapter) -> None:
    wrong: Any = None
    assert asked(model, ephemeral="Answer now.") == "ephemeral is a list of texts"
    assert asked(model, ephemeral=[None]) == "ephemeral is a list of texts"
    with pytest.raises(BadRequest, match="made of a text, not of None"):
        model.make_user_content(wrong)


@on_both
@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        (None, "is None, it must be a dict"),
        ("{}", "is a str, it must be a dict"),
        ({"properties": {"n": {"type": int}}}, "cannot be sent"),
        ({"type": "array"}, "has the type 'array', it must be object"),
        ({"type": "objekt"}, "has the type 'objekt', it must be object"),
        ({"properties": ["a"]}, "is no JSON Schema: properties: ['a'] is not of type 'object'"),
        ({"properties": {"n": {"type": "strng"}}}, "is no JSON Schema: properties.n.type"),
        ({"required": "a"}, "is no JSON Schema: required"),
    ],
)
def test_a_schema_that_is_none_names_its_tool_and_place(model: ModelAdapter, parameters: Any, words: str) -> None:
    """Report 39."""
    problem = asked(model, tools=[ToolDef("run", "d", parameters)])

    assert problem.startswith("the schema of the tool 'run' ")
    assert words in problem


@on_both
@pytest.mark.parametrize("tools", [ToolDef("run", "d", {}), "run", [{"name": "run"}], [print]])
def test_tools_are_a_list_of_definitions(model: ModelAdapter, tools: Any) -> None:
    assert asked(model, tools=tools) == "tools is a list of ToolDef"


@on_both
def test_a_result_is_a_dict_that_json_can_carry(model: ModelAdapter) -> None:
    call = ToolCall("toolu_1", "run", {})
    for result, words in (
        ("done", 'the result of run is a str: make it a dict such as {"output": …}'),
        (None, "the result of run is None"),
        ({"files": {1, 2}}, "the result of run cannot be sent: JSON has no form for a set"),
    ):
        wrong: Any = result
        with pytest.raises(ValueError, match="the result of run") as raised:
            model.make_tool_responses([call], [wrong])
        assert words in str(raised.value)
    with pytest.raises(ValueError, match="1 calls but 2 results"):
        model.make_tool_responses([call], [{}, {}])
