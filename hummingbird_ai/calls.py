"""One place that decides whether a model call is made again, and that counts what every answer costs.

Adapters call once and classify; transports never retry. So an attempt here is an HTTP call there, and a caller's
limit means what it says.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence

from tenacity import RetryCallState, Retrying, stop_after_attempt, stop_any, stop_before_delay
from tenacity.stop import stop_base
from tenacity.wait import wait_exponential_jitter

from hummingbird_ai.abort import Abort
from hummingbird_ai.errors import CallAborted, ModelError, Rejected
from hummingbird_ai.messages import (
    DEFAULT_MAX_OUTPUT_TOKENS,
    Content,
    ModelAdapter,
    ModelResponse,
    ToolDef,
)
from hummingbird_ai.metrics import CallMetrics

__all__ = ["CallMetrics", "generate_with_retry"]

logger = logging.getLogger(__name__)

DEFAULT_ATTEMPTS = 5
FIRST_WAIT_SECONDS = 1.0
LONGEST_WAIT_SECONDS = 60.0
"""Without a hint of the server: 1, 2, 4 … 60 s, each with up to one second of jitter."""
LONGEST_HINT_SECONDS = 600.0
"""Where only the number of attempts is limited: a server that asks for more is not waited for."""
SHOWN_PROBLEM = 500
"""Characters of a validation's words that go into the error and the log: they may quote the whole answer."""


