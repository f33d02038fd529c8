"""A lost sandbox names its cause."""

from __future__ import annotations

from typing import Any

import pytest

from hummingbird_operator.sandboxes.causes import cause_of


def pod(**status: Any) -> dict[str, Any]:
    container = {"name": "sandbox", "resources": {"limits": {"memory": "1Gi"}}}
    return {"metadata": {"uid": "u"}, "spec": {"containers": [container]}, "status": {"phase": "Running", **status}}


def ended(**terminated: Any) -> list[dict[str, Any]]:
    return [{"name": "sandbox", "state": {"terminated": terminated}}]


def disrupted(reason: str) -> list[dict[str, str]]:
    return [{"type": "DisruptionTarget", "status": "True", "reason": reason, "message": "why"}]


CASES = [
    (pod(phase="Failed", containerStatuses=ended(reason="OOMKilled", exitCode=137)), "OOMKilled", "1Gi"),
    (pod(containerStatuses=ended(reason="OOMKilled", exitCode=137)), "OOMKilled", "1Gi"),
    (pod(phase="Failed", reason="Evicted", message="low on ephemeral-storage"), "Evicted", "ephemeral-storage"),
    (pod(phase="Failed", reason="DeadlineExceeded", message="was active too long"), "DeadlineExceeded", "too long"),
    (pod(phase="Failed", containerStatuses=ended(reason="Error", exitCode=1)), "ContainerExited", "exit code 1"),
    (pod(phase="Succeeded"), "Succeeded", "Succeeded"),
    (pod(containerStatuses=ended(reason="Error", exitCode=9)), "ContainerExited", "exit code 9"),
    (pod(conditions=disrupted("DeletionByTaintManager")), "NodeLost", "why"),
    (pod(conditions=disrupted("EvictionByEvictionAPI")), "Evicted", "why"),
    (pod(conditions=disrupted("PreemptionByScheduler")), "Preempted", "why"),
    (pod(phase="Failed", reason="NodeLost", message="node is gone"), "NodeLost", "node is gone"),
    (pod() | {"metadata": {"uid": "u", "deletionTimestamp": "now"}}, "Deleted", "being deleted"),
    (
        pod(containerStatuses=ended(reason="Completed", exitCode=0))
        | {"metadata": {"uid": "u", "deletionTimestamp": "now"}},
        "Deleted",
        "being deleted",
    ),
    (pod() | {"metadata": {"uid": "other"}}, "Deleted", "another one"),
    (None, "Deleted", "no longer"),
]


@pytest.mark.parametrize(("found", "cause", "words"), CASES, ids=[f"{n}-{case[1]}" for n, case in enumerate(CASES)])
def test_each_end_has_its_word(found: dict[str, Any] | None, cause: str, words: str) -> None:
    """sandbox-pools.md §6 no. 41c, 46."""
    lost = cause_of(found, "u")
    assert lost is not None
    assert lost.cause == cause
    assert words in lost.detail


def test_a_container_beside_the_sandbox_may_end() -> None:
    side = [{"name": "side", "state": {"terminated": {"reason": "Error", "exitCode": 1}}}]
    assert cause_of(pod(containerStatuses=side), "u") is None


def test_a_pod_that_serves_is_not_lost() -> None:
    assert cause_of(pod(conditions=[{"type": "DisruptionTarget", "status": "False"}]), "u") is None
