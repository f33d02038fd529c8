"""The pool's decisions as tables: what is there, and what is to be done."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from hummingbird_operator.api import conditions as c
from hummingbird_operator.api import labels
from hummingbird_operator.sandboxpools import objects
from hummingbird_operator.sandboxpools.decide import Facts, History, Plan, decide
from hummingbird_operator.sandboxpools.members import Pod
from tests.unit.sandboxpools.world import START, member, pool


def ago(seconds: float) -> datetime:
    return START - timedelta(seconds=seconds)


def facts(*pods: Pod, spec: dict[str, Any] | None = None, **changes: Any) -> Facts:
    the_pool = pool(**(spec or {}))
    values: dict[str, Any] = {
        "pool": the_pool,
        "pods": pods,
        "cordoned": frozenset(),
        "over": frozenset(),
        "now": START,
        "template_hash": objects.template_hash(objects.template_of(the_pool)),
    }
    return Facts(**values | changes)


def plan(*pods: Pod, **changes: Any) -> Plan:
    return decide(facts(*pods, **changes))


def deleted(found: Plan) -> dict[str, str]:
    return {deletion.pod.name: deletion.reason for deletion in found.delete}


ACTIVE: dict[str, Any] = {"role": labels.ROLE_ACTIVE, "run": "r", "owner": "", "has_owners": False}
LINGERING: dict[str, Any] = {"role": labels.ROLE_LINGERING, "session": "s", "owner": "", "has_owners": False}


@pytest.mark.parametrize(
    ("pods", "wanted"),
    [
        ([], 2),
        ([member("a")], 1),
        ([member("a"), member("b")], 0),
        ([member("a"), member("b", ready=False, phase="Pending")], 0),
        ([member("a"), member("b", deleting_since=ago(1))], 0),
        ([member("a"), member("b", deleting_since=ago(500))], 1),
        ([member("a"), member("b", **ACTIVE)], 1),
        ([member(n, **ACTIVE) for n in "abcd"], 1),
        ([member(n, **ACTIVE) for n in "abcde"], 0),
        ([member("a", owner="another pool"), member("b", owner="")], 2),
        ([member("a", gated=True, ready=False, phase="Pending"), member("b")], 0),
    ],
    ids=[
        "empty",
        "one missing",
        "full",
        "pending counts",
        "terminating counts",
        "stuck on a dead node does not",
        "claimed does not",
        "up to the maximum",
        "not beyond it",
        "others' pods do not count",
        "waiting for room counts",
    ],
)
def test_how_many_members_are_made(pods: list[Pod], wanted: int) -> None:
    """sandbox-pools.md §6 no. 26, 27, 36."""
    assert plan(*pods).create == wanted


def test_members_just_made_count_though_the_reading_does_not_show_them() -> None:
    """sandbox-pools.md §6 no. 26: five times too many pods, from a reading that lagged."""
    assert plan(history=History(unseen=frozenset({"x", "y"}))).create == 0
    assert plan(member("x"), history=History(unseen=frozenset({"x"}))).create == 1


def test_scale_down_takes_what_is_not_ready_first_then_the_newest_and_never_a_claimed_one() -> None:
    """sandbox-pools.md §6 no. 10."""
    pods = [
        member("old", created=ago(500)),
        member("new", created=ago(10)),
        member("starting", ready=False, phase="Pending", created=ago(5)),
        member("claimed", **ACTIVE),
        member("kept", reap_by=START + timedelta(seconds=9), **LINGERING),
    ]
    assert deleted(plan(*pods, spec={"replicas": 1})) == {"starting": "scaleDown", "new": "scaleDown"}
    gone = deleted(plan(*pods, spec={"replicas": 0}))
    assert set(gone) == {"old", "new", "starting"}


def test_an_old_template_and_a_cordoned_node_are_replaced_and_claimed_members_are_not() -> None:
    """sandbox-pools.md §6 no. 21, 22."""
    pods = [
        member("stale", template_hash="old"),
        member("cordoned", node="n2"),
        member("claimed", template_hash="old", node="n2", **ACTIVE),
    ]
    assert deleted(plan(*pods, cordoned=frozenset({"n2"}))) == {"stale": "templateChanged", "cordoned": "cordoned"}


def test_a_member_that_never_gets_ready_is_replaced_after_the_grace_and_a_gated_one_is_not() -> None:
    """sandbox-pools.md §6 no. 27, 29."""
    slow = member("slow", ready=False, phase="Pending", created=ago(299))
    assert deleted(plan(slow)) == {}
    assert deleted(plan(replace(slow, created=ago(301)))) == {"slow": "neverReady"}
    assert deleted(plan(replace(slow, created=ago(9000), gated=True))) == {}


def test_ended_members_are_removed_but_an_active_one_stays_for_its_run_to_see_why() -> None:
    """sandbox-pools.md §6 no. 23, 41c."""
    pods = [
        member("s", phase="Failed", ready=False, problem="Error: exit code 1"),
        member("l", phase="Succeeded", ready=False, **LINGERING),
        member("a", phase="Failed", ready=False, **ACTIVE),
    ]
    assert deleted(plan(*pods)) == {"s": "failed", "l": "ended"}


def test_deadlines_count_from_what_the_claim_wrote() -> None:
    """sandbox-pools.md §6 no. 41b: the reaper took age from the pod's creationTimestamp."""
    pods = [
        member("due", reap_by=ago(1), **ACTIVE),
        member("old but claimed late", created=ago(90_000), reap_by=START + timedelta(seconds=1), **ACTIVE),
        member("lingered out", reap_by=ago(1), **LINGERING),
    ]
    assert deleted(plan(*pods)) == {"due": "deadline", "lingered out": "lingerExpired"}


