from __future__ import annotations

import copy
import json
import string
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hummingbird_ai.auth import VertexAuth
from hummingbird_ai.canonical import message, repaired
from hummingbird_ai.messages import Content, ToolCall, ToolDef
from hummingbird_ai.models import build_model
from hummingbird_ai.providers.gemini.adapter import GeminiModel
from hummingbird_ai.providers.google.endpoints import ApiKeyEndpoint, VertexEndpoint
from hummingbird_ai.testing import Answer, GeminiServer, ScriptedModel, say
from hummingbird_ai.testing.gemini.rules import refusal

RUN = ToolDef("run", "Run a command", {"type": "object"})


def gemini(name: str = "gemini-3.8-flash") -> GeminiModel:
    return GeminiModel(name, ApiKeyEndpoint("k"))


def vertex(name: str = "gemini-3.8-flash") -> GeminiModel:
    return GeminiModel(name, VertexEndpoint(VertexAuth("p"), "global"))


def body_of(model: GeminiModel, contents: list[Content]) -> dict[str, Any]:
    return model._request(contents, "s", [RUN], (), True, 10)


texts = st.text(min_size=1, max_size=8).filter(lambda text: bool(text.strip()))
names = st.sampled_from(["run", "read", "list"])
values = st.dictionaries(texts, texts | st.integers() | st.lists(texts, max_size=2), max_size=2)
signatures = st.text(string.ascii_letters + string.digits + "_-", min_size=4, max_size=12)


@st.composite
def model_turns(draw: st.DrawFn, own: GeminiModel) -> list[Content]:
    """A model content as Gemini gives it, and the content that answers its calls."""
    ids = draw(st.booleans())
    calls = draw(st.lists(st.tuples(names, values), max_size=3))
    parts: list[dict[str, Any]] = [{"text": text} for text in draw(st.lists(texts, max_size=2))]
    if draw(st.booleans()):
        parts.insert(0, {"text": draw(texts), "thought": True})
    if draw(st.booleans()):
        parts.append({"executableCode": {"code": draw(texts)}})
    given_calls = []
    for index, (name, arguments) in enumerate(calls):
        number = {"id": f"{draw(signatures)}-{index}"} if ids else {}
        part = {"functionCall": {**number, "name": name, "args": arguments}}
        parts.append(part if index else {**part, "thoughtSignature": draw(signatures)})
        given_calls.append(ToolCall(number.get("id", f"hb-local-9-{index}"), name, arguments))
    if not calls:
        parts.append({"text": "", "thoughtSignature": draw(signatures)})
    turn: list[Content] = [own._raw(parts)]
    if given_calls:
        turn.append(own.make_tool_responses(given_calls, [draw(values) for _ in given_calls]))
    return turn


@st.composite
def conversations(draw: st.DrawFn, own: GeminiModel) -> list[Content]:
    contents: list[Content] = []
    for _ in range(draw(st.integers(1, 3))):
        contents.append(own.make_user_content(draw(texts)))
        for turn in draw(st.lists(model_turns(own), max_size=3)):
            contents += turn
    contents.append(own.make_user_content("next"))
    return contents


OWN = gemini()


@given(conversations(OWN))
def test_a_session_of_ones_own_comes_back_to_byte_equal_requests(contents: list[Content]) -> None:
    before = copy.deepcopy(contents)

    stored = json.loads(json.dumps(OWN.to_canonical(contents)))
    loaded = OWN.from_canonical(stored)

    assert loaded == contents == before
    assert json.dumps(body_of(OWN, loaded)) == json.dumps(body_of(OWN, contents))


@pytest.mark.parametrize("other", [gemini("gemini-4-argon"), vertex(), gemini("gemini-2.5-flash")], ids=repr)
@given(contents=conversations(OWN))
def test_a_foreign_session_always_makes_a_request_that_is_accepted(other: GeminiModel, contents: list[Content]) -> None:
    """Report 24 and section 1.5: signatures of another model or route are refused, and their lack is too."""
    stored = OWN.to_canonical(contents)
    before = copy.deepcopy(stored)

    loaded = other.from_canonical(stored)

    assert stored == before
    on_vertex = "vertex" in repr(other).lower()
    assert refusal(body_of(other, loaded), model=other.name, vertex=on_vertex) is None
    again = other.from_canonical(other.to_canonical(loaded))
    assert again == loaded
    assert "executableCode" not in json.dumps(loaded)


@given(contents=conversations(OWN))
def test_a_session_that_came_over_another_adapter_can_go_on_at_home(contents: list[Content]) -> None:
    other = vertex("gemini-4-argon")
    back = OWN.from_canonical(other.to_canonical(other.from_canonical(OWN.to_canonical(contents))))

    assert refusal(body_of(OWN, back), model=OWN.name, vertex=False) is None


