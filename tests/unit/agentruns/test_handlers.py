"""How kopf is used: an event handler and a daemon, both async; nothing that would write to the object by itself."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path
from typing import Any

import kopf
import pytest

from hummingbird_operator.agentruns import handlers
from hummingbird_operator.api.agentrun import AgentRun
from hummingbird_operator.kube.client import AGENT_RUNS
from tests.unit.agentruns.builders import conditions
from tests.unit.agentruns.process import NAMESPACE
from tests.unit.agentruns.world import World

SOURCE = Path(inspect.getfile(handlers)).read_text()


def registered(world: World) -> kopf.OperatorRegistry:
    process = world.start()
    registry = kopf.OperatorRegistry()
    handlers.register(registry, process.runs, process.runner, process.reaper)
    return registry


def functions() -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    """The handlers themselves: what kopf's decorators stand on."""
    return [
        node
        for node in ast.walk(ast.parse(SOURCE))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and any("kopf." in ast.unparse(decorator) for decorator in node.decorator_list)
    ]


async def test_nothing_detects_changes_for_kopf_would_store_a_copy_of_the_spec_and_hold_events_back(
    world: World,
) -> None:
    registry = registered(world)
    assert list(registry._changing.get_all_handlers()) == []
    assert len(list(registry._watching.get_all_handlers())) == 1
    assert len(list(registry._spawning.get_all_handlers())) == 1


async def test_every_handler_is_async_for_a_sync_one_would_take_a_thread_of_kopf_s_for_as_long_as_a_run(
    world: World,
) -> None:
    registry = registered(world)
    found = [*registry._watching.get_all_handlers(), *registry._spawning.get_all_handlers()]
    assert all(inspect.iscoroutinefunction(handler.fn) for handler in found)


def test_no_handler_asks_for_kopf_s_patch_and_none_returns_a_value() -> None:
    found = functions()
    assert {function.name for function in found} == {"seen", "drive"}
    for function in found:
        names = {argument.arg for argument in [*function.args.args, *function.args.kwonlyargs]}
        assert "patch" not in names
        inner = [node for node in ast.walk(function) if isinstance(node, ast.Return)]
        assert all(node.value is None for node in inner), f"{function.name} returns a value: kopf would store it"


@pytest.mark.parametrize(
    ("status", "unfinished"),
    [
        ({}, True),
        ({"conditions": None}, True),
        ({"conditions": conditions(Succeeded="Unknown/Running")}, True),
        ({"conditions": conditions(Finished="False")}, True),
        ({"conditions": conditions(Succeeded="True", Finished="True")}, False),
    ],
)
def test_a_run_has_a_daemon_until_it_is_finished(status: dict[str, Any], unfinished: bool) -> None:
    assert handlers._unfinished(status=status) is unfinished


async def test_a_run_that_cannot_be_read_is_left_alone_and_disturbs_no_other(world: World) -> None:
    broken = world.order("broken").as_dict()
    world.kube.put(AGENT_RUNS, NAMESPACE, {**broken, "spec": {"workflow": "UPPER CASE", "unknown": 1}})
    world.start()
    world.order()
    await world.until(lambda: _is_finished(world))
    live = next(body for body in world.kube.all(AGENT_RUNS) if body["metadata"]["name"] == "broken")
    assert live.get("status", {}) == broken.get("status", {})


def _is_finished(world: World) -> bool:
    body = next(body for body in world.kube.all(AGENT_RUNS) if body["metadata"]["name"] == "why")
    return not handlers._unfinished(status=AgentRun.parse(body).status.as_dict())


async def test_an_edit_of_a_finished_run_is_acknowledged(world: World) -> None:
    world.order()
    process = world.start()
    await world.finished()
    body = world.run().as_dict()
    body["metadata"]["generation"] = 2
    world.kube.put(AGENT_RUNS, NAMESPACE, body)
    await world.until(lambda: world.run().status.observed_generation == 2)
    assert world.outcome == ("True", "Completed")
    assert not process.dead


async def test_without_its_finalizer_a_run_is_not_begun(world: World) -> None:
    body = world.order().as_dict()
    body["metadata"]["finalizers"] = []
    world.kube.put(AGENT_RUNS, NAMESPACE, body)
    world.start()
    world.loop.call_later(2, world.moved)
    began = world.clock()
    await world.until(lambda: (world.clock() - began).total_seconds() >= 2)
    assert world.run().status.conditions == ()
    body["metadata"]["finalizers"] = ["hummingbird-project.io/operator"]
    world.kube.put(AGENT_RUNS, NAMESPACE, body)
    await world.finished()
    assert world.outcome == ("True", "Completed")


async def test_a_run_whose_finalizer_kopf_could_not_store_gets_it_from_us(world: World) -> None:
    """kopf looks at an object whose patch was refused only after its next event, and a run that waits makes none."""
    body = world.order().as_dict()
    body["metadata"]["finalizers"] = ["somebody.example/else"]
    world.kube.put(AGENT_RUNS, NAMESPACE, body)
    world.start()
    await world.finished()
    assert world.outcome == ("True", "Completed")
    assert world.run().metadata.finalizers == ("somebody.example/else", "hummingbird-project.io/operator")
