"""What we use of kopf and of the Kubernetes library, and what we never may: docs/faults.md has the reasons."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any, cast

import kopf
import yaml

from hummingbird_operator import framework
from hummingbird_operator.agentruns import handlers as run_handlers
from hummingbird_operator.sandboxpools import handlers as pool_handlers
from tests.unit.sandboxpools.world import World

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "operator" / "hummingbird_operator"
USED = {
    "AnnotationsDiffBaseStorage",
    "AnnotationsProgressStorage",
    "Body",
    "ConnectionInfo",
    "DaemonStopped",
    "DaemonStoppingReason",
    "OperatorRegistry",
    "OperatorSettings",
    "daemon",
    "on.cleanup",
    "on.event",
    "on.login",
    "operator",
}


def trees() -> Iterator[tuple[str, ast.Module]]:
    for path in sorted(PACKAGE.rglob("*.py")):
        yield str(path.relative_to(PACKAGE)), ast.parse(path.read_text())


def registry() -> kopf.OperatorRegistry:
    """All that a leading process registers."""
    found, world, nothing = kopf.OperatorRegistry(), World(), cast(Any, None)
    framework.register(found, nothing, "lease", lambda: None)
    run_handlers.register(found, nothing, nothing, nothing)
    pool_handlers.register(found, pool_handlers.Deps(world.kube, world.claims, world.events))
    return found


def test_of_kopf_nothing_is_used_that_stores_a_copy_dies_of_a_patch_or_posts_events() -> None:
    """No change-detecting handler, no timer, no index, no `kopf.event`: kopf.md §0 no. 1, 3 and §1."""
    used = set()
    for _, tree in trees():
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and (name := ast.unparse(node)).startswith("kopf."):
                used.add(".".join(name.split(".")[1 : 3 if name.startswith("kopf.on.") else 2]))
    assert used - {"on"} <= USED, "read docs/faults.md before another part of kopf is used"


def test_a_leader_registers_no_change_detecting_handler_no_timer_no_index_and_nothing_synchronous() -> None:
    found = registry()
    watching, spawning = found._watching.get_all_handlers(), found._spawning.get_all_handlers()
    assert not found._changing.get_all_handlers()
    assert not found._indexing.get_all_handlers()
    assert not found._webhooks.get_all_handlers()
    assert {type(handler).__name__ for handler in spawning} == {"DaemonHandler"}
    assert sorted(str(h.selector and h.selector.any_name) for h in spawning) == ["agentruns", "sandboxpools"]
    assert all(inspect.iscoroutinefunction(handler.fn) for handler in (*watching, *spawning))


def test_no_handler_takes_kopf_s_patch_and_none_returns_a_value() -> None:
    """kopf#642: a daemon whose own patch or result is refused dies for good, and its finalizer with it."""
    seen = set()
    for module, tree in trees():
        for node in ast.walk(tree):
            if not isinstance(node, ast.AsyncFunctionDef | ast.FunctionDef):
                continue
            marks = [ast.unparse(mark) for mark in node.decorator_list]
            if not any(mark.startswith(("kopf.daemon", "kopf.on.event")) for mark in marks):
                continue
            seen.add(node.name)
            arguments = {argument.arg for argument in (*node.args.args, *node.args.kwonlyargs)}
            assert "patch" not in arguments, f"{module}: {node.name}"
            values = [each.value for each in ast.walk(node) if isinstance(each, ast.Return)]
            assert not any(values), f"{module}: {node.name} returns a value"
    assert seen == {"lease_seen", "seen", "drive", "pool_seen", "keep"}


def test_the_kubernetes_library_is_used_in_its_async_half_only_and_never_for_exec_or_election() -> None:
    """Its sync `stream()` swaps a method of a client that others share; its election measures with the wall clock."""
    for module, tree in trees():
        for node in ast.walk(tree):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            for name in (name for name in names if name.split(".")[0] == "kubernetes"):
                assert name.split(".")[1:2] == ["aio"], f"{module} imports {name}"
                assert not {"stream", "leaderelection"} & set(name.split(".")), f"{module} imports {name}"


def test_both_libraries_are_at_versions_that_can_do_what_we_rely_on() -> None:
    """Before 1.45 a dead watcher left a zombie; kubernetes 36.0.0 sent no token at all."""

    def figures(name: str) -> list[int]:
        return [int(part) for part in re.findall(r"\d+", version(name))[:3]]

    assert figures("kopf") >= [1, 45, 2]
    assert figures("kubernetes")[0] >= 37
    project = (ROOT / "pyproject.toml").read_text()
    assert re.search(r'"kopf>=1\.45\.2', project)
    assert re.search(r'"kubernetes>=37', project)


def test_the_process_is_given_more_time_to_end_than_kopf_takes_before_it_kills_itself() -> None:
    settings = framework.settings()
    (deployment,) = [
        document
        for document in yaml.safe_load_all((ROOT / "manifests" / "deployment.yaml").read_text())
        if document["kind"] == "Deployment"
    ]
    grace = deployment["spec"]["template"]["spec"]["terminationGracePeriodSeconds"]
    assert settings.process.ultimate_exiting_timeout is not None
    assert settings.process.ultimate_exiting_timeout < grace


def test_no_worker_waits_for_another_and_no_silence_lasts() -> None:
    """A limit of workers below the number of objects would be a deadlock: each daemon's object has one."""
    settings = framework.settings()
    assert settings.queueing.worker_limit is None
    assert settings.watching.inactivity_timeout <= 90
    assert settings.watching.server_timeout is not None
    assert settings.watching.client_timeout is not None
    assert settings.watching.server_timeout < settings.watching.client_timeout
    assert settings.networking.request_timeout is not None
    assert settings.networking.request_timeout <= 30
    assert settings.background.cancellation_polling <= 2
