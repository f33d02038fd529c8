from __future__ import annotations

from typing import Any

import pytest

from hummingbird_ai.testing import ClaudeServer, say
from hummingbird_ai.testing.claude.models import MODELS
from tests.unit.hummingbird_ai.testing.claude.talk import (
    CLEAR_AT,
    MARKER,
    NEWEST,
    OLDEST,
    RUN,
    WEB_SEARCH,
    ask,
    assistant,
    body_of,
    conversation,
    post,
    refused,
    result,
    text,
    tool_use,
    user,
)

LONG = {**MARKER, "ttl": "1h"}
SEARCH = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "q"}}
FOUND: dict[str, Any] = {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []}

UNANSWERED = "`tool_use` ids were found without `tool_result` blocks immediately after"
UNEXPECTED = "unexpected `tool_use_id` found in `tool_result` blocks"
PENDING = "`web_search` tool use with id `srvtoolu_1` was found without a corresponding `web_search_tool_result` block"
REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "no message": (body_of(), "messages: at least one message is required"),
    "the assistant first": (body_of(assistant("hi"), user()), 'messages: first message must use the "user" role'),
    "the assistant last": (
        body_of(user(), assistant("hi")),
        "This model does not support assistant message prefill. The conversation must end with a user message.",
    ),
    "a user without content": (body_of(user([])), "messages.0: user messages must have non-empty content"),
    "an assistant without content": (
        body_of(user(), assistant([]), user()),
        "messages.1: all messages must have non-empty content except for the optional final assistant message",
    ),
    "empty text": (body_of(user("")), "messages.0: text content blocks must be non-empty"),
    "empty text beside text": (
        body_of(user(), assistant([text("hi"), text("")]), user()),
        "messages.1: text content blocks must be non-empty",
    ),
    "white text": (body_of(user(" \n")), "messages.0: text content blocks must contain non-whitespace text"),
    "white text beside a call": (
        body_of(user(), assistant([text("\n"), tool_use()]), user([result()])),
        "messages.1: text content blocks must contain non-whitespace text",
    ),
    "empty text in a result": (
        body_of(user(), assistant([tool_use()]), user([result(content=[text("")])])),
        "messages.2.content.0.tool_result.content: text content blocks must be non-empty",
    ),
    "empty system text": (conversation(system=[text(" ")]), "system.0: text content blocks must be non-empty"),
    "a call without result": (
        body_of(user(), assistant([tool_use("a"), tool_use("b")]), user([result("a")])),
        f"messages.2: {UNANSWERED}: b. Each `tool_use` block must have a corresponding `tool_result` block in",
    ),
    "results in two messages": (
        body_of(user(), assistant([tool_use("a"), tool_use("b")]), user([result("a")]), user([result("b")])),
        f"messages.2: {UNANSWERED}: b",
    ),
    "words before a result": (
        body_of(user(), assistant([tool_use()]), user([text("so"), result()])),
        f"messages.2: {UNANSWERED}: toolu_1",
    ),
    "a call at the end": (
        body_of(user(), assistant([tool_use()])),
        f"messages.1: {UNANSWERED}: toolu_1",
    ),
    "a result without call": (
        body_of(user([result("x")])),
        f"messages.0.content.0: {UNEXPECTED}: x. Each `tool_result` block must have a corresponding `tool_use` block",
    ),
    "a result of an earlier call": (
        body_of(user(), assistant([tool_use()]), user([result()]), assistant("hi"), user([result()])),
        f"messages.4.content.0: {UNEXPECTED}: toolu_1",
    ),
    "two results of one call": (
        body_of(user(), assistant([tool_use()]), user([result(), result()])),
        "each tool_use must have a single result. Found multiple `tool_result` blocks with id: toolu_1",
    ),
    "an id used twice in a turn": (
        body_of(user(), assistant([tool_use(), tool_use()]), user([result()])),
        "`tool_use` ids must be unique",
    ),
    "an id used twice in a conversation": (
        body_of(user(), assistant([tool_use()]), user([result()]), assistant([tool_use()]), user([result()])),
        "messages.3: `tool_use` ids must be unique",
    ),
    "a thought at the end of an answer": (
        body_of(user(), assistant([text("hi"), {"type": "redacted_thinking", "data": "x"}]), user()),
        "messages.1: The final block in an assistant message cannot be `thinking`.",
    ),
    "a search's id used twice": (
        body_of(user(), assistant([SEARCH, FOUND, SEARCH, FOUND]), user()),
        "messages.1: `tool_use` ids must be unique",
    ),
    "a search result without search": (
        body_of(user(), assistant([FOUND, text("hi")]), user()),
        "messages.1.content.0: unexpected `tool_use_id` found in `web_search_tool_result` blocks: srvtoolu_1",
    ),
    "a search without result before a user's word": (
        body_of(user(), assistant([SEARCH]), user()),
        f"messages.2: {PENDING}",
    ),
    "words beside the results while a search is pending": (
        body_of(user(), assistant([SEARCH, tool_use()]), user([result(), text("hurry")])),
        f"messages.2: {PENDING}",
    ),
    "a system message while a search is pending": (
        body_of(user(), assistant([SEARCH, tool_use()]), user([result()]), {"role": "system", "content": "hurry"}),
        f"messages.3: {PENDING}",
    ),
    "no search tool while a search is pending": (
        body_of(user(), assistant([SEARCH, tool_use()]), user([result()]), tools=[RUN]),
        "`web_search` tool use with id `srvtoolu_1` was found but no `web_search` tool was provided",
    ),
    "an answer that does not begin with the pending result": (
        body_of(user(), assistant([SEARCH, tool_use()]), user([result()]), assistant([text("hi"), FOUND]), user()),
        f"messages.3: {PENDING}",
    ),
    "a system message first": (
        body_of({"role": "system", "content": "x"}, user()),
        "messages.0: role 'system' must follow a 'user' message",
    ),
    "a system message after an assistant": (
        body_of(user(), assistant("hi"), {"role": "system", "content": "x"}),
        "messages.2: role 'system' must follow a 'user' message",
    ),
    "two system messages": (
        body_of(user(), {"role": "system", "content": "x"}, {"role": "system", "content": "y"}),
        "messages.1: role 'system' must precede an 'assistant' message or end the array",
    ),
    "a system message before a user": (
        body_of(user(), {"role": "system", "content": "x"}, user()),
        "messages.1: role 'system' must precede an 'assistant' message or end the array",
    ),
    "five markers": (
        conversation(
            system=[text("s", cache_control=MARKER) for _ in range(3)],
            tools=[{**RUN, "cache_control": MARKER}, {**WEB_SEARCH, "cache_control": MARKER}],
        ),
        "A maximum of 4 blocks with cache_control may be provided. Found 5.",
    ),
    "a marker on white text": (
        body_of(user([text("go"), text(" ", cache_control=MARKER)])),
        "messages.0.content.1.text: cache_control cannot be set for empty text blocks",
    ),
    "a long marker after a short one": (
        conversation(system=[text("s", cache_control=LONG)], tools=[{**RUN, "cache_control": MARKER}]),
        "system.0.cache_control.ttl: a ttl='1h' cache_control block must not come after a ttl='5m'",
    ),
    "two tools of one name": (conversation(tools=[RUN, RUN]), "tools: Tool names must be unique."),
    "a schema of another type": (
        conversation(tools=[{**RUN, "input_schema": {"type": "string"}}]),
        "tools.0.custom.input_schema.type: Input should be 'object'",
    ),
    "a schema with a union at its root": (
        conversation(tools=[{**RUN, "input_schema": {"type": "object", "anyOf": []}}]),
        "tools.0.custom.input_schema: input_schema does not support oneOf, allOf, or anyOf at the top level",
    ),
    "domains allowed and blocked": (
        conversation(tools=[{**WEB_SEARCH, "allowed_domains": ["a"], "blocked_domains": ["b"]}]),
        "only one of `allowed_domains` and `blocked_domains`",
    ),
    "a choice without tools": (
        body_of(user(), tools=[], tool_choice={"type": "auto"}),
        "tool_choice: tool_choice may only be specified while providing tools",
    ),
    "a forced tool": (conversation(tool_choice={"type": "any"}), "tool_choice: `any` is not supported for this model"),
    "more output than the model has": (
        conversation(max_tokens=128_001),
        "max_tokens: 128001 > 128000, which is the maximum allowed number of output tokens for claude-opus-5-5",
    ),
    "a temperature": (conversation(temperature=0.5), "temperature: `temperature` is not supported for this model"),
    "top_k": (conversation(top_k=1), "top_k: `top_k` is not supported for this model"),
    "manual thinking": (
        conversation(thinking={"type": "enabled", "budget_tokens": 2000}),
        '"thinking.type.enabled" is not supported for this model.',
    ),
    "no thinking": (conversation(thinking={"type": "disabled"}), '"thinking.type.disabled" is not supported'),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_claude_refuses_is_refused_with_its_words(greeter: ClaudeServer, case: str) -> None:
    body, message = REFUSED[case]
    assert message in refused(greeter, body)


