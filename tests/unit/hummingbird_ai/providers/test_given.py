"""Mistakes of a caller are told at once and by name, alike for both families."""

from __future__ import annotations

from typing import Any

import pytest

from hummingbird_ai.auth import VertexAuth
from hummingbird_ai.errors import BadRequest
from hummingbird_ai.messages import ModelAdapter, ToolCall, ToolDef
from hummingbird_ai.models import build_model
from hummingbird_ai.providers.claude.tools import declarations as claude_declarations
from hummingbird_ai.providers.gemini.schema import declarations as gemini_declarations
from hummingbird_ai.providers.given import passing_words

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
    for strange in ({"role": "user", "text": "go"}, {**user, "role": None}, {key: ["go"] for key in user}):
        without = {key: value for key, value in strange.items() if value is not None}
        assert "contents[0] was not made by this adapter" in asked(model, [without])


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


def nested(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {}
    for _ in range(levels):
        schema = {"properties": {"n": schema}}
    return schema


@on_both
@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        (nested(2000), "cannot be sent: maximum recursion depth"),
        (nested(150), "is no JSON Schema: it is nested too deeply"),
        ({"properties": {"n": {"maximum": 10**5000}}}, "cannot be sent: Exceeds the limit"),
    ],
)
def test_a_schema_without_end_names_its_tool(model: ModelAdapter, parameters: Any, words: str) -> None:
    assert f"the schema of the tool 'run' {words}" in asked(model, tools=[ToolDef("run", "d", parameters)])


@pytest.mark.parametrize("pattern", [r"^[\w-\.]+$", r"^\p{L}+$", r"(?<year>\d{4})"])
def test_a_pattern_of_ecma_is_none_of_ours_to_refuse(pattern: str) -> None:
    """Claude Code itself ships a tool with such a pattern (zai-org/feedback#593)."""
    schema = {"type": "object", "properties": {"n": {"type": "string", "pattern": pattern}}}

    assert claude_declarations([ToolDef("run", "d", schema)], web_search=False)[0]["input_schema"] == schema
    assert gemini_declarations([ToolDef("run", "d", schema)])[0]["parametersJsonSchema"] == schema


def test_tools_and_words_may_come_from_a_generator() -> None:
    assert [tool["name"] for tool in gemini_declarations(iter([ToolDef("run", "d", {})]))] == ["run"]  # type: ignore[arg-type]
    assert passing_words(word for word in ("a", " ", "b")) == ["a", "b"]  # type: ignore[arg-type]


@on_both
def test_a_description_and_a_system_prompt_are_texts(model: ModelAdapter) -> None:
    nothing: Any = None
    assert asked(model, tools=[ToolDef("run", nothing, {})]) == (
        "the description of the tool 'run' is None, it must be a text"
    )
    wrong: Any = 5
    with pytest.raises(BadRequest, match="system is a text, not a int"):
        model.generate([model.make_user_content("go")], system=wrong, tools=[])


@on_both
@pytest.mark.parametrize("tools", [ToolDef("run", "d", {}), "run", None, [{"name": "run"}], [print]])
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
