"""Reading what `generateContent` answers: content, usage and the reason it stopped."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from pydantic.alias_generators import to_camel

from hummingbird_ai.errors import MalformedReply
from hummingbird_ai.http import HttpReply
from hummingbird_ai.messages import Finish, Usage
from hummingbird_ai.providers.gemini.parts import normalised
from hummingbird_ai.providers.google.errors import error_of, from_error, unreadable
from hummingbird_ai.serialise import clean

CONTINUATION = "CONTINUATION"

_NUDGE = frozenset(
    {"MALFORMED_FUNCTION_CALL", "MALFORMED_RESPONSE", "UNEXPECTED_TOOL_CALL", "TOO_MANY_TOOL_CALLS"}
    | {"MISSING_THOUGHT_SIGNATURE"}
)
_POLICY = frozenset(
    {"SAFETY", "RECITATION", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII", "MODEL_ARMOR", "LANGUAGE", "ESCALATION"}
    | {"IMAGE_SAFETY", "IMAGE_PROHIBITED_CONTENT", "IMAGE_RECITATION", "PUP_LIMITED_DISABLED"}
)


def _none_as_empty(value: Any) -> Any:
    return {} if value is None else value


def _none_as_list(value: Any) -> Any:
    return [] if value is None else value


def _count(value: Any) -> Any:
    return 0 if value is None else value


Count = Annotated[int, BeforeValidator(_count), Field(ge=0)]


class _Wire(BaseModel):
    """Fields that this version does not know are let through: providers add some every month."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="ignore")


class _Content(_Wire):
    parts: Annotated[list[dict[str, Any]], BeforeValidator(_none_as_list)] = []


class _Candidate(_Wire):
    content: Annotated[_Content, BeforeValidator(_none_as_empty)] = _Content()
    finish_reason: str | None = None
    finish_message: str | None = None
    continuation_token: str | None = None


class _Feedback(_Wire):
    block_reason: str | None = None
    block_reason_message: str | None = None


class _UsageMetadata(_Wire):
    prompt_token_count: Count = 0
    cached_content_token_count: Count = 0
    candidates_token_count: Count = 0
    thoughts_token_count: Count = 0
    tool_use_prompt_token_count: Count = 0
    total_token_count: Count = 0


class _Reply(_Wire):
    candidates: Annotated[list[_Candidate], BeforeValidator(_none_as_list)] = []
    prompt_feedback: Annotated[_Feedback, BeforeValidator(_none_as_empty)] = _Feedback()
    usage_metadata: Annotated[_UsageMetadata, BeforeValidator(_none_as_empty)] = _UsageMetadata()
    model_version: str | None = None


@dataclass(frozen=True, slots=True)
class Pass:
    """One HTTP answer: its parts, Google's word for its end, and what it is billed."""

    parts: tuple[dict[str, Any], ...]
    reason: str
    message: str
    usage: Usage
    model_version: str
    continuation_token: str


def read(reply: HttpReply, secrets: Sequence[str] = ()) -> Pass:
    """Read a 200; raises MalformedReply, or the error that came in its body."""
    try:
        document = json.loads(reply.body)
    except (ValueError, RecursionError):
        raise unreadable(reply, "the answer is not JSON", secrets) from None
    error = error_of(document)
    if error is not None:
        code = error.get("code")
        raise from_error(error, code if isinstance(code, int) else 500, reply.headers, secrets)
    try:
        parsed = _Reply.model_validate(document)
    except ValidationError as problem:
        where = ".".join(str(step) for step in problem.errors()[0]["loc"])
        raise unreadable(reply, f"the answer has an unexpected shape at {where or 'its top'}", secrets) from None
    return _pass(parsed)


def _pass(reply: _Reply) -> Pass:
    feedback = reply.prompt_feedback
    reason, message, token, parts = "", feedback.block_reason_message or "", "", []
    if reply.candidates:
        candidate = reply.candidates[0]
        reason, message = candidate.finish_reason or "", candidate.finish_message or ""
        token = candidate.continuation_token or ""
        parts = candidate.content.parts
    elif feedback.block_reason:
        reason = f"blocked: {feedback.block_reason}"
    try:
        kept = tuple(normalised(part) for part in parts if not _is_blank(part))
    except (TypeError, RecursionError) as error:
        raise MalformedReply(f"a part of the answer cannot be kept: {error}") from None
    return Pass(kept, reason, clean(message), usage_of(reply.usage_metadata), reply.model_version or "", token)


def _is_blank(part: Mapping[str, Any]) -> bool:
    """No payload, or text without a character, and no signature to carry."""
    return not part.get("thoughtSignature") and not any(value for key, value in part.items() if key != "thought")


def usage_of(metadata: _UsageMetadata) -> Usage:
    """Four disjoint counters of one pass.

    The prompt's count includes what came from the cache. Thoughts come on top of the candidates' count, except on
    routes that include them, which the total gives away.
    """
    prompt, cached = metadata.prompt_token_count, min(metadata.cached_content_token_count, metadata.prompt_token_count)
    output, thoughts = metadata.candidates_token_count, metadata.thoughts_token_count
    without_thoughts = prompt + output + metadata.tool_use_prompt_token_count
    if thoughts and metadata.total_token_count != without_thoughts:
        output += thoughts
    return Usage(
        input_tokens=prompt - cached + metadata.tool_use_prompt_token_count,
        output_tokens=output,
        cache_read_tokens=cached,
        context_tokens=prompt + output,
    )


def finish_of(reason: str, *, text: str, calls: int) -> Finish:
    """The class of Google's word, given what came with it; a word nobody knows is UNKNOWN, never an error."""
    if reason in _NUDGE:
        return Finish.MALFORMED
    if reason in _POLICY or reason.startswith("blocked: "):
        return Finish.REFUSED
    if reason in ("MAX_TOKENS", CONTINUATION):
        return Finish.MAX_TOKENS
    if reason not in ("STOP", ""):
        return Finish.UNKNOWN
    if calls:
        return Finish.TOOL_CALLS
    return Finish.STOP if text.strip() else Finish.EMPTY