OLD_REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "white space at the end of a prefill": (
        body_of(user(), assistant("hi ")),
        "messages: final assistant content cannot end with trailing whitespace",
    ),
    "adaptive thinking": (conversation(thinking={"type": "adaptive"}), '"thinking.type.adaptive" is not supported'),
    "too small a budget": (
        conversation(thinking={"type": "enabled", "budget_tokens": 1000}),
        "thinking.enabled.budget_tokens: Input should be greater than or equal to 1024",
    ),
    "a budget above max_tokens": (
        conversation(thinking={"type": "enabled", "budget_tokens": 4096}),
        "`max_tokens` must be greater than `thinking.budget_tokens`",
    ),
    "a forced tool with manual thinking": (
        body_of(user(), thinking={"type": "enabled", "budget_tokens": 2000}, tool_choice={"type": "any"}),
        "Thinking may not be enabled when tool_choice forces tool use.",
    ),
    "a forced tool that is not there": (
        conversation(tool_choice={"type": "tool", "name": "walk"}),
        "tool_choice: Tool 'walk' not found in provided tools",
    ),
    "no thought before a call with manual thinking": (
        conversation(thinking={"type": "enabled", "budget_tokens": 2000}),
        "messages.1.content.0.type: Expected `thinking` or `redacted_thinking`, but found `text`. When `thinking` is ",
    ),
    "a system message": (
        body_of(user(), {"role": "system", "content": "x"}),
        "messages.1: role 'system' is not supported on this model",
    ),
}


