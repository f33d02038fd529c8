"""What a run has bought and done, turn by turn, so that the death of the process costs at most the call in flight.

Per turn n there are three create-only records: `intent` before the model is called (with the call's worst case),
`response` right after it answered, `results` after its tools ran. A process that takes the run over replays them:
a recorded response is never bought again, recorded results are not made again. An intent that no response followed
was a call in flight at a death: it is charged at its worst case, and the next attempt writes an intent of its own.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, TypeVar

from hummingbird_ai.abort import Abort
from hummingbird_ai.messages import ModelResponse, Usage
from hummingbird_operator.errors import Aborted, Conflict, Doubt, Invalid, Unavailable
from hummingbird_operator.sessions.store import BlobStore

T = TypeVar("T")

_TURN_KEY = re.compile(r"/turns/(\d{4,})\.(intent|intent-\d+|response|results)$")
_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 15.0


@dataclass(frozen=True)
class Paid:
    """Tokens and the US dollars that they cost."""

    usage: Usage = field(default_factory=Usage)
    cost_usd: Decimal = Decimal(0)

    def __add__(self, later: Paid) -> Paid:
        return Paid(self.usage + later.usage, self.cost_usd + later.cost_usd)


@dataclass(frozen=True)
class RecordedResponse:
    """An answer that is paid for. `final` says that the call was made without tools.

    `rejected` is what was paid on the way for answers that could not be used.
    """

    response: ModelResponse
    final: bool
    attempt: int
    rejected: Paid = field(default_factory=Paid)


@dataclass(frozen=True)
class RecordedAnswer:
    """How the run's loop ended: after this is written no model call is made for the run."""

    outcome: str
    text: str
    message: str = ""
    iterations: int = 0
    cost_usd: Decimal = Decimal(0)
    usage: Usage = field(default_factory=Usage)
    incomplete: tuple[str, ...] = ()


