"""The ingest processes, put together: settings in, an HTTP server or a queue consumer running until SIGTERM.

Any number of replicas; none leads. An ingestor creates AgentRuns, reacts and resolves threads, and writes no note.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import uuid
from collections.abc import AsyncIterator, Coroutine, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from prometheus_client import CollectorRegistry, Histogram

from hummingbird_operator import lifecycle
from hummingbird_operator.api.labels import GROUP
from hummingbird_operator.delivery.notes import Notes
from hummingbird_operator.errors import Invalid
from hummingbird_operator.ingest.event import Event, encode_envelope
from hummingbird_operator.ingest.handle import Handler
from hummingbird_operator.ingest.metrics import IngestMetrics
from hummingbird_operator.ingest.missed.recovery import hooks_of, replaying
from hummingbird_operator.ingest.missed.seen import Seen
from hummingbird_operator.ingest.sqs import consumer
from hummingbird_operator.ingest.sqs import queue as queues
from hummingbird_operator.ingest.webhook import signatures
from hummingbird_operator.ingest.webhook.listener import listening
from hummingbird_operator.ingest.webhook.receiver import QUEUE_SECONDS, Webhook
from hummingbird_operator.kube.client import AGENT_RUNS, Kube
from hummingbird_operator.lifecycle import background
from hummingbird_operator.telemetry import SECONDS, Health, Liveness

if TYPE_CHECKING:
    from hummingbird_operator.config import Config, GitLab
    from hummingbird_operator.settings import Settings
    from hummingbird_operator.workflows import Workflows

__all__ = ["EventQueue", "Options", "check", "hooks_of", "serve_sqs", "serve_webhook"]

logger = logging.getLogger(__name__)

FORGE_THREADS = 16
"""Calls to GitLab at once."""
TIMEOUT = (3.0, 5.0)
"""Seconds to connect to GitLab, and between two pieces of its answer: a call that hangs must not outlive its event."""
DRAIN_SECONDS = 3.0
"""After SIGTERM new requests still come until every proxy knows: GitLab sends none of them twice."""
_NO_LABEL = f"{GROUP}/none"


@dataclass(frozen=True)
class Options:
    """What the command line and the environment say of an ingest process."""

    namespace: str
    """Where AgentRuns are made."""
    kubeconfig: str | None
    context: str | None
    health_port: int
    port: int = 0
    """Of the webhook; 0 takes a free one."""
    drain_seconds: float = DRAIN_SECONDS


@dataclass(frozen=True)
class _Process:
    """What both kinds of ingestor have."""

    registry: CollectorRegistry
    state: Liveness
    stop: asyncio.Event
    handler: Handler
    kube: Kube
    namespace: str
    forge: Notes

    async def look(self) -> None:
        """A look at the AgentRuns that lists none. Raises Invalid where a CRD or the Role is missing."""
        listed = partial(_list_none, self.kube, self.namespace)
        await lifecycle.until_served(f"{AGENT_RUNS.plural}.{GROUP}", listed, self.stop)


def check(settings: Settings, transport: str) -> None:
    """Raise Invalid for what an ingestor of that transport (sqs or webhook) cannot do without; looks at no network."""
    _checked(settings)
    if transport == "sqs" and settings.config.ingest.queue_url is None:
        raise Invalid("ingest.queue_url", "name the SQS queue that events come from")
    if transport == "webhook":
        _check_secrets(settings.webhook_secrets())


def _check_secrets(secrets: Sequence[str]) -> None:
    """Raise Invalid where none of them can check anything. One that can is enough to start with."""
    where, problem = "gitlab.webhook_secret_env", "a signing token (whsec_…) must be base64 behind its prefix"
    useless = [secret for secret in secrets if not signatures.usable(secret)]
    if len(useless) == len(secrets):
        raise Invalid(where, problem)
    if useless:
        logger.error("%s: %s; %d of %d secrets can check nothing", where, problem, len(useless), len(secrets))


async def serve_webhook(settings: Settings, workflows: Workflows, options: Options) -> None:
    """Serve POST /webhooks/gitlab until SIGTERM. Raises Invalid where a person must mend something first."""
    check(settings, "webhook")
    config, gitlab = settings.config, _checked(settings)
    async with contextlib.AsyncExitStack() as stack:
        process = await stack.enter_async_context(_process(settings, workflows, options, gitlab))
        queue = stack.enter_context(_handing_over(config))
        seen = Seen(process.kube, options.namespace, workflows, process.forge.bot_id)
        missed = replaying(settings, process.handler, seen, process.registry, process.forge.turns)
        replay = stack.enter_context(missed)
        webhook = Webhook(
            process.handler,
            settings.webhook_secrets,
            queue=queue,
            refused=replay.wanted if replay else lambda: None,
            registry=process.registry,
        )
        stack.push_async_callback(webhook.put_off.close)
        port = await stack.enter_async_context(listening(webhook.app(), options.port))
        if replay:
            await stack.enter_async_context(background(replay.run()))
        logger.info("webhooks are taken on port %d", port)
        process.state.problem = ""
        await _until(process.stop, process.look())
        process.state.problem = "stopping"
        webhook.put_off.close_door()
        await asyncio.sleep(options.drain_seconds)


async def serve_sqs(settings: Settings, workflows: Workflows, options: Options) -> None:
    """Consume the queue until SIGTERM. Raises Invalid where a person must mend something first."""
    check(settings, "sqs")
    ingest, gitlab = settings.config.ingest, _checked(settings)
    with contextlib.closing(_sqs(settings.config, ingest.queue_url or "")) as queue:
        async with _process(settings, workflows, options, gitlab, consumer.LONGEST_END_SECONDS) as process:
            await process.look()
            logger.info("events are taken from the queue")
            process.state.problem = ""
            await consumer.consume(
                queue,
                process.handler,
                concurrency=ingest.concurrency,
                visibility=ingest.visibility_seconds,
                topic_arns=ingest.topic_arns,
                stop=process.stop,
                metrics=consumer.SqsMetrics.on(process.registry),
            )


@contextlib.asynccontextmanager
async def _process(
    settings: Settings, workflows: Workflows, options: Options, gitlab: GitLab, end_seconds: float = 0
) -> AsyncIterator[_Process]:
    """Health, signals, GitLab, the API server and the handler, for as long as the block lasts."""
    registry, state, stop = CollectorRegistry(), Liveness(), asyncio.Event()
    lifecycle.on_signals(stop)
    lag = Histogram(
        "hummingbird_event_loop_lag_seconds", "Lateness of the event loop", registry=registry, buckets=SECONDS
    )
    with contextlib.ExitStack() as held:
        health = Health(options.health_port, registry, alive=state.alive, ready=state.ready)
        health.start()
        held.callback(health.stop)
        threads = ThreadPoolExecutor(FORGE_THREADS, thread_name_prefix="forge")
        held.callback(threads.shutdown, wait=False, cancel_futures=True)
        token = partial(settings.secret, "gitlab.token_env", env=gitlab.token_env, file=gitlab.token_file)
        forge = held.enter_context(contextlib.closing(Notes(gitlab.url, token, ca=_ca(gitlab), timeout=TIMEOUT)))
        longest = max(end_seconds, lifecycle.LONGEST_END_SECONDS) + 5
        async with (
            background(lifecycle.measure_lag(lag.observe, state.loop.beat)),
            background(lifecycle.end_in_time(stop, longest)),
        ):
            kube = await Kube.connect(kubeconfig=options.kubeconfig, context=options.context, metrics=registry)
            try:
                metrics = IngestMetrics.on(registry)
                handler = Handler(settings.config, workflows, forge, kube, options.namespace, metrics, threads)
                yield _Process(registry, state, stop, handler, kube, options.namespace, forge)
            finally:
                await kube.close()


class EventQueue:
    """The queue as the webhook uses it. Each hand-over is a message: names are what makes one run of two."""

    def __init__(self, queue: queues.Queue) -> None:
        self._queue = queue

    async def send(self, event: Event) -> None:
        """Put it on the queue, as `ingest sqs` reads it. Raises Unavailable and Invalid."""
        body = await asyncio.to_thread(encode_envelope, event, now=datetime.now(UTC))
        # A FIFO queue would swallow for five minutes what a person sent again on purpose.
        await self._queue.send(body, group=_lane(event), once=uuid.uuid4().hex)


def _lane(event: Event) -> str:
    """A FIFO queue's group: one for each project. SQS refuses one of more than 128 characters."""
    project = event.payload.get("project")
    number = project.get("id") if isinstance(project, dict) else None
    return f"gitlab-{number}" if isinstance(number, int) and 0 < number < 2**53 else "gitlab"


