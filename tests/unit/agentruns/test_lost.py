"""A sandbox that is lost: its cause is named, another one takes its place once, and the model is told what is gone."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from hummingbird_operator.api.conditions import find
from hummingbird_operator.errors import SandboxLost, Unavailable
from hummingbird_operator.sessions.sandbox import ExecResult
from tests.unit.agentruns.places import Place
from tests.unit.agentruns.test_resuming import REPLY, first
from tests.unit.agentruns.world import TURNS, World, shell

CAUSES = {
    "Deleted": "the pod no longer exists",
    "Evicted": "the node was low on memory",
    "OOMKilled": "container sandbox went over its memory limit of 512Mi",
    "NodeLost": "the node does not answer",
}


async def lose_after(world: World, turn: int, cause: str = "OOMKilled", sandbox: int = 0) -> None:
    """The sandbox is lost while the model thinks about that turn (from 0)."""
    world.model_waits_at(turn)
    calls = turn + 1
    await world.until_now(lambda: len(world.model.calls) == calls)
    world.pool.made[sandbox].lose(cause, CAUSES[cause])
    world.model_goes_on()


@pytest.mark.parametrize("cause", CAUSES)
async def test_it_is_replaced_and_the_model_is_told_why_and_which_files_are_gone(world: World, cause: str) -> None:
    world.model_waits_at(1)
    world.order()
    world.start()
    await lose_after(world, 1, cause)
    run = await world.finished()
    assert world.outcome == ("True", "Completed")
    assert world.condition("SandboxReady") == ("True", "Replaced")
    assert run.status.sandbox is not None
    ready = find(run.status.conditions, "SandboxReady")
    assert ready is not None
    assert ready.message == f"k8spool sandbox-1; the sandbox was lost ({cause}): {CAUSES[cause]}"
    assert run.status.sandbox.lost == f"the sandbox was lost ({cause}): {CAUSES[cause]}"
    assert run.status.sandbox.uid == "pod-1"
    told = str(world.model.calls[2].contents[-1])
    assert f"The sandbox was lost ({cause}): {CAUSES[cause]}. A new one has taken its place" in told
    assert "/tmp/data/_out/0.txt" in told.split("Gone are these files:")[1].split(". Whatever else")[0]
    assert len(world.model.calls) == len(TURNS), "no answer is bought again"
    assert len(world.pool.made[0].executed) == 2, "what ran before has its results in the journal"
    assert len(world.pool.made[1].executed) == 1
    assert len(world.notes) == 1
    assert [place.uid for place in world.pool.places] == ["pod-1"]
    (warning,) = [event for event in world.events.emitted if event[1] == "SandboxLost"]
    assert warning[0] == "Warning"
    assert cause in warning[2]


async def test_the_second_loss_ends_the_run_with_its_own_cause_and_what_was_achieved(world: World) -> None:
    world.model_waits_at(0)
    world.order()
    world.start()
    await lose_after(world, 0, "Evicted")
    await world.until_now(lambda: len(world.pool.made) == 2)
    world.pool.made[1].lose("OOMKilled", CAUSES["OOMKilled"])
    run = await world.finished()
    assert world.outcome == ("False", "SandboxLost")
    assert "OOMKilled" in world.notes[0].body
    assert "512Mi" in world.notes[0].body
    assert "and before that: the sandbox was lost (Evicted)" in (run.status.message or "")
    assert world.condition("SandboxReady") == ("False", "SandboxLost")
    assert run.status.usage is not None
    assert run.status.usage.iterations >= 1
    assert world.pool.places == []


async def test_it_is_replaced_once_even_where_an_older_crd_drops_the_field_that_says_so(world: World) -> None:
    """sandbox-pools.md §6 no. 31: a decision must not depend on what a schema may drop."""
    pruned = world.kube.patch

    async def patch(resource: Any, namespace: str, name: str, operations: Any, *, subresource: str = "") -> Any:
        for each in operations:
            if each["path"] == "/status":
                each["value"].get("sandbox", {}).pop("lost", None)
        return await pruned(resource, namespace, name, operations, subresource=subresource)

    world.kube.patch = patch  # type: ignore[method-assign]
    world.model_waits_at(0)
    world.order()
    world.start()
    await lose_after(world, 0, "Evicted")
    await world.until_now(lambda: len(world.pool.made) == 2)
    world.pool.made[1].lose("OOMKilled", CAUSES["OOMKilled"])
    await world.finished()
    assert world.outcome == ("False", "SandboxLost")
    assert len(world.pool.made) == 2


async def test_one_that_was_deleted_while_no_operator_was_there_is_replaced(world: World) -> None:
    world.order()
    await world.live(lambda _, name: name == "before model.generate")
    world.pool.delete(world.pool.places[0])
    await world.live()
    assert world.outcome == ("True", "Completed")
    assert world.condition("SandboxReady") == ("True", "Replaced")
    assert len(world.notes) == 1


async def resumed_and_lost(world: World, *, archive: bool) -> str:
    """A reply whose sandbox is lost before its second command; what the model was told in the end."""
    session = (await first(world)).metadata.uid
    world.says(*TURNS, REPLY[0], shell("cat /tmp/data/log", 5), REPLY[1])
    world.model_waits_at(4)
    world.order("why", session=session, message="and on arm64?")
    world.start()
    await world.until_now(lambda: len(world.model.calls) == 5)
    if not archive:
        del world.store.blobs[f"sessions/{session}/sandbox.tar.gz"]
    world.pool.made[0].lose("OOMKilled", CAUSES["OOMKilled"])
    world.model_goes_on()
    await world.finished()
    assert world.outcome == ("True", "Completed")
    assert world.condition("SandboxReady") == ("True", "Replaced")
    return str(world.model.calls[-1].contents[-1])


async def test_the_files_of_a_resumed_session_are_restored_once_more(world: World) -> None:
    told = await resumed_and_lost(world, archive=True)
    assert "one\\ntwo\\nthree\\n" in told, "the command saw the archive's files"
    assert "four" not in told, "what the first sandbox's command wrote is gone"
    assert "The files from before this run were restored." in told
    assert "Gone are these files" not in told, "no result of this run had named one"


async def test_files_that_cannot_be_restored_are_said_to_be_gone_too(world: World) -> None:
    told = await resumed_and_lost(world, archive=False)
    assert "The files of the sandbox were not kept: /tmp/data is empty now." in told
    assert "were restored" not in told


@pytest.mark.parametrize("kind", ["before", "after"])
@pytest.mark.parametrize("effect", ["pool.let_go", "kube.patch", "pool.claim", "sandbox.start", "sandbox.run"])
async def test_a_death_while_it_is_replaced_still_ends_in_one_replacement_and_one_word_to_the_model(
    world: World, kind: str, effect: str
) -> None:
    world.model_waits_at(1)
    world.order()
    gone = [False]

    def fatal(_: int, name: str) -> bool:
        return gone[0] and name == f"{kind} {effect}"

    process = world.start(fatal)
    await world.until_now(lambda: len(world.model.calls) == 2)
    world.pool.made[0].lose("OOMKilled", CAUSES["OOMKilled"])
    gone[0] = True
    world.model_goes_on()
    await world.until(lambda: process.dead)
    await process.end()
    await world.live()
    assert world.outcome == ("True", "Completed")
    assert world.condition("SandboxReady") == ("True", "Replaced")
    assert len(world.pool.made) == 2
    assert len(world.notes) == 1
    assert len(world.model.calls) == len(TURNS)
    last = world.model.calls[-1].contents
    assert str(last).count("A new one has taken its place") == 1


async def test_a_replacement_that_is_not_to_be_had_is_waited_for_and_said(world: World) -> None:
    world.model_waits_at(0)
    world.order()
    world.start()
    await world.until_now(lambda: len(world.model.calls) == 1)
    world.pool.made[0].lose("Evicted", CAUSES["Evicted"])
    world.pool.capacity = 0
    world.model_goes_on()
    await world.until(lambda: world.outcome == ("Unknown", "WaitingForSandbox"))
    assert world.condition("SandboxReady") == ("False", "SandboxLost")
    world.pool.capacity = 10
    await world.finished()
    assert world.outcome == ("True", "Completed")


@pytest.mark.parametrize(("cause", "ends"), [("Preempted", "Completed"), ("StartTimeout", "SandboxLost")])
async def test_one_that_is_lost_while_it_is_claimed_is_the_first_loss_and_one_that_never_started_the_last(
    world: World, cause: str, ends: str
) -> None:
    world.pool.problem = SandboxLost(cause, "made by a test")
    world.order()
    world.start()
    if ends == "Completed":
        await world.until(lambda: world.condition("SandboxReady") == ("False", "SandboxLost"))
        world.pool.problem = None
    run = await world.finished()
    assert world.condition("Succeeded") == ("True" if ends == "Completed" else "False", ends)
    if ends == "Completed":
        assert run.status.sandbox is not None
        assert run.status.sandbox.lost == "the sandbox was lost (Preempted): made by a test"
        assert "A new one has taken its place" not in str(world.model.calls[-1].contents), "nothing was done in it"


async def test_another_pod_of_the_run_is_not_the_sandbox_that_its_work_is_in(world: World) -> None:
    world.order()
    await world.live(lambda _, name: name == "before model.generate")
    (old,) = world.pool.places
    world.pool.places.append(world.pool._make())
    world.pool.places[-1].run = old.run
    world.pool.delete(old)
    await world.live()
    assert world.outcome == ("True", "Completed")
    assert world.condition("SandboxReady") == ("True", "Replaced")


async def test_the_cause_is_not_overwritten_by_our_own_deletion(world: World) -> None:
    world.model_waits_at(0)
    world.order()
    world.start()
    refused: list[str] = []

    def fail(verb: str, *_: object) -> Exception | None:
        if verb != "patch" or refused or not world.pool.made or world.pool.active:
            return None
        refused.append(verb)
        return Unavailable("the API server", "made by a test")

    await lose_after(world, 0, "OOMKilled")
    world.kube.fail = fail
    run = await world.finished()
    assert refused
    assert run.status.sandbox is not None
    assert "OOMKilled" in (run.status.sandbox.lost or "")


async def test_what_is_said_of_the_files_is_what_holds_in_the_sandbox_that_serves(world: World) -> None:
    session = (await first(world)).metadata.uid
    world.pool.delete(world.pool.places[0])
    make = world.pool._make

    def mortal() -> Place:
        place = make()

        def die(command: str, chunks: Iterable[bytes]) -> ExecResult:
            list(chunks)
            place.sandbox.lose("OOMKilled", CAUSES["OOMKilled"])
            return ExecResult(137, "", "Killed")

        if len(world.pool.made) == 2:  # the first one of the reply: unpacking kills it
            place.sandbox.stream_exec = die  # type: ignore[method-assign]
        return place

    world.pool._make = mortal  # type: ignore[method-assign]
    world.order("why", session=session, message="and on arm64?")
    await world.live()
    assert world.outcome == ("True", "Completed")
    assert world.condition("SandboxReady") == ("True", "Replaced")
    assert "could not be restored" not in str(world.model.calls[-1].contents)
    assert "three" in str(world.model.calls[-1].contents[-1])
