"""Reading what `generateContent` answers: content, usage, sources and the reason it stopped."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ValidationError

from hummingbird_ai.errors import MalformedReply, ModelError
from hummingbird_ai.http import HttpReply
from hummingbird_ai.messages import Finish, Source, Usage
from hummingbird_ai.providers.gemini.checks import WIRE, Part
from hummingbird_ai.providers.gemini.parts import is_before_3, normalised
from hummingbird_ai.providers.google.errors import SHOWN_BODY, error_of, from_error, redacted, unreadable
from hummingbird_ai.providers.wire import NULL_IS_EMPTY, NULL_IS_NO_LIST, Count
from hummingbird_ai.serialise import clean_text

CONTINUATION = "CONTINUATION"
_LONGEST_NAME = 100

_NUDGE = frozenset(
    {"MALFORMED_FUNCTION_CALL", "MALFORMED_RESPONSE", "UNEXPECTED_TOOL_CALL", "TOO_MANY_TOOL_CALLS"}
    | {"MISSING_THOUGHT_SIGNATURE"}
)
_POLICY = frozenset(
    {"SAFETY", "RECITATION", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII", "MODEL_ARMOR", "LANGUAGE", "ESCALATION"}
    | {"IMAGE_SAFETY", "IMAGE_PROHIBITED_CONTENT", "IMAGE_RECITATION", "PUP_LIMITED_DISABLED"}
)


class _Wire(BaseModel):
    model_config = WIRE


def _with_known_fields_in_form(part: dict[str, Any]) -> dict[str, Any]:
    Part.model_validate(part)
    return part


KeptPart = Annotated[dict[str, Any], AfterValidator(_with_known_fields_in_form)]


class _Content(_Wire):
    parts: Annotated[list[KeptPart], NULL_IS_NO_LIST] = []


# An answer is paid whatever its grounding looks like: what has another type there is left out, not refused.
def _text_or_none(value: Any) -> Any:
    return value if isinstance(value, str) else None


def _object(value: Any) -> Any:
    return value if isinstance(value, dict) else {}


def _texts(value: Any) -> list[str]:
    return [item for item in value if isinstance(item, str)] if isinstance(value, list) else []


def _objects(value: Any) -> list[Any]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


LenientText = Annotated[str | None, BeforeValidator(_text_or_none)]


class _Page(_Wire):
    uri: LenientText = None
    title: LenientText = None


class _Chunk(_Wire):
    web: Annotated[_Page, BeforeValidator(_object)] = _Page()


class _Grounding(_Wire):
    web_search_queries: Annotated[list[str], BeforeValidator(_texts)] = []
    grounding_chunks: Annotated[list[_Chunk], BeforeValidator(_objects)] = []


class _Candidate(_Wire):
    content: Annotated[_Content, NULL_IS_EMPTY] = _Content()
    finish_reason: str | None = None
    finish_message: str | None = None
    continuation_token: str | None = None
    grounding_metadata: Annotated[_Grounding, BeforeValidator(_object)] = _Grounding()


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
    candidates: Annotated[list[_Candidate], NULL_IS_NO_LIST] = []
    prompt_feedback: Annotated[_Feedback, NULL_IS_EMPTY] = _Feedback()
    usage_metadata: Annotated[_UsageMetadata, NULL_IS_EMPTY] = _UsageMetadata()
    model_version: str | None = None


@dataclass(frozen=True, slots=True)
class Pass:
    """One HTTP answer: its parts, Google's word for its end, what it is billed, and the pages it rests on."""

    parts: tuple[dict[str, Any], ...]
    reason: str
    message: str
    usage: Usage
    model_version: str
    continuation_token: str
    sources: tuple[Source, ...]


def read(reply: HttpReply, secrets: Sequence[str] = ()) -> Pass:
    """Read a 200; raises MalformedReply, or the error that came in its body."""
    found = _pass_or_error(reply, secrets)
    if isinstance(found, ModelError):
        raise found
    return found


