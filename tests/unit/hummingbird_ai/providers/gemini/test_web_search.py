from __future__ import annotations

import json
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import pytest

from hummingbird_ai.auth import VertexAuth
from hummingbird_ai.errors import BadRequest
from hummingbird_ai.http import HttpReply
from hummingbird_ai.messages import ModelResponse, Source, ToolDef
from hummingbird_ai.providers.gemini.adapter import GeminiModel
from hummingbird_ai.providers.gemini.reply import Pass, read
from hummingbird_ai.providers.google.endpoints import ApiKeyEndpoint, VertexEndpoint
from hummingbird_ai.testing import Answer, GeminiServer, Reply, Search
from tests.oracles.gemini import problems

RUN = ToolDef("run", "Run a command", {"type": "object"})
SEARCH: dict[str, Any] = {"googleSearch": {}}
TOOL_CALL = {"toolCall": {"id": "s1", "toolType": "GOOGLE_SEARCH_WEB", "args": {"queries": ["a"]}}}
TOOL_RESPONSE = {"toolResponse": {"id": "s1", "toolType": "GOOGLE_SEARCH_WEB", "response": {"search": "x"}}}


class Credentials:
    """Google credentials whose token is in force."""

    valid, token = True, "test-token"


def by_key(name: str = "gemini-3.8-flash", url: str | None = None) -> GeminiModel:
    return GeminiModel(name, ApiKeyEndpoint("test-key", url), web_search=True)


def by_vertex(name: str = "gemini-3.8-flash", url: str | None = None) -> GeminiModel:
    auth = VertexAuth("p", credentials=Credentials())
    return GeminiModel(name, VertexEndpoint(auth, "global", url), web_search=True)


def body_of(model: GeminiModel, tools: Sequence[ToolDef] = (RUN,), allow_tools: bool = True) -> dict[str, Any]:
    body = model._request([model.make_user_content("go")], "s", tools, (), allow_tools, 10)
    assert not problems(body, vertex="Vertex" in repr(model))
    return body


@pytest.mark.parametrize("model", [by_key(), by_vertex(), by_key("gemini-2.5-flash")], ids=repr)
@pytest.mark.parametrize("allow_tools", [True, False])
def test_a_request_that_only_searches_has_no_function_calling_config(model: GeminiModel, allow_tools: bool) -> None:
    body = body_of(model, (), allow_tools)

    assert body["tools"] == [SEARCH]
    assert "toolConfig" not in body


def test_searches_beside_functions_have_to_be_shown_on_the_gemini_api_and_cannot_be_on_vertex() -> None:
    """Without the field the Gemini API answers 400, and Vertex AI knows no such field."""
    shown, hidden = body_of(by_key()), body_of(by_vertex())

    assert shown["tools"] == hidden["tools"]
    assert [list(entry) for entry in shown["tools"]] == [["functionDeclarations"], ["googleSearch"]]
    assert shown["toolConfig"] == {"includeServerSideToolInvocations": True}
    assert "toolConfig" not in hidden


def test_the_search_stays_declared_where_calls_are_forbidden() -> None:
    """Report 33 in kind: the cache begins with the tools."""
    for model in (by_key(), by_vertex()):
        free, forbidden = body_of(model), body_of(model, allow_tools=False)

        assert free["tools"] == forbidden["tools"]
        assert forbidden["toolConfig"]["functionCallingConfig"] == {"mode": "NONE"}
    assert body_of(by_key(), allow_tools=False)["toolConfig"]["includeServerSideToolInvocations"] is True


def test_a_model_that_cannot_search_beside_functions_says_so_before_it_is_asked() -> None:
    with pytest.raises(BadRequest, match=r"gemini-2\.5-flash cannot search the web where tools are declared"):
        body_of(by_key("gemini-2.5-flash"))


def answered(reply: Reply, name: str = "gemini-3.8-flash") -> ModelResponse:
    with GeminiServer(lambda body, n: reply) as server:
        model = by_vertex(name, server.url)
        return model.generate([model.make_user_content("go")], system="s", tools=[])


def test_a_conversation_with_functions_and_searches_goes_on_by_vertex() -> None:
    answers = [Answer(text="I look", searches=(Search("a"),), calls=(("run", {}),)), Answer(text="done")]
    with GeminiServer(lambda body, n: answers[n]) as server:
        model = by_vertex(url=server.url)
        contents = [model.make_user_content("go")]
        first = model.generate(contents, system="s", tools=[RUN])
        assert first.raw_content is not None
        contents += [first.raw_content, model.make_tool_responses(first.tool_calls, [{}])]

        assert model.generate(contents, system="s", tools=[RUN]).text == "done"
    assert first.usage.web_searches == 1


def test_the_pages_of_an_answer_come_once_each_in_order_and_its_searches_are_counted() -> None:
    first = Search("one", (("A  title\n", "https://a.example/"), ("", "https://b.example/")))
    again = Search("one", (("Other", "https://a.example/"), ("B", "https://b.example/")))
    response = answered(Answer(text="found", searches=(first, again, Search(""), Search("two"))))

    assert response.sources == (Source("https://a.example/", "A title"), Source("https://b.example/", "B"))
    assert response.usage.web_searches == 2
    assert response.usage.total_tokens == response.usage.input_tokens + response.usage.output_tokens