def _checked(settings: Settings) -> GitLab:
    """What every ingestor needs. Raises Invalid."""
    gitlab = settings.config.gitlab
    if gitlab is None:
        raise Invalid("gitlab", "an ingestor needs a GitLab: its url and token")
    settings.secret("gitlab.token_env", env=gitlab.token_env, file=gitlab.token_file)
    return gitlab


def _sqs(config: Config, url: str, *, call_seconds: float = queues.CALL_SECONDS) -> queues.SqsQueue:
    ingest = config.ingest
    return queues.SqsQueue(url, endpoint=ingest.sqs_endpoint, region=ingest.sqs_region, call_seconds=call_seconds)


@contextlib.contextmanager
def _handing_over(config: Config) -> Iterator[EventQueue | None]:
    """What takes events while the API server is away; None where there is no queue."""
    if config.ingest.queue_url is None:
        yield None
        return
    with contextlib.closing(_sqs(config, config.ingest.queue_url, call_seconds=QUEUE_SECONDS)) as queue:
        yield EventQueue(queue)


def _ca(gitlab: GitLab) -> str | None:
    return str(gitlab.ca_file) if gitlab.ca_file else None


async def _list_none(kube: Kube, namespace: str) -> None:
    await kube.list(AGENT_RUNS, namespace, label_selector=_NO_LABEL)


async def _until(stop: asyncio.Event, look: Coroutine[Any, Any, None]) -> None:
    """Wait for `stop`; what the look finds wrong meanwhile is raised."""
    looking, stopping = asyncio.create_task(look), asyncio.create_task(stop.wait())
    try:
        await asyncio.wait({looking, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if looking.done():
            looking.result()
        await stopping
    finally:
        looking.cancel()
        stopping.cancel()