def generate_with_retry(
    model: ModelAdapter,
    contents: Sequence[Content],
    *,
    system: str,
    tools: Sequence[ToolDef],
    ephemeral: Sequence[str] = (),
    allow_tools: bool = True,
    max_output_tokens: int = DEFAULT_MAX_OUTPUT_TOKENS,
    retry_seconds: float | None = None,
    max_attempts: int | None = None,
    validate: Callable[[ModelResponse], None] | None = None,
    abort: Abort | None = None,
    metrics: CallMetrics | None = None,
    on_billed: Callable[[ModelResponse], None] | None = None,
    on_wait: Callable[[ModelError, float], None] | None = None,
    sleep: Callable[[float], object] | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> ModelResponse:
    """Call until an answer passes `validate`, an error is terminal, or the limit is reached; then raise the last error.

    The limit is `retry_seconds` from the first call on (no wait ends after it) or `max_attempts` calls, whichever
    comes first; without either, DEFAULT_ATTEMPTS calls. `validate` rejects an answer by raising ValueError (raised
    to the caller as Rejected, with the first SHOWN_PROBLEM characters) or a ModelError; it shares the limit.
    A wait lasts at least as long as the provider asks, and ends at once when `abort` is set (CallAborted). Where the
    provider asks for more than is left of `retry_seconds` (without it: than LONGEST_HINT_SECONDS), its error is raised
    at once and says so.

    `on_wait` is told of each error that is waited out, and for how many seconds. `on_billed` and `metrics` see every
    answer that is paid for exactly once, rejected ones and the paid part of a failed call included.
    """
    attempts = _Attempts(retry_seconds, max_attempts, clock)
    accounts = _Accounts(model.name, metrics, on_billed, clock)

    def call() -> ModelResponse:
        return model.generate(
            contents,
            system=system,
            tools=tools,
            ephemeral=ephemeral,
            allow_tools=allow_tools,
            max_output_tokens=max_output_tokens,
            abort=abort,
        )

    while True:
        if abort is not None and abort.is_set():
            raise CallAborted(str(abort.reason))
        try:
            return accounts.attempt(call, validate)
        except ModelError as error:
            wait = attempts.wait_after(error)
            logger.warning("%s: %s; called again in %.1f s", model.name, error.problem, wait)
            if on_wait is not None:
                on_wait(error, wait)
        _sleep(wait, sleep, abort)


def _check(response: ModelResponse, validate: Callable[[ModelResponse], None] | None) -> None:
    if validate is None:
        return
    try:
        validate(response)
        return
    except ValueError as error:
        problem = str(error)[:SHOWN_PROBLEM]
    raise Rejected(f"the answer was rejected: {problem}")  # not in the `except`: that may hold the whole answer


def _sleep(seconds: float, sleep: Callable[[float], object] | None, abort: Abort | None) -> None:
    if sleep is not None:
        sleep(seconds)
    elif abort is not None:
        abort.wait(seconds)
    else:
        time.sleep(seconds)


class _Attempts:
    """tenacity's arithmetic of waits and limits, on the caller's clock."""

    def __init__(self, retry_seconds: float | None, max_attempts: int | None, clock: Callable[[], float]) -> None:
        limits: list[stop_base] = []
        self._budget = retry_seconds
        if retry_seconds is not None:
            limits.append(stop_before_delay(retry_seconds))
        if max_attempts is not None or retry_seconds is None:
            limits.append(stop_after_attempt(DEFAULT_ATTEMPTS if max_attempts is None else max_attempts))
        self._stop = stop_any(*limits)
        self._wait = wait_exponential_jitter(initial=FIRST_WAIT_SECONDS, max=LONGEST_WAIT_SECONDS)
        self._clock = clock
        self._state = RetryCallState(Retrying(), None, (), {})
        self._state.start_time = clock()

    def wait_after(self, error: ModelError) -> float:
        """Seconds until the next call; raises `error` itself if there is none."""
        if not error.retryable:
            raise error
        state = self._state
        state.outcome_timestamp = self._clock()
        hint = error.retry_after or 0.0
        state.upcoming_sleep = max(self._wait(state), hint)
        beyond = self._beyond(hint)
        if beyond:
            _say_more(error, f"the provider asks for {_seconds(hint)}, {beyond}")
        if beyond or self._stop(state):
            raise error
        wait = state.upcoming_sleep
        state.prepare_for_next_attempt()
        return wait

    def _beyond(self, hint: float) -> str:
        """What a wait of this many seconds is too long for, empty if it is not."""
        if self._budget is None:
            return f"at most {_seconds(LONGEST_HINT_SECONDS)} are waited" if hint > LONGEST_HINT_SECONDS else ""
        left = max(0.0, self._budget - (self._state.seconds_since_start or 0.0))
        return f"{_seconds(left)} are left" if hint > left else ""


def _seconds(seconds: float) -> str:
    return f"{round(seconds, 1):g} s"


def _say_more(error: ModelError, words: str) -> None:
    """Add to the error's message: it is raised as it came, with whatever a provider's adapter put into it."""
    error.problem = f"{error.problem.rstrip('. ')}; {words}"
    error.args = (f"{error.problem}. {error.advice}",)


class _Accounts:
    """Every call is counted once, every answer that is paid for is accounted once."""

    def __init__(
        self,
        name: str,
        metrics: CallMetrics | None,
        on_billed: Callable[[ModelResponse], None] | None,
        clock: Callable[[], float],
    ) -> None:
        self._name = name
        self._metrics = metrics
        self._on_billed = on_billed
        self._clock = clock

    def attempt(
        self, call: Callable[[], ModelResponse], validate: Callable[[ModelResponse], None] | None
    ) -> ModelResponse:
        started = self._clock()
        outcome = "error"
        response: ModelResponse | None = None
        try:
            response = call()
            self._bill(response)
            _check(response, validate)
        except ModelError as error:
            outcome = error.word if response is None else "rejected"
            if response is None and error.billed is not None:
                self._bill(error.billed)
            raise
        else:
            outcome = "ok"
            return response
        finally:
            if self._metrics is not None:
                self._metrics.attempt(self._name, outcome, self._clock() - started)

    def _bill(self, response: ModelResponse) -> None:
        if self._metrics is not None:
            self._metrics.billed(response)
        if self._on_billed is not None:
            self._on_billed(response)
