"""Marks of the prompt cache: the seed's table T1 to T5, and what must never carry one."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from hummingbird_ai.messages import Content
from hummingbird_ai.providers.claude.caching import mark, mark_system
from hummingbird_ai.providers.claude.request import draft
from hummingbird_ai.providers.claude.traits import Ephemeral


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def user(*blocks: dict[str, Any]) -> Content:
    return {"role": "user", "content": list(blocks) or [text("go")]}


def model(*blocks: dict[str, Any], **request: Any) -> Content:
    content: Content = {"role": "assistant", "content": list(blocks) or [text("ok")]}
    return {**content, "request": request} if request else content


def marks(messages: list[dict[str, Any]]) -> list[tuple[int, int]]:
    """(message, block) of every mark."""
    return [
        (number, index)
        for number, message in enumerate(messages)
        for index, block in enumerate(message["content"])
        if isinstance(block, dict) and "cache_control" in block
    ]


def sent(contents: list[Content], *ephemeral: str, way: Ephemeral = Ephemeral.POPPED) -> tuple[list[int], Content]:
    """The marked messages of a call, and the model's content that remembers what was written."""
    drafted = draft(contents, ephemeral, way)
    marked = mark(drafted.messages, stable=drafted.stable, previous=drafted.previous)
    return [number for number, _ in marks(marked.messages)], model(cached_to=marked.written, **drafted.notes)


def test_the_marks_slide_as_the_seed_s_table_says() -> None:
    contents = [user()]
    rows = []
    for warning in ("", "", "hurry", "hurry", ""):
        marked, answer = sent(contents, warning)
        rows.append((marked, answer["request"]["cached_to"]))
        contents += [answer, user()]

    assert rows == [
        ([0], 0),  # T1     U1·B2
        ([0, 2], 2),  # T2     U1·B1 M1 U2·B2
        ([2, 3], 3),  # T3(E)  U1 M1 U2·B1 M2·B2 U3+E
        ([3, 5], 5),  # T4(E)  U1 M1 U2 M2·B1 U3 M3·B2 U4+E
        ([5, 8], 8),  # T5     U1 M1 U2 M2 U3 M3·B1 U4 M4 U5·B2
    ]


def test_where_a_warning_stays_in_the_array_the_newest_user_turn_is_stable() -> None:
    contents = [user()]
    rows = []
    for warning in ("", "hurry", "hurry", ""):
        marked, answer = sent(contents, warning, way=Ephemeral.CLEAR_AT)
        rows.append((marked, answer["request"]["cached_to"]))
        contents += [answer, user()]

    assert rows == [([0], 0), ([0, 2], 2), ([2, 5], 5), ([5, 8], 8)]  # 3 and 6 are the system messages


def test_without_a_stable_message_no_mark_moves() -> None:
    marked, answer = sent([user()], "hurry")

    assert marked == []
    assert answer["request"]["cached_to"] is None


def test_a_resumed_conversation_reads_at_once_what_its_last_call_wrote() -> None:
    contents = [user(), model(cached_to=0), user(), model(cached_to=2), user()]

    assert sent(contents)[0] == [2, 4]


def test_a_conversation_from_elsewhere_guesses_the_last_user_turn() -> None:
    assert sent([user(), model(), user(), model(), user()])[0] == [2, 4]


def test_the_same_question_twice_is_marked_alike() -> None:
    contents = [user(), model(cached_to=0), user()]

    assert sent(contents) == sent(contents)


@pytest.mark.parametrize(
    "last",
    [
        {"type": "thinking", "thinking": "", "signature": "s"},
        {"type": "redacted_thinking", "data": "x"},
        {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []},
        {"type": "a block of next year"},
    ],
    ids=lambda block: str(block["type"]),
)
def test_a_mark_walks_back_over_blocks_that_cannot_carry_one(last: dict[str, Any]) -> None:
    """Report 23: cache_control on a thinking block is refused."""
    messages = [user(), model(text("so"), last)]

    assert marks(mark(messages, stable=1, previous=0).messages) == [(0, 0), (1, 0)]


def test_a_message_without_a_block_that_can_be_marked_gets_none_and_nothing_moves() -> None:
    messages = [user(), model({"type": "thinking", "thinking": "", "signature": "s"}), user()]
    marked = mark(messages, stable=1, previous=0)

    assert marks(marked.messages) == [(0, 0)]
    assert marked.written == 0


def test_the_history_is_not_touched() -> None:
    """Reports 30 and 34: marks that stay in a history add up to more than four."""
    messages = [user(), model(), user()]
    before = copy.deepcopy(messages)

    mark(messages, stable=2, previous=0)

    assert messages == before


def test_marks_of_somebody_else_in_a_history_do_not_go_out() -> None:
    """Report 30: two layers that both mark."""
    stale = {**text("old"), "cache_control": {"type": "ephemeral"}}
    contents = [user(stale), model(stale), user(stale), model(stale), user(text("new"))]

    assert sent(contents)[0] == [2, 4]


def test_the_system_prompt_is_a_block_list_with_a_mark_of_its_own() -> None:
    assert mark_system("be brief") == [{**text("be brief"), "cache_control": {"type": "ephemeral"}}]


def test_a_write_position_beyond_the_conversation_is_ignored() -> None:
    assert sent([user(), model(cached_to=40), user()])[0] == [2]


def test_a_system_message_gets_no_mark_also_where_an_old_position_points_at_one() -> None:
    system = {"role": "system", "content": "hurry", "clear_at": "next_user_message"}

    marked = mark([user(), system, model(), user()], stable=3, previous=1)

    assert marks([message for message in marked.messages if message is not marked.messages[1]]) == [(2, 0)]
    assert marked.messages[1] == system
