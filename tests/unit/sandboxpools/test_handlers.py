"""The seam to kopf: what is registered, and a loop that no error ends."""

from __future__ import annotations

import ast
import asyncio
import inspect
from typing import Any

import kopf
import pytest

from hummingbird_operator.api import labels
from hummingbird_operator.errors import NotFound, Unavailable
from hummingbird_operator.kube.client import NETWORK_POLICIES, PODS
from hummingbird_operator.sandboxpools import handlers
from hummingbird_operator.sandboxpools.handlers import Wakes, keep_pool
from tests.unit.agentruns.virtual import JumpingLoop
from tests.unit.sandboxpools.world import NAMESPACE, World, pool_body


class Stop:
    """What a kopf daemon knows of its end."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def __bool__(self) -> bool:
        return self._event.is_set()

    async def wait(self) -> None:
        await self._event.wait()

    def set(self) -> None:
        self._event.set()


class Script:
    """A reconciler that does as it is told, pass after pass."""

    def __init__(self, stop: Stop, *results: Exception | float | None) -> None:
        self.stop, self.results, self.passes = stop, list(results), 0

    async def reconcile(self, name: str) -> float | None:
        self.passes += 1
        result = self.results.pop(0)
        if not self.results:
            self.stop.set()
        if isinstance(result, Exception):
            raise result
        return result


def registered() -> kopf.OperatorRegistry:
    registry = kopf.OperatorRegistry()
    world = World()
    handlers.register(registry, handlers.Deps(world.kube, world.claims, world.events))
    return registry


async def test_a_pool_that_was_deleted_while_nobody_led_leaves_its_policy_to_the_members_that_stay() -> None:
    """kopf starts no daemon for what is being deleted: its finalizer went, and with the pool the policy."""
    world, registry = World(), kopf.OperatorRegistry()
    handlers.register(registry, handlers.Deps(world.kube, world.claims, world.events))
    world.pool()
    await world.fill()
    member = await world.claims.claim("run", session="s", pool="default", active_seconds=60)
    assert member is not None
    body = pool_body()
    body["metadata"] |= {
        "uid": "uid-of-default",
        "deletionTimestamp": "2030-01-01T00:00:00Z",
        "finalizers": [labels.FINALIZER],
    }
    (seen,) = registry._watching.get_all_handlers()
    told: Any = seen.fn  # kopf's types ask for every argument that it would pass
    await told(name="default", namespace=NAMESPACE, body=body)
    assert [pod.uid for pod in world.pods()] == [member.uid]
    (policy,) = world.kube.all(NETWORK_POLICIES)
    assert [owner["uid"] for owner in policy["metadata"]["ownerReferences"]] == [member.uid]


async def test_a_pool_that_is_deleted_is_let_go_before_kopf_takes_its_finalizer_though_the_lead_is_in_doubt(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It was skipped, and kopf, which no doubt holds back, took the finalizer: the policy went with the pool."""
    monkeypatch.setattr(handlers, "LEAD_SECONDS", 0.001)
    world, registry, asked = World(), kopf.OperatorRegistry(), []
    certain = asyncio.Event()

    def leads() -> bool:
        asked.append(certain.is_set())
        return certain.is_set()

    handlers.register(registry, handlers.Deps(world.kube, world.claims, world.events, leads=leads))
    world.pool()
    await world.fill()
    member = await world.claims.claim("run", session="s", pool="default", active_seconds=60)
    assert member is not None
    body = pool_body()
    body["metadata"] |= {"deletionTimestamp": "2030-01-01T00:00:00Z", "finalizers": [labels.FINALIZER]}
    (seen,) = registry._watching.get_all_handlers()
    told: Any = seen.fn
    writes, handled = world.kube.writes, asyncio.create_task(told(name="default", namespace=NAMESPACE, body=body))
    async with asyncio.timeout(10):
        while len(asked) < 5:  # noqa: ASYNC110 - nothing tells when it is asked
            await asyncio.sleep(0.001)
    assert not handled.done()
    assert world.kube.writes == writes
    certain.set()
    await asyncio.wait_for(handled, 10)
    assert [pod.uid for pod in world.pods()] == [member.uid]


def test_no_handler_detects_changes_and_none_is_synchronous() -> None:
    """kopf.md §0 no. 1, 8: such handlers lose cancels, repeat after a kill, and block in threads."""
    registry = registered()
    assert not registry._changing.get_all_handlers()
    found = [*registry._spawning.get_all_handlers(), *registry._watching.get_all_handlers()]
    assert found
    assert all(inspect.iscoroutinefunction(handler.fn) for handler in found)


def test_nothing_that_leaves_a_finalizer_stands_on_pods() -> None:
    """sandbox-pools.md §6 no. 52."""
    for handler in registered()._spawning.get_all_handlers():
        assert handler.selector is not None
        assert "pods" not in (handler.selector.plural, handler.selector.any_name)


def test_kopfs_patch_is_never_touched_and_nothing_is_returned_to_it() -> None:
    """kopf.md §0 no. 3, kopf#642: a daemon whose own patch fails dies for good."""
    tree = ast.parse(inspect.getsource(handlers))
    assert not [node for node in ast.walk(tree) if isinstance(node, ast.arg) and node.arg == "patch"]
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.AsyncFunctionDef)]
    for function in functions:
        if function.decorator_list:
            returns = [node for node in ast.walk(function) if isinstance(node, ast.Return) and node.value is not None]
            assert returns == [], function.name


def test_whatever_fails_is_tried_again() -> None:
    async def passes() -> int:
        stop = Stop()
        script = Script(stop, Unavailable("the API server", "away"), ValueError("a bug"), NotFound("pool"), 0.01, None)
        wakes = Wakes()
        task = asyncio.create_task(keep_pool(script, wakes, "default", stop))  # type: ignore[arg-type]
        while not task.done():
            wakes.wake("default")
            await asyncio.sleep(0.01)
        await task
        return script.passes

    with asyncio.Runner(loop_factory=JumpingLoop) as runner:  # three seconds of rest after two errors
        assert runner.run(passes()) == 5


async def test_an_event_is_answered_at_once() -> None:
    stop = Stop()
    script, wakes = Script(stop, None, None), Wakes()
    task = asyncio.create_task(keep_pool(script, wakes, "default", stop))  # type: ignore[arg-type]
    await asyncio.sleep(0.15)
    assert script.passes == 1
    began = asyncio.get_running_loop().time()
    wakes.wake("default")
    await task
    assert script.passes == 2
    assert asyncio.get_running_loop().time() - began < 1


async def test_a_stop_ends_a_waiting_loop_at_once() -> None:
    """sandbox-pools.md §6 no. 55: a daemon delays deletion by up to 30 s."""
    stop = Stop()
    script, wakes = Script(Stop(), None, None), Wakes()
    task = asyncio.create_task(keep_pool(script, wakes, "default", stop))  # type: ignore[arg-type]
    await asyncio.sleep(0.1)
    stop.set()
    await asyncio.wait_for(task, 1)


@pytest.mark.parametrize(("role", "woken"), [(labels.ROLE_STANDBY, True), (labels.ROLE_ACTIVE, True)])
async def test_a_member_that_changed_wakes_waiting_runs(role: str, woken: bool) -> None:
    world = World()
    seen = handlers.register(kopf.OperatorRegistry(), handlers.Deps(world.kube, world.claims, world.events))
    world.pool()
    await world.fill()
    body: Any = await world.kube.get(PODS, NAMESPACE, world.pods()[0].name)
    body["metadata"]["labels"][labels.ROLE] = role
    event = world.claims.changed()
    seen(body)
    assert event.is_set() is woken
