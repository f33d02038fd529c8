"""From a history to the messages of a request."""

from __future__ import annotations

from typing import Any

import pytest

from hummingbird_ai.errors import BadRequest
from hummingbird_ai.messages import Content
from hummingbird_ai.providers.claude.request import draft
from hummingbird_ai.providers.claude.traits import Ephemeral

SEARCH = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "x"}}
FOUND = {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []}
CALL = {"type": "tool_use", "id": "toolu_1", "name": "run", "input": {}}
RESULT = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "{}"}
THOUGHT = {"type": "thinking", "thinking": "hm", "signature": "s"}


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def user(*blocks: dict[str, Any]) -> Content:
    return {"role": "user", "content": list(blocks) or [text("go")]}


def model(*blocks: dict[str, Any], **request: Any) -> Content:
    content: Content = {"role": "assistant", "content": list(blocks) or [text("ok")]}
    return {**content, "request": request} if request else content


def messages(contents: list[Content], *ephemeral: str, way: Ephemeral = Ephemeral.POPPED, **more: Any) -> Any:
    return draft(contents, ephemeral, way, **more).messages


def test_turns_of_one_role_are_merged_and_results_stand_first() -> None:
    """Reports 1 and 2: parallel results in separate user messages, and text before a result."""
    second = {**RESULT, "tool_use_id": "toolu_2"}
    turns = [user(), model(CALL, {**CALL, "id": "toolu_2"}), user(RESULT), user(text("and")), user(second)]

    assert messages(turns)[2] == {"role": "user", "content": [RESULT, second, text("and")]}


def test_between_two_turns_of_the_model_stands_a_word_of_the_user_and_it_stays() -> None:
    contents = [user(), model(text("one")), model(text("two"))]

    now, later = messages(contents), messages([*contents, model(text("three"))])

    assert [message["role"] for message in now] == ["user", "assistant", "user", "assistant", "user"]
    assert later[:4] == now[:4]
    assert later[4]["content"] == [text("Continue.")]


def test_a_history_that_begins_with_the_model_gets_a_user_turn_first() -> None:
    assert messages([model(), user()])[0]["role"] == "user"


def test_nothing_to_answer_is_said() -> None:
    for contents in ([], [user(text("  "))]):
        with pytest.raises(BadRequest, match="nothing to answer"):
            messages(contents)


@pytest.mark.parametrize("blank", ["", "  ", "\n\t", "\u00a0"])
def test_blank_text_never_goes_out_again(blank: str) -> None:
    """Reports 13, 14 and 15: once in a history, it makes every later call fail."""
    contents = [user(text(blank)), user(text("go")), model(text(blank), THOUGHT, CALL), user(RESULT, text(blank))]

    assert [message["content"] for message in messages(contents)] == [[text("go")], [THOUGHT, CALL], [RESULT]]


def test_blank_text_beside_words_and_a_thought_without_words_stay() -> None:
    """Report 20: an empty thought that is signed is valid; and to take blank text from between two is an edit."""
    silent = {**THOUGHT, "thinking": ""}
    blocks: list[dict[str, Any]] = [silent, text("\n\n"), THOUGHT, text("so"), CALL]

    assert messages([user(), model(*blocks), user(RESULT)])[1]["content"] == blocks
    assert messages([user(), model(text(""), *blocks), user(RESULT)])[1]["content"] == blocks


def test_a_turn_never_ends_in_a_thought() -> None:
    """Reported as tailcallhq/forgecode#2107: the final block may be none, and the session is refused for ever."""
    redacted = {"type": "redacted_thinking", "data": "x"}

    assert messages([user(), model(text("so"), THOUGHT, redacted), user()])[1]["content"] == [text("so")]
    assert messages([user(), model(text("so"), THOUGHT, text(" "), redacted), user()])[1]["content"][-1] == text(" ")
    assert len(messages([user(), model(THOUGHT), user()])) == 1
    dropped = messages([user(), model(text("so"), THOUGHT, SEARCH), user()], web_search=True)
    assert dropped[1]["content"] == [text("so")]


