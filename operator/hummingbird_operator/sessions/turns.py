"""One turn of a run, made safe to repeat: the model is asked and tools are run only where the journal has no record.

This is what the loop calls. It owns everything that stays the same for the whole run: the system prompt and the tool
definitions (byte-equal for a session), the model with its retries, the tools, the journal and the abort switch.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Protocol

from hummingbird_ai.abort import Abort
from hummingbird_ai.errors import ModelError
from hummingbird_ai.messages import Content, ModelAdapter, ModelResponse, ToolCall, ToolDef, Usage
from hummingbird_operator.errors import Aborted, HummingbirdError
from hummingbird_operator.sessions.budget import Plan, WorstCase
from hummingbird_operator.sessions.journal import RunJournal
from hummingbird_operator.sessions.records import Opening, Paid, RecordedResponse

logger = logging.getLogger(__name__)


MAX_CALLS = 32
"""Tool calls of one turn that are run: each may take minutes, and nothing else bounds how many a model writes."""


class Tools(Protocol):
    """What a turn needs of `tools.ToolRegistry`."""

    def execute(self, tool_call: ToolCall, command_id: str | None = None) -> dict[str, Any]:
        """The result of one call; raises nothing but SandboxLost, Aborted and LeadershipLost."""

    def never_reuse(self, history: Sequence[Any]) -> None:
        """Give no spilled file a name that this history holds already."""


class Generate(Protocol):
    """One answer, retries included: `functools.partial(hummingbird_ai.calls.generate_with_retry, …)`."""

    def __call__(
        self,
        model: ModelAdapter,
        contents: Sequence[Content],
        *,
        system: str,
        tools: Sequence[ToolDef],
        ephemeral: Sequence[str] = (),
        allow_tools: bool = True,
        max_output_tokens: int = 8192,
        abort: Abort | None = None,
        on_billed: Callable[[ModelResponse], None] | None = None,
        on_wait: Callable[[ModelError, float], None] | None = None,
    ) -> ModelResponse:
        """Raises ModelError; `on_billed` sees every answer that is paid for once, rejected ones included.

        `on_wait` is told of each error that is waited out, and of the seconds.
        """


@dataclass(frozen=True)
class Answer:
    """The model's answer of one turn, bought now or recalled. `final`: the call was made without tools.

    `usage` and `cost_usd` count what was paid for and rejected on the way, too.
    """

    response: ModelResponse
    final: bool
    usage: Usage
    cost_usd: Decimal
    replayed: bool = False


class JournaledTurns:
    """Turns of one run with one model. A model without a price is charged at what the worst case says of its usage."""

    def __init__(
        self,
        model: ModelAdapter,
        tools: Tools,
        journal: RunJournal,
        *,
        system: str,
        tool_defs: Sequence[ToolDef],
        generate: Generate,
        worst_case: WorstCase,
        opening: Opening | None = None,
        abort: Abort | None = None,
    ) -> None:
        """`opening`: what the journal is told of the conversation, so that it can be rebuilt from there alone."""
        self._model = model
        self._tools = tools
        self._journal = journal
        self._system = system
        self._tool_defs = tuple(tool_defs)
        self._generate = generate
        self._opening = opening
        self._abort = abort or Abort()
        self.worst_case = worst_case
        self.unanswered = Paid()
        """What calls cost that ended in an error."""

    def begin(self, contents: Sequence[Content]) -> int:
        """Take the history in; returns the bytes of prompt and tool definitions that every request carries."""
        self._tools.never_reuse(contents)
        return request_bytes(self._system, self._tool_defs)

    def recall(self, n: int) -> tuple[Decimal, Answer | None]:
        """What turn n's calls that died in flight may have cost, and its recorded answer, if there is one."""
        recorded = self._journal.response(n)
        lost = self._journal.lost(n, recorded)
        if recorded is None:
            return lost, None
        return lost, recalled(recorded, self.worst_case)

    def ask(
        self, n: int, contents: Sequence[Content], plan: Plan, nudge: str | None, waits: Callable[[str], None]
    ) -> Answer:
        """Buy turn n's answer: intent first, the record of the answer right behind it."""
        self._stop_if_aborted()
        attempt = self._journal.intent(
            n,
            worst_case_usd=plan.worst_case_usd,
            model=self._model.name,
            final=plan.final,
            opening=self._opening if n == 1 else None,
        )
        ephemeral = [nudge, *plan.warnings] if nudge and not plan.final else list(plan.warnings)
        billed: list[ModelResponse] = []
        try:
            response = self._call(contents, plan, ephemeral, billed, waits)
        except ModelError:
            self.unanswered = sum((self._paid(answer) for answer in billed), self.unanswered)
            raise
        rejected = sum((self._paid(answer) for answer in billed if answer is not response), Paid())
        self._journal.record_response(n, response, attempt=attempt, final=plan.final, rejected=rejected)
        return _answer(RecordedResponse(response, plan.final, attempt, rejected), self.worst_case)

    def act(self, n: int, calls: Sequence[ToolCall]) -> list[dict[str, Any]]:
        """The results of turn n's calls. A command that ran before a death is answered by the sandbox's own record."""
        results = self._journal.results(n, len(calls))
        if results is not None:
            self._tools.never_reuse(results)
            return results
        results = []
        for index, call in enumerate(calls[:MAX_CALLS]):
            self._stop_if_aborted()
            results.append(_plain(self._tools.execute(call, command_id=f"{self._journal.run}/{n}/{index}")))
        too_many = f"not run: at most {MAX_CALLS} calls a turn are run; make this one in your next turn"
        results += [{"error": too_many} for _ in calls[MAX_CALLS:]]
        self._journal.record_results(n, results)
        return results

    def respond(self, calls: Sequence[ToolCall], results: Sequence[dict[str, Any]]) -> Content:
        """The results as the turn that answers the model's calls."""
        return self._model.make_tool_responses(calls, results)

    def _paid(self, response: ModelResponse) -> Paid:
        return _paid(response, self.worst_case)

    def _call(
        self,
        contents: Sequence[Content],
        plan: Plan,
        ephemeral: Sequence[str],
        billed: list[ModelResponse],
        waits: Callable[[str], None],
    ) -> ModelResponse:
        try:
            return self._generate(
                self._model,
                contents,
                system=self._system,
                tools=self._tool_defs,
                ephemeral=ephemeral,
                allow_tools=not plan.final,
                max_output_tokens=plan.max_output_tokens,
                abort=self._abort,
                on_billed=billed.append,
                on_wait=lambda error, seconds: waits(f"{error.problem}; asked again in {seconds:.0f} s"),
            )
        except (ModelError, HummingbirdError):
            raise
        except Exception as error:  # 32 turns of work are worth more than a crash (seed 003 §6.5)
            logger.exception("the model's adapter failed")
            raise ModelError(f"unexpected {type(error).__name__} while calling the model: {error}"[:500]) from error

    def _stop_if_aborted(self) -> None:
        if self._abort.is_set():
            raise Aborted(self._abort.reason or "Cancelled")


