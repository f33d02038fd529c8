"""A model that only the leader pays for: a frozen process must not buy what its successor buys."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hummingbird_ai.abort import Abort
    from hummingbird_ai.messages import Content, ModelAdapter, ModelResponse, ToolDef


class GuardedModel:
    """Implements hummingbird_ai.messages.ModelAdapter. `check` raises LeadershipLost, or Doubt."""

    def __init__(self, model: ModelAdapter, check: Callable[[], None]) -> None:
        self.name = model.name
        self._model = model
        self._check = check
        self.make_user_content = model.make_user_content
        self.make_tool_responses = model.make_tool_responses
        self.to_canonical = model.to_canonical
        self.from_canonical = model.from_canonical

    def generate(
        self,
        contents: Sequence[Content],
        *,
        system: str,
        tools: Sequence[ToolDef],
        ephemeral: Sequence[str] = (),
        allow_tools: bool = True,
        max_output_tokens: int = 8192,
        abort: Abort | None = None,
    ) -> ModelResponse:
        """See ModelAdapter. Raises LeadershipLost and Doubt besides: each try of a retry looks anew."""
        self._check()
        return self._model.generate(
            contents,
            system=system,
            tools=tools,
            ephemeral=ephemeral,
            allow_tools=allow_tools,
            max_output_tokens=max_output_tokens,
            abort=abort,
        )