def test_a_real_session_is_resumed_byte_for_byte() -> None:
    answers = [Answer(thought="hm", calls=(("run", {"b": 1, "a": 2}), ("run", {}))), say("done"), say("more")]
    with GeminiServer(lambda body, n: answers[n]) as server:
        model = build_model("gemini-3.8-flash", google_api_key="test-key", base_url=server.url)
        contents = [model.make_user_content("go")]
        response = model.generate(contents, system="s", tools=[RUN])
        assert response.raw_content is not None
        contents += [response.raw_content, model.make_tool_responses(response.tool_calls, [{"x": 1}, {"y": 2}])]
        model.generate(contents, system="s", tools=[RUN])

        resumed = build_model("gemini-3.8-flash", google_api_key="test-key", base_url=server.url)
        loaded = resumed.from_canonical(json.loads(json.dumps(model.to_canonical(contents))))
        resumed.generate(loaded, system="s", tools=[RUN])

        assert server.calls[2].raw == server.calls[1].raw


def test_each_assistant_turn_names_its_producer_and_no_provider_shape_is_stored() -> None:
    model = gemini()
    part = {"functionCall": {"id": "i", "name": "run", "args": {}}, "thoughtSignature": "s=="}
    contents = [model.make_user_content("a"), model._raw([part])]

    stored = model.to_canonical(contents)

    assert stored == [
        {"version": 1, "role": "user", "parts": [{"type": "text", "text": "a"}]},
        {
            "version": 1,
            "role": "assistant",
            "parts": [{"type": "tool_call", "id": "i", "name": "run", "arguments": {}, "signature": "s=="}],
            "producer": {"provider": "google", "transport": "gemini-api", "model": "gemini-3.8-flash"},
        },
    ]


def test_what_stands_on_the_wrong_side_or_is_marked_comes_back_to_its_own_model_and_to_no_other() -> None:
    model = gemini()
    response = {"functionResponse": {"id": "i", "name": "run", "response": {}}, "thoughtSignature": "c2ln"}
    thought, marked = {"text": "hm", "thought": True}, {"text": "see", "partMetadata": {"a": 1}}
    call = {"functionCall": {"id": "j", "name": "run", "args": {}}}
    contents: list[Content] = [
        {"role": "user", "parts": [{"text": "go"}, thought, marked, call, {"inlineData": {"data": "AA=="}}]},
        model._raw([{"text": "a"}, response]),
    ]

    stored = json.loads(json.dumps(model.to_canonical(contents)))

    assert model.from_canonical(stored) == contents
    assert [content["parts"] for content in vertex().from_canonical(stored)] == [
        [{"text": "go"}, {"text": "see"}],
        [{"text": "a"}],
    ]


def foreign(*parts: dict[str, Any]) -> dict[str, Any]:
    return message("assistant", parts, {"provider": "anthropic", "transport": "vertex", "model": "claude-x"})


def tool_call(number: str, name: str = "run") -> dict[str, Any]:
    return {"type": "tool_call", "id": number, "name": name, "arguments": {}}


def tool_result(number: str, name: str = "run", **result: Any) -> dict[str, Any]:
    return {"type": "tool_result", "id": number, "name": name, "result": result}


def user(*parts: dict[str, Any]) -> dict[str, Any]:
    return message("user", parts)


GO = {"type": "text", "text": "go"}


def accepted(messages: list[dict[str, Any]]) -> list[Content]:
    model = gemini()
    loaded = model.from_canonical([*messages, user({"type": "text", "text": "next"})])
    assert refusal(body_of(model, loaded), model=model.name, vertex=False) is None
    return loaded


def ids_in(contents: list[Content]) -> tuple[list[str], list[str]]:
    parts = [part for content in contents for part in content["parts"]]
    calls = [part["functionCall"]["id"] for part in parts if "functionCall" in part]
    return calls, [part["functionResponse"]["id"] for part in parts if "functionResponse" in part]


def test_foreign_ids_are_mapped_pairwise_and_without_collisions() -> None:
    """Reports 8, 9 and 11: odd, empty, duplicate and over-long ids."""
    long = "x" * 80
    loaded = accepted(
        [
            user(GO),
            foreign(tool_call("functions.x:0"), tool_call(long + "1"), tool_call(long + "2")),
            user(tool_result("functions.x:0"), tool_result(long + "1"), tool_result(long + "2")),
            foreign(tool_call(""), tool_call("ok")),
            user(tool_result(""), tool_result("ok")),
            foreign(tool_call("ok")),
            user(tool_result("ok")),
        ]
    )

    calls, results = ids_in(loaded)
    assert calls == results
    assert len(set(calls)) == 6


