"""What people on call see: metrics, JSON logs and the health of the process.

Health is served from a thread of its own, so that it answers while the event loop is busy, and can say that it is.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer
from typing import TYPE_CHECKING, Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from hummingbird_operator.errors import Invalid

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 900, 1800)
"""Buckets from a warm claim (milliseconds) to a whole run (half an hour)."""
LOOP_SILENCE_SECONDS = 15.0
"""An event loop that did not turn for this long is stuck: liveness fails."""
WATCH_SILENCE_SECONDS = 60.0
RENEWALS_MISSED = 20
"""The Lease is renewed every two seconds; a watch that shows none of it for this long is dead, whatever it says."""


@dataclass(frozen=True)
class Metrics:
    """The operator's own collectors on one registry; names follow controller-runtime's shapes under our prefix."""

    registry: CollectorRegistry
    steps: Counter
    """`hummingbird_agentrun_steps_total{step,result}`: applied steps; `result` is ok, again or error."""
    outcomes: Counter
    """`hummingbird_agentruns_finished_total{workflow,reason}`."""
    phases: Gauge
    """`hummingbird_agentruns{phase}`: live runs by phase."""
    duration: Histogram
    """`hummingbird_agentrun_duration_seconds{workflow}`: from creation to Finished."""
    claim: Histogram
    """`hummingbird_sandbox_claim_seconds{launch}`: from asking for a sandbox to having it; warm, cold or lingered."""
    turns: Counter
    """`hummingbird_agentrun_turns_total{workflow}`: model calls whose answer was kept."""
    cost: Counter
    """`hummingbird_agentrun_cost_usd_total{workflow,model}`."""
    loop_lag: Histogram
    """`hummingbird_event_loop_lag_seconds`: how late a timer of the event loop fires."""
    leader: Gauge
    """`hummingbird_leader`: 1 while this process leads."""

    @classmethod
    def on(cls, registry: CollectorRegistry) -> Metrics:
        """Make the collectors on that registry; one registry for a process, a fresh one for each test."""
        prefix = "hummingbird"
        return cls(
            registry=registry,
            steps=Counter(f"{prefix}_agentrun_steps", "Steps applied", ["step", "result"], registry=registry),
            outcomes=Counter(
                f"{prefix}_agentruns_finished", "Finished runs", ["workflow", "reason"], registry=registry
            ),
            phases=Gauge(f"{prefix}_agentruns", "Live runs by phase", ["phase"], registry=registry),
            duration=Histogram(
                f"{prefix}_agentrun_duration_seconds",
                "Creation to Finished",
                ["workflow"],
                registry=registry,
                buckets=SECONDS,
            ),
            claim=Histogram(
                f"{prefix}_sandbox_claim_seconds",
                "Asking for a sandbox to having it",
                ["launch"],
                registry=registry,
                buckets=SECONDS,
            ),
            turns=Counter(
                f"{prefix}_agentrun_turns", "Model calls whose answer was kept", ["workflow"], registry=registry
            ),
            cost=Counter(f"{prefix}_agentrun_cost_usd", "Cost of runs", ["workflow", "model"], registry=registry),
            loop_lag=Histogram(
                f"{prefix}_event_loop_lag_seconds", "Lateness of the event loop", registry=registry, buckets=SECONDS
            ),
            leader=Gauge(f"{prefix}_leader", "1 while this process leads", registry=registry),
        )


SECRETS_SECONDS = 30.0
"""How long a list of secrets serves before it is read anew: rotated files need no restart."""
RUN: ContextVar[str] = ContextVar("run", default="")
"""The run that a thread works for: every line that is logged there bears its name."""


class JsonFormatter(logging.Formatter):
    """One JSON object a line; known secrets never leave the process in it."""

    def __init__(self, secrets: Callable[[], Iterable[str]], clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._read = secrets
        self._clock = clock
        self._read_at = float("-inf")
        self._secrets: list[str] = []

    def format(self, record: logging.LogRecord) -> str:
        """The line of a record: time, level, logger, message, and the fields given as `extra={"run": …}`."""
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": self._clean(record.getMessage()),
        }
        line |= {key: getattr(record, key) for key in ("run", "pool", "step", "turn") if hasattr(record, key)}
        line |= getattr(record, "told", {})
        if run := RUN.get():
            line.setdefault("run", run)
        if record.exc_info:
            line["exception"] = self._clean(self.formatException(record.exc_info))
        return json.dumps(line, ensure_ascii=False, default=str)

    def _clean(self, text: str) -> str:
        """Before it becomes JSON, where a secret with a quote in it would look different."""
        if self._clock() - self._read_at >= SECRETS_SECONDS:
            # longest first, so that a secret which contains another one is hidden whole
            self._secrets = sorted({secret for secret in self._read() if len(secret) >= 8}, key=len, reverse=True)
            self._read_at = self._clock()
        for secret in self._secrets:
            text = text.replace(secret, "[redacted]")
        return text


def configure_logging(*, level: str, secrets: Callable[[], Iterable[str]]) -> None:
    """Send every log line of the process to stderr as JSON."""
    handler = logging.StreamHandler()
    handler.setFormatter(JsonFormatter(secrets))
    logging.basicConfig(level=level, handlers=[handler], force=True)
    for noisy in ("kopf.objects", "kopf.activities", "urllib3", "websockets", "botocore", "asyncio"):
        logging.getLogger(noisy).setLevel(max(logging.WARNING, logging.getLevelNamesMapping()[level]))


class _Server(ThreadingHTTPServer):
    def server_bind(self) -> None:
        """As HTTPServer does it, but for its look-up of this host's name: that takes as long as a resolver likes."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])


