from __future__ import annotations

import copy
import functools
import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from google.oauth2.credentials import Credentials
from hypothesis import given, settings
from hypothesis import strategies as st

from hummingbird_ai.auth import VertexAuth
from hummingbird_ai.canonical import (
    OWN_KEYS,
    Message,
    Producer,
    checked,
    is_own,
    local_id,
    message,
    readable_by,
    repaired,
)
from hummingbird_ai.messages import ModelAdapter
from hummingbird_ai.models import build_model
from hummingbird_ai.testing import ClaudeServer, GeminiServer, say

OWN = Producer("google", "vertex", "gemini-3.8-flash")
CLAUDE = Producer("anthropic", "vertex", "claude-opus-5-5")
OTHER = Producer("google", "gemini-api", "gemini-3.8-flash")
GO = {"type": "text", "text": "go"}


def user(*parts: dict[str, Any], **more: Any) -> Message:
    return message("user", parts, **more)


def turn(producer: Producer, *parts: dict[str, Any], **more: Any) -> Message:
    return message("assistant", parts, producer.to_dict(), **more)


def tool_call(number: str, **more: Any) -> dict[str, Any]:
    return {"type": "tool_call", "id": number, "name": "run", "arguments": {}, **more}


def tool_result(number: str, **more: Any) -> dict[str, Any]:
    return {"type": "tool_result", "id": number, "name": "run", "result": {}, **more}


any_text = st.text(st.characters(exclude_categories=()), max_size=3)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | any_text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(any_text, inner, max_size=3),
    max_leaves=6,
)
objects = st.dictionaries(any_text, any_text | st.floats() | st.lists(any_text, max_size=1), max_size=1)
ids = st.sampled_from(["a", "b", "", "functions.x:0", "hb-local-1-0", "x" * 80, "toolu_1", "call_" + "0" * 24])
own_ids = st.integers(0, 10**9).map("call-{}".format)


