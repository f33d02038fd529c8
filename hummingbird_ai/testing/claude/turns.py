"""The order of messages and blocks: who speaks when, and which block has to follow which."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hummingbird_ai.testing.claude.blocks import THINKING, Conversation, Message
from hummingbird_ai.testing.claude.models import Traits


def order_problems(asked: Conversation, traits: Traits, *, paused: bool) -> Iterator[str]:
    """Anthropic's sentences; `paused`: the last message is an answer that stopped with pause_turn."""
    sent = asked.messages
    if not sent:
        yield "messages: at least one message is required"
        return
    yield from _system_problems(sent, traits)
    if sent[0].role != "user":
        yield 'messages: first message must use the "user" role'
    yield from _text_problems(sent)
    yield from _last_block_problems(sent[:-1] if paused else sent)
    yield from _pairing_problems(sent)
    yield from _search_problems(sent, asked.lists_web_search)
    if sent[-1].role == "assistant" and not paused:
        yield from _prefill_problems(sent[-1], traits)


def _system_problems(sent: Sequence[Message], traits: Traits) -> Iterator[str]:
    for message in sent:
        if message.role != "system":
            continue
        if traits.system_messages == "none" or (traits.system_messages == "cleared" and not message.clears):
            yield f"{message.path}: role 'system' is not supported on this model"
        if traits.system_messages == "ignored" and message.clears:
            yield f"{message.path}.clear_at: `clear_at` is not supported on this model"
        before = sent[message.index - 1] if message.index else None
        after = sent[message.index + 1] if message.index + 1 < len(sent) else None
        if before is None or not _may_precede_system(before):
            yield (
                f"{message.path}: role 'system' must follow a 'user' message, or an 'assistant' message that ends with "
                "a server tool result"
            )
        if after is not None and after.role != "assistant":
            yield f"{message.path}: role 'system' must precede an 'assistant' message or end the array"


def _may_precede_system(message: Message) -> bool:
    if message.role == "assistant":
        return bool(message.blocks) and message.blocks[-1].type == "web_search_tool_result"
    return message.role == "user"


def _text_problems(sent: Sequence[Message]) -> Iterator[str]:
    for message in sent:
        if not message.blocks and message is not sent[-1]:
            rule = "all messages must have non-empty content except for the optional final assistant message"
            yield f"{message.path}: {rule}"
        if not message.blocks and message.role != "assistant":
            yield f"{message.path}: {message.role} messages must have non-empty content"
        texts = message.of_type("text")
        if any(block.data["text"] == "" for block in texts):
            yield f"{message.path}: text content blocks must be non-empty"
        if texts and all(block.is_blank for block in texts):
            yield f"{message.path}: text content blocks must contain non-whitespace text"
        for result in message.of_type("tool_result"):
            inner = result.data.get("content") or []
            if isinstance(inner, list) and any(item.get("text") == "" for item in inner):
                yield f"{result.path}.tool_result.content: text content blocks must be non-empty"


def _last_block_problems(sent: Sequence[Message]) -> Iterator[str]:
    """Seen with answers that were cut in a thought (tailcallhq/forgecode#2107)."""
    for message in sent:
        if message.role == "assistant" and message.blocks and message.blocks[-1].type in THINKING:
            yield f"{message.path}: The final block in an assistant message cannot be `thinking`."


def _pairing_problems(sent: Sequence[Message]) -> Iterator[str]:
    seen: set[str] = set()
    asked: list[str] = []
    for message in sent:
        if message.role == "system":
            continue
        yield from _answer_problems(message, asked)
        asked = [block.data["id"] for block in message.of_type("tool_use")]
        ids = [block.data["id"] for block in message.of_type("tool_use", "server_tool_use")]
        for number, call_id in enumerate(ids):
            if call_id in seen or call_id in ids[:number]:
                yield f"{message.path}: `tool_use` ids must be unique"
        seen.update(ids)
    if asked:
        yield _unanswered(sent[-1], asked)


def _answer_problems(message: Message, asked: Sequence[str]) -> Iterator[str]:
    """The results that this message owes to the calls before it: all of them, first, and no others."""
    first: list[str] = []
    for block in message.blocks:
        if block.type != "tool_result":
            break
        first.append(block.data["tool_use_id"])
    missing = [call_id for call_id in asked if call_id not in first]
    if missing:
        yield _unanswered(message, missing)
    for block in message.of_type("tool_result"):
        answered = block.data["tool_use_id"]
        if answered not in asked:
            yield (
                f"{block.path}: unexpected `tool_use_id` found in `tool_result` blocks: {answered}. Each `tool_result` "
                "block must have a corresponding `tool_use` block in the previous message."
            )
        if first.count(answered) > 1:
            rule = "each tool_use must have a single result. Found multiple `tool_result` blocks with id"
            yield f"{block.path}: {rule}: {answered}"


def _unanswered(message: Message, ids: Sequence[str]) -> str:
    return (
        f"{message.path}: `tool_use` ids were found without `tool_result` blocks immediately after: {', '.join(ids)}. "
        "Each `tool_use` block must have a corresponding `tool_result` block in the next message."
    )


def _search_problems(sent: Sequence[Message], listed: bool) -> Iterator[str]:
    """A search whose result is owed: nothing but tool results in between, and the tool still there."""
    pending: list[str] = []
    for message in sent:
        if pending and (message.role == "system" or not _only_results(message)):
            yield _without_result(message, pending[0])
        owed = bool(pending)
        for block in message.blocks if message.role == "assistant" else ():
            if block.type == "web_search_tool_result":
                searched = block.data["tool_use_id"]
                if searched not in pending:
                    yield (
                        f"{block.path}: unexpected `tool_use_id` found in `web_search_tool_result` blocks: {searched}. "
                        "Each `web_search_tool_result` block must have a corresponding `server_tool_use` block before "
                        "it."
                    )
                else:
                    pending.remove(searched)
            elif owed and pending:
                yield _without_result(message, pending[0])
            elif block.type == "server_tool_use":
                pending.append(block.data["id"])
            owed = owed and bool(pending)
    if pending and not listed:
        found = f"`web_search` tool use with id `{pending[0]}` was found"
        yield f"{sent[-1].path}: {found} but no `web_search` tool was provided"


def _only_results(message: Message) -> bool:
    return message.role == "assistant" or all(block.type == "tool_result" for block in message.blocks)


def _without_result(message: Message, searched: str) -> str:
    return (
        f"{message.path}: `web_search` tool use with id `{searched}` was found without a corresponding "
        "`web_search_tool_result` block"
    )


def _prefill_problems(last: Message, traits: Traits) -> Iterator[str]:
    if not traits.prefill:
        yield ("This model does not support assistant message prefill. The conversation must end with a user message.")
    texts = last.of_type("text")
    if texts and texts[-1] is last.blocks[-1] and texts[-1].data["text"] != texts[-1].data["text"].rstrip():
        yield "messages: final assistant content cannot end with trailing whitespace"