def test_more_than_linger_max_make_room_by_what_ends_first() -> None:
    pods = [
        member(n, reap_by=START + timedelta(seconds=at), **LINGERING) for n, at in (("a", 30), ("b", 10), ("c", 20))
    ]
    assert deleted(plan(*pods)) == {"b": "lingerMax"}


def test_a_member_of_a_finished_run_is_an_orphan() -> None:
    """sandbox-pools.md §6 no. 40."""
    assert deleted(plan(member("o", **ACTIVE), over=frozenset({"r"}))) == {"o": "orphaned"}
    assert deleted(plan(member("o", **ACTIVE), over=frozenset({"another"}))) == {}


def test_what_is_being_deleted_is_not_deleted_again() -> None:
    assert deleted(plan(member("d", phase="Failed", ready=False, deleting_since=ago(1)))) == {}


def test_failing_members_pause_the_pool_longer_each_time() -> None:
    """sandbox-pools.md §6 no. 30, 48: one back-off, with a limit."""
    failed = member("f", phase="Failed", ready=False, problem="Error: container sandbox: exit code 3")
    first = plan(failed)
    assert (deleted(first), first.create, first.degraded[0]) == ({"f": "failed"}, 0, False)
    history = History(failures=3, last_failure=ago(2), problem=failed.problem)
    held = plan(failed, history=history)
    assert (deleted(held), held.create) == ({}, 0)
    assert held.degraded[:2] == (True, c.PoolReason.MEMBERS_FAILING)
    assert "exit code 3" in held.degraded[2]
    assert held.again_seconds is not None
    assert 1.5 < held.again_seconds < 2.5
    assert deleted(plan(failed, history=replace(history, last_failure=ago(5)))) == {"f": "failed"}
    assert plan(history=replace(history, last_failure=ago(5))).create == 2
    worst = History(failures=500, last_failure=START)
    resumes = worst.resumes()
    assert resumes is not None
    assert resumes <= START + timedelta(seconds=300)


def test_an_image_that_cannot_be_pulled_holds_the_pool_and_names_the_kubelets_reason() -> None:
    """sandbox-pools.md §6 no. 28."""
    stuck = member("i", ready=False, phase="Pending", failing=True, problem="ImagePullBackOff: no such image")
    found = plan(stuck)
    assert (found.create, found.degraded) == (
        0,
        (True, c.PoolReason.MEMBERS_FAILING, "ImagePullBackOff: no such image"),
    )


def test_a_quota_holds_the_pool_and_is_not_a_failure() -> None:
    """sandbox-pools.md §6 no. 33, 34."""
    history = History(quota_until=START + timedelta(seconds=9), quota_problem="exceeded quota: q")
    found = plan(history=history)
    assert (found.create, found.degraded[1]) == (0, c.PoolReason.QUOTA_EXCEEDED)
    assert plan(history=history, now=START + timedelta(seconds=10)).create == 2


def test_a_refused_template_makes_nothing_and_leaves_what_stands() -> None:
    """sandbox-pools.md §6 no. 58: what a person must mend is not tried again and again."""
    found = plan(member("a"), refusal="spec.pod.template.spec.hostNetwork: no", template_hash="")
    assert (found.create, deleted(found)) == (0, {})
    assert found.degraded == (True, c.PoolReason.TEMPLATE_REFUSED, "spec.pod.template.spec.hostNetwork: no")
    assert plan(refusal="spec.virtualMachine: no", unsupported=True).degraded[1] is c.PoolReason.NOT_SUPPORTED


def test_the_conditions_say_what_stands_by() -> None:
    full = plan(member("a"), member("b"))
    assert full.ready == (True, c.PoolReason.STANDBY_READY, "2 of 2 members stand by")
    assert full.progressing[1] is c.PoolReason.UP_TO_DATE
    assert full.degraded[1] is c.PoolReason.HEALTHY
    some = plan(member("a"), member("c", node="n2"), cordoned=frozenset({"n2"}))
    assert some.ready[0] is False
    gated = plan(member("a", ready=False, phase="Pending", gated=True, problem="Unschedulable: no cpu"))
    assert "no cpu" in gated.progressing[2]


def test_the_next_look_is_when_the_first_deadline_passes() -> None:
    found = plan(member("a"), member("b"), member("l", reap_by=START + timedelta(seconds=7), **LINGERING))
    assert found.again_seconds is not None
    assert 7 <= found.again_seconds < 7.2
    assert plan(member("a"), member("b")).again_seconds is None
