"""What a sandbox's methods bear, and what ends their waits: a 404 of a live pod, doubt, outages, a cancel, a bound."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hummingbird_ai.abort import Abort
from hummingbird_operator.errors import Aborted, Doubt, LeadershipLost, NotFound, SandboxLost, Unavailable
from hummingbird_operator.kube.exec import NotStarted
from hummingbird_operator.sandboxes import commands, patience
from hummingbird_operator.sandboxes.shell import ShellSandbox
from tests.unit.sandboxes.test_shell import Clock, LocalStream, LocalTransport, limits

AWAY = NotStarted("the API server", "exec: refused")


@pytest.fixture
def transport(tmp_path: Path) -> LocalTransport:
    return LocalTransport(tmp_path)


def made(transport: LocalTransport, clock: Clock | None = None, **options: Any) -> ShellSandbox:
    """Without a clock it waits for real."""
    times = {"clock": clock, "pause": clock.pause} if clock is not None else {}
    return ShellSandbox(
        transport,
        on_cleanup=lambda: None,
        on_linger=lambda session: None,
        places=commands.Places(home=f"{transport.folder}/home", data=f"{transport.folder}/data"),
        **{**times, **options},
    )


def methods(box: ShellSandbox, transport: LocalTransport) -> list[Callable[[], object]]:
    """Those that ride an outage out, none of them done before."""
    return [
        box.start,
        lambda: box.run("id", "echo x", limits(transport)),
        lambda: box.write_file(f"{transport.folder}/data/a", b"x"),
        lambda: box.exec("true"),
        lambda: box.stream_exec("cat", [b"x"]),
        lambda: box.stream_to_file(f"{transport.folder}/data/b", [b"x"]),
    ]


def test_a_404_of_an_exec_whose_pod_is_alive_is_no_loss(transport: LocalTransport) -> None:
    """A kubelet that has just restarted says "pod does not exist" until it has seen its pods; proxies say it too."""
    box = made(transport, Clock())
    for method in methods(box, transport):
        begun = transport.opened
        transport.before = lambda n, begun=begun: NotFound("pod does not exist") if n <= begun + 2 else None  # type: ignore[misc]
        method()
        assert transport.opened > begun + 2
    transport.before = lambda _: NotFound("pod does not exist")
    with pytest.raises(NotStarted, match="pod does not exist"):
        box.sweep()
    with pytest.raises(NotStarted):
        list(box.read_file_iter("/dev/null"))
    transport.gone = SandboxLost("Deleted", "the pod no longer exists")
    with pytest.raises(SandboxLost, match="no longer exists"):
        box.exec("true")


def test_a_404_while_nobody_can_look_at_the_pod_is_no_loss_either(
    transport: LocalTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away() -> SandboxLost | None:
        raise Unavailable("the API server", "away")

    monkeypatch.setattr(transport, "lost", away)
    transport.before = lambda n: NotFound("pod does not exist") if n == 1 else None
    assert made(transport, Clock()).exec("echo on").stdout == "on\n"


def test_an_outage_of_two_and_a_half_minutes_is_ridden_out(transport: LocalTransport) -> None:
    clock = Clock()
    box = made(transport, clock)
    for method in methods(box, transport):
        back = clock.now + 150

        def refused(_: int, back: float = back) -> Exception | None:
            clock.now += 10  # what connecting takes where nobody answers
            return AWAY if clock.now < back else None

        transport.before = refused
        method()
        assert clock.now >= back


def test_doubt_about_the_lead_is_waited_out_and_not_counted(transport: LocalTransport) -> None:
    """An outage of the API server is a doubt about the lead as well, and lasts a little longer than it."""
    clock, until = Clock(), [0.0]

    def check() -> None:
        if clock.now < until[0]:
            raise Doubt("the API server", "the Lease could not be renewed in time", retry_after=2.0)

    box = made(transport, clock, check=check)
    for method in methods(box, transport):
        until[0] = clock.now + 3600
        begun = transport.opened
        transport.before = lambda n, begun=begun: AWAY if n <= begun + 5 else None  # type: ignore[misc]
        method()
        assert clock.now >= until[0]
    until[0] = clock.now + 3600
    assert list(box.read_file_iter("/dev/null")) == []
    assert clock.now >= until[0]


def test_a_doubt_in_the_middle_moves_the_end_of_the_patience(transport: LocalTransport) -> None:
    """A command that was cut off goes on in the sandbox: it must not be reported as failed for a doubt of ours."""
    clock = Clock()
    box = made(transport, clock)
    box.start()
    until = [0.0]

    def check() -> None:
        if clock.now < until[0]:
            raise Doubt("the API server", "the Lease could not be renewed in time")

    def cut(number: int, stream: LocalStream) -> None:
        if until[0] == 0:
            until[0] = clock.now + 1000
            stream.shut()

    box = made(transport, clock, check=check)
    transport.after = cut
    result = box.run("id", "sleep 0.3; echo whole", limits(transport))
    assert (result.stdout.head, result.exit_code) == ("whole\n", 0)
    assert clock.now >= 1000


def test_a_doubt_that_ends_in_the_loss_of_the_lead_says_so(transport: LocalTransport) -> None:
    said = iter([Doubt("the API server", "?"), Doubt("the API server", "?"), LeadershipLost("another one leads")])

    def check() -> None:
        raise next(said)

    with pytest.raises(LeadershipLost):
        made(transport, Clock(), check=check).run("id", "true", limits(transport))
    assert transport.opened == 0


class Waiting:
    """Sets the abort as soon as the sandbox waits for something that never comes."""

    def __init__(self) -> None:
        self.abort = Abort()
        self.reached = threading.Event()
        self.thread = threading.Thread(target=self._cancel)
        self.thread.start()

    def _cancel(self) -> None:
        self.reached.wait()
        self.abort.set("Cancelled")


@pytest.fixture
def waiting() -> Iterator[Waiting]:
    made = Waiting()
    yield made
    made.reached.set()
    made.thread.join()


@pytest.mark.parametrize("number", range(6))
def test_a_cancel_ends_the_wait_for_a_kubelet(
    transport: LocalTransport, waiting: Waiting, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the cancel does not end it, the wait is for a day."""
    monkeypatch.setattr(patience, "FIRST_PAUSE", 86_400.0)

    def refused(_: int) -> Exception:
        waiting.reached.set()
        return AWAY

    transport.before = refused
    box = made(transport, abort=waiting.abort)
    with pytest.raises(Aborted, match="Cancelled"):
        methods(box, transport)[number]()


