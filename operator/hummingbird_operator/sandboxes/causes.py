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
    return _memory(pod, status) or _told(status) or _disruption(status) or _deletion(pod) or _ended(pod, status)


def _main(pod: Mapping[str, Any]) -> Mapping[str, Any]:
    """The first container is where commands run."""
    return next(iter((pod.get("spec") or {}).get("containers") or []), {})


def _end_of_main(pod: Mapping[str, Any], status: Mapping[str, Any]) -> Mapping[str, Any]:
    name = _main(pod).get("name")
    for state in status.get("containerStatuses") or []:
        if state.get("name") == name:
            return (state.get("state") or {}).get("terminated") or {}
    return {}


def _memory(pod: Mapping[str, Any], status: Mapping[str, Any]) -> SandboxLost | None:
    if _end_of_main(pod, status).get("reason") != "OOMKilled":
        return None
    main = _main(pod)
    limit = ((main.get("resources") or {}).get("limits") or {}).get("memory") or "its node"
    return SandboxLost("OOMKilled", f"container {main.get('name')} went over its memory limit of {limit}")


def _told(status: Mapping[str, Any]) -> SandboxLost | None:
    """The kubelet's own reason: Evicted, DeadlineExceeded, NodeLost and the like."""
    if not status.get("reason") or status.get("phase") not in ("Failed", "Succeeded"):
        return None
    return SandboxLost(str(status["reason"]), str(status.get("message") or "no message"))


def _ended(pod: Mapping[str, Any], status: Mapping[str, Any]) -> SandboxLost | None:
    """By itself: nobody deleted it, and nobody gave a reason."""
    end = _end_of_main(pod, status)
    if end:
        text = f"container {_main(pod).get('name')} ended with exit code {end.get('exitCode')}"
        return SandboxLost("ContainerExited", text)
    if status.get("phase") in ("Failed", "Succeeded"):
        return SandboxLost(str(status["phase"]), f"the pod ended in phase {status['phase']}")
    return None


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
