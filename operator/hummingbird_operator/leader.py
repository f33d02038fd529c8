"""The life of an operator process: wait for the Lease, lead, hand over.

A waiting process is Ready: it takes over when the Lease is free. A leader that cannot renew writes nothing before its
Lease can be another's, and ends hard once it is. SIGTERM stops every run where it stands, within seconds; the next
leader goes on.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import kopf
from prometheus_client import CollectorRegistry

from hummingbird_operator import framework, lifecycle, wiring
from hummingbird_operator.agentruns import ghosts
from hummingbird_operator.agentruns import handlers as run_handlers
from hummingbird_operator.agentruns.ttl import Reaper
from hummingbird_operator.api import labels
from hummingbird_operator.api.agentrun import LIVE_PHASES, RunnerRef
from hummingbird_operator.api.labels import GROUP
from hummingbird_operator.kube.client import AGENT_RUNS, PODS, SANDBOX_POOLS, Kube, KubeApi
from hummingbird_operator.kube.events import Recorder
from hummingbird_operator.kube.exec import ExecConnection
from hummingbird_operator.kube.guarded import GuardedKube
from hummingbird_operator.kube.lease import Election
from hummingbird_operator.kube.watch import keep_watching
from hummingbird_operator.lifecycle import background
from hummingbird_operator.sandboxpools import handlers as pool_handlers
from hummingbird_operator.sandboxpools import strays
from hummingbird_operator.sandboxpools.claims import Claims
from hummingbird_operator.sandboxpools.strays import Strays
from hummingbird_operator.telemetry import Health, Liveness, Metrics

if TYPE_CHECKING:
    from hummingbird_operator.settings import Settings
    from hummingbird_operator.workflows import Workflows

logger = logging.getLogger(__name__)

LEASE = "hummingbird-operator"


@dataclass(frozen=True)
class Options:
    """What the command line and the environment say of this process."""

    namespace: str
    """Of the runs, and of the Lease."""
    identity: str
    """A name for people, such as the pod's; a random part makes it unique to the process."""
    kubeconfig: str | None
    context: str | None
    health_port: int


async def operate(
    settings: Settings, workflows: Workflows, options: Options, *, around: wiring.Around = wiring.as_it_is
) -> None:
    """Run until SIGTERM or SIGINT. Raises Invalid where a person must mend something first."""
    registry, state, stop = CollectorRegistry(), Liveness(), asyncio.Event()
    metrics = Metrics.on(registry)
    lifecycle.on_signals(stop)
    health = Health(options.health_port, registry, alive=state.alive, ready=state.ready)
    health.start()
    identity = f"{options.identity}-{secrets.token_hex(4)}"
    async with background(lifecycle.measure_lag(metrics.loop_lag.observe, state.loop.beat)):
        kube = await Kube.connect(kubeconfig=options.kubeconfig, context=options.context, metrics=registry)
        try:
            await _check_cluster(kube, settings, options, stop)
            state.problem = ""
            process = _Process(settings, workflows, options, kube, metrics, state, stop, around)
            await process.wait_and_lead(identity)
        finally:
            await kube.close()
            health.stop()