def test_foreign_server_blocks_are_dropped_or_flattened() -> None:
    """Reports 10, 25 and 29: a foreign thinking signature goes, another provider's search blocks brick the session."""
    search = {"type": "opaque", "data": {"type": "server_tool_use", "id": "srvtoolu_1"}}
    found = {"type": "opaque", "data": {"type": "web_search_tool_result"}, "text": "Found: example.com"}
    loaded = accepted([user(GO), foreign({"type": "thinking", "text": "hm", "signature": "x"}, search, found)])

    assert loaded[1]["parts"] == [{"text": "Found: example.com"}]


def test_a_turn_of_which_nothing_is_left_disappears() -> None:
    loaded = accepted([user(GO), foreign({"type": "thinking", "text": "hm"}), user(GO)])

    assert [content["role"] for content in loaded] == ["user", "user", "user"]


def test_results_in_several_messages_are_merged_before_orphans_are_dropped() -> None:
    """Report 5: dropping first would lose valid results."""
    loaded = accepted(
        [
            user(GO),
            foreign(tool_call("a"), tool_call("b")),
            user(tool_result("b", out=2), {"type": "text", "text": "and"}),
            user(tool_result("a", out=1), tool_result("orphan")),
        ]
    )

    assert [part["functionResponse"]["response"] for part in loaded[2]["parts"]] == [{"out": 1}, {"out": 2}]
    assert loaded[3]["parts"] == [{"text": "and"}]


def test_a_call_that_was_never_answered_is_said_to_have_no_result() -> None:
    """Report 3."""
    loaded = accepted([user(GO), foreign(tool_call("a"), tool_call("b")), user(tool_result("b"))])

    assert "no result was recorded" in loaded[2]["parts"][0]["functionResponse"]["response"]["error"]


def test_a_history_that_begins_with_the_model_gets_a_user_turn_first() -> None:
    assert accepted([foreign(GO)])[0]["role"] == "user"


def test_calls_at_the_very_end_stay_open_for_their_results() -> None:
    model = gemini()

    assert len(model.from_canonical([user(GO), foreign(tool_call("a"))])) == 2


def test_only_the_first_call_of_a_turn_without_signatures_gets_the_placeholder_and_only_where_it_is_needed() -> None:
    """Report 24: a lost signature is refused, and so is one that a second parallel call must not have."""
    stored = [user(GO), foreign(tool_call("a"), tool_call("b")), user(tool_result("a"), tool_result("b"))]

    def sent(model: GeminiModel) -> list[dict[str, Any]]:
        parts: list[dict[str, Any]] = body_of(model, model.from_canonical(stored))["contents"][1]["parts"]
        return parts

    signed, unsigned = sent(gemini()), sent(gemini("gemini-2.5-flash"))

    assert [part.get("thoughtSignature") for part in signed] == ["skip_thought_signature_validator", None]
    assert all("thoughtSignature" not in part for part in unsigned)


def test_an_own_turn_whose_signature_was_lost_on_the_way_over_another_adapter_is_accepted() -> None:
    """Report 24."""
    own = gemini()._producer.to_dict()

    accepted([user(GO), message("assistant", [tool_call("a"), tool_call("b")], own), user(tool_result("a"))])


def test_references_in_a_foreign_result_are_neutralised_on_load() -> None:
    """Report 12."""
    accepted([user(GO), foreign(tool_call("a")), user(tool_result("a", schema={"$ref": "#/x"}))])


def test_what_is_not_the_stored_form_is_a_value_error() -> None:
    with pytest.raises(ValueError, match=r"messages\[0\]\.version: 2 is not known"):
        gemini().from_canonical([{**user(GO), "version": 2}])


parts_of_users = st.lists(
    st.one_of(
        texts.map(lambda text: {"type": "text", "text": text}),
        st.sampled_from("abc").map(tool_result),
    ),
    max_size=3,
)
parts_of_models = st.lists(
    st.one_of(
        texts.map(lambda text: {"type": "text", "text": text}),
        st.sampled_from(["a", "b", "c", "", "odd id"]).map(tool_call),
        texts.map(lambda text: {"type": "thinking", "text": text, "signature": "s"}),
    ),
    max_size=3,
)
wild = st.lists(
    st.one_of(parts_of_users.map(lambda p: user(*p)), parts_of_models.map(lambda p: foreign(*p))), max_size=6
)


@given(wild)
def test_any_order_of_messages_is_repaired_to_one_that_is_accepted(messages: list[dict[str, Any]]) -> None:
    accepted(messages)


