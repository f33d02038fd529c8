"""Rendering a script's answers as Gemini's JSON, with usage that grows as a real conversation's does."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Mapping, Sequence
from typing import Any

from hummingbird_ai.serialise import encode
from hummingbird_ai.testing.gemini.rules import needs_signatures, signature, unanswered_ids
from hummingbird_ai.testing.replies import Answer, Search

BYTES_PER_TOKEN = 4


class PrefixCache:
    """The implicit prompt cache: a prompt whose beginning was sent before reads that part at the cache's price."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: set[bytes] = set()

    def tokens(self, body: Mapping[str, Any], minimum: int) -> tuple[int, int]:
        """(all prompt tokens, those read from the cache); the prompt is known from now on."""
        size, cached = 0, 0
        prefix = hashlib.sha256()
        with self._lock:
            for block in (body.get("systemInstruction"), body.get("tools"), *body["contents"]):
                data = encode(block)
                size += len(data)
                prefix.update(data)
                if prefix.digest() in self._known:
                    cached = size
                self._known.add(prefix.digest())
        read = cached // BYTES_PER_TOKEN
        return size // BYTES_PER_TOKEN + 1, read if read >= minimum else 0


def render(
    answer: Answer, body: Mapping[str, Any], *, model: str, vertex: bool, number: int, cache: PrefixCache
) -> Any:
    """The document of a 200 answer; `number` makes ids and signatures unique."""
    if answer.searches and not any("googleSearch" in tool for tool in body.get("tools", [])):
        raise ValueError("the answer has searches, and the request does not declare googleSearch")
    signed = needs_signatures(model)
    if signed and vertex and unanswered_ids(body["contents"]):
        answer = Answer()  # what Gemini 3 on Vertex AI does when an id was not echoed: it ends normally, with nothing
    parts = _parts(answer, model, vertex, number) if answer.parts is None else [dict(part) for part in answer.parts]
    document: dict[str, Any] = {}
    if answer.block_reason:
        document["promptFeedback"] = {"blockReason": answer.block_reason}
    else:
        candidate: dict[str, Any] = {"content": {"role": "model", "parts": parts} if parts else {}, "index": 0}
        optional = {
            "finishReason": "STOP" if answer.finish == "" else answer.finish,
            "finishMessage": answer.finish_message or None,
            "continuationToken": answer.continuation_token or None,
            "groundingMetadata": _grounding(answer.searches) if answer.searches else None,
        }
        candidate |= {key: value for key, value in optional.items() if value is not None}
        document["candidates"] = [candidate]
    document["usageMetadata"] = _usage(answer, body, parts, cache.tokens(body, 4096 if signed else 2048))
    document["modelVersion"] = answer.model_version or model
    document["responseId"] = f"response-{number}"
    return document


def _parts(answer: Answer, model: str, vertex: bool, number: int) -> list[dict[str, Any]]:
    """Thought, text, calls; the first call is signed, or else the last text, as Gemini 3 does."""
    mark = {"thoughtSignature": signature(model, vertex, number)} if needs_signatures(model) else {}
    with_ids = needs_signatures(model) if answer.call_ids is None else answer.call_ids
    parts: list[dict[str, Any]] = [{"text": answer.thought, "thought": True}] if answer.thought else []
    if answer.text:
        parts.append({"text": answer.text} | ({} if answer.calls else mark))
    for index, (name, arguments) in enumerate(answer.calls):
        given = {"id": f"call-{number}-{index}"} if with_ids else {}
        parts.append({"functionCall": {**given, "name": name, "args": dict(arguments)}} | ({} if index else mark))
    return parts


def _grounding(searches: Sequence[Search]) -> dict[str, Any]:
    pages = [{"web": {"uri": url, "title": title}} for search in searches for title, url in search.results]
    return {"webSearchQueries": [search.query for search in searches], "groundingChunks": pages}


def _usage(
    answer: Answer, body: Mapping[str, Any], parts: list[dict[str, Any]], prompt: tuple[int, int]
) -> dict[str, int]:
    thoughts = len(answer.thought.encode()) // BYTES_PER_TOKEN
    output = len(encode(parts)) // BYTES_PER_TOKEN - thoughts if parts else 0
    counts: dict[str, int | None] = {
        "promptTokenCount": prompt[0],
        "cachedContentTokenCount": prompt[1] or None,
        "candidatesTokenCount": max(output, 0) or None,
        "thoughtsTokenCount": thoughts or None,
    }
    counts |= answer.usage
    total = sum(
        count or 0 for name, count in counts.items() if name not in ("cachedContentTokenCount", "totalTokenCount")
    )
    counts.setdefault("totalTokenCount", total)
    return {name: count for name, count in counts.items() if count is not None}