def test_a_cancel_ends_the_wait_for_a_lead_that_is_in_doubt(transport: LocalTransport, waiting: Waiting) -> None:
    def check() -> None:
        waiting.reached.set()
        raise Doubt("the API server", "?", retry_after=86_400)

    with pytest.raises(Aborted, match="Cancelled"):
        made(transport, abort=waiting.abort, check=check).run("id", "true", limits(transport))


@pytest.fixture
def swept(monkeypatch: pytest.MonkeyPatch, transport: LocalTransport) -> Path:
    """A sweep writes a file instead of ending the tests: it is never run here."""
    path = transport.folder / "swept"
    monkeypatch.setattr(commands, "script", lambda: f"touch {path}\n".encode())
    return path


def test_a_sweep_with_a_bound_ends_everything_once(transport: LocalTransport, swept: Path) -> None:
    abort = Abort()
    abort.set("Cancelled")
    made(transport, abort=abort).sweep(seconds=60)
    assert swept.exists()
    assert transport.opened == 1


def test_a_sweep_without_a_bound_waits_a_doubt_out_until_an_abort_and_then_tries_a_few_times(
    transport: LocalTransport, swept: Path
) -> None:
    clock, abort, asked = Clock(), Abort(), [0]

    def check() -> None:
        asked[0] += 1
        if asked[0] == 100:
            abort.set("ShuttingDown")
        if clock.now < 3600:
            raise Doubt("the API server", "?")

    box = made(transport, clock, abort=abort, check=check)
    with pytest.raises(Doubt):
        box.sweep()
    assert 100 < asked[0] < 110
    assert not swept.exists()
    clock.now = 0.0
    made(transport, clock, check=check).sweep()
    assert swept.exists()
    assert clock.now >= 3600


def test_a_sweep_with_a_bound_tries_again_within_it_and_not_beyond(transport: LocalTransport, swept: Path) -> None:
    clock = Clock()
    transport.before = lambda n: AWAY if n <= 2 else None
    made(transport, clock).sweep(seconds=60)
    assert swept.exists()

    def slow(_: int) -> Exception:
        clock.now += 10
        return AWAY

    transport.before, opened = slow, transport.opened
    with pytest.raises(Unavailable):
        made(transport, clock).sweep(seconds=20)
    assert transport.opened == opened + 2


def test_a_doubt_that_lasts_longer_than_the_bound_ends_the_sweep(transport: LocalTransport) -> None:
    def check() -> None:
        raise Doubt("the API server", "?")

    clock = Clock()
    with pytest.raises(Doubt):
        made(transport, clock, check=check).sweep(seconds=20)
    assert clock.now <= 30
    assert transport.opened == 0


def test_a_sweep_that_hangs_is_left_at_its_bound_and_has_no_late_effect(
    transport: LocalTransport, swept: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the time that it would get through, the next run may have the sandbox."""
    hangs, late = threading.Event(), list[str | None]()
    opened = transport.open

    def hanging(argv: Any, *, deadline_seconds: float | None, abort: Abort | None) -> Any:
        hangs.wait()
        late.append(abort.reason if abort is not None else None)
        return opened(argv, deadline_seconds=deadline_seconds, abort=abort)

    monkeypatch.setattr(transport, "open", hanging)
    with pytest.raises(Unavailable, match=r"within 0\.1 s"):
        made(transport).sweep(seconds=0.1)
    hangs.set()
    for thread in threading.enumerate():
        if thread.name == "sandbox-bounded":
            thread.join()
    assert late == ["TimedOut"]


def test_half_a_file_is_removed_although_the_run_was_cancelled(transport: LocalTransport) -> None:
    abort = Abort()

    def chunks() -> Iterator[bytes]:
        yield b"half"
        abort.set("Cancelled")
        yield b"more"

    path = transport.folder / "data/half"
    with pytest.raises(Aborted):
        made(transport, abort=abort).stream_to_file(str(path), chunks())
    assert not path.exists()