class RunJournal:
    """The records of one run. While the store is away it tries again for `retry_seconds`, then raises Unavailable.

    `wait` sleeps and says whether the run was ended meanwhile; it is `abort.wait` but in tests.

    A record that somebody else wrote first raises Conflict: that process leads the run, this one must stop.
    """

    def __init__(
        self,
        store: BlobStore,
        run_uid: str,
        *,
        retry_seconds: float = 0.0,
        abort: Abort | None = None,
        wait: Callable[[float], bool] | None = None,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self.run = run_uid
        self._store = store
        self._prefix = f"runs/{run_uid}"
        self._retry_seconds = retry_seconds
        self._abort = abort or Abort()
        self._wait = wait or self._abort.wait
        self._clock = clock
        self._now = now
        self._kinds: dict[int, set[str]] | None = None

    def intent(self, n: int, *, worst_case_usd: Decimal, model: str, final: bool = False) -> int:
        """Say that turn n's call is about to be made; returns the number of the attempt, from 1."""
        attempt = self._attempts(n) + 1
        record = {
            "turn": n,
            "attempt": attempt,
            "worst_case_usd": str(worst_case_usd),
            "model": model,
            "final": final,
            "time": self._now().isoformat(),
        }
        self._create(n, _intent(attempt), record)
        return attempt

    def response(self, n: int) -> RecordedResponse | None:
        """The recorded answer of turn n."""
        record = self._read(n, "response")
        if record is None:
            return None
        try:
            rejected = Paid(Usage(**record["rejected"]["usage"]), Decimal(record["rejected"]["cost_usd"]))
            response = ModelResponse.from_dict(record["response"])
            return RecordedResponse(response, bool(record["final"]), int(record["attempt"]), rejected)
        except (ArithmeticError, KeyError, TypeError, ValueError) as error:
            raise Invalid(self._key(n, "response"), f"this record cannot be read: {error}") from error

    def record_response(
        self, n: int, response: ModelResponse, *, attempt: int, final: bool, rejected: Paid | None = None
    ) -> None:
        """Keep turn n's answer; to be called before anything is done with it."""
        paid = rejected or Paid()
        record = {
            "attempt": attempt,
            "final": final,
            "rejected": {"usage": asdict(paid.usage), "cost_usd": str(paid.cost_usd)},
            "response": response.to_dict(),
        }
        self._create(n, "response", record)

    def results(self, n: int) -> list[dict[str, Any]] | None:
        """The recorded tool results of turn n, in the order of its calls."""
        record = self._read(n, "results")
        if record is None:
            return None
        results = record.get("results")
        if not isinstance(results, list):
            raise Invalid(self._key(n, "results"), "this record cannot be read")
        return results

    def record_results(self, n: int, results: list[dict[str, Any]]) -> None:
        """Keep what turn n's tools returned."""
        self._create(n, "results", {"results": results})

    def lost(self, n: int) -> Decimal:
        """The worst case of turn n's calls that were in flight when a process died."""
        answered = self.response(n)
        attempts = range(1, self._attempts(n) + 1)
        unanswered = [attempt for attempt in attempts if answered is None or attempt != answered.attempt]
        records = (self._read(n, _intent(attempt)) or {} for attempt in unanswered)
        return sum((Decimal(record.get("worst_case_usd", "0")) for record in records), Decimal(0))

    def begun(self) -> bool:
        """Whether any call to the model was ever about to be made for this run."""
        return bool(self._known())

    def notice(self) -> str:
        """What the model was told before the person's words; a recall must build the same history."""
        data = self._patiently(lambda: self._store.get(f"{self._prefix}/notice.md"))
        return data.decode(errors="replace") if data else ""

    def record_notice(self, text: str) -> None:
        """Keep it, before the first turn; one that was kept already stands."""
        self._patiently(lambda: self._store.create(f"{self._prefix}/notice.md", text.encode()))

    def question(self) -> dict[str, Any] | None:
        """What the model is asked, where that is more than the run's own message; as `record_question` was given it."""
        data = self._patiently(lambda: self._store.get(f"{self._prefix}/question.json"))
        return None if data is None else _record(f"{self._prefix}/question.json", data)

    def record_question(self, question: Mapping[str, Any]) -> None:
        """Keep it, before the first turn; one that was kept already stands."""
        self._patiently(lambda: self._store.create(f"{self._prefix}/question.json", _dumped(question)))

    def entered(self, sandbox: str) -> str | None:
        """What was wrong with the session's files in that sandbox, by its uid; None before they were put there."""
        data = self._patiently(lambda: self._store.get(self._entry(sandbox)))
        return None if data is None else data.decode(errors="replace")

    def record_entered(self, sandbox: str, problem: str) -> None:
        """The session's files are in it: from now on they are the commands' to change."""
        self._patiently(lambda: self._store.create(self._entry(sandbox), problem.encode()))

    def _entry(self, sandbox: str) -> str:
        return f"{self._prefix}/sandboxes/{sandbox}"

    def told(self) -> list[dict[str, Any]]:
        """All recorded tool results, turn by turn."""
        turns = sorted(n for n, kinds in self._known().items() if "results" in kinds)
        return [result for n in turns for result in self.results(n) or []]

    def answer(self) -> RecordedAnswer | None:
        """How the loop ended, if it did."""
        data = self._patiently(lambda: self._store.get(f"{self._prefix}/answer.json"))
        return None if data is None else self._answer_in(data)

    def record_answer(self, answer: RecordedAnswer, shown: str | None = None) -> str:
        """Keep the end of the loop and return where people find the text (`shown`: as they may see it).

        `answer.json` decides, so it comes last. Whoever takes the run over keeps the same answer once more: it is
        compared by what it says, for an older version wrote its keys in another order.
        """
        text_key, key = f"{self._prefix}/answer.md", f"{self._prefix}/answer.json"
        text = answer.text if shown is None else shown
        data = _dumped({**asdict(answer), "cost_usd": str(answer.cost_usd)})
        self._patiently(lambda: self._store.put(text_key, text.encode(errors="replace")))
        if not self._patiently(lambda: self._store.create(key, data)) and self.answer() != self._answer_in(data):
            raise _led_by_another(key)
        return self._store.url(text_key)

    def _answer_in(self, data: bytes) -> RecordedAnswer:
        try:
            record = json.loads(data)
            record["cost_usd"] = Decimal(record["cost_usd"])
            record["usage"] = Usage(**record["usage"])
            record["incomplete"] = tuple(record["incomplete"])
            return RecordedAnswer(**record)
        except (ArithmeticError, KeyError, TypeError, ValueError) as error:
            raise Invalid(f"{self._prefix}/answer.json", f"this record cannot be read: {error}") from error

    def _attempts(self, n: int) -> int:
        return sum(kind.startswith("intent") for kind in self._known().get(n, ()))

    def _known(self) -> dict[int, set[str]]:
        """Which records there are: listed once, then kept in step with what this process writes."""
        if self._kinds is None:
            kinds: dict[int, set[str]] = {}
            for key in self._patiently(lambda: self._store.list(f"{self._prefix}/turns/")):
                if match := _TURN_KEY.search(key):
                    kinds.setdefault(int(match[1]), set()).add(match[2])
            self._kinds = kinds
        return self._kinds

    def _read(self, n: int, kind: str) -> dict[str, Any] | None:
        if kind not in self._known().get(n, ()):
            return None
        key = self._key(n, kind)
        data = self._patiently(lambda: self._store.get(key))
        return None if data is None else _record(key, data)

    def _create(self, n: int, kind: str, record: Mapping[str, Any]) -> None:
        key, data = self._key(n, kind), _dumped(record)
        # what is there is ours after all, if an earlier try was written and only its reply was lost
        if not self._patiently(lambda: self._store.create(key, data)) and (
            self._patiently(lambda: self._store.get(key)) != data
        ):
            raise _led_by_another(key)
        self._known().setdefault(n, set()).add(kind)

    def _key(self, n: int, kind: str) -> str:
        return f"{self._prefix}/turns/{n:04d}.{kind}"

    def _patiently(self, call: Callable[[], T]) -> T:
        """The call, tried again while the store is away: a paid answer must not be lost to a short outage."""
        give_up_at = self._clock() + self._retry_seconds
        pause = _FIRST_PAUSE
        while True:
            try:
                return call()
            except Doubt as doubt:  # about the lead; the store did nothing wrong, and its time stands still
                wait = doubt.retry_after or _LONGEST_PAUSE
                give_up_at += wait
            except Unavailable as error:
                wait = max(pause, error.retry_after or 0.0)
                if self._clock() + wait > give_up_at:
                    raise
                pause = min(2 * pause, _LONGEST_PAUSE)
            if self._wait(wait):
                raise Aborted(self._abort.reason or "Cancelled")


def _intent(attempt: int) -> str:
    return "intent" if attempt == 1 else f"intent-{attempt}"


def _record(key: str, data: bytes) -> dict[str, Any]:
    try:
        record = json.loads(data)
    except ValueError as error:
        raise Invalid(key, f"this record is not JSON: {error}") from error
    if not isinstance(record, dict):
        raise Invalid(key, "this record is not a JSON object")
    return record


def _led_by_another(key: str) -> Conflict:
    return Conflict(f"{key} was written by another process, which leads this run now")


def _dumped(record: Mapping[str, Any]) -> bytes:
    """Keys stay in their order: a call's arguments and a tool's result go to the model again, to the byte.

    ASCII: even half a surrogate pair comes back as it was.
    """
    return json.dumps(record).encode()