def recalled(recorded: RecordedResponse, worst_case: WorstCase) -> Answer:
    """An answer that was bought before."""
    return _answer(recorded, worst_case, replayed=True)


def request_bytes(system: str, tool_defs: Sequence[ToolDef]) -> int:
    """The bytes of prompt and tool definitions that every request carries."""
    definitions = [[tool.name, tool.description, dict(tool.parameters)] for tool in tool_defs]
    return len(system.encode()) + len(json.dumps(definitions))


def _answer(recorded: RecordedResponse, worst_case: WorstCase, *, replayed: bool = False) -> Answer:
    paid = recorded.rejected + _paid(recorded.response, worst_case)
    return Answer(recorded.response, recorded.final, paid.usage, paid.cost_usd, replayed)


def _paid(response: ModelResponse, worst_case: WorstCase) -> Paid:
    usage, cost = response.usage, response.cost_usd
    if cost is None:
        cost = worst_case(input_tokens=usage.total_input_tokens, max_output_tokens=usage.output_tokens)
    return Paid(usage, cost)


def _plain(result: dict[str, Any]) -> dict[str, Any]:
    """The result as the journal gives it back, so that a replay builds the same history to the byte."""
    plain: dict[str, Any] = json.loads(json.dumps(result, default=str))
    return plain