def test_a_turn_of_which_nothing_is_left_disappears_with_what_stood_before_it() -> None:
    gone = model(text(" "), before=[{"role": "system", "content": "hurry", "clear_at": "next_user_message"}])

    assert messages([user(), gone, user(text("on"))], way=Ephemeral.CLEAR_AT) == [
        {"role": "user", "content": [text("go"), text("on")]}
    ]


# -- words for one call --


def test_a_warning_is_a_system_message_after_the_results_where_the_model_knows_them() -> None:
    """Report 33: in the system prompt it would cost the whole cache."""
    drafted = draft([user(), model(CALL), user(RESULT)], ["hurry", " ", "end"], Ephemeral.CLEAR_AT)

    entry = {"role": "system", "content": "hurry\n\nend", "clear_at": "next_user_message"}
    assert drafted.messages[-1] == entry
    assert drafted.messages[-2] == {"role": "user", "content": [RESULT]}
    assert drafted.notes == {"before": [entry]}
    assert drafted.stable == 2


def test_a_warning_stands_in_its_place_in_every_later_request() -> None:
    """Newer models bind their thinking to everything before it: a warning that goes would make it invalid."""
    contents = [user(), model(CALL), user(RESULT)]
    for way in (Ephemeral.CLEAR_AT, Ephemeral.KEPT):
        drafted = draft(contents, ["hurry"], way)
        later = messages([*contents, model(**drafted.notes), user()], way=way)
        assert later[: len(drafted.messages)] == drafted.messages
        assert later[len(drafted.messages)]["role"] == "assistant"


def test_on_older_models_a_warning_is_user_text_that_is_gone_in_the_next_call() -> None:
    contents = [user(), model(CALL), user(RESULT)]
    drafted = draft(contents, ["hurry"], Ephemeral.POPPED)

    assert drafted.messages[-1]["content"] == [RESULT, text("hurry")]
    assert drafted.notes == {}
    assert drafted.stable == 1
    assert messages([*contents, model(**drafted.notes), user()])[2]["content"] == [RESULT]


def test_a_warning_after_the_model_s_own_turn_follows_a_word_of_the_user() -> None:
    sent = messages([user(), model()], "again", way=Ephemeral.CLEAR_AT)

    assert [message["role"] for message in sent] == ["user", "assistant", "user", "system"]


def test_a_model_that_takes_no_system_messages_after_all_gets_the_old_ones_as_text() -> None:
    entry = {"role": "system", "content": "hurry", "clear_at": "next_user_message"}

    sent = messages([user(), model(before=[entry]), user()], way=Ephemeral.KEPT)

    assert sent[0]["content"] == [text("go"), text("hurry")]


# -- searches of the provider --


@pytest.mark.parametrize("way", Ephemeral)
def test_while_a_search_is_open_nothing_but_results_goes_out(way: Ephemeral) -> None:
    """Report 28: the mixed turn."""
    contents = [user(), model(SEARCH, CALL), user(RESULT)]
    drafted = draft(contents, ["hurry"], way, web_search=True)

    assert drafted.messages[1:] == [
        {"role": "assistant", "content": [SEARCH, CALL]},
        {"role": "user", "content": [RESULT]},
    ]
    assert drafted.notes == {}


def test_a_search_that_was_answered_in_the_next_turn_stays() -> None:
    contents = [user(), model(SEARCH, CALL), user(RESULT), model(FOUND, text("so")), user(text("thanks"))]
    sent = messages(contents, "hurry", web_search=True)

    assert sent[1]["content"] == [SEARCH, CALL]
    assert sent[3]["content"] == [FOUND, text("so")]
    assert sent[4]["content"] == [text("thanks"), text("hurry")]