def optional(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({}, optional=fields)


def part(kind: str, **fields: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    marks = {"signature": any_text, "extra": objects, "minted": st.booleans(), "payload_extra": objects}
    allowed = {
        "text": ("signature", "extra"),
        "thinking": ("signature", "extra"),
        "opaque": ("extra",),
        "tool_call": tuple(marks),
        "tool_result": tuple(marks),
    }[kind]
    more = optional(**{name: marks[name] for name in allowed})
    return st.builds(
        lambda given, added: {**given, **added}, st.fixed_dictionaries({"type": st.just(kind), **fields}), more
    )


def assistant_parts(numbers: st.SearchStrategy[str]) -> st.SearchStrategy[list[dict[str, Any]]]:
    return st.lists(
        st.one_of(
            part("text", text=any_text),
            part("thinking", text=any_text),
            part("tool_call", id=numbers, name=any_text, arguments=objects),
            part("opaque", data=objects),
            part("opaque", data=objects, text=any_text),
        ),
        max_size=3,
    )


user_parts = st.lists(
    st.one_of(
        part("text", text=any_text),
        part("tool_result", id=ids, name=any_text, result=objects),
        part("opaque", data=objects, text=any_text),
    ),
    max_size=3,
)
user_messages = st.builds(
    message,
    st.just("user"),
    user_parts,
    st.sampled_from([None, OWN.to_dict(), CLAUDE.to_dict()]),
    st.none() | objects,
)
# Made once: strategies that a lambda makes anew are looked through anew for every message that is drawn.
_turns = {
    producer: st.builds(
        message,
        st.just("assistant"),
        assistant_parts(own_ids if producer == OWN else ids),
        st.just(producer.to_dict()),
        st.none() | objects,
    )
    for producer in (OWN, CLAUDE, OTHER)
}
assistant_messages = st.sampled_from([OWN, CLAUDE, OTHER]).flatmap(_turns.__getitem__)
sessions = st.lists(user_messages | assistant_messages, max_size=6)


def answered(messages: list[Message]) -> list[Message]:
    """The session with a result for every call, as a program stores it."""
    whole: list[Message] = []
    for stored in messages:
        whole.append(stored)
        calls = [one for one in stored["parts"] if one["type"] == "tool_call"]
        if calls:
            whole.append(
                user(*({"type": "tool_result", "id": c["id"], "name": c["name"], "result": {}} for c in calls))
            )
    return whole


whole_sessions = sessions.map(answered)


def ids_of(messages: list[Message], kind: str) -> list[str]:
    return [one["id"] for stored in messages for one in stored["parts"] if one["type"] == kind]


def refusal_of(messages: Any) -> str | None:
    """The words of the one ValueError, None for what is the form."""
    try:
        checked(messages)
    except ValueError as error:
        return f"{type(error).__name__} {error}".removeprefix("ValueError ")
    return None


@given(st.lists(json_values, max_size=3) | json_values)
def test_no_json_value_whatever_raises_anything_but_one_value_error_with_a_place(value: Any) -> None:
    problem = refusal_of(value)
    assert problem is None or re.match(r"messages(\[\d\])?[\w.\[\]]*: ", problem)


PART_KEYS = ("text", "id", "name", "arguments", "result", "data", "extra", "signature", "minted")
near_misses = st.builds(
    lambda base, change: {**base, **change},
    st.fixed_dictionaries({"version": st.just(1), "role": st.sampled_from(["user", "assistant"])}),
    optional(
        parts=st.lists(
            st.fixed_dictionaries(
                {"type": st.sampled_from(["text", "thinking", "tool_call", "tool_result", "opaque"]) | json_values},
                optional=dict.fromkeys(PART_KEYS, json_values),
            )
            | json_values,
            max_size=2,
        )
        | json_values,
        producer=json_values,
        extra=json_values,
        version=json_values,
        role=json_values,
    ),
)


@given(near_misses)
def test_what_is_nearly_the_form_is_refused_with_its_place_or_can_be_loaded(value: Any) -> None:
    problem = refusal_of([value])
    if problem is None:
        readable_by([value], OWN)
    else:
        assert re.match(r"messages\[0\][\w.\[\]]*: ", problem)


@pytest.mark.parametrize(
    ("messages", "problem"),
    [
        ({}, "messages: must be a list of stored messages"),
        ([user(GO), 3], "messages[1]: must be an object with version, role and parts"),
        ([{"role": "user", "parts": []}], "messages[0].version: is missing; this code reads version 1"),
        ([{**user(GO), "version": 2}], "messages[0].version: 2 is not known here; this code reads version 1"),
        ([{**user(GO), "version": True}], "messages[0].version: True is not known here; this code reads version 1"),
        ([{"version": 1, "parts": []}], "messages[0].role: must be user or assistant"),
        ([message("system", [])], "messages[0].role: must be user or assistant, not 'system'"),
        ([{"version": 1, "role": "user"}], "messages[0].parts: is missing"),
        ([{"version": 1, "role": "user", "parts": {}}], "messages[0].parts: must be a valid list, not {}"),
        (
            [user({"type": "hologram"})],
            "messages[0].parts[0].type: must be text, tool_result or opaque, not 'hologram'",
        ),
        (
            [user(GO), turn(CLAUDE, GO, tool_result("a"))],
            "messages[1].parts[1].type: must be text, thinking, tool_call or opaque, not 'tool_result'",
        ),
        ([user({"text": "x"})], "messages[0].parts[0].type: must be text, tool_result or opaque"),
        (
            [turn(CLAUDE, {**tool_call("a"), "arguments": "x" * 90})],
            f"messages[0].parts[0].arguments: must be a valid dictionary, not '{'x' * 56}...",
        ),
        ([turn(CLAUDE, {**tool_call("a"), "id": 3})], "messages[0].parts[0].id: must be a valid string, not 3"),
        ([user({**GO, "cache": 1})], "messages[0].parts[0].cache: no such key; what a producer adds stands in `extra`"),
        ([{**turn(CLAUDE), "producer": {"model": "m"}}], "messages[0].producer.provider: is missing"),
        ([{**turn(CLAUDE), "producer": None}], "messages[0].producer: must be an object, not None"),
        ([{**user(GO), "extra": None}], "messages[0].extra: must be a valid dictionary, not None"),
        (
            [user(GO), turn(CLAUDE, {**GO, "extra": {"type": "thinking"}})],
            "messages[1].parts[0].extra.type: the part itself has this key",
        ),
        (
            [turn(CLAUDE, GO, tool_call("a", payload_extra={"name": 5}))],
            "messages[0].parts[1].payload_extra.name: the part itself has this key",
        ),
        ([user({**GO, "text": b"raw"})], "messages[0]: JSON has no form for a bytes"),
    ],
)
def test_what_is_not_the_form_is_named_with_its_place_and_what_would_be_right(messages: Any, problem: str) -> None:
    with pytest.raises(ValueError, match=re.escape(problem)) as caught:
        checked(messages)
    assert str(caught.value) == problem


def test_a_value_nested_beyond_measure_is_a_value_error() -> None:
    deep: Any = []
    for _ in range(100_000):
        deep = [deep]

    with pytest.raises(ValueError, match=r"messages\[0\]: is nested too deeply"):
        checked([user({**GO, "extra": {"deep": deep}})])


@pytest.mark.parametrize("kind", OWN_KEYS)
def test_no_producer_can_put_another_value_in_the_place_of_what_everybody_reads(kind: str) -> None:
    values = {"text": "go", "data": {}, "id": "a", "name": "run", "arguments": {}, "result": {}, "signature": "s"}
    kept = {key: values[key] for key in OWN_KEYS[kind] - {"type"}} | {"type": kind}
    sides = [side for side in (user, functools.partial(turn, OWN)) if refusal_of([side(kept)]) is None]
    assert sides

    for key in OWN_KEYS[kind]:
        for side in sides:
            problem = refusal_of([side({**kept, "extra": {"other": 1, key: "x"}})])
            assert problem == f"messages[0].parts[0].extra.{key}: the part itself has this key"


@given(whole_sessions)
def test_own_turns_stay_byte_equal_keys_in_their_order(messages: list[Message]) -> None:
    """Sections 0.1 and 1.5: a signature, an order or a note that is lost costs the turn its meaning."""
    own = [stored for stored in checked(messages) if stored["role"] == "assistant" and is_own(stored, OWN)]

    loaded = [stored for stored in readable_by(messages, OWN) if stored["role"] == "assistant" and is_own(stored, OWN)]

    assert json.dumps(loaded) == json.dumps([stored for stored in own if stored["parts"]])


@given(whole_sessions)
def test_loading_is_pure_and_repeatable(messages: list[Message]) -> None:
    before = repr(messages)
    first = readable_by(messages, OWN)

    assert json.dumps(first) == json.dumps(readable_by(copy.deepcopy(messages), OWN))
    assert repr(messages) == before
    assert json.dumps(readable_by(first, OWN)) == json.dumps(first)


@given(whole_sessions, st.data())
def test_a_session_that_grows_keeps_the_bytes_of_its_beginning(messages: list[Message], data: st.DataObject) -> None:
    """Section 2.6: whatever is remapped or repaired, it must be the same in every later request."""
    cuts = [index for index, stored in enumerate(messages) if stored["role"] == "assistant"]
    beginning = messages[: data.draw(st.sampled_from([*cuts, len(messages)]))]

    shorter, longer = readable_by(beginning, OWN), readable_by(messages, OWN)

    assert json.dumps(longer[: len(shorter)]) == json.dumps(shorter)


@given(sessions)
def test_every_call_has_one_result_with_its_id_and_foreign_ids_are_safe_and_unique(messages: list[Message]) -> None:
    """Reports 8, 9 and 11: odd, empty, duplicate and over-long ids."""
    loaded = readable_by([*messages, user(GO)], OWN)

    calls, results = ids_of(loaded, "tool_call"), ids_of(loaded, "tool_result")
    assert calls == results
    foreign = ids_of([stored for stored in loaded if not is_own(stored, OWN)], "tool_call")
    assert all(re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", number) for number in foreign)
    assert len(set(foreign)) == len(foreign)
    assert not set(foreign) & set(ids_of([m for m in loaded if is_own(m, OWN)], "tool_call"))


odd_names = st.sampled_from(["", "default_api:run", "x" * 65, "9lives", "-", "läuft", "a b", "run\n"]) | st.text(
    max_size=80
)


@given(odd_names)
def test_a_foreign_tools_name_becomes_one_that_every_provider_takes_in_the_call_and_its_result(name: str) -> None:
    session = [
        user(GO),
        turn(CLAUDE, tool_call("a", name=name), tool_call("b")),
        user(tool_result("a", name=name), tool_result("b", name="")),
    ]

    loaded = readable_by(session, OWN)

    called, answered_ = ([one["name"] for one in loaded[index]["parts"]] for index in (1, 2))
    assert called == answered_
    assert called[1] == "run"
    assert re.fullmatch(r"[A-Za-z_][A-Za-z0-9_-]{0,63}", called[0])
    assert called[0] == name or not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_-]{0,63}", name)
    assert readable_by(loaded, OTHER) == loaded
    assert [one["name"] for one in readable_by(session, CLAUDE)[1]["parts"]] == [name, "run"]


def test_foreign_names_that_look_alike_without_their_odd_characters_stay_apart() -> None:
    names = ["a:b", "a.b", "a b", "x" * 70, "x" * 71, "", ":", "9", "_9:"]
    session = [user(GO), turn(CLAUDE, *(tool_call(str(index), name=name) for index, name in enumerate(names)))]

    loaded = [one["name"] for one in readable_by(session, OWN)[1]["parts"]]

    assert len(set(loaded)) == len(names)
    assert loaded[0].startswith("a_b_")
    assert loaded[5].startswith("tool_")
    assert loaded[7].startswith("_9_")


@pytest.fixture(scope="module")
def adapters() -> Iterator[dict[str, ModelAdapter]]:
    auth = VertexAuth("project", credentials=Credentials("test-token"))  # type: ignore[no-untyped-call]
    with GeminiServer(lambda body, n: say("so")) as gemini, ClaudeServer(lambda body, n: say("so")) as claude_:
        urls = {"gemini-3.8-flash": gemini.url, "gemini-2.5-flash": gemini.url, "claude-opus-5-5": claude_.url}
        yield {name: build_model(name, auth=auth, base_url=url) for name, url in urls.items()}


@settings(max_examples=25, deadline=None)
@given(names=st.lists(odd_names, min_size=1, max_size=3), data=st.data())
def test_both_families_take_a_call_that_another_one_made_under_any_name(
    adapters: dict[str, ModelAdapter], names: list[str], data: st.DataObject
) -> None:
    numbered = list(enumerate(names))
    session = [
        user(GO),
        turn(Producer("other", "web", "m"), *(tool_call(str(index), name=name) for index, name in numbered)),
        user(*(tool_result(str(index), name=data.draw(st.sampled_from([name, ""]))) for index, name in numbered)),
    ]

    for model in adapters.values():
        assert model.generate(model.from_canonical(session), system="s", tools=[]).text == "so"


@given(sessions)
def test_of_a_foreign_turn_only_words_calls_and_results_are_left(messages: list[Message]) -> None:
    """Reports 10, 14 and 25: foreign server blocks, blank text and thinking signatures are never forwarded."""
    allowed = {
        "text": {"type", "text"},
        "tool_call": {"type", "id", "name", "arguments"},
        "tool_result": {"type", "id", "name", "result"},
    }
    for stored in readable_by(messages, OWN):
        if stored["role"] == "assistant" and not is_own(stored, OWN):
            assert "extra" not in stored
            for one in stored["parts"]:
                assert set(one) == allowed[one["type"]]
                assert one["type"] != "text" or one["text"].strip()


@given(sessions)
def test_no_lone_surrogate_and_no_nameless_number_is_left_anywhere(messages: list[Message]) -> None:
    """Report 17: the poison of an old tool result stays in a stored session, also deep inside it."""
    json.dumps(readable_by(messages, OWN), ensure_ascii=False, allow_nan=False).encode()


@given(sessions)
def test_repairing_twice_changes_nothing_more(messages: list[Message]) -> None:
    once = repaired(messages)

    assert repaired(once) == once


def test_ids_of_two_producers_that_number_alike_are_told_apart() -> None:
    """Report 9: a session that moves between providers and back holds `call-0` of each."""
    session = [
        user(GO),
        turn(CLAUDE, tool_call("call-0")),
        user(tool_result("call-0")),
        turn(OWN, tool_call("call-0", signature="s")),
        user(tool_result("call-0")),
        turn(OTHER, GO, tool_call("call-0")),
        user(tool_result("call-0")),
    ]

    loaded = readable_by(session, OWN)

    calls = ids_of(loaded, "tool_call")
    assert calls == ids_of(loaded, "tool_result")
    assert calls[1] == "call-0"
    assert len(set(calls)) == 3
    assert ids_of(readable_by(loaded, CLAUDE), "tool_call")[0] == calls[0]


def test_results_in_another_message_and_order_are_gathered_before_strays_are_dropped() -> None:
    """Report 5: dropping strays first would lose valid results."""
    one, two = tool_result("a", result={"out": 1}), tool_result("b", result={"out": 2})
    session = [user(GO), turn(OWN, tool_call("a"), tool_call("b")), user(two, GO), user(one, tool_result("stray"))]

    assert readable_by(session, OWN)[2:] == [user(one, two), user(GO)]


def test_a_call_without_a_result_gets_one_that_says_so_and_stays_minted() -> None:
    """Report 3: every call has a result, or the next request is refused."""
    session = [user(GO), turn(OWN, tool_call(local_id(1, 0), minted=True)), user(GO)]

    assert readable_by(session, OWN)[2]["parts"] == [
        tool_result(local_id(1, 0), result={"error": "no result was recorded for this call"}, minted=True)
    ]


def test_an_id_minted_for_one_provider_becomes_an_ordinary_one_for_another() -> None:
    session = [
        user(GO),
        turn(OWN, tool_call(local_id(1, 0), minted=True)),
        user(tool_result(local_id(1, 0), minted=True)),
    ]

    _, assistant, results = readable_by(session, CLAUDE)

    assert assistant["parts"] == [tool_call(assistant["parts"][0]["id"])]
    assert results["parts"] == [tool_result(assistant["parts"][0]["id"])]
    assert "local" not in json.dumps([assistant, results])


def test_calls_at_the_very_end_stay_open_for_their_results() -> None:
    assert len(readable_by([user(GO), turn(CLAUDE, tool_call("a"))], OWN)) == 2


def test_a_conversation_that_begins_with_the_model_gets_a_user_turn_first() -> None:
    assert readable_by([turn(CLAUDE, GO)], OWN)[0]["role"] == "user"


def test_blank_text_is_dropped_unless_it_signs_or_cites() -> None:
    """Reports 13 and 20: blank text is refused, a blank signed block is valid and has to stay."""
    blank = {"type": "text", "text": " \n"}
    signed, citing = {**blank, "signature": "s"}, {**blank, "extra": {"citations": [1]}}

    assert readable_by([user(GO, blank), turn(OWN, blank, signed, citing)], OWN)[1:] == [turn(OWN, signed, citing)]
    assert readable_by([user(GO), turn(CLAUDE, blank, signed, citing)], OWN) == [user(GO)]


def test_blank_text_beside_words_is_kept_for_its_own_model_and_not_for_others() -> None:
    """Section 2.3 takes it there, and section 2.6 binds what follows to it; empty text is never taken."""
    blank, empty = {"type": "text", "text": " \n"}, {"type": "text", "text": ""}
    session = [user(GO), turn(OWN, blank, empty, GO, blank, tool_call("a")), user(tool_result("a"), blank), user(GO)]

    assert checked(session)[1] == turn(OWN, blank, GO, blank, tool_call("a"))
    assert checked(session)[2] == user(tool_result("a"))
    assert readable_by(session, OWN)[1] == turn(OWN, blank, GO, blank, tool_call("a"))
    assert [one["type"] for one in readable_by(session, CLAUDE)[1]["parts"]] == ["text", "tool_call"]
    assert checked([turn(OWN, blank, tool_call("a"))]) == [turn(OWN, tool_call("a"))]


def test_a_result_goes_under_the_name_of_its_call_and_has_an_id_for_the_provider_if_the_call_has_one() -> None:
    session = [
        user(GO),
        turn(OWN, tool_call("a"), tool_call("b", minted=True), tool_call("c", minted=False)),
        user(tool_result("a", name="read", minted=True), tool_result("b", name=""), tool_result("c", result={"x": 1})),
    ]

    assert repaired(session)[2] == user(
        tool_result("a"), tool_result("b", minted=True), tool_result("c", result={"x": 1})
    )


def test_an_opaque_part_is_only_for_its_producer_and_its_text_for_the_others() -> None:
    """Report 10: a foreign `server_tool_use` bricks the session."""
    search = {"type": "opaque", "data": {"type": "server_tool_use", "id": "srvtoolu_1"}}
    found = {"type": "opaque", "data": {"type": "web_search_tool_result"}, "text": "Found: example.com"}
    session = [user(GO), turn(CLAUDE, search, found, extra={"system": "hash"})]

    assert readable_by(session, CLAUDE) == session
    assert readable_by(session, OWN)[1] == turn(CLAUDE, {"type": "text", "text": "Found: example.com"})


def test_what_a_user_message_holds_for_one_producer_only_does_not_reach_another() -> None:
    picture = {"type": "opaque", "data": {"inlineData": {"data": "AA=="}}}
    session = [user({**GO, "extra": {"mark": 1}}, picture, producer=OWN.to_dict())]

    assert readable_by(session, OWN) == session
    assert readable_by(session, CLAUDE)[0]["parts"] == [GO]
    assert readable_by([user({**GO, "extra": {"mark": 1}}, picture)], OWN) == [user(GO)]


def test_a_turn_of_which_nothing_is_left_disappears() -> None:
    session = [user(GO), turn(CLAUDE, {"type": "thinking", "text": "hm", "signature": "x"}), user(GO)]

    assert readable_by(session, OWN) == [user(GO), user(GO)]