@pytest.mark.parametrize("case", OLD_REFUSED)
def test_what_an_older_model_refuses_is_refused_with_its_words(greeter: ClaudeServer, case: str) -> None:
    body, message = OLD_REFUSED[case]
    assert message in refused(greeter, body, OLDEST)


ACCEPTED: dict[str, tuple[dict[str, Any], str]] = {
    "white text beside words": (body_of(user([text("go"), text("\n")])), NEWEST),
    "words after the results": (body_of(user(), assistant([tool_use()]), user([result(), text("hurry")])), NEWEST),
    "results in any order": (
        body_of(user(), assistant([tool_use("a"), tool_use("b")]), user([result("b"), result("a")])),
        NEWEST,
    ),
    "two users after each other": (body_of(user(), user("and")), NEWEST),
    "an empty search": (body_of(user(), assistant([SEARCH, FOUND, text("none")]), user()), NEWEST),
    "a failed search": (
        body_of(
            user(),
            assistant(
                [
                    SEARCH,
                    {**FOUND, "content": {"type": "web_search_tool_result_error", "error_code": "unavailable"}},
                    text("no"),
                ]
            ),
            user(),
        ),
        NEWEST,
    ),
    "a pending search": (body_of(user(), assistant([SEARCH, tool_use()]), user([result()])), NEWEST),
    "a pending search that has come": (
        body_of(user(), assistant([SEARCH, tool_use()]), user([result()]), assistant([FOUND, text("hi")]), user()),
        NEWEST,
    ),
    "a paused search": (body_of(user(), assistant([SEARCH])), NEWEST),
    "a pause after a result": (body_of(user(), assistant([SEARCH, FOUND])), NEWEST),
    "a system message after results": (
        body_of(user(), assistant([tool_use()]), user([result()]), {"role": "system", "content": "x"}),
        NEWEST,
    ),
    "a system message between user and assistant": (
        body_of(user(), {"role": "system", "content": [text("x")]}, assistant("hi"), user()),
        NEWEST,
    ),
    "a system message after a paused search": (
        body_of(user(), assistant([SEARCH, FOUND]), {"role": "system", "content": "x"}),
        NEWEST,
    ),
    "four markers, the long ones first": (
        body_of(
            user([text("go", cache_control=MARKER), text("on", cache_control=MARKER)]),
            system=[text("s", cache_control=LONG)],
            tools=[{**RUN, "cache_control": LONG}],
        ),
        NEWEST,
    ),
    "all the output there is": (conversation(max_tokens=128_000), NEWEST),
    "a schema with a union below its root": (
        conversation(tools=[{**RUN, "input_schema": {"type": "object", "properties": {"a": {"anyOf": []}}}}]),
        NEWEST,
    ),
    "a prefill": (body_of(user(), assistant("hi")), OLDEST),
    "an empty prefill": (body_of(user(), assistant([])), OLDEST),
    "forced tools": (conversation(tool_choice={"type": "tool", "name": "run"}), OLDEST),
    "manual thinking": (body_of(user(), thinking={"type": "enabled", "budget_tokens": 1024}), OLDEST),
    "manual thinking after the turn": (
        body_of(
            user(),
            assistant([tool_use()]),
            user([result(), text("next")]),
            thinking={"type": "enabled", "budget_tokens": 1024},
        ),
        OLDEST,
    ),
    "no thinking": (conversation(thinking={"type": "disabled"}), OLDEST),
    "thinking between tools": (conversation(thinking={"type": "between_tools"}), "claude-sonnet-5-5"),
    "a system message that is ignored": (body_of(user(), {"role": "system", "content": "x"}), "claude-sonnet-5"),
}


