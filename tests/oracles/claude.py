"""The Messages API as Vertex AI takes it, by the parameter types of the package anthropic.

As they stand these types take almost anything: pydantic reads lists of blocks lazily, keys it does not know pass, and
everywhere a block of a response is allowed in the place of a request's. So they are turned into a JSON Schema, closed,
and rid of the classes of responses. What Vertex AI does not offer is taken out.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

from pydantic import TypeAdapter

from tests.oracles.schema import Oracle, Schema, mismatch, told_apart

VERSIONS = ("vertex-2023-10-16", "2026-10-21")
"""What `anthropic_version` may say on Vertex AI."""

CLEAR_AT = "mid-conversation-system-clear-at-2026-08-21"
BINDING = "thinking-binding-controls-2026-08-01"
BETAS = frozenset(
    {CLEAR_AT, BINDING, "web-search-2025-03-05", "mid-conversation-tool-changes-2026-07-01"}
    | {"context-management-2025-06-27", "interleaved-thinking-2025-05-14", "model-context-window-exceeded-2025-08-26"}
)
"""The betas that are known to work on Vertex AI."""

_OF_BETAS = {
    CLEAR_AT: (("SystemMessageParam", "clear_at"),),
    BINDING: (("ThinkingConfigAdaptiveParam", "block_binding"), ("ThinkingConfigEnabledParam", "block_binding")),
}
"""The fields that a request has only with the header of their beta."""

_NOT_ON_VERTEX = ("model", "container", "diagnostics", "speed", "inference_geo", "user_profile_id", "workspace_id")
_TOOLS_NOT_ON_VERTEX = ("CodeExecutionTool", "WebFetchTool", "WebSearchTool20260209", "WebSearchTool20260318")


def problems(body: object, headers: Mapping[str, str]) -> list[str]:
    """What Claude on Vertex AI would not take of a `rawPredict` request, as `path: words`; header names in lower case.

    The types have no `temperature`, `top_p` or `top_k` any more, so these are refused for every model.
    """
    named = {name.strip() for name in headers.get("anthropic-beta", "").split(",")} - {""}
    unknown = [f"anthropic-beta: {name} is not known to work on Vertex AI" for name in sorted(named - BETAS)]
    return unknown + _oracle(frozenset(named & _OF_BETAS.keys())).problems(body)


def response_problems(document: object) -> list[str]:
    """What the Messages API would not answer with a 200: a server of ours that did would prove nothing."""
    from anthropic.types import Message

    return mismatch(Message, document) or _oracle_of_responses().problems(document)


@functools.cache
def _oracle(betas: frozenset[str]) -> Oracle:
    from anthropic.types.message_create_params import MessageCreateParamsNonStreaming

    schema = TypeAdapter(MessageCreateParamsNonStreaming).json_schema()
    definitions: dict[str, Schema] = schema.pop("$defs")
    for beta in betas:
        for name, field in _OF_BETAS[beta]:
            definitions[name]["properties"][field] = _beta_definitions()[f"Beta{name}"]["properties"][field]
    definitions["BetaThinkingBlockBindingParam"] = _beta_definitions()["BetaThinkingBlockBindingParam"]
    responses = {name for name in definitions if _is_response(name, definitions[name])}
    refused = responses | {name for name in definitions if name.startswith(_TOOLS_NOT_ON_VERTEX)}
    for name in _NOT_ON_VERTEX:
        del schema["properties"][name]
    schema["properties"]["anthropic_version"] = {"enum": list(VERSIONS)}
    schema["required"] = [name for name in schema["required"] if name != "model"] + ["anthropic_version"]
    return _made(schema, definitions, refused=refused)


@functools.cache
def _beta_definitions() -> dict[str, Schema]:
    from anthropic.types.beta.message_create_params import MessageCreateParamsNonStreaming

    definitions: dict[str, Schema] = TypeAdapter(MessageCreateParamsNonStreaming).json_schema()["$defs"]
    return definitions


@functools.cache
def _oracle_of_responses() -> Oracle:
    from anthropic.types import Message

    schema = Message.model_json_schema()
    return _made(schema, schema.pop("$defs"), refused=set())


def _made(schema: Schema, definitions: dict[str, Schema], *, refused: set[str]) -> Oracle:
    closed = {name: _closed(value, refused) for name, value in definitions.items() if name not in refused}
    finished = {name: told_apart(value, closed) for name, value in closed.items()}
    return Oracle(told_apart(_closed(schema, refused), closed), finished)


def _is_response(name: str, definition: Schema) -> bool:
    """Classes of responses are pydantic models that let everything through; parameters are typed dictionaries."""
    return definition.get("additionalProperties") is True and name != "InputSchemaTyped"


def _closed(node: Any, refused: set[str]) -> Any:
    """A copy without references to what is refused, in which objects with named fields have no others."""
    if isinstance(node, list):
        kept = [item for item in node if not (isinstance(item, dict) and _name_of(item) in refused)]
        return [_closed(item, refused) for item in kept]
    if not isinstance(node, dict):
        return node
    copy = {key: _closed(value, refused) for key, value in node.items()}
    if copy.get("type") == "object" and "properties" in copy and copy.get("title") != "InputSchemaTyped":
        copy["additionalProperties"] = False
    return copy


def _name_of(member: Schema) -> str:
    return str(member.get("$ref", "")).removeprefix("#/$defs/")
