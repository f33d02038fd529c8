"""A model that only the leader pays for: a frozen process must not buy what its successor buys."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from hummingbird_ai.abort import Abort
from hummingbird_operator.errors import Aborted, Unavailable

if TYPE_CHECKING:
    from hummingbird_ai.messages import Content, ModelAdapter, ModelResponse, ToolDef

LOOK_AGAIN_SECONDS = 2.0


class GuardedModel:
    """Implements hummingbird_ai.messages.ModelAdapter. `check` raises LeadershipLost, or Unavailable while nobody can

    tell who leads: that is waited out, for the conversation so far is paid for.
    """

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
        """See ModelAdapter. Raises LeadershipLost and Aborted besides."""
        self._wait_until_sure(abort or Abort())
        return self._model.generate(
            contents,
            system=system,
            tools=tools,
            ephemeral=ephemeral,
            allow_tools=allow_tools,
            max_output_tokens=max_output_tokens,
            abort=abort,
        )

    def _wait_until_sure(self, abort: Abort) -> None:
        while True:
            try:
                return self._check()
            except Unavailable as error:
                if abort.wait(error.retry_after or LOOK_AGAIN_SECONDS):
                    raise Aborted(abort.reason or "Cancelled") from error
