"""Whoever does not lead writes nothing to the API server, whatever it read a moment ago; reading stays free."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from hummingbird_operator.errors import LeadershipLost, Unavailable
from hummingbird_operator.kube.client import PODS, KubeApi
from hummingbird_operator.kube.guarded import GuardedKube
from hummingbird_operator.kube.testing import FakeKube

WRITES: dict[str, Callable[[KubeApi], Awaitable[object]]] = {
    "create": lambda kube: kube.create(PODS, "n", {"metadata": {"name": "new"}}),
    "patch": lambda kube: kube.patch(PODS, "n", "old", [{"op": "add", "path": "/spec", "value": {"x": 1}}]),
    "merge": lambda kube: kube.merge(PODS, "n", "old", {"spec": {"x": 1}}),
    "delete": lambda kube: kube.delete(PODS, "n", "old"),
}


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
@pytest.mark.parametrize("error", [LeadershipLost("another leads"), Unavailable("the API server", "unsure")])
async def test_no_write_passes_where_the_lead_is_lost_or_in_doubt(
    write: Callable[[KubeApi], Awaitable[object]], error: Exception
) -> None:
    inner, doubt = FakeKube(), [True]

    def check() -> None:
        if doubt[0]:
            raise error

    kube = GuardedKube(inner, check)
    inner.put(PODS, "n", {"metadata": {"name": "old"}})
    writes = inner.writes
    with pytest.raises(type(error)):
        await write(kube)
    assert inner.writes == writes
    assert (await kube.get(PODS, "n", "old"))["metadata"]["name"] == "old"
    assert len(await kube.list(PODS, "n")) == 1
    doubt[0] = False
    await write(kube)
    assert inner.writes == writes + 1