@given(wild)
def test_repairing_twice_changes_nothing_more(messages: list[dict[str, Any]]) -> None:
    once = repaired(messages)

    assert repaired(once) == once


@pytest.mark.parametrize(
    ("part", "problem"),
    [
        ({"type": "opaque", "data": {"functionCall": 5}}, r"functionCall: "),
        ({"type": "opaque", "data": {"functionResponse": None}}, "functionResponse: must not be null"),
        ({"type": "opaque", "data": {"text": []}}, "text: "),
        ({"type": "text", "text": "t", "extra": {"functionCall": {"args": []}}}, r"functionCall\.args: "),
        ({**tool_call("a"), "payload_extra": {"args": "x"}}, r"functionCall\.args: "),
    ],
)
def test_an_own_part_that_gemini_cannot_have_written_is_a_value_error_with_its_place(
    part: dict[str, Any], problem: str
) -> None:
    """A session that was edited by hand: told when it is loaded, not by a crash in some later call."""
    stored = OWN.to_canonical([OWN.make_user_content("go"), OWN._raw([{"text": "so"}])])
    stored[1]["parts"].append(part)

    with pytest.raises(ValueError, match=rf"contents\[1\]\.parts\[1\]\.{problem}"):
        OWN.from_canonical(stored)


def test_a_new_field_of_gemini_that_is_called_like_one_of_the_stored_form_does_not_spoil_the_session() -> None:
    parts = (
        {"text": "t", "type": "new", "other": 1},
        {"functionCall": {"name": "run", "args": {}, "type": "new"}, "id": "new", "name": "new"},
    )
    with GeminiServer(lambda body, n: Answer(parts=parts)) as server:
        model = build_model("gemini-2.5-flash", google_api_key="test-key", base_url=server.url)
        response = model.generate([model.make_user_content("go")], system="s", tools=[RUN])
    assert response.raw_content is not None
    contents = [model.make_user_content("go"), response.raw_content]

    assert response.tool_calls[0].name == "run"
    assert response.raw_content["parts"] == [
        {"text": "t", "other": 1},
        {"functionCall": {"name": "run", "args": {}, "type": "new"}},
    ]
    assert model.from_canonical(model.to_canonical(contents)) == contents


def test_a_gemini_session_goes_on_in_the_scripted_model_and_back() -> None:
    model = gemini()
    one = {"functionCall": {"name": "run", "args": {}}, "thoughtSignature": "s"}
    contents = [
        model.make_user_content("go"),
        model._raw([one]),
        model.make_tool_responses([ToolCall("hb-local-1-0", "run", {})], [{"out": 1}]),
    ]
    scripted = ScriptedModel(["fine"])
    moved = scripted.from_canonical(model.to_canonical(contents))
    answer = scripted.generate(moved, system="s", tools=[RUN])
    assert answer.raw_content is not None

    back = model.from_canonical(scripted.to_canonical([*moved, answer.raw_content]))

    assert back[:3] == contents
    assert back[3]["parts"] == [{"text": "fine"}]


ONE, TWO = ({"functionResponse": {"name": name, "response": {"r": name}}} for name in ("run", "stop"))
OTHER = {"functionResponse": {"name": "run", "response": {"r": "other"}}}
WORDS = {"text": "w"}


@pytest.mark.parametrize(
    "given_back",
    [
        [[TWO]],
        [[WORDS], [ONE, OTHER, TWO]],
        [[ONE], [TWO], [OTHER]],
        [[TWO, OTHER, ONE]],
        [[TWO], [WORDS], [OTHER]],
        [[WORDS, OTHER], [TWO, WORDS]],
    ],
)
def test_results_without_ids_are_stored_with_the_calls_they_are_sent_for(given_back: list[list[Any]]) -> None:
    """Gemini 2 gives no ids: the place of a result says less than its name."""
    model = gemini("gemini-2.5-flash")
    calls: list[dict[str, Any]] = [{"functionCall": {"name": name, "args": {}}} for name in ("run", "stop", "run")]
    contents = [model.make_user_content("go"), model._raw(calls)]
    contents += [{"role": "user", "parts": parts} for parts in given_back]

    again = model.from_canonical(json.loads(json.dumps(model.to_canonical(contents))))

    assert body_of(model, again) == body_of(model, contents)


def test_a_result_that_no_call_asks_for_is_stored_with_none() -> None:
    model = gemini("gemini-2.5-flash")
    calls = [{"functionCall": {"name": "run", "args": {}}}]

    stored = model.to_canonical([model._raw(calls), {"role": "user", "parts": [TWO, ONE]}])

    assert [part["id"] for part in stored[1]["parts"]] == ["", stored[0]["parts"][0]["id"]]
