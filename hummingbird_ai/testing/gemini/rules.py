"""What Gemini refuses, with the status and message it gives: the rules no schema states.

The messages are those seen in public reports; where none was found, the text says plainly what is wrong. Each rule
is an API 400 INVALID_ARGUMENT.
"""

from __future__ import annotations

import base64
import hashlib
import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from hummingbird_ai.testing.gemini.shapes import shape_problem
from hummingbird_ai.testing.replies import HttpError

PLACEHOLDER_SIGNATURE = "skip_thought_signature_validator"
_PAYLOADS = frozenset(
    {"text", "functionCall", "functionResponse", "inlineData", "fileData", "executableCode", "codeExecutionResult"}
    | {"toolCall", "toolResponse"}
)
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.:-]{0,127}")
Content = Mapping[str, Any]


def refusal(body: dict[str, Any], *, model: str, vertex: bool) -> HttpError | None:
    """The answer Gemini gives to a request it does not take, None for one it takes."""
    problem = shape_problem(body, vertex=vertex) or next(_problems(body, model, vertex), "")
    return HttpError(400, problem, "INVALID_ARGUMENT") if problem else None


def signature(model: str, vertex: bool, number: int) -> str:
    """A thought signature as opaque as the real ones, bound to model and route; the same in every process."""
    bound = f"{model}|{'vertex' if vertex else 'gemini-api'}|{number}"
    digest = hashlib.sha256(bound.encode()).hexdigest()[:16]
    return base64.b64encode(f"{bound}|{digest}".encode()).decode()


def is_signature(text: str, model: str, vertex: bool) -> bool:
    """Whether `signature` made it, for this model on this route."""
    try:
        number = base64.b64decode(text, validate=True).decode().split("|")[2]
        return text == signature(model, vertex, int(number))
    except (ValueError, IndexError):
        return False


def _problems(body: dict[str, Any], model: str, vertex: bool) -> Iterator[str]:
    contents: list[Content] = body["contents"]
    if not contents:
        yield "* GenerateContentRequest.contents: contents is not specified"
    yield from _tool_problems(body)
    yield from _mixed_tool_problems(body, model, vertex)
    yield from _part_problems(contents)
    yield from _order_problems(contents)
    if needs_signatures(model):
        yield from _signature_problems(contents, model, vertex)


def needs_signatures(model: str) -> bool:
    """Gemini 3 and later."""
    match = re.match(r"gemini-(\d+)", model)
    return match is not None and int(match.group(1)) >= 3


def _tool_problems(body: Mapping[str, Any]) -> Iterator[str]:
    declared = [item for tool in body.get("tools", []) for item in tool.get("functionDeclarations", [])]
    names = [item["name"] for item in declared]
    for index, item in enumerate(declared):
        place = f"tools[0].function_declarations[{index}]"
        if not _NAME.fullmatch(item["name"]):
            yield (
                f"The GenerateContentRequest proto is invalid:\n  * {place}.name: [FIELD_INVALID] Invalid function "
                "name. Must start with a letter or an underscore. Must be a-z, A-Z, 0-9, or contain underscores (_), "
                "dots (.), colons (:), or dashes (-), with a maximum length of 128."
            )
        if names.count(item["name"]) > 1:
            yield f"Duplicate function declaration found: {item['name']}"
        if "parameters" in item and "parametersJsonSchema" in item:
            yield f"{place}: parameters and parameters_json_schema are mutually exclusive"
    config = body.get("toolConfig", {}).get("functionCallingConfig", {})
    if config.get("allowedFunctionNames") and config.get("mode") not in ("ANY", "VALIDATED"):
        yield "Function calling config is set without function calling mode ANY: allowed_function_names must be empty"


def _mixed_tool_problems(body: Mapping[str, Any], model: str, vertex: bool) -> Iterator[str]:
    """Functions beside a tool of Google's own: reported live (cloudwego/eino-ext#761, ag2ai/ag2#3145)."""
    kinds = {kind for tool in body.get("tools", []) for kind in tool}
    if "functionDeclarations" not in kinds or len(kinds) == 1:
        return
    if not needs_signatures(model):
        yield "Tool use with function calling is unsupported"
    elif not vertex and not (body.get("toolConfig") or {}).get("includeServerSideToolInvocations"):
        field = "tool_config.include_server_side_tool_invocations"
        yield f"Please enable {field} to use Built-in tools with Function calling."


