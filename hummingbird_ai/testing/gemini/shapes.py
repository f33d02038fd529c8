"""The JSON shapes of a `generateContent` request: camelCase, nothing unknown, enums in upper case.

Stricter than Google in one point: snake_case names, which Google also reads, are refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic.alias_generators import to_camel

Struct = dict[str, Any]


class _Shape(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel, extra="forbid", strict=True)


class _FunctionCall(_Shape):
    id: str | None = None
    name: str
    args: Struct = {}


class _FunctionResponse(_Shape):
    id: str | None = None
    name: str
    response: Struct
    parts: list[Struct] = []
    scheduling: Literal["SCHEDULING_UNSPECIFIED", "SILENT", "WHEN_IDLE", "INTERRUPT"] | None = None
    will_continue: bool = False


class _Part(_Shape):
    text: str | None = None
    thought: bool = False
    thought_signature: str | None = None
    function_call: _FunctionCall | None = None
    function_response: _FunctionResponse | None = None
    inline_data: Struct | None = None
    file_data: Struct | None = None
    executable_code: Struct | None = None
    code_execution_result: Struct | None = None
    video_metadata: Struct | None = None
    tool_call: Struct | None = None
    tool_response: Struct | None = None
    part_metadata: Struct | None = None


class _Content(_Shape):
    role: str = "user"
    parts: list[_Part] = []


class _Declaration(_Shape):
    name: str
    description: str = ""
    parameters: Struct | None = None
    parameters_json_schema: Struct | None = None
    response: Struct | None = None
    response_json_schema: Struct | None = None
    behavior: str | None = None


class _Tool(_Shape):
    function_declarations: list[_Declaration] = []
    google_search: Struct | None = None
    code_execution: Struct | None = None
    url_context: Struct | None = None


class _FunctionCallingConfig(_Shape):
    mode: Literal["MODE_UNSPECIFIED", "AUTO", "ANY", "NONE", "VALIDATED"] = "AUTO"
    allowed_function_names: list[str] = []


class _ToolConfig(_Shape):
    function_calling_config: _FunctionCallingConfig = _FunctionCallingConfig()
    retrieval_config: Struct | None = None
    include_server_side_tool_invocations: bool = False


class _GenerationConfig(_Shape):
    max_output_tokens: int = Field(default=8192, ge=1)
    temperature: float | None = None
    top_p: float | None = None
    top_k: float | None = None
    candidate_count: int = 1
    stop_sequences: list[str] = []
    response_mime_type: str | None = None
    response_schema: Struct | None = None
    response_json_schema: Struct | None = None
    seed: int | None = None
    thinking_config: Struct | None = None


class _Request(_Shape):
    contents: list[_Content]
    system_instruction: _Content | None = None
    tools: list[_Tool] = []
    tool_config: _ToolConfig | None = None
    generation_config: _GenerationConfig | None = None
    safety_settings: list[Struct] = []
    cached_content: str | None = None
    continuation_token: str | None = None


class _VertexRequest(_Request):
    labels: dict[str, str] = {}


_API_ONLY = frozenset({"toolCall", "toolResponse", "partMetadata", "includeServerSideToolInvocations"})


def shape_problem(body: dict[str, Any], *, vertex: bool) -> str:
    """Google's words for the first field that does not fit, "" if all do.

    `labels` exist on Vertex AI only, what a search of the provider leaves in the conversation on the Gemini API only.
    """
    try:
        (_VertexRequest if vertex else _Request).model_validate(body)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        *outer, name = first["loc"]
        if first["type"] == "extra_forbidden":
            place = f" at '{_path(outer)}'" if outer else ""
            return f'Invalid JSON payload received. Unknown name "{name}"{place}: Cannot find field.'
        return f"Invalid value at '{_path(first['loc'])}': {first['msg']}"
    return _api_only_problem(body) if vertex else ""


def _api_only_problem(body: Mapping[str, Any]) -> str:
    parts = [(number, part) for number, content in enumerate(body["contents"]) for part in content.get("parts", [])]
    places = [(f"contents[{number}].parts", part) for number, part in parts]
    for place, found in [("tool_config", body.get("toolConfig") or {}), *places]:
        for name in sorted(_API_ONLY & found.keys()):
            return f"Invalid JSON payload received. Unknown name \"{name}\" at '{place}': Cannot find field."
    return ""


def _path(steps: Sequence[str | int]) -> str:
    path = ""
    for step in steps:
        path += f"[{step}]" if isinstance(step, int) else f".{_snake(step)}"
    return path.removeprefix(".")


def _snake(name: str) -> str:
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name)
