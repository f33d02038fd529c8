"""A sandbox is bounded whether its template says so or not."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from hummingbird_operator.sandboxpools import objects, resources
from tests.unit.sandboxpools.world import START, pool, pool_body

REQUESTS = {"cpu": "100m", "memory": "256Mi", "ephemeral-storage": "0"}
LIMITS = {"cpu": "1", "memory": "1Gi", "ephemeral-storage": "2Gi"}


def test_a_sandbox_that_sets_nothing_gets_the_figures_of_seed_003_section_8_5() -> None:
    template = pool_body()["spec"]["pod"]["template"]
    cold = objects.cold(
        template, namespace="n", pool="", run_uid="r", reap_by=START + timedelta(1), active_seconds=1, linger_seconds=0
    )
    for pod in (objects.standby(pool()), cold):
        assert pod["spec"]["containers"][0]["resources"] == {"requests": REQUESTS, "limits": LIMITS}
    assert "resources" not in template["spec"]["containers"][0]


def test_only_the_container_where_commands_run_is_filled_in() -> None:
    containers = [{"name": "sandbox", "image": "i"}, {"name": "side", "image": "i"}]
    pod = objects.sandbox({"spec": {"containers": containers}}, namespace="n", pool="p")
    assert "resources" not in pod["spec"]["containers"][1]


MERGED: list[tuple[dict[str, Any], dict[str, Any], dict[str, Any]]] = [
    ({"requests": {"cpu": "10m", "memory": "32Mi"}}, {"cpu": "10m", "memory": "32Mi"}, {}),
    ({"limits": {"memory": "512Mi"}}, {}, {"memory": "512Mi"}),
    (
        {"limits": {"memory": "128Mi", "cpu": "50m"}},
        {"memory": "128Mi", "cpu": "50m"},
        {"memory": "128Mi", "cpu": "50m"},
    ),
    ({"requests": {"memory": "4Gi", "cpu": 2}}, {"memory": "4Gi", "cpu": 2}, {"memory": "4Gi", "cpu": 2}),
    ({"limits": {"cpu": "0.05"}}, {"cpu": "0.05"}, {"cpu": "0.05"}),
    (
        {"limits": {"memory": "1e6", "cpu": 0}},
        {"memory": "1e6", "cpu": 0},
        {"memory": "1e6", "cpu": 0},
    ),
    ({"limits": {"memory": "268435455"}}, {"memory": "268435455"}, {"memory": "268435455"}),
    ({"limits": {"memory": "268435456"}}, {}, {"memory": "268435456"}),
    ({"limits": {"memory": "300M"}, "requests": {"memory": "1k"}}, {"memory": "1k"}, {"memory": "300M"}),
    ({"limits": {"memory": "much"}}, {}, {"memory": "much"}),
    ({"requests": {"memory": None}}, {"memory": None}, {}),
    ({"limits": {"example.com/gpu": 1}}, {}, {"example.com/gpu": 1}),
    ({"requests": None, "limits": None}, {}, {}),
]


@pytest.mark.parametrize(("given", "requests", "limits"), MERGED, ids=[str(given) for given, _, _ in MERGED])
def test_what_a_template_says_stands_and_the_rest_fits_to_it(
    given: dict[str, Any], requests: dict[str, Any], limits: dict[str, Any]
) -> None:
    assert resources.bounded(given) == {"requests": REQUESTS | requests, "limits": LIMITS | limits}


def test_disk_is_limited_but_not_asked_for_so_that_nodes_that_do_not_account_for_it_take_sandboxes() -> None:
    """The API server fills a request that is left out with the limit."""
    for given in ({}, {"limits": {"ephemeral-storage": "1Gi"}}):
        assert resources.bounded(given)["requests"]["ephemeral-storage"] == "0"
    asked = {"requests": {"ephemeral-storage": "3Gi"}}
    assert resources.bounded(asked)["limits"]["ephemeral-storage"] == "3Gi"


def test_other_fields_of_the_resources_are_kept() -> None:
    assert resources.bounded({"claims": [{"name": "c"}]})["claims"] == [{"name": "c"}]
