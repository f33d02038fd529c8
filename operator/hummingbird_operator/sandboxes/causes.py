"""Why a sandbox's pod is gone: one word that stands in the run's condition, and a sentence for people."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hummingbird_operator.errors import SandboxLost

# What the control plane writes into the condition DisruptionTarget, in the words of our conditions.
_DISRUPTIONS = {
    "PreemptionByScheduler": "Preempted",
    "DeletionByTaintManager": "NodeLost",
    "EvictionByEvictionAPI": "Evicted",
    "DeletionByPodGC": "NodeLost",
    "TerminationByKubelet": "Evicted",
}


def cause_of(pod: Mapping[str, Any] | None, uid: str) -> SandboxLost | None:
    """None while the pod serves. `uid` tells it from a later pod of the same name."""
    if pod is None:
        return SandboxLost("Deleted", "the pod no longer exists")
    if pod.get("metadata", {}).get("uid") != uid:
        return SandboxLost("Deleted", "the pod was deleted and another one has its name")
    status = pod.get("status") or {}
    return _container(pod, status) or _phase(status) or _disruption(status) or _deletion(pod)


def _container(pod: Mapping[str, Any], status: Mapping[str, Any]) -> SandboxLost | None:
    """The first container is where commands run; how it ended explains more than the pod's phase does."""
    main: Mapping[str, Any] = next(iter((pod.get("spec") or {}).get("containers") or []), {})
    states = status.get("containerStatuses") or []
    state: Mapping[str, Any] = next((entry for entry in states if entry.get("name") == main.get("name")), {})
    ended = (state.get("state") or {}).get("terminated")
    if not ended:
        return None
    name = main.get("name")
    if ended.get("reason") == "OOMKilled":
        limit = ((main.get("resources") or {}).get("limits") or {}).get("memory")
        return SandboxLost("OOMKilled", f"container {name} went over its memory limit of {limit or 'its node'}")
    if status.get("reason"):
        return None  # evicted or past its deadline: the phase says it better
    return SandboxLost("ContainerExited", f"container {name} ended with exit code {ended.get('exitCode')}")


def _phase(status: Mapping[str, Any]) -> SandboxLost | None:
    phase, reason = status.get("phase"), str(status.get("reason") or "")
    if phase not in ("Failed", "Succeeded"):
        return None
    message = str(status.get("message") or f"the pod ended in phase {phase}")
    return SandboxLost(reason or str(phase), message)


def _disruption(status: Mapping[str, Any]) -> SandboxLost | None:
    for condition in status.get("conditions") or []:
        if condition.get("type") == "DisruptionTarget" and condition.get("status") == "True":
            reason = str(condition.get("reason") or "Disrupted")
            return SandboxLost(_DISRUPTIONS.get(reason, reason), str(condition.get("message") or reason))
    return None


def _deletion(pod: Mapping[str, Any]) -> SandboxLost | None:
    if pod.get("metadata", {}).get("deletionTimestamp"):
        return SandboxLost("Deleted", "the pod is being deleted")
    return None