@pytest.mark.parametrize(
    ("rest", "web_search"),
    [
        ([user(RESULT, text("stop"))], True),
        ([user(RESULT), user(text("stop"))], True),
        ([user(RESULT)], False),
        ([user(RESULT), model(text("without it")), user()], True),
        ([], True),
    ],
    ids=["text beside", "text after", "search is off now", "the next turn has no result", "nothing came"],
)
def test_a_search_that_nobody_can_answer_any_more_is_left_out(rest: list[Content], web_search: bool) -> None:
    """Reports 10 and 28: an open search in a history bricks the session."""
    sent = messages([user(), model(text("hm"), SEARCH, CALL), *rest], web_search=web_search)

    assert SEARCH not in [block for message in sent for block in message["content"]]
    assert CALL in sent[1]["content"]


# -- thinking --


def test_thinking_that_no_longer_fits_is_left_out_of_everything_before() -> None:
    contents = [user(), model(THOUGHT, CALL), user(RESULT)]
    drafted = draft(contents, (), Ephemeral.CLEAR_AT, thinking_from=3)

    assert drafted.messages[1]["content"] == [CALL]
    assert drafted.notes == {"thinking_left_out": True}


def test_and_stays_out_while_newer_thinking_stays_in() -> None:
    new = {**THOUGHT, "thinking": "new"}
    contents = [user(), model(THOUGHT, CALL), user(RESULT), model(new, text("so"), thinking_left_out=True), user()]
    sent = messages(contents)

    assert sent[1]["content"] == [CALL]
    assert sent[3]["content"] == [new, text("so")]


def test_thinking_and_redacted_blocks_stay_whole_and_in_order() -> None:
    """Reports 19, 21, 22: dropped between tool rounds, merged, or put elsewhere."""
    redacted = {"type": "redacted_thinking", "data": "opaque"}
    blocks: list[dict[str, Any]] = [
        THOUGHT,
        redacted,
        {**THOUGHT, "thinking": "more"},
        SEARCH,
        FOUND,
        THOUGHT,
        text("so"),
        CALL,
    ]

    assert messages([user(), model(*blocks), user(RESULT)], "hurry", web_search=True)[1]["content"] == blocks


# -- results --


def test_results_stand_in_the_order_of_their_calls_however_they_came() -> None:
    """Reports 1 and 2."""
    calls = [{**CALL, "id": f"toolu_{number}"} for number in range(3)]
    results = [{**RESULT, "tool_use_id": call["id"]} for call in calls]

    for given in (
        [user(*results)],
        [user(results[2], results[0]), user(results[1])],
        [user(text("first"), results[1]), user(results[0], results[2])],
    ):
        sent = messages([user(), model(*calls), *given])[2]["content"]
        assert sent[:3] == results


@pytest.mark.parametrize("rest", [[], [user(text("and now?"))], [user(RESULT)], [model(text("on"))]])
def test_a_call_that_nobody_answered_is_said_to_have_no_result(
    rest: list[Content], caplog: pytest.LogCaptureFixture
) -> None:
    """Report 3: a run that died between a call and its result left the session refused for ever."""
    second = {**CALL, "id": "toolu_2"}

    answered = messages([user(), model(CALL, second), *rest])[2]["content"]

    told = '{"error":"no result was recorded for this call"}'
    assert answered[1] == {"type": "tool_result", "tool_use_id": "toolu_2", "content": told, "is_error": True}
    assert answered[0]["tool_use_id"] == "toolu_1"
    told_now = not rest or rest[-1]["role"] == "user"  # an older one was told when it was the newest
    assert ("the call of run got no result" in caplog.text) is told_now


@pytest.mark.parametrize("before", [[], [user(), model(CALL), user(RESULT)]])
def test_a_result_that_nothing_asks_for_is_told(before: list[Content]) -> None:
    with pytest.raises(BadRequest, match="a result for the call toolu_1 that nothing before it asks for"):
        messages([*before, user(RESULT)])


def test_words_with_half_a_character_are_mended_before_they_are_remembered() -> None:
    """Report 17."""
    drafted = draft([user()], ["hurry \ud83d"], Ephemeral.CLEAR_AT)

    assert drafted.notes["before"][0]["content"] == "hurry \ufffd"
