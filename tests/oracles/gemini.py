"""Gemini's wire format by Google's discovery document of Vertex AI and by the types of google-genai.

The document comes with the package google-api-python-client. There is none for the Gemini API in it; that one is taken
to be Vertex AI's without `labels`, with the four fields that google-genai sends to the Gemini API only.
"""

from __future__ import annotations

import functools
import importlib.metadata
import json
from pathlib import Path
from typing import Any

from tests.oracles.schema import Oracle, Schema, mismatch

_DOCUMENT = "googleapiclient/discovery_cache/documents/aiplatform.v1.json"
_PREFIX = "GoogleCloudAiplatformV1"
_FORMATS: dict[str, Schema] = {
    "int64": {"type": ["string", "integer"], "pattern": r"^-?[0-9]+\Z"},
    "byte": {"type": "string", "pattern": r"^[A-Za-z0-9+/_-]*={0,2}\Z"},  # both alphabets of base64 are read
    "google-duration": {"type": "string", "pattern": r"^-?[0-9]+(\.[0-9]{1,9})?s\Z"},
}


def problems(body: object, *, vertex: bool) -> list[str]:
    """What Google would not take of a `generateContent` request, as `path: words`."""
    found = _oracle("GenerateContentRequest", vertex).problems(body)
    # google-genai reads enums in lower case with a warning, and both spellings of names: the document comes first
    return found if found or not isinstance(body, dict) else _problems_of_types(body)


def response_problems(document: object) -> list[str]:
    """What Google would not answer with a 200, by either route: a server of ours that did would prove nothing."""
    found = _oracle("GenerateContentResponse", vertex=False).problems(document)
    return found or mismatch(_types().GenerateContentResponse, document)


@functools.cache
def _oracle(name: str, vertex: bool) -> Oracle:
    definitions = {
        key.removeprefix(_PREFIX): _converted(value, required=name.endswith("Request"))
        for key, value in _schemas().items()
        if key.startswith(_PREFIX) or key == "GoogleTypeLatLng"
    }
    if not vertex:
        _make_gemini_api(definitions)
    return Oracle(definitions[name], definitions)


@functools.cache
def _schemas() -> dict[str, Any]:
    distribution = importlib.metadata.distribution("google-api-python-client")
    schemas: dict[str, Any] = json.loads(Path(str(distribution.locate_file(_DOCUMENT))).read_bytes())["schemas"]
    return schemas


def _converted(node: dict[str, Any], *, required: bool) -> Schema:
    """A schema of the discovery format as JSON Schema; `required` where a field's description begins with the word."""
    if "$ref" in node:
        return {"$ref": node["$ref"].removeprefix(_PREFIX)}
    if node.get("type") == "any":
        return {}
    schema: Schema = {key: node[key] for key in ("type", "enum") if key in node} | _FORMATS.get(
        node.get("format", ""), {}
    )
    if "items" in node:
        schema["items"] = _converted(node["items"], required=required)
    if node.get("type") == "object":
        fields = node.get("properties", {})
        schema["properties"] = {key: _converted(field, required=required) for key, field in fields.items()}
        more = node.get("additionalProperties")
        schema["additionalProperties"] = False if more is None else _converted(more, required=required)
        if required:
            schema["required"] = [key for key in fields if fields[key].get("description", "").startswith("Required.")]
    return schema


def _make_gemini_api(definitions: dict[str, Schema]) -> None:
    """Turn the definitions of Vertex AI into those of the Gemini API."""
    types = _types()
    struct: Schema = {"type": "object"}
    kind: Schema = {"enum": [item.value for item in types.ToolType]}
    number: Schema = {"type": "string"}
    definitions["GenerateContentRequest"]["properties"].pop("labels")
    definitions["ToolConfig"]["properties"]["includeServerSideToolInvocations"] = {"type": "boolean"}
    for name, payload in (("toolCall", "args"), ("toolResponse", "response")):
        fields = {"id": number, "toolType": kind, payload: struct}
        definitions["Part"]["properties"][name] = _object(fields)
    definitions["Part"]["properties"]["partMetadata"] = struct
    definitions["GenerationConfigThinkingConfig"]["properties"]["thinkingLevel"] = {
        "enum": [item.value for item in types.ThinkingLevel]
    }
    reasons = definitions["Candidate"]["properties"]["finishReason"]["enum"]
    reasons += [item.value for item in types.FinishReason if item.value not in reasons]


def _object(fields: dict[str, Schema]) -> Schema:
    return {"type": "object", "properties": fields, "additionalProperties": False}


def _types() -> Any:
    """Imported late: it takes a second, which only tests that send requests should pay."""
    from google.genai import types

    return types


def _problems_of_types(body: dict[str, Any]) -> list[str]:
    types = _types()
    members = [(f"contents[{number}]", types.Content, content) for number, content in enumerate(body["contents"])]
    members += [(f"tools[{number}]", types.Tool, tool) for number, tool in enumerate(body.get("tools", []))]
    if "toolConfig" in body:
        members.append(("toolConfig", types.ToolConfig, body["toolConfig"]))
    return [problem for where, kind, member in members for problem in mismatch(kind, member, where)]