@pytest.mark.parametrize("case", ACCEPTED)
def test_what_claude_takes_is_taken(greeter: ClaudeServer, case: str) -> None:
    body, model = ACCEPTED[case]
    ask(greeter, body, model)


def served(model: str) -> str:
    return model + f"@{MODELS[model].date}" * bool(MODELS[model].date)


@pytest.mark.parametrize("model", MODELS)
def test_system_messages_are_taken_in_the_forms_that_a_model_knows(greeter: ClaudeServer, model: str) -> None:
    plain = {"role": "system", "content": "x"}
    forms = [plain, {**plain, "clear_at": "never"}, {**plain, "clear_at": "next_user_message"}]
    taken = [post(greeter, body_of(user(), form), served(model), **CLEAR_AT).status_code == 200 for form in forms]

    kinds = {"all": [1, 1, 1], "cleared": [0, 0, 1], "ignored": [1, 1, 0], "none": [0, 0, 0]}
    assert taken == [bool(one) for one in kinds[MODELS[model].system_messages]]


def test_a_prompt_longer_than_the_window_is_refused() -> None:
    with ClaudeServer(lambda body, n: say("hi"), context_window=50) as server:
        message = refused(server, conversation())
    body = body_of(user("x" * 800_000))
    with ClaudeServer(lambda body, n: say("hi")) as server:
        ask(server, body)
        assert "> 200000 maximum" in refused(server, body, OLDEST)

    assert message.startswith("prompt is too long: ")
    assert message.endswith(" tokens > 50 maximum")


def test_sealed_contents_of_a_search_come_back_unchanged_or_not_at_all() -> None:
    hit = {"type": "web_search_result", "url": "u", "title": "t", "encrypted_content": "eA=="}
    citation = {
        "type": "web_search_result_location",
        "url": "u",
        "title": "t",
        "encrypted_index": "eA==",
        "cited_text": "c",
    }
    with ClaudeServer(lambda body, n: say("hi")) as server:
        body = body_of(user(), assistant([SEARCH, {**FOUND, "content": [hit]}, text("hi")]), user())
        assert "Invalid `encrypted_content`" in refused(server, body)
        body = body_of(user(), assistant([SEARCH, FOUND, text("hi", citations=[citation])]), user())
        assert "Invalid `encrypted_index`" in refused(server, body)
