"""The pool as Python reads it."""

from __future__ import annotations

from typing import Any

import pytest

from hummingbird_operator.api.sandboxpool import Linger, Network, SandboxPool, SandboxPoolSpec, SandboxPoolStatus
from hummingbird_operator.errors import Invalid
from tests.unit.api import samples

POD = {"template": samples.POD_TEMPLATE}
MACHINE = {"template": {"spec": {"domain": {}}}, "sshKeySecret": "sandbox-key"}


def test_a_pool_with_nothing_but_a_template_has_the_defaults_of_the_schema() -> None:
    spec = SandboxPoolSpec.parse({"pod": POD})
    assert spec.as_dict() == {
        "replicas": 3,
        "maxSandboxes": 20,
        "activeDeadlineSeconds": 1800,
        "linger": {"seconds": 300, "max": 2},
        "pod": POD,
        "network": "Isolated",
    }
    assert (spec.linger, spec.network) == (Linger(seconds=300, max=2), Network.ISOLATED)


def test_a_pool_of_machines_is_read() -> None:
    spec = SandboxPoolSpec.parse({"virtualMachine": MACHINE})
    assert spec.virtual_machine is not None
    assert spec.virtual_machine.ssh_key_secret == "sandbox-key"


REFUSALS: list[tuple[dict[str, Any], str]] = [
    ({}, "spec: name exactly one of pod and virtualMachine"),
    ({"pod": POD, "virtualMachine": MACHINE}, "spec: name exactly one of pod and virtualMachine"),
    ({"pod": POD, "replicas": 30}, "spec: maxSandboxes must be at least replicas (30), for it counts them too"),
    ({"pod": POD, "replicas": 1001}, "spec.replicas: must be at most 1000, not 1001"),
    ({"pod": {"template": {}}}, "spec.pod.template: spec.containers must hold at least one container"),
    (
        {"pod": {"template": {"spec": {"containers": [{"name": "a"}]}}}},
        "spec.pod.template: spec.containers[0] must have a name and an image",
    ),
    ({"virtualMachine": {**MACHINE, "template": {}}}, "spec.virtualMachine.template: spec is required"),
    ({"pod": POD, "linger": {"second": 3}}, "spec.linger.second: is not a field; did you mean seconds?"),
    ({"pod": POD, "network": "Open"}, 'spec.network: must be one of Isolated, Unmanaged, not "Open"'),
]


@pytest.mark.parametrize(("spec", "words"), REFUSALS)
def test_a_refusal_names_the_path_and_what_would_be_right(spec: dict[str, Any], words: str) -> None:
    with pytest.raises(Invalid) as caught:
        SandboxPoolSpec.parse(spec, "spec")
    assert words == str(caught.value)


def test_a_pool_survives_a_round_trip() -> None:
    pool = SandboxPool.parse(
        {"metadata": {"name": "default"}, "spec": {"pod": POD}, "status": {"standby": 2, "new": 1}}
    )
    assert pool.status == SandboxPoolStatus(standby=2)
    assert SandboxPool.parse(pool.as_dict()) == pool
