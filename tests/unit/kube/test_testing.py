"""FakeKube keeps the promises that the tests of others stand on."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from hummingbird_operator.errors import Conflict, Invalid, NotFound
from hummingbird_operator.kube.client import AGENT_RUNS, PODS, AlreadyExists, KubeApi
from hummingbird_operator.kube.testing import FakeKube, apply_operation, matches, merged


def pod(name: str = "p", **metadata: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, **metadata}, "spec": {"a": 1}}


async def test_it_is_the_interface() -> None:
    kube: KubeApi = FakeKube()
    assert await kube.list(PODS, "n") == []


async def test_a_name_is_taken_once_and_uids_are_never_reused() -> None:
    kube = FakeKube()
    first = await kube.create(PODS, "n", pod())
    with pytest.raises(AlreadyExists):
        await kube.create(PODS, "n", pod())
    await kube.delete(PODS, "n", "p")
    second = await kube.create(PODS, "n", pod())
    assert first["metadata"]["uid"] != second["metadata"]["uid"]


async def test_a_failed_test_writes_nothing() -> None:
    kube = FakeKube()
    made = await kube.create(PODS, "n", pod())
    good = {"op": "test", "path": "/metadata/resourceVersion", "value": made["metadata"]["resourceVersion"]}
    change = {"op": "add", "path": "/metadata/labels", "value": {"x": "y"}}
    await kube.patch(PODS, "n", "p", [good, change])
    with pytest.raises(Conflict):
        await kube.patch(PODS, "n", "p", [good, {"op": "remove", "path": "/metadata/labels"}])
    assert (await kube.get(PODS, "n", "p"))["metadata"]["labels"] == {"x": "y"}
    with pytest.raises(Conflict):
        await kube.patch(PODS, "n", "p", [{"op": "remove", "path": "/metadata/annotations/none"}])


async def test_merges_and_deletes_hold_their_preconditions() -> None:
    kube = FakeKube()
    made = await kube.create(PODS, "n", pod())
    with pytest.raises(Conflict):
        await kube.merge(PODS, "n", "p", {"metadata": {"resourceVersion": "0"}, "spec": {"a": 2}})
    with pytest.raises(Conflict):
        await kube.delete(PODS, "n", "p", uid="x")
    with pytest.raises(Conflict):
        await kube.delete(PODS, "n", "p", resource_version="0")
    meta = made["metadata"]
    await kube.delete(PODS, "n", "p", uid=meta["uid"], resource_version=meta["resourceVersion"])
    with pytest.raises(NotFound):
        await kube.get(PODS, "n", "p")


async def test_the_status_subresource_changes_nothing_else_and_the_generation_counts_specs() -> None:
    kube = FakeKube()
    await kube.create(AGENT_RUNS, "n", pod())
    after = await kube.merge(AGENT_RUNS, "n", "p", {"spec": {"a": 2}, "status": {"s": 1}}, subresource="status")
    assert (after["spec"], after["status"], after["metadata"]["generation"]) == ({"a": 1}, {"s": 1}, 1)
    after = await kube.merge(AGENT_RUNS, "n", "p", {"spec": {"a": 2}})
    assert (after["metadata"]["generation"], after["status"]) == (2, {"s": 1})
    with pytest.raises(Invalid):
        await kube.merge(AGENT_RUNS, "n", "p", {"metadata": {"uid": "x"}})


async def test_a_write_that_changes_nothing_makes_no_version_and_no_event() -> None:
    kube = FakeKube()
    made = await kube.create(PODS, "n", pod())
    again = await kube.merge(PODS, "n", "p", {"spec": {"a": 1}})
    assert again["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]
    assert len(kube.events) == 1


async def test_finalizers_hold_an_object_until_the_last_is_gone() -> None:
    kube = FakeKube()
    await kube.create(AGENT_RUNS, "n", pod(finalizers=["f"]))
    await kube.delete(AGENT_RUNS, "n", "p")
    assert (await kube.get(AGENT_RUNS, "n", "p"))["metadata"]["deletionTimestamp"]
    await kube.merge(AGENT_RUNS, "n", "p", {"metadata": {"finalizers": None}})
    with pytest.raises(NotFound):
        await kube.get(AGENT_RUNS, "n", "p")


async def test_stale_lists_never_go_back_in_time() -> None:
    kube = FakeKube(seed=3)
    kube.lag = 4
    shown, behind = 0, False
    for number in range(60):
        await kube.create(PODS, "n", pod(f"p{number}"))
        found = len(await kube.list(PODS, "n"))
        behind = behind or found < number + 1
        assert shown <= found <= number + 1
        shown = found
    assert behind


async def test_what_is_returned_is_a_copy() -> None:
    kube = FakeKube()
    made = await kube.create(PODS, "n", pod())
    made["spec"]["a"] = 99
    (await kube.list(PODS, "n"))[0]["spec"]["a"] = 99
    assert (await kube.get(PODS, "n", "p"))["spec"]["a"] == 1


async def test_one_of_many_that_read_the_same_version_wins() -> None:
    kube = FakeKube()
    made = await kube.create(PODS, "n", pod())
    test = {"op": "test", "path": "/metadata/resourceVersion", "value": made["metadata"]["resourceVersion"]}
    writes = [
        kube.patch(PODS, "n", "p", [test, {"op": "add", "path": "/spec/by", "value": number}]) for number in range(9)
    ]
    results = await asyncio.gather(*writes, return_exceptions=True)
    assert sum(isinstance(result, Conflict) for result in results) == 8


def test_selectors_and_patches() -> None:
    body = {"metadata": {"labels": {"a": "1"}}}
    assert matches(body, "a=1")
    assert matches(body, "a")
    assert not matches(body, "a=2")
    assert not matches(body, "a=1,b")
    assert merged({"a": {"b": 1, "c": 2}}, {"a": {"b": None, "d": 3}}) == {"a": {"c": 2, "d": 3}}
    target: dict[str, Any] = {"list": [1, 2], "x~/y": 1}
    apply_operation(target, {"op": "add", "path": "/list/-", "value": 3})
    apply_operation(target, {"op": "replace", "path": "/list/0", "value": 9})
    apply_operation(target, {"op": "remove", "path": "/x~0~1y"})
    assert target == {"list": [9, 2, 3]}