def _pass_or_error(reply: HttpReply, secrets: Sequence[str]) -> Pass | ModelError:
    """An error is returned: raised where another one is handled, it would hold on to the whole body with it."""
    try:
        document = json.loads(reply.body)
    except (ValueError, RecursionError):
        return unreadable(reply, "the answer is not JSON", secrets)
    error = error_of(document)
    if error is not None:
        code = error.get("code")
        return from_error(error, code if type(code) is int and 400 <= code < 600 else 500, reply.headers, secrets)
    try:
        return _pass(_Reply.model_validate(document), secrets)
    except ValidationError as problem:
        where = ".".join(str(step) for step in problem.errors()[0]["loc"])
        return unreadable(reply, f"the answer has an unexpected shape at {where[:_LONGEST_NAME] or 'its top'}", secrets)
    except RecursionError:
        return MalformedReply("the answer is nested too deeply to be kept")


def _pass(reply: _Reply, secrets: Sequence[str]) -> Pass:
    feedback = reply.prompt_feedback
    candidate = reply.candidates[0] if reply.candidates else _Candidate()
    reason, message = candidate.finish_reason or "", candidate.finish_message or ""
    if not reason and feedback.block_reason:
        reason, message = f"blocked: {feedback.block_reason}", feedback.block_reason_message or ""
    version = reply.model_version or ""
    return Pass(
        parts=tuple(kept for part in candidate.content.parts if not _is_empty(kept := normalised(part))),
        reason=_shown(reason, secrets, _LONGEST_NAME),
        message=_shown(message, secrets, SHOWN_BODY - _LONGEST_NAME),
        usage=usage_of(reply.usage_metadata, candidate.grounding_metadata, version),
        model_version=_shown(version, secrets, _LONGEST_NAME),
        continuation_token=candidate.continuation_token or "",
        sources=_sources(candidate.grounding_metadata),
    )


def _shown(text: str, secrets: Sequence[str], most: int) -> str:
    """Not more characters of it, without the secrets: it goes into logs, records and the labels of metrics."""
    return redacted(clean_text(text), secrets)[:most]


def _is_empty(part: Mapping[str, Any]) -> bool:
    """Nothing came in it. Blank text counts: it may stand between two words."""
    return not part.keys() - {"thought"} or part == {"text": ""} or part == {"text": "", "thought": True}


def _sources(grounding: _Grounding) -> tuple[Source, ...]:
    """Each page once, in Google's order."""
    titles: dict[str, str] = {}
    for page in (chunk.web for chunk in grounding.grounding_chunks):
        url = clean_text(page.uri or "").strip()
        titles[url] = titles.get(url) or " ".join(clean_text(page.title or "").split())
    return tuple(Source(url, title) for url, title in titles.items() if url)


def _searches(grounding: _Grounding, version: str) -> int:
    """What Google bills: every different query that is not empty; before Gemini 3 a grounded prompt, at least one."""
    queries = {query.strip() for query in grounding.web_search_queries} - {""}
    return len(queries) or int(bool(grounding.grounding_chunks) and is_before_3(version))


def usage_of(metadata: _UsageMetadata, grounding: _Grounding, version: str) -> Usage:
    """Four disjoint counters of one pass, and its searches.

    The prompt's count includes what came from the cache. Thoughts come on top of the candidates' count, except on
    routes that include them, which the total gives away. What Google's own search put into the prompt is not billed
    as tokens: the search is.
    """
    prompt, cached = metadata.prompt_token_count, min(metadata.cached_content_token_count, metadata.prompt_token_count)
    output, thoughts = metadata.candidates_token_count, metadata.thoughts_token_count
    without_thoughts = prompt + output + metadata.tool_use_prompt_token_count
    if thoughts and metadata.total_token_count != without_thoughts:
        output += thoughts
    searches = _searches(grounding, version)
    grounded = searches or grounding.grounding_chunks
    return Usage(
        input_tokens=prompt - cached + (0 if grounded else metadata.tool_use_prompt_token_count),
        output_tokens=output,
        cache_read_tokens=cached,
        context_tokens=prompt + output,
        web_searches=searches,
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
