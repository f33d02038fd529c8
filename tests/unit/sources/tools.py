"""The GitLab tools as tests call them: through a registry, or each function by itself."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from hummingbird_ai.messages import ToolDef
from hummingbird_operator.sessions.tools import SourceResult, StreamingResponse, ToolRegistry


class Tools(ToolRegistry):
    """A registry that also lets a test call the functions themselves."""

    def __init__(self) -> None:
        super().__init__()
        self.functions: dict[str, Callable[..., SourceResult]] = {}

    def register_data_source(
        self,
        tool_def: ToolDef,
        func: Callable[..., SourceResult],
        response_metadata: Mapping[str, Any] | None = None,
    ) -> None:
        super().register_data_source(tool_def, func, response_metadata)
        self.functions[tool_def.name] = func

    def call(self, name: str, **arguments: Any) -> Any:
        return self.functions[f"gitlab_{name}"](**arguments)

    def streamed(self, name: str, **arguments: Any) -> tuple[str, dict[str, Any]]:
        response = self.call(name, **arguments)
        assert isinstance(response, StreamingResponse), response
        return b"".join(response.chunks).decode(), response.metadata

    def threads(self, **arguments: Any) -> tuple[list[dict[str, Any]], dict[str, Any]]:
        text, metadata = self.streamed("get_mr_discussions", **arguments)
        return [json.loads(line) for line in text.splitlines()], metadata