class Health:
    """`/healthz` (alive), `/readyz` (may take traffic) and `/metrics` on one port, from a thread of its own."""

    def __init__(
        self,
        port: int,
        registry: CollectorRegistry,
        *,
        alive: Callable[[], str],
        ready: Callable[[], str],
        host: str = "",
    ) -> None:
        """`alive` and `ready` give an empty text when all is well, else the reason why not. Port 0 takes a free one."""
        probes = {"/healthz": alive, "/readyz": ready}

        class Handler(BaseHTTPRequestHandler):
            timeout = 5  # a connection that says nothing must not keep its thread

            def do_GET(self) -> None:
                if self.path == "/metrics":
                    self._answer(200, generate_latest(registry), CONTENT_TYPE_LATEST)
                elif probe := probes.get(self.path):
                    problem = probe()
                    self._answer(503 if problem else 200, (problem or "ok").encode(), "text/plain; charset=utf-8")
                else:
                    self._answer(404, b"known here: /healthz /readyz /metrics", "text/plain; charset=utf-8")

            def _answer(self, status: int, body: bytes, content_type: str) -> None:
                self.send_response(status)
                self.send_header("Content-Type", content_type)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class names it so
                logging.getLogger(__name__).debug(format, *args)

        try:
            self._server = _Server((host, port), Handler)
        except OSError as error:
            raise Invalid("--health-port", f"cannot listen on port {port}: {error.strerror}; choose another") from error
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, name="health", daemon=True)

    @property
    def port(self) -> int:
        """The port that is served."""
        return int(self._server.server_address[1])

    def start(self) -> None:
        """Serve from now on."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread and free the port."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(timeout=5)


class Pulse:
    """A beat that something else must not miss: liveness compares its age with a bound, on the monotonic clock."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._last = clock()

    def beat(self) -> None:
        """Something that proves life happened now."""
        self._last = self._clock()

    def age(self) -> float:
        """Seconds since the last beat."""
        return self._clock() - self._last


class Liveness:
    """What health looks at; written by the event loop, read by the health thread."""

    def __init__(self) -> None:
        self.loop = Pulse()
        self.watch = Pulse()
        self.leading = False
        self.renewals: Callable[[], int] = lambda: 0
        """How often the Lease was renewed."""
        self._renewals_shown = 0
        self.problem = "starting"

    def seen(self) -> None:
        """The watch has shown an event of our Lease."""
        self.watch.beat()
        self._renewals_shown = self.renewals()

    def alive(self) -> str:
        """Empty when all is well."""
        if self.loop.age() > LOOP_SILENCE_SECONDS:
            return f"the event loop has been stuck for {self.loop.age():.0f} s"
        # while the API server is away there is nothing to show: only renewals that the watch should have shown count
        missed = self.renewals() - self._renewals_shown
        if self.leading and self.watch.age() > WATCH_SILENCE_SECONDS and missed >= RENEWALS_MISSED:
            return f"the watch has shown none of {missed} renewals of the Lease for {self.watch.age():.0f} s"
        return ""

    def ready(self) -> str:
        """Empty once the process can lead or waits for its turn to."""
        return self.problem
