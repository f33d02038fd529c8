"""Nothing blocks the event loop: whole lives of runs and pools under a watch for files, sockets, processes and sleeps.

Another run's renewal of the Lease, its cancel and its health answer wait on the same thread.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest

from tests.unit.agentruns import hygiene
from tests.unit.agentruns.hygiene import Watch, watching
from tests.unit.agentruns.world import TURNS, World
from tests.unit.sandboxpools import world as pools


@pytest.fixture
def watch() -> Iterator[Watch]:
    with watching() as found:
        yield found


async def completes(world: World) -> None:
    world.order()
    await world.live()
    assert world.outcome == ("True", "Completed")


async def is_resumed(world: World) -> None:
    await completes(world)
    world.says(*TURNS, "and so it is.", "and so it is.")
    world.order("reply", session=world.run().metadata.uid, message="why?")
    await world.live()
    assert world.condition("Succeeded", "reply") == ("True", "Completed")


async def is_cancelled(world: World) -> None:
    world.model_waits_at(1)
    world.order()
    world.start()
    await world.until_now(lambda: len(world.model.calls) == 2)
    await world.cancel()
    await world.finished()
    assert world.outcome == ("False", "Cancelled")


async def is_deleted(world: World) -> None:
    world.model_waits_at(1)
    world.order()
    world.start()
    await world.until_now(lambda: len(world.model.calls) == 2)
    await world.delete()
    await world.until(lambda: world.runs() == [])


async def is_taken_over(world: World) -> None:
    world.order()
    assert (await world.live(lambda _, name: name == "after sandbox.run")).dead
    await world.live()
    assert world.outcome == ("True", "Completed")


async def is_refused(world: World) -> None:
    world.order(workflow="unknown")
    await world.live()
    assert world.outcome == ("False", "Invalid")


async def waits_for_a_store_and_a_forge_that_are_away(world: World) -> None:
    world.fault("status", status=503, times=3)
    world.store.fail_next = 2
    await completes(world)


async def loses_its_sandbox(world: World) -> None:
    world.model_waits_at(1)
    world.order()
    world.start()
    await world.until_now(lambda: len(world.model.calls) == 2)
    world.pool.delete(world.pool.active[0])
    world.model_goes_on()
    await world.finished()


async def is_reaped(world: World) -> None:
    world.order(ttlSecondsAfterFinished=10)
    process = world.start()
    await world.finished()
    task = asyncio.create_task(process.reaper.keep_reaping())
    await world.until(lambda: world.runs() == [])
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


@pytest.mark.parametrize(
    "life",
    [
        completes,
        is_resumed,
        is_cancelled,
        is_deleted,
        is_taken_over,
        is_refused,
        waits_for_a_store_and_a_forge_that_are_away,
        loses_its_sandbox,
        is_reaped,
    ],
)
async def test_the_loop_is_never_blocked_while_a_run(
    world: World, watch: Watch, life: Callable[[World], Awaitable[None]]
) -> None:
    await life(world)
    assert [str(each) for each in watch.offences] == []


async def test_the_loop_is_never_blocked_by_the_life_of_a_pool(watch: Watch) -> None:
    world = pools.World()
    world.pool()
    await world.fill()
    member = await world.claims.claim("run", session="s", pool="default", active_seconds=60)
    assert member is not None
    await world.claims.linger("run", session="s")
    world.pool(replicas=1)
    await world.fill()
    await world.claims.claim("another", session="s", pool="default", active_seconds=60)
    await world.claims.release("another")
    world.later(1000)
    await world.fill()
    assert [str(each) for each in watch.offences] == []


# --- the watch itself: it sees what it must, and only that ---

OFFENDER = """
import os, shutil, socket, subprocess, time, pathlib
def opens(folder): pathlib.Path(folder, "a").write_text("x")
def lists(folder): os.listdir(folder)
def scans(folder): list(os.scandir(folder))
def makes(folder): os.mkdir(os.path.join(folder, "b"))
def removes(folder): shutil.rmtree(os.path.join(folder, "b"), ignore_errors=True)
def sleeps(_): time.sleep(0.001)
def resolves(_): socket.getaddrinfo("localhost", 80)
def runs(_): subprocess.run(["true"])
def connects(_):
    with socket.socket() as s:
        s.settimeout(1)
        try: s.connect(("127.0.0.1", 9))
        except OSError: pass
def connects_without_waiting(_):
    with socket.socket() as s:
        s.setblocking(False)
        try: s.connect(("127.0.0.1", 9))
        except OSError: pass
def yields(_): time.sleep(0)
def imports(_):
    import this_module_does_not_exist_in_the_path
def calls(folder, function): function(folder)
"""


@pytest.fixture
def offender() -> ModuleType:
    """Code that looks as if it stood in the operator."""
    module = ModuleType("offender")
    path = f"{hygiene.ROOT}/operator/hummingbird_operator/offender.py"
    exec(compile(OFFENDER, path, "exec"), module.__dict__)  # noqa: S102 - a deliberate offender
    return module


@pytest.mark.parametrize(
    ("name", "events"),
    [
        ("opens", {"open"}),
        ("lists", {"os.listdir"}),
        ("scans", {"os.scandir"}),
        ("makes", {"os.mkdir"}),
        ("removes", {"shutil.rmtree"}),
        ("sleeps", {"time.sleep"}),
        ("resolves", {"socket.getaddrinfo"}),
        ("runs", {"subprocess.Popen"}),
        ("connects", {"socket.connect"}),
    ],
)
async def test_a_blocking_call_of_product_code_is_seen(
    watch: Watch, offender: ModuleType, tmp_path: Path, name: str, events: set[str]
) -> None:
    getattr(offender, name)(str(tmp_path))
    assert events <= {each.event for each in watch.offences}
    assert watch.places == {f"operator/hummingbird_operator/offender.py:{name}"}


@pytest.mark.parametrize("name", ["connects_without_waiting", "yields", "imports"])
async def test_what_does_not_wait_and_imports_are_no_offence(watch: Watch, offender: ModuleType, name: str) -> None:
    with contextlib.suppress(ModuleNotFoundError):
        getattr(offender, name)("")
    assert watch.offences == []


async def test_the_same_call_in_a_thread_is_no_offence(watch: Watch, offender: ModuleType, tmp_path: Path) -> None:
    await asyncio.to_thread(offender.opens, str(tmp_path))
    assert watch.offences == []


async def test_a_call_that_a_fake_makes_in_place_of_the_world_is_no_offence(
    watch: Watch, offender: ModuleType, tmp_path: Path
) -> None:
    offender.calls(str(tmp_path), os.listdir)
    assert len(watch.offences) == 1
    offender.calls(str(tmp_path), lambda folder: list(Path(folder).iterdir()))
    assert len(watch.offences) == 1


def test_without_a_running_loop_nothing_is_an_offence(watch: Watch, offender: ModuleType, tmp_path: Path) -> None:
    offender.opens(str(tmp_path))
    assert watch.offences == []


async def test_behind_the_watch_nothing_is_kept(offender: ModuleType, tmp_path: Path) -> None:
    with watching() as over:
        pass
    offender.opens(str(tmp_path))
    assert over.offences == []
