"""The JSON shapes of a `rawPredict` request: nothing unknown, nothing missing, each block only where it may stand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Discriminator, Field, Tag, ValidationError

from hummingbird_ai.testing.claude.blocks import WEB_SEARCH

CLEAR_AT_BETA = "mid-conversation-system-clear-at-2026-08-21"
WEB_SEARCH_BETA = "web-search-2025-03-05"
"""Vertex AI alone wants it: ax-llm/ax#457, BerriAI/litellm#16269."""
BINDING_BETA = "thinking-binding-controls-2026-08-01"
_ABSENT: Any = Field(default=None)
"""May be left out, but is never null."""
_EXTRA = "Extra inputs are not permitted"
Struct = dict[str, Any]


class _Shape(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class _Marker(_Shape):
    type: Literal["ephemeral"]
    ttl: Literal["5m", "1h"] | None = None


class _Markable(_Shape):
    cache_control: _Marker | None = None


class _Citation(_Shape):
    type: Literal["web_search_result_location"]
    url: str
    title: str | None
    encrypted_index: str
    cited_text: str


class _PlainText(_Shape):
    type: Literal["text"]
    text: str


class _SystemText(_PlainText, _Markable):
    pass


class _Text(_SystemText):
    citations: list[_Citation] | None = None


class _Source(_Shape):
    type: Literal["base64", "text"]
    media_type: str
    data: str


class _Image(_Markable):
    type: Literal["image"]
    source: _Source


class _Document(_Markable):
    type: Literal["document"]
    source: _Source
    title: str | None = None
    context: str | None = None
    citations: Struct | None = None


class _Thinking(_Shape):
    type: Literal["thinking"]
    thinking: str
    signature: str


class _Redacted(_Shape):
    type: Literal["redacted_thinking"]
    data: str


class _ToolUse(_Markable):
    type: Literal["tool_use"]
    id: str = Field(pattern=r"^[a-zA-Z0-9_-]+$")
    name: str = Field(min_length=1, max_length=200)
    input: Struct


class _ServerToolUse(_Markable):
    type: Literal["server_tool_use"]
    id: str = Field(pattern=r"^srvtoolu_[a-zA-Z0-9_]+$")
    name: Literal["web_search"]
    input: Struct


class _SearchResult(_Shape):
    type: Literal["web_search_result"]
    url: str
    title: str
    encrypted_content: str
    page_age: str | None = None


class _SearchError(_Shape):
    type: Literal["web_search_tool_result_error"]
    error_code: Literal[
        "too_many_requests",
        "invalid_tool_input",
        "max_uses_exceeded",
        "query_too_long",
        "request_too_large",
        "unavailable",
    ]


class _SearchResults(_Shape):
    type: Literal["web_search_tool_result"]
    tool_use_id: str = Field(pattern=r"^srvtoolu_[a-zA-Z0-9_]+$")
    content: list[_SearchResult] | _SearchError


def _listed(content: Any) -> Any:
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


_As_blocks = BeforeValidator(_listed)


class _ToolResult(_Markable):
    type: Literal["tool_result"]
    tool_use_id: str = Field(pattern=r"^[a-zA-Z0-9_-]+$")
    content: Annotated[list[Annotated[_PlainText | _Image | _Document, Field(discriminator="type")]], _As_blocks] = []
    is_error: bool = False


_UserBlock = Annotated[_Text | _Image | _Document | _ToolResult, Field(discriminator="type")]
_AssistantBlock = Annotated[
    _Text | _Thinking | _Redacted | _ToolUse | _ServerToolUse | _SearchResults, Field(discriminator="type")
]


class _User(_Shape):
    role: Literal["user"]
    content: Annotated[list[_UserBlock], _As_blocks]


class _Assistant(_Shape):
    role: Literal["assistant"]
    content: Annotated[list[_AssistantBlock], _As_blocks]


class _System(_Shape):
    role: Literal["system"]
    content: Annotated[list[_SystemText], _As_blocks]
    clear_at: Literal["next_user_message", "never"] | None = None


class _CustomTool(_Markable):
    type: Literal["custom"] = "custom"
    name: str = Field(pattern=r"^[a-zA-Z0-9_-]{1,128}$")
    description: str = ""
    input_schema: Struct
    strict: bool = False


class _Place(_Shape):
    type: Literal["approximate"]
    city: str | None = None
    country: str | None = None
    region: str | None = None
    timezone: str | None = None


class _WebSearch(_Markable):
    type: Literal["web_search_20250305"]
    name: Literal["web_search"]
    max_uses: int | None = Field(default=None, gt=0)
    allowed_domains: list[str] | None = None
    blocked_domains: list[str] | None = None
    user_location: _Place | None = None


class _Auto(_Shape):
    type: Literal["auto", "any"]
    disable_parallel_tool_use: bool = False


class _Named(_Shape):
    type: Literal["tool"]
    name: str
    disable_parallel_tool_use: bool = False


class _NoTool(_Shape):
    type: Literal["none"]


class _Binding(_Shape):
    prefix_mismatch_behavior: Literal["error", "drop_block"] | None = None


class _Enabled(_Shape):
    type: Literal["enabled"]
    budget_tokens: int = Field(ge=1024)
    display: Literal["summarized", "omitted"] | None = None
    block_binding: _Binding | None = None


class _Adaptive(_Shape):
    type: Literal["adaptive"]
    display: Literal["summarized", "omitted"] | None = None
    block_binding: _Binding | None = None


class _WithoutMore(_Shape):
    type: Literal["disabled", "between_tools"]


class _Format(_Shape):
    type: Literal["json_schema"]
    schema_: Struct = Field(alias="schema")


class _Output(_Shape):
    effort: Literal["low", "medium", "high", "xhigh", "max"] | None = None
    format: _Format | None = None


class _Metadata(_Shape):
    user_id: str | None = None


def _tool_type(tool: Any) -> Any:
    return tool.get("type") or "custom" if isinstance(tool, Mapping) else "custom"


class _Request(_Shape):
    anthropic_version: str
    max_tokens: int = Field(ge=0)
    messages: list[Annotated[_User | _Assistant | _System, Field(discriminator="role")]] = Field(max_length=100_000)
    system: Annotated[list[_SystemText], _As_blocks] = []
    tools: list[
        Annotated[
            Annotated[_CustomTool, Tag("custom")] | Annotated[_WebSearch, Tag(WEB_SEARCH)],
            Discriminator(_tool_type),
        ]
    ] = []
    tool_choice: Annotated[_Auto | _Named | _NoTool, Field(discriminator="type")] = _ABSENT
    thinking: Annotated[_Enabled | _Adaptive | _WithoutMore, Field(discriminator="type")] = _ABSENT
    output_config: _Output = _ABSENT
    stop_sequences: list[str] = []
    metadata: _Metadata = _ABSENT
    stream: bool = False
    temperature: float | None = Field(default=None, ge=0, le=1)
    top_p: float | None = Field(default=None, ge=0, le=1)
    top_k: int | None = Field(default=None, ge=0)


def shape_problem(body: dict[str, Any], betas: frozenset[str]) -> str:
    """Anthropic's words for the first field that does not fit, "" if all do."""
    try:
        _Request.model_validate(body)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        return f"{_path(first['loc'])}: {first['msg']}"
    return _beta_problem(body, betas)


def _beta_problem(body: Mapping[str, Any], betas: frozenset[str]) -> str:
    """Fields that exist only for who asks for their beta."""
    if CLEAR_AT_BETA not in betas:
        for index, message in enumerate(body["messages"]):
            if "clear_at" in message:
                return f"messages.{index}.clear_at: {_EXTRA}"
    for index, tool in enumerate(body.get("tools") or []):
        if tool.get("type") == "web_search_20250305" and WEB_SEARCH_BETA not in betas:
            return (
                f"tools.{index}: Input tag 'web_search_20250305' found using 'type' does not match any of the expected "
                "tags: 'bash_20250124', 'custom', 'text_editor_20250124', 'text_editor_20250728'"
            )
    thinking = body.get("thinking") or {}
    if "block_binding" in thinking and BINDING_BETA not in betas:
        return f"thinking.{thinking['type']}.block_binding: {_EXTRA}"
    return ""


def _path(steps: Sequence[str | int]) -> str:
    """`messages.0.content.1.text.citations`: the role of a message is no step of it."""
    shown = [str(step) for step in steps]
    if shown[:1] == ["messages"] and shown[2:3] in (["user"], ["assistant"], ["system"]):
        del shown[2]
    return ".".join(shown)