def test_a_page_that_several_passes_rest_on_comes_once() -> None:
    page = Search("one", (("A", "https://a.example/"),))
    first = Answer(text="a", searches=(page,), finish="CONTINUATION", continuation_token="t")
    answers = [first, Answer(text="b", searches=(page,))]
    with GeminiServer(lambda body, n: answers[n]) as server:
        model = by_vertex(url=server.url)
        response = model.generate([model.make_user_content("go")], system="s", tools=[])

    assert response.sources == (Source("https://a.example/", "A"),)


def test_searches_are_part_of_the_cost() -> None:
    usage = {"promptTokenCount": 0, "candidatesTokenCount": 0}
    response = answered(Answer(text="found", searches=(Search("one"), Search("two")), usage=usage))

    assert response.cost_usd == Decimal("0.028")


def read_with(grounding: Any, **fields: Any) -> Pass:
    counts = {"promptTokenCount": 10, "candidatesTokenCount": 5, "toolUsePromptTokenCount": 7, "totalTokenCount": 22}
    candidate = {"content": {"parts": [{"text": "t"}]}, "groundingMetadata": grounding}
    document = {"candidates": [candidate], "usageMetadata": counts, "modelVersion": "gemini-3.8-flash", **fields}
    return read(HttpReply(200, {}, json.dumps(document).encode()))


def test_what_a_search_put_into_the_prompt_is_not_billed_as_tokens() -> None:
    """Section 1.6: the search is billed by the piece instead."""
    assert read_with({"webSearchQueries": ["a"]}).usage.input_tokens == 10
    assert read_with({"groundingChunks": [{"web": {"uri": "https://a.example/"}}]}).usage.input_tokens == 10
    assert read_with(None).usage.input_tokens == 17
    assert read_with({"webSearchQueries": [""]}).usage.input_tokens == 17


def test_a_grounded_prompt_before_gemini_3_is_at_least_one_search() -> None:
    chunks = {"groundingChunks": [{"web": {"uri": "https://a.example/"}}], "webSearchQueries": [" "]}

    assert read_with(chunks, modelVersion="gemini-2.5-flash").usage.web_searches == 1
    assert read_with(chunks, modelVersion="gemini-3.8-flash").usage.web_searches == 0


def test_pages_without_an_address_and_other_kinds_of_chunk_are_no_sources() -> None:
    chunks = [
        {"web": None},
        {"maps": {"uri": "m"}},
        {"web": {"title": "t"}},
        {"web": {"uri": "u\ud800", "title": None}},
    ]

    assert read_with({"groundingChunks": chunks, "webSearchQueries": None}).sources == (Source("u\ufffd", ""),)


def test_the_providers_own_calls_stay_in_their_place_and_never_leave_their_route() -> None:
    """Section 1.3: `toolCall` and `toolResponse` exist on the Gemini API only, and have to be sent back there."""
    model = by_key()
    mine = {"functionCall": {"id": "f1", "name": "run", "args": {}}, "thoughtSignature": "c2ln"}
    parts = [{**TOOL_CALL, "thoughtSignature": "AAAA"}, {**TOOL_RESPONSE, "thoughtSignature": "BBBB"}, mine]
    contents = [model.make_user_content("go"), model._raw([dict(part) for part in parts])]

    stored = json.loads(json.dumps(model.to_canonical(contents)))

    assert model.from_canonical(stored) == contents
    assert model._request(contents, "s", [RUN], (), True, 10)["contents"][1]["parts"] == parts
    elsewhere = by_vertex().from_canonical(stored)
    assert [list(part) for part in elsewhere[1]["parts"]] == [["functionCall"]]


@pytest.mark.parametrize(
    ("grounding", "searches", "sources"),
    [
        ({"webSearchQueries": [None, "a", 5]}, 1, ()),
        ({"webSearchQueries": "a", "groundingChunks": {"web": {}}}, 0, ()),
        ({"groundingChunks": [None, "x", {"web": {"uri": "https://e.com", "title": 5}}]}, 0, ("https://e.com",)),
        ({"groundingChunks": [{"web": ["x"]}, {"web": None}, {"web": {"uri": 5}}]}, 0, ()),
        (["x"], 0, ()),
    ],
)
def test_an_answer_is_not_lost_for_a_grounding_of_another_shape(
    grounding: Any, searches: int, sources: tuple[str, ...]
) -> None:
    """It is paid: raised as an error, it would be asked for and paid again."""
    candidate = {"content": {"parts": [{"text": "hi"}]}, "finishReason": "STOP", "groundingMetadata": grounding}
    found = read(HttpReply(200, {}, json.dumps({"candidates": [candidate]}).encode()))

    assert found.parts == ({"text": "hi"},)
    assert found.usage.web_searches == searches
    assert tuple(source.url for source in found.sources) == sources
