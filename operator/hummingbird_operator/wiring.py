"""Puts the parts of a leading process together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Protocol, TypeVar

from hummingbird_ai.calls import CallMetrics, generate_with_retry
from hummingbird_operator.adapters import ClaimedSandboxes, RunEvents
from hummingbird_operator.agentruns.accepting import Accepting
from hummingbird_operator.agentruns.claiming import Claiming
from hummingbird_operator.agentruns.delivering import Delivering
from hummingbird_operator.agentruns.doors import SOURCES, ConfiguredDoors
from hummingbird_operator.agentruns.gating import Gating
from hummingbird_operator.agentruns.keeping import Keeping
from hummingbird_operator.agentruns.notebook import Notebook
from hummingbird_operator.agentruns.noting import Noting
from hummingbird_operator.agentruns.pages import NotePages
from hummingbird_operator.agentruns.resolve import SUPPORTED, visibility
from hummingbird_operator.agentruns.runner import Runner
from hummingbird_operator.agentruns.runs import Runs
from hummingbird_operator.agentruns.status import StatusWriter
from hummingbird_operator.agentruns.work import Worker
from hummingbird_operator.agentruns.working import Working
from hummingbird_operator.api.agentrun import RunnerRef
from hummingbird_operator.delivery.notes import Notes
from hummingbird_operator.delivery.redact import redact
from hummingbird_operator.errors import Invalid
from hummingbird_operator.kube.client import KubeApi
from hummingbird_operator.stores import open_store
from hummingbird_operator.stores.guarded import GuardedStore

if TYPE_CHECKING:
    from hummingbird_operator.kube.events import Recorder
    from hummingbird_operator.kube.exec import ExecConnection
    from hummingbird_operator.sandboxpools.claiming import Claiming as Claims
    from hummingbird_operator.settings import Settings
    from hummingbird_operator.telemetry import Metrics
    from hummingbird_operator.workflows import Workflows

T = TypeVar("T")

FORGE_THREADS = 32
"""Calls to the forge at once: it may take seconds for each, and runs that wait for it hold no other thread."""


def now() -> datetime:
    """The one clock of the operator for what it writes."""
    return datetime.now(UTC)


class Around(Protocol):
    """A seam for tests: puts something around a part through which runs touch the world.

    Its names are kube (status of runs), forge, store, doors (models) and sandboxes (claims, and the way in).
    """

    def __call__(self, name: str, part: T) -> T:
        """The part to be used instead."""


def as_it_is(name: str, part: T) -> T:
    """Nothing around it: what every real process uses."""
    return part


@dataclass(frozen=True)
class Leading:
    """What a leading process needs to serve AgentRuns, and to end."""

    runs: Runs
    runner: Runner
    status: StatusWriter
    close: Callable[[], None]


def check(settings: Settings, workflows: Workflows) -> None:
    """Raise Invalid at the start, not at the first run, where a secret or a store that all need is not to be had."""
    config = settings.config
    served(settings, workflows)
    if config.gitlab is not None:
        settings.secret("gitlab.token_env", env=config.gitlab.token_env, file=config.gitlab.token_file)
    try:
        ConfiguredDoors(settings).model(config.models.default)
    except Invalid as error:
        raise Invalid("models.default" if error.where == "model" else error.where, error.problem) from error
    open_store(config.sessions.store, s3_endpoint=config.sessions.s3_endpoint)


def served(settings: Settings, workflows: Workflows) -> None:
    """Raise Invalid for what the file may say but this version does not serve; needs no secret."""
    for name, workflow in workflows.by_name.items():
        for source in workflow.entry.data_sources:
            if source not in SOURCES:
                where = f"workflows.{name}.data_sources.{source}"
                raise Invalid(where, f"is not served by this version; {', '.join(SOURCES)} is")
        backend = workflow.entry.sandbox or settings.config.sandbox.backend
        if backend not in SUPPORTED:
            where = f"workflows.{name}.sandbox" if workflow.entry.sandbox else "sandbox.backend"
            raise Invalid(where, f"{backend} is not served by this version; use {' or '.join(SUPPORTED)}")
        if backend == "k8s" and not settings.config.sandbox.image:
            raise Invalid("sandbox.image", f"name the image of the backend k8s, which workflow {name} uses")


def apart(settings: Settings, namespace: str) -> None:
    """Raise Invalid where sandboxes would share the namespace of the runs: what runs in them is not trusted."""
    if settings.config.sandbox.namespace == namespace:
        text = f"{namespace} is the namespace of the runs; sandboxes need one of their own"
        raise Invalid("sandbox.namespace", text)


def secrets(settings: Settings) -> list[str]:
    """Every secret that the configuration names and that is there: redacted wherever text leaves the process."""
    config = settings.config
    named = [config.models.google_api_key_env]
    if config.gitlab is not None:
        named += [config.gitlab.token_env, config.gitlab.hooks_token_env, *config.gitlab.webhook_secret_env]
    named += [env for project in config.projects.values() for env in project.tokens.values()]
    named += [source.token_env for entry in config.workflows.values() for source in entry.data_sources.values()]
    found = []
    for env in filter(None, named):
        try:
            found.append(settings.secret("secrets", env=env))
        except Invalid:
            continue  # whoever needs it says so
    return [*found, *settings.known]  # those of files as they were read for use: this is called on the event loop


def lead(
    settings: Settings,
    workflows: Workflows,
    me: RunnerRef,
    *,
    kube: KubeApi,
    claims: Claims,
    exec_: ExecConnection,
    recorder: Recorder,
    metrics: Metrics,
    check: Callable[[], None],
    around: Around = as_it_is,
) -> Leading:
    """The graph of objects that drives runs.

    `kube` is guarded; `check` does the same for the rest: it raises where this process may not write (Election.check).
    """
    config = settings.config
    threads = ThreadPoolExecutor(config.limits.max_concurrent_runs, thread_name_prefix="run")
    forge_threads = ThreadPoolExecutor(FORGE_THREADS, thread_name_prefix="forge")
    runs = Runs(slots=config.limits.max_concurrent_runs)
    status = StatusWriter(around("kube", kube), me)
    notes = _notes(settings, check)
    doors = ConfiguredDoors(settings, check, notes.bot_id if notes else None)
    notebook = Notebook(around("forge", notes), forge_threads) if notes else None
    pages = _pages(settings, workflows, doors)
    events = RunEvents(recorder)
    sandboxes = around("sandboxes", ClaimedSandboxes(claims, exec_, config.sandbox, check))
    clean = partial(_clean, settings)
    worker = _worker(settings, around("doors", doors), metrics, clean, check, around)
    gating = Gating(notebook, runs)
    noting = Noting(status, notebook, pages, gating, clock=now)
    internal = partial(visibility, config=config)
    longer = config.limits.delivery_retry_seconds
    delivering = Delivering(status, notebook, pages, noting, internal, retry_seconds=longer, clock=now)
    patience = config.limits.retry_seconds
    keeping = Keeping(status, sandboxes, worker, delivering, threads, forge_threads, retry_seconds=patience, clock=now)
    claiming = Claiming(status, sandboxes, events, metrics, keeping.admit, clean, now)
    at_the_door = (status, notebook, events, doors.check, claiming.quiet, metrics, now)
    accepting = Accepting(*at_the_door, retry_seconds=longer)
    working = Working(status, sandboxes, worker, threads, claiming.replace, metrics, clean, now, runs, gating.outdated)
    parts = (accepting, gating, noting, claiming, working, keeping)
    steps = {step: apply for part in parts for step, apply in part.steps().items()}
    runner = Runner(
        settings=settings,
        workflows=workflows,
        runs=runs,
        status=status,
        steps=steps,
        recorder=events,
        metrics=metrics,
        clock=now,
    )

    return Leading(runs, runner, status, partial(_close, (threads, forge_threads), notes))


def _pages(settings: Settings, workflows: Workflows, doors: ConfiguredDoors) -> NotePages:
    gitlab, ingest = settings.config.gitlab, settings.config.ingest
    hooks = gitlab is not None and bool(gitlab.webhook_secret_env or gitlab.webhook_secret_file)
    return NotePages(
        partial(secrets, settings),
        has_price=doors.has_price,
        workflows=workflows,
        by_comment=hooks or ingest.queue_url is not None,
    )


def _close(executors: Sequence[ThreadPoolExecutor], notes: Notes | None) -> None:
    for executor in executors:
        executor.shutdown(wait=False, cancel_futures=True)
    if notes is not None:
        notes.close()


def _worker(
    settings: Settings,
    doors: ConfiguredDoors,
    metrics: Metrics,
    clean: Callable[[str], str],
    check: Callable[[], None],
    around: Around,
) -> Worker:
    limits, sessions = settings.config.limits, settings.config.sessions
    store = open_store(sessions.store, s3_endpoint=sessions.s3_endpoint)
    return Worker(
        around("store", GuardedStore(store, check)),
        doors,
        partial(generate_with_retry, retry_seconds=limits.retry_seconds, metrics=CallMetrics(metrics.registry)),
        max_output_tokens=limits.max_output_tokens,
        retry_seconds=limits.retry_seconds,
        clean=clean,
    )


def _clean(settings: Settings, text: str) -> str:
    return redact(text, secrets(settings))


def _notes(settings: Settings, check: Callable[[], None]) -> Notes | None:
    gitlab = settings.config.gitlab
    if gitlab is None:
        return None
    token = partial(settings.secret, "gitlab.token_env", env=gitlab.token_env, file=gitlab.token_file)
    return Notes(gitlab.url, token, ca=str(gitlab.ca_file) if gitlab.ca_file else None, check=check)