@dataclass(frozen=True)
class _Process:
    """What is the same for as long as this process lives."""

    settings: Settings
    workflows: Workflows
    options: Options
    kube: Kube
    metrics: Metrics
    state: Liveness
    stop: asyncio.Event
    around: wiring.Around

    async def wait_and_lead(self, identity: str) -> None:
        election = Election(
            self.kube,
            self.options.namespace,
            LEASE,
            identity=identity,
            on_lost=partial(lifecycle.end_hard, "the lease was lost"),
        )
        logger.info("waiting for the lease %s/%s as %s", self.options.namespace, LEASE, identity)
        if not await election.acquire(self.stop):
            return
        logger.info("leading as %s, epoch %d", identity, election.epoch)
        try:
            self.state.renewals = lambda: election.renewals
            self.metrics.leader.set(1)
            await self._lead(election)
        finally:
            self.state.leading = False
            self.metrics.leader.set(0)
            await election.release()
            logger.info("handed over")

    async def _lead(self, election: Election) -> None:
        kube, namespace = GuardedKube(self.kube, election.check), self.options.namespace
        sandboxes = self.settings.config.sandbox.namespace
        recorder = Recorder(kube, component="hummingbird", instance=election.identity)
        claims = Claims(kube, sandboxes, metrics=self.metrics.registry)
        parts = partial(
            wiring.lead,
            self.settings,
            self.workflows,
            RunnerRef(identity=election.identity, epoch=election.epoch),
            kube=kube,
            claims=claims,
            exec_=ExecConnection(self.kube.endpoint),
            recorder=recorder,
            metrics=self.metrics,
            check=election.check,
            around=self.around,
        )
        leading = await asyncio.to_thread(parts)  # making a client of S3 takes a quarter of a second
        registry = kopf.OperatorRegistry()

        @kopf.on.cleanup(registry=registry)
        async def ending(**_: Any) -> None:
            self.stop.set()  # kopf waits five seconds for its own task that waits for this flag

        framework.register(registry, self.kube, LEASE, self.state.seen)
        reaper = Reaper(kube, wiring.now)
        run_handlers.register(registry, leading.runs, leading.runner, reaper)
        pools = pool_handlers.Deps(kube, claims, recorder, run_namespaces=[namespace], leads=election.is_leader)
        member_seen = pool_handlers.register(registry, pools)
        swept = Strays(kube, claims, run_namespaces=[namespace], leads=election.is_leader)
        watch = keep_watching(self.kube.endpoint, PODS, sandboxes, label_selector=labels.POOL, seen=member_seen)
        started = asyncio.Event()
        await self._first_look(leading, reaper)
        self.state.seen()
        self.state.leading = True
        try:
            async with (  # before kopf, which waits for whatever is born after it
                background(watch),
                background(strays.keep_sweeping(swept)),
                background(reaper.keep_reaping()),
                background(ghosts.keep_looking(leading.runs, leading.status)),
                background(_publish_phases(leading, self.metrics)),
                background(_end_in_time(self.stop, started)),
            ):
                await kopf.operator(
                    registry=registry,
                    settings=framework.settings(),
                    namespaces=sorted({namespace, sandboxes}),
                    standalone=True,
                    stop_flag=self.stop,
                    ready_flag=started,
                    # kopf would make one up, with a look-up of this host's name
                    identity=cast("Any", election.identity),
                )
        finally:
            leading.close()

    async def _first_look(self, leading: wiring.Leading, reaper: Reaper) -> None:
        """All runs at once, before the first is driven: the order of turns must know them all."""
        found = await lifecycle.until_available(lambda: self.kube.list(AGENT_RUNS, self.options.namespace), self.stop)
        for raw in found or ():
            if (run := run_handlers.parsed(raw)) is not None:
                leading.runs.observe(run)
                reaper.observe(run)


async def _end_in_time(stop: asyncio.Event, started: asyncio.Event) -> None:
    """An end that takes long keeps the Lease from whoever waits for it. kopf takes the signals at its start."""
    await started.wait()
    lifecycle.on_signals(stop)
    await lifecycle.end_in_time(stop)


async def _check_cluster(kube: KubeApi, settings: Settings, options: Options, stop: asyncio.Event) -> None:
    """Raise Invalid where the CRDs or the Roles are not there; wait for an API server that is away."""
    wanted = ((AGENT_RUNS, options.namespace), (SANDBOX_POOLS, settings.config.sandbox.namespace))
    for resource, namespace in wanted:
        await lifecycle.until_served(f"{resource.plural}.{GROUP}", partial(kube.list, resource, namespace), stop)


async def _publish_phases(leading: wiring.Leading, metrics: Metrics) -> None:
    while True:
        counts = leading.runs.phases()
        for phase in LIVE_PHASES:  # always each: a series that is gone for a moment makes an alert wait anew
            metrics.phases.labels(phase).set(counts.get(phase, 0))
        await asyncio.sleep(5)