def _part_problems(contents: Sequence[Content]) -> Iterator[str]:
    for where, part in _parts(contents):
        payloads = _PAYLOADS & part.keys()
        if len(payloads) > 1:
            yield f"Invalid value at '{where}': oneof field 'data' is already set"
        if not payloads or (part.get("text") == "" and "thoughtSignature" not in part):
            yield f"Unable to submit request because {where} must have one initialized field, such as non-empty text."
        reference = _reference(part.get("functionResponse", {}).get("response"))
        if reference:
            yield (
                f"The referenced name `{reference}` in function_response.response does not match to a display_name "
                "in the function_response.parts."
            )


def _parts(contents: Sequence[Content]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for number, content in enumerate(contents):
        for index, part in enumerate(content.get("parts", [])):
            yield f"contents[{number}].parts[{index}]", part


def _reference(value: Any) -> str:
    """The first `$ref` or `$defs` in a tool's result."""
    if isinstance(value, Mapping):
        if "$ref" in value or "$defs" in value:
            return str(value.get("$ref", "#/$defs"))
        return next((found for item in value.values() if (found := _reference(item))), "")
    if isinstance(value, list):
        return next((found for item in value if (found := _reference(item))), "")
    return ""


def _order_problems(contents: Sequence[Content]) -> Iterator[str]:
    previous: Content = {}
    for number, content in enumerate(contents):
        if content.get("role", "user") not in ("user", "model"):
            yield "Please use a valid role: user, model."
        if not content.get("parts"):
            yield f"* GenerateContentRequest.contents[{number}].parts: contents.parts must not be empty."
        calls, responses = _payloads(content, "functionCall"), _payloads(content, "functionResponse")
        asked = _payloads(previous, "functionCall")
        if calls and (not number or previous.get("role", "user") != "user"):
            yield (
                "Please ensure that function call turn comes immediately after a user turn or after a function "
                "response turn."
            )
        if responses and not asked:
            yield "Please ensure that function response turn comes immediately after a function call turn."
        if asked:
            yield from _pairing_problems(asked, responses, content)
        previous = content
    if contents and contents[0].get("role", "user") != "user":
        yield "Please ensure that multiturn requests alternate between user and model, beginning with a user turn."
    if contents and contents[-1].get("role", "user") != "user":
        yield "Please ensure that the last content has the role user: this model does not continue its own turn."


def _pairing_problems(
    asked: Sequence[Mapping[str, Any]], responses: Sequence[Mapping[str, Any]], content: Content
) -> Iterator[str]:
    if len(asked) != len(responses) or len(responses) != len(content["parts"]):
        yield (
            "Please ensure that the number of function response parts is equal to the number of function call parts "
            "of the function call turn."
        )
    for call, response in zip(asked, responses, strict=False):
        if call["name"] != response["name"]:
            yield f"Function response {response['name']} does not answer the function call {call['name']} at its place."
        if response.get("id") and response["id"] != call.get("id"):
            yield f"Function response id {response['id']} does not match the function call id {call.get('id')}."


def unanswered_ids(contents: Sequence[Content]) -> bool:
    """A call's id was not echoed: Gemini 3 on Vertex AI then answers nothing at all, with status 200."""
    for call_content, content in itertools.pairwise(contents):
        asked, responses = _payloads(call_content, "functionCall"), _payloads(content, "functionResponse")
        if any(call.get("id") and not response.get("id") for call, response in zip(asked, responses, strict=False)):
            return True
    return False


def _signature_problems(contents: Sequence[Content], model: str, vertex: bool) -> Iterator[str]:
    """Only the current turn counts: what follows the last user content with words of its own."""
    start = max((index for index, content in enumerate(contents) if _is_question(content)), default=0)
    for number, content in list(enumerate(contents))[start:]:
        called = [part for part in content.get("parts", []) if "functionCall" in part]
        if not called:
            continue
        given = called[0].get("thoughtSignature")
        if not given:
            yield _missing(called[0]["functionCall"]["name"], number, vertex)
        elif given != PLACEHOLDER_SIGNATURE and not is_signature(given, model, vertex):
            yield "Invalid thought signature."


def _is_question(content: Content) -> bool:
    return content.get("role", "user") == "user" and any("text" in part for part in content.get("parts", []))


def _missing(name: str, number: int, vertex: bool) -> str:
    if vertex:
        return (
            f"Unable to submit request because function call `default_api:{name}` in the {number}. content block is "
            "missing a `thought_signature`."
        )
    return (
        "Function call is missing a thought_signature in functionCall parts. This is required for tools to work "
        f"correctly. Additional data, function call `default_api:{name}`, position {number}."
    )


def _payloads(content: Content, kind: str) -> list[Mapping[str, Any]]:
    return [part[kind] for part in content.get("parts", []) if kind in part]
