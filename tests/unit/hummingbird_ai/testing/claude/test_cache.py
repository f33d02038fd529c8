from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hummingbird_ai.testing import Answer, ClaudeServer, say
from hummingbird_ai.testing.claude.blocks import read
from hummingbird_ai.testing.claude.cache import PromptCache, prompt_tokens, rendered
from hummingbird_ai.testing.claude.models import MODELS
from tests.unit.hummingbird_ai.testing.claude.talk import (
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
    text,
    user,
)

LONG = {**MARKER, "ttl": "1h"}
SYSTEM = "You are careful. " * 300
"""More than a thousand tokens."""


class Clock:
    """Seconds that pass when a test says so."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def counts(server: ClaudeServer, body: Any, model: str = NEWEST, **headers: str) -> tuple[int, int, int, int]:
    """(fresh, read, written for 5 minutes, written for an hour)."""
    usage = ask(server, body, model, **headers)["usage"]
    kept = usage["cache_creation"]
    by_time = kept["ephemeral_5m_input_tokens"], kept["ephemeral_1h_input_tokens"]
    assert usage["cache_creation_input_tokens"] == sum(by_time)
    return usage["input_tokens"], usage["cache_read_input_tokens"], *by_time


def talk(*words: str, marker: dict[str, Any] | None = MARKER) -> dict[str, Any]:
    """A system prompt with a marker, and one user block per word with a marker on the last."""
    blocks = [text(word) for word in words]
    blocks[-1]["cache_control"] = marker
    return body_of(user(blocks), system=[text(SYSTEM, cache_control=marker)])


def test_without_markers_nothing_is_cached() -> None:
    with ClaudeServer(lambda body, n: say("hi")) as server:
        first = counts(server, talk("go", marker=None))
        assert counts(server, talk("go", marker=None)) == first

    assert first[0] > 1000
    assert first[1:] == (0, 0, 0)


def test_what_one_request_writes_the_next_reads_and_the_sum_stays() -> None:
    with ClaudeServer(lambda body, n: say("hi")) as server:
        fresh, _, _, _ = counts(server, talk("go", marker=None))
        first = counts(server, talk("go"))
        second = counts(server, talk("go"))
        longer = counts(server, talk("go", "on"))

    assert first == (1, 0, fresh - 1, 0)
    assert second == (1, fresh - 1, 0, 0)
    assert longer[1] == fresh - 1
    assert longer[2] > 0


def test_a_marker_on_the_system_prompt_serves_other_conversations_too() -> None:
    with ClaudeServer(lambda body, n: say("hi")) as server:
        counts(server, talk("go"))
        _, read, written, _ = counts(server, talk("something else"))

    assert read > 1000
    assert 0 < written < 20


@pytest.mark.parametrize(("blocks", "found"), [(19, True), (20, False)])
def test_a_marker_looks_19_blocks_back(blocks: int, found: bool) -> None:
    more = [f"word {number}" for number in range(blocks)]
    with ClaudeServer(lambda body, n: say("hi")) as server:
        body = talk("go " * 2000)
        body["system"] = SYSTEM
        counts(server, body)
        later = talk("go " * 2000, *more)
        later["system"] = SYSTEM
        _, read, written, _ = counts(server, later)

    assert (read > 2000) is found
    assert (written < 1000) is found


def test_an_entry_lives_five_minutes_from_the_start_of_who_wrote_or_read_it() -> None:
    clock = Clock()
    with ClaudeServer(lambda body, n: say("hi"), clock=clock) as server:
        reads = []
        for seconds in (0, 299, 299, 300):
            clock.now += seconds
            reads.append(counts(server, talk("go"))[1] > 0)

    assert reads == [False, True, True, False]


def test_an_entry_of_an_hour_lives_an_hour() -> None:
    clock = Clock()
    with ClaudeServer(lambda body, n: say("hi"), clock=clock) as server:
        first = counts(server, talk("go", marker=LONG))
        clock.now += 3599
        assert counts(server, talk("go", marker=LONG))[1] == first[3]
        clock.now += 3600
        assert counts(server, talk("go", marker=LONG)) == first

    assert first[2] == 0
    assert first[3] > 1000


def test_the_start_of_a_request_counts_and_not_its_answer() -> None:
    clock = Clock()

    def slow(body: dict[str, Any], n: int) -> Answer:
        clock.now += 299 if n == 0 else 0
        return say("hi")

    with ClaudeServer(slow, clock=clock) as server:
        counts(server, talk("go"))
        clock.now += 1
        assert counts(server, talk("go"))[1] == 0


def test_two_times_in_one_request_are_counted_apart() -> None:
    body = talk("go " * 200)
    body["system"][0]["cache_control"] = LONG
    with ClaudeServer(lambda body, n: say("hi")) as server:
        fresh, read, short, long = counts(server, body)

    assert (fresh, read) == (1, 0)
    assert 100 < short < 300
    assert long > 1000


@pytest.mark.parametrize("model", [model for model in MODELS if not MODELS[model].date])
def test_a_prefix_below_the_model_s_minimum_is_not_cached(model: str) -> None:
    minimum = MODELS[model].cache_minimum
    with ClaudeServer(lambda body, n: say("hi")) as server:
        for tokens in (minimum - 100, minimum + 100):
            body = body_of(user([text("x" * 4 * tokens, cache_control=MARKER)]), system="s", tools=[])
            written = counts(server, body, model)[2]
            assert (written > 0) is (tokens > minimum)
            assert (counts(server, body, model)[1] > 0) is (tokens > minimum)


def test_a_marker_below_the_minimum_leaves_its_tokens_to_the_next_one() -> None:
    body = body_of(user([text("x" * 8000, cache_control=MARKER)]), system=[text("s", cache_control=MARKER)])
    with ClaudeServer(lambda body, n: say("hi")) as server:
        fresh, read, written, _ = counts(server, body)

    assert (fresh, read) == (1, 0)
    assert written > 2000


CHANGES: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    "nothing": (lambda b: None, "all"),
    "the limit": (lambda b: b.update(max_tokens=7), "all"),
    "the choice of tools": (lambda b: b.update(tool_choice={"type": "none"}), "system"),
    "thinking": (lambda b: b.update(thinking={"type": "adaptive"}), "system"),
    "effort": (lambda b: b.update(output_config={"effort": "low"}), "system"),
    "a word": (lambda b: b["messages"][0]["content"][0].update(text="gone"), "system"),
    "the system prompt": (lambda b: b["system"][0].update(text=SYSTEM + "!"), "nothing"),
    "a tool": (lambda b: b["tools"].pop(), "nothing"),
    "the order of tools": (lambda b: b["tools"].reverse(), "nothing"),
    "the order of keys": (
        lambda b: b["tools"].__setitem__(0, dict(reversed(b["tools"][0].items()))),
        "nothing",
    ),
}


@pytest.mark.parametrize("case", CHANGES)
def test_a_change_loses_what_stands_behind_it(case: str) -> None:
    change, kept = CHANGES[case]
    with ClaudeServer(lambda body, n: say("hi")) as server:
        written = counts(server, talk("go"))[2]
        body = talk("go")
        change(body)
        _, read, _, _ = counts(server, body)

    assert {read == 0: "nothing", 0 < read < written: "system", read == written: "all"}[True] == kept


def test_models_do_not_share_their_entries() -> None:
    with ClaudeServer(lambda body, n: say("hi")) as server:
        counts(server, talk("go"))
        assert counts(server, talk("go"), "claude-fable-5")[1] == 0


def grown(server: ClaudeServer, model: str, note: bool) -> list[int]:
    """Tokens not read from the cache, per turn of a conversation with a call each and a marker on every last block."""
    body = body_of(user([text("go")]), system=[text(SYSTEM * 5, cache_control=MARKER)])
    missed = []
    for _ in range(4):
        for message in body["messages"]:
            message["content"][-1].pop("cache_control", None)
        body["messages"][-1]["content"][-1]["cache_control"] = MARKER
        if note:
            body["messages"].append({"role": "system", "content": [text("hurry")], "clear_at": "next_user_message"})
        document = ask(server, body, model, **(CLEAR_AT if note else {}))
        missed.append(document["usage"]["input_tokens"] + document["usage"]["cache_creation_input_tokens"])
        content = document["content"]
        body["messages"] += [assistant(content), answered(content)]
    return missed


@pytest.mark.parametrize(("model", "note"), [(NEWEST, False), (NEWEST, True), (OLDEST, False)])
def test_a_growing_conversation_pays_for_what_is_new_only(model: str, note: bool) -> None:
    with ClaudeServer(lambda body, n: Answer(thought="hm", calls=(("run", {}),))) as server:
        first, *later = grown(server, model, note)

    assert first > 5000
    assert max(later) < 200


@pytest.mark.parametrize(("model", "lost"), [(OLDEST, True), ("claude-opus-4-5@20251101", False)])
def test_a_user_s_word_loses_what_stands_behind_old_thoughts_where_they_are_stripped(model: str, lost: bool) -> None:
    filler = text("x" * 40_000)
    with ClaudeServer(lambda body, n: Answer(thought="hm " * 400, calls=(("run", {}),))) as server:
        body = body_of(user([filler, text("go", cache_control=MARKER)]))
        content = ask(server, body, model)["content"]
        body["messages"] += [assistant(content), answered(content)]
        body["messages"][-1]["content"][-1]["cache_control"] = MARKER
        _, read, written, _ = counts(server, body, model)
        assert read > 10_000
        body["messages"][-1]["content"].append(text("hurry"))
        _, later, _, _ = counts(server, body, model)

    assert later == (read if lost else read + written)


@pytest.mark.parametrize("marker", [None, LONG])
def test_results_of_web_searches_are_kept_for_five_minutes_when_anything_is_marked(
    marker: dict[str, Any] | None,
) -> None:
    with ClaudeServer(lambda body, n: say("found " * 500, searches=(HIT,))) as server:
        body = body_of(user([text("go " * 2000, cache_control=marker)]))
        content = ask(server, body)["content"]
        body["messages"] += [assistant(content), user("next")]
        _, read, short, long = counts(server, body)

    assert (read > 1000, 50 < short < 500) == (marker is not None, marker is not None)
    assert long == 0


def test_a_cleared_system_message_does_not_count_as_input() -> None:
    note = {"role": "system", "content": "hurry " * 100, "clear_at": "next_user_message"}
    with ClaudeServer(lambda body, n: say("hi")) as server:
        shown = counts(server, body_of(user(), note), **CLEAR_AT)[0]
        without = counts(server, body_of(user()))[0]
        cleared = counts(server, body_of(user(), note, assistant("hi"), user()), **CLEAR_AT)[0]
        never = counts(server, body_of(user(), assistant("hi"), user()))[0]

    assert shown > without + 100
    assert cleared == never


@given(
    markers=st.lists(st.sampled_from([None, "5m", "1h"]), min_size=8, max_size=8),
    sizes=st.lists(st.integers(1, 6000), min_size=8, max_size=8),
    times=st.lists(st.sampled_from([0.0, 200.0, 301.0, 3601.0]), min_size=1, max_size=4),
)
def test_the_counts_of_a_prompt_always_add_up(markers: list[str | None], sizes: list[int], times: list[float]) -> None:
    cache, traits = PromptCache(), MODELS[NEWEST]
    blocks = [
        text("x" * size) | ({"cache_control": {**MARKER, "ttl": ttl}} if ttl else {})
        for size, ttl in zip(sizes, markers, strict=True)
    ]
    asked = read(body_of(user(blocks), tools=[RUN, WEB_SEARCH]))
    whole = prompt_tokens(rendered(asked, traits))
    for now in itertools.accumulate(times):
        counted = cache.count(asked, NEWEST, traits, now)
        assert counted.total == whole
        assert min(counted.fresh, counted.read, counted.written_5m, counted.written_1h) >= 0
        again = cache.count(asked, NEWEST, traits, now)
        assert (again.read, again.fresh) == (whole - counted.fresh, counted.fresh)
