"""What a run has bought and done, turn by turn, so that the death of the process costs at most the call in flight.

Per turn n there are three create-only records: `intent` before the model is called (with the call's worst case),
`response` right after it answered, `results` after its tools ran. A process that takes the run over replays them:
a recorded response is never bought again, recorded results are not made again. An intent that no response followed
was a call in flight at a death: it is charged at its worst case, and the next attempt writes an intent of its own.

The journal alone tells the whole conversation, should nobody save it: turn 1's intent says how it began (`Opening`),
and a run that goes on with another one's session leaves its name with that one (`follow`), before its first call.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, TypeVar

from hummingbird_ai.abort import Abort
from hummingbird_ai.messages import ModelResponse
from hummingbird_operator.errors import Aborted, Conflict, Doubt, Invalid, Unavailable
from hummingbird_operator.sessions import records
from hummingbird_operator.sessions.records import Opening, Paid, RecordedAnswer, RecordedResponse
from hummingbird_operator.sessions.store import BlobStore

T = TypeVar("T")

_TURN = re.compile(r"turns/(\d{4,})\.(intent|intent-\d+|response|results)")
_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 15.0


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
        self._names: set[str] | None = None

    def intent(
        self, n: int, *, worst_case_usd: Decimal, model: str, final: bool = False, opening: Opening | None = None
    ) -> int:
        """Say that turn n's call is about to be made; returns the number of the attempt, from 1.

        `opening`, with turn 1: what the conversation is besides its turns.
        """
        attempt = self._attempts(n) + 1
        record = {
            "turn": n,
            "attempt": attempt,
            "worst_case_usd": str(worst_case_usd),
            "model": model,
            "final": final,
            "time": self._now().isoformat(),
        }
        if opening is not None:
            record["opening"] = records.opening_record(opening)
        self._create(n, _intent(attempt), record)
        return attempt

    def response(self, n: int) -> RecordedResponse | None:
        """The recorded answer of turn n."""
        record = self._read(n, "response")
        return None if record is None else records.response_in(self._key(n, "response"), record)

    def record_response(
        self, n: int, response: ModelResponse, *, attempt: int, final: bool, rejected: Paid | None = None
    ) -> None:
        """Keep turn n's answer; to be called before anything is done with it."""
        recorded = RecordedResponse(response, final, attempt, rejected or Paid())
        self._create(n, "response", records.response_record(recorded))

    def results(self, n: int, calls: int | None = None) -> list[dict[str, Any]] | None:
        """The recorded tool results of turn n, in the order of its calls; Invalid where those are not as many."""
        record = self._read(n, "results")
        return None if record is None else records.results_in(self._key(n, "results"), record, calls)

    def record_results(self, n: int, results: list[dict[str, Any]]) -> None:
        """Keep what turn n's tools returned."""
        self._create(n, "results", {"results": results})

    def lost(self, n: int, answered: RecordedResponse | None) -> Decimal:
        """The worst case of turn n's calls that were in flight when a process died; `answered` is its `response`."""
        attempts = range(1, self._attempts(n) + 1)
        kinds = [_intent(attempt) for attempt in attempts if answered is None or attempt != answered.attempt]
        intents = [(self._key(n, kind), self._read(n, kind)) for kind in kinds]
        return sum((records.worst_case_in(key, intent) for key, intent in intents if intent is not None), Decimal(0))

    def begun(self) -> bool:
        """Whether any call to the model was ever about to be made for this run."""
        return any(_TURN.fullmatch(name) for name in self._known())

    def answered(self) -> bool:
        """Whether a model ever answered in this run: then there is something that must not be lost."""
        return _name(1, "response") in self._known()

    def opening(self) -> Opening | None:
        """What turn 1's answer was an answer to, or its last call without one; None where an older version asked."""
        response = self.response(1)
        kind = _intent(response.attempt if response else self._attempts(1))
        intent = self._read(1, kind)
        return None if intent is None else records.opening_in(self._key(1, kind), intent)

    def follow(self, base: str) -> None:
        """Say, before the first call, that this run goes on with what that one (by its uid) saved."""
        self._patiently(
            lambda: self._store.create(f"runs/{base}/next/{self.run}", b"goes on with this run's session\n")
        )

    def followers(self) -> list[str]:
        """The uids of the runs that were about to go on with what this one saved."""
        prefix = f"{self._prefix}/next/"
        return [key.removeprefix(prefix) for key in self._patiently(lambda: self._store.list(prefix))]

    def unreadable(self, n: int, error: Exception) -> Invalid:
        """That the answer of turn n is nothing that its model can have said."""
        return Invalid(self._key(n, "response"), f"this record cannot be read: {type(error).__name__}: {error}"[:500])

    def internal(self) -> bool:
        """Whether the run was ever internal."""
        return "internal" in self._known()

    def record_internal(self) -> None:
        """Keep that it is, before anything is said in it: the configuration may change between two of its lives."""
        if not self.internal():
            self._keep("internal", b"what is said in this run is not for everybody\n")

    def notice(self) -> str:
        """What the model was told before the person's words; a recall must build the same history."""
        data = self._get("notice.md")
        return data.decode(errors="replace") if data else ""

    def record_notice(self, text: str) -> None:
        """Keep it, before the first turn; one that was kept already stands."""
        self._keep("notice.md", text.encode())

    def question(self) -> dict[str, Any] | None:
        """What the model is asked, where that is more than the run's own message; as `record_question` was given it."""
        data, key = self._get("question.json"), f"{self._prefix}/question.json"
        return None if data is None else records.question_in(key, records.parsed(key, data))

    def record_question(self, question: Mapping[str, Any]) -> None:
        """Keep it, before the first turn; one that was kept already stands."""
        self._keep("question.json", records.dumped(question))

    def entered(self, sandbox: str) -> str | None:
        """What was wrong with the session's files in that sandbox, by its uid; None before they were put there."""
        data = self._get(f"sandboxes/{sandbox}")
        return None if data is None else data.decode(errors="replace")

    def record_entered(self, sandbox: str, problem: str) -> None:
        """The session's files are in it: from now on they are the commands' to change."""
        self._keep(f"sandboxes/{sandbox}", problem.encode())

    def told(self) -> list[dict[str, Any]]:
        """All recorded tool results, turn by turn."""
        matches = (_TURN.fullmatch(name) for name in self._known())
        turns = sorted(int(match[1]) for match in matches if match and match[2] == "results")
        return [result for n in turns for result in self.results(n) or []]

    def answer(self) -> RecordedAnswer | None:
        """How the loop ended, if it did."""
        data = self._get("answer.json")
        return None if data is None else records.answer_in(f"{self._prefix}/answer.json", data)

    def record_answer(self, answer: RecordedAnswer, shown: str | None = None) -> str:
        """Keep the end of the loop and return where people find the text (`shown`: as they may see it).

        `answer.json` decides, so it comes last. Whoever takes the run over keeps the same answer once more: it is
        compared by what it says, for an older version wrote its keys in another order.
        """
        text_key, key = f"{self._prefix}/answer.md", f"{self._prefix}/answer.json"
        text, data = answer.text if shown is None else shown, records.answer_data(answer)
        self._patiently(lambda: self._store.put(text_key, text.encode(errors="replace")))
        if not self._keep("answer.json", data) and self.answer() != records.answer_in(key, data):
            raise _led_by_another(key)
        return self._store.url(text_key)

    def _attempts(self, n: int) -> int:
        intents = f"turns/{n:04d}.intent"
        return sum(name.startswith(intents) for name in self._known())

    def _known(self) -> set[str]:
        """Which records there are: listed once, then kept in step with what this process writes."""
        if self._names is None:
            prefix = f"{self._prefix}/"
            self._names = {key.removeprefix(prefix) for key in self._patiently(lambda: self._store.list(prefix))}
        return self._names

    def _get(self, name: str) -> bytes | None:
        if name not in self._known():
            return None
        return self._patiently(lambda: self._store.get(f"{self._prefix}/{name}"))

    def _keep(self, name: str, data: bytes) -> bool:
        """Whether it was written; False, and it stands as it is, where there is one already."""
        written = self._patiently(lambda: self._store.create(f"{self._prefix}/{name}", data))
        self._known().add(name)
        return written

    def _read(self, n: int, kind: str) -> dict[str, Any] | None:
        data = self._get(_name(n, kind))
        return None if data is None else records.parsed(self._key(n, kind), data)

    def _create(self, n: int, kind: str, record: Mapping[str, Any]) -> None:
        data = records.dumped(record)
        # what is there is ours after all, if an earlier try was written and only its reply was lost
        if not self._keep(_name(n, kind), data) and self._get(_name(n, kind)) != data:
            raise _led_by_another(self._key(n, kind))

    def _key(self, n: int, kind: str) -> str:
        return f"{self._prefix}/{_name(n, kind)}"

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


def _name(n: int, kind: str) -> str:
    return f"turns/{n:04d}.{kind}"


def _led_by_another(key: str) -> Conflict:
    return Conflict(f"{key} was written by another process, which leads this run now")
