"""ShellSandbox over shells of this machine, with connections that break where the test says so."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from hummingbird_ai.abort import Abort
from hummingbird_operator.errors import Aborted, Invalid, NotFound, SandboxLost, Unavailable
from hummingbird_operator.kube.exec import STATUS, STDERR, STDOUT, NotStarted, StreamBroken
from hummingbird_operator.sandboxes import commands
from hummingbird_operator.sandboxes.shell import ShellSandbox
from hummingbird_operator.sessions.sandbox import RunLimits, Sandbox

SUCCESS = b'{"status": "Success"}'


class LocalStream:
    """What an ExecStream does, over the pipes of a local process."""

    def __init__(self, argv: Sequence[str], folder: Path) -> None:
        self.process = subprocess.Popen(
            list(argv), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=folder
        )
        self.frames: list[tuple[int, bytes] | None] = []
        self.ready = threading.Condition()
        self.readers = [
            threading.Thread(target=self._read, args=(STDOUT, self.process.stdout)),
            threading.Thread(target=self._read, args=(STDERR, self.process.stderr)),
        ]
        self.waiter = threading.Thread(target=self._wait)
        self.cut = False
        for thread in (*self.readers, self.waiter):
            thread.start()

    def _put(self, frame: tuple[int, bytes] | None) -> None:
        with self.ready:
            self.frames.append(frame)
            self.ready.notify_all()

    def _read(self, channel: int, pipe: Any) -> None:
        with pipe:
            while data := pipe.read1(32768):
                self._put((channel, data))

    def _wait(self) -> None:
        for reader in self.readers:
            reader.join()
        code = self.process.wait()
        cause = f'{{"reason": "ExitCode", "message": "{code}"}}'
        failure = f'{{"status": "Failure", "details": {{"causes": [{cause}]}}}}'.encode()
        self._put((STATUS, failure if code else SUCCESS))
        self._put(None)

    def send(self, data: bytes) -> None:
        if self.cut or self.process.stdin is None:
            raise StreamBroken("cut")
        try:
            self.process.stdin.write(data)
            self.process.stdin.flush()
        except OSError as error:
            raise StreamBroken("cut") from error

    def end_stdin(self) -> None:
        if self.process.stdin is not None:
            self.process.stdin.close()

    def receive(self, timeout: float | None) -> tuple[int, bytes] | None:
        with self.ready:
            if not self.ready.wait_for(lambda: self.frames or self.cut, timeout):
                raise TimeoutError
            return None if self.cut or not self.frames else self.frames.pop(0)

    def shut(self) -> None:
        with self.ready:
            self.cut = True
            self.ready.notify_all()

    def close(self) -> None:
        self.shut()
        self.process.kill()
        for pipe in (self.process.stdin,):
            if pipe is not None:
                try:
                    pipe.close()
                except OSError:
                    continue
        self.waiter.join()


class LocalTransport:
    """Opens local shells. `before` may raise instead, `after` may break the stream that was opened."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.opened = 0
        self.gone: SandboxLost | None = None
        self.before: Callable[[int], Exception | None] = lambda number: None
        self.after: Callable[[int, LocalStream], None] = lambda number, stream: None

    @contextmanager
    def open(self, argv: Sequence[str], *, deadline_seconds: float | None, abort: Abort | None) -> Iterator[Any]:
        self.opened += 1
        error = self.before(self.opened)
        if error is not None:
            raise error
        stream = LocalStream(argv, self.folder)
        self.after(self.opened, stream)
        try:
            if abort is None:
                yield stream
            else:
                with abort.on_abort(stream.shut):
                    yield stream
        except StreamBroken as broken:
            if abort is not None and abort.reason is not None:
                raise Aborted(abort.reason) from broken
            raise
        finally:
            stream.close()

    def lost(self) -> SandboxLost | None:
        return self.gone


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def pause(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def transport(tmp_path: Path) -> LocalTransport:
    return LocalTransport(tmp_path)


def made(transport: LocalTransport, abort: Abort | None = None) -> ShellSandbox:
    clock, folder = Clock(), transport.folder
    return ShellSandbox(
        transport,
        abort=abort,
        on_cleanup=lambda: None,
        on_linger=lambda session: None,
        places=commands.Places(home=f"{folder}/home", data=f"{folder}/data"),
        clock=clock,
        pause=clock.pause,
    )


@pytest.fixture
def box(transport: LocalTransport) -> ShellSandbox:
    box = made(transport)
    box.start()
    return box


def limits(transport: LocalTransport, **changes: Any) -> RunLimits:
    data = f"{transport.folder}/data/_out"
    return RunLimits(stdout_path=f"{data}/0.txt", stderr_path=f"{data}/1.txt", timeout_seconds=10, **changes)


def test_it_is_a_sandbox(box: ShellSandbox) -> None:
    sandbox: Sandbox = box
    assert sandbox.exec("printf 'a\\tb'; echo e >&2; exit 4") == sandbox.exec("printf 'a\\tb'; echo e >&2; exit 4")
    result = sandbox.exec("printf '%s' 'a\\b'; echo e >&2; exit 4")
    assert (result.exit_code, result.stdout, result.stderr) == (4, "a\\b", "e\n")


def test_files_and_streams_go_both_ways(box: ShellSandbox, tmp_path: Path) -> None:
    data = bytes(range(256)) * 2000
    box.write_file(f"{tmp_path}/data/a b/c", data)
    assert b"".join(box.read_file_iter(f"{tmp_path}/data/a b/c")) == data
    assert box.stream_to_file(f"{tmp_path}/data/d", iter([b"1\n2\n", b"3"])) == (5, 2)
    assert box.stream_exec("cat; echo done", iter([b"x"])).stdout == "xdone\n"
    with pytest.raises(NotFound):
        list(box.read_file_iter(f"{tmp_path}/data/none"))


def test_success_without_the_commands_own_word_is_not_believed(transport: LocalTransport, box: ShellSandbox) -> None:
    """DESIGN §7: the recorded exit decides, not the stream's own Success."""

    def lie(number: int, stream: LocalStream) -> None:
        stream.process.kill()
        stream.process.wait()
        stream._put((STATUS, SUCCESS))

    transport.after = lie
    with pytest.raises(Unavailable):
        box.exec("sleep 5")
    with pytest.raises(Unavailable):
        list(box.read_file_iter("/dev/null"))


def test_a_command_that_was_cut_off_is_asked_for_again_and_ran_once(
    transport: LocalTransport, box: ShellSandbox
) -> None:
    def cut_twice(number: int, stream: LocalStream) -> None:
        if number in (2, 3):
            threading.Timer(0.3, stream.shut).start()

    transport.after = cut_twice
    command = f"echo x >>{transport.folder}/data/n; sleep 1; echo end"
    result = box.run("id", command, limits(transport))
    assert (result.stdout.head, result.exit_code, result.replayed) == ("end\n", 0, False)
    assert Path(f"{transport.folder}/data/n").read_text() == "x\n"
    assert box.run("id", command, limits(transport)).replayed


def test_an_outage_before_the_command_started_is_ridden_out(transport: LocalTransport, box: ShellSandbox) -> None:
    transport.before = lambda number: NotStarted("the API server", "away") if number < 6 else None
    assert box.exec("echo on").stdout == "on\n"
    transport.before = lambda number: NotStarted("the API server", "away")
    with pytest.raises(Unavailable):
        box.exec("echo never")
    with pytest.raises(Unavailable):
        box.run("never", "echo never", limits(transport))


def test_a_plain_command_that_may_have_run_is_not_repeated(transport: LocalTransport, box: ShellSandbox) -> None:
    transport.after = lambda number, stream: threading.Timer(0.2, stream.shut).start()
    opened = transport.opened
    with pytest.raises(Unavailable):
        box.exec("sleep 2")
    assert transport.opened == opened + 1


def test_a_lost_sandbox_is_named_whatever_broke_first(transport: LocalTransport, box: ShellSandbox) -> None:
    transport.gone = SandboxLost("OOMKilled", "over 1Gi")
    for error in (NotStarted("the API server", "x"), NotFound("pods n/p"), Invalid("create pods/exec", "bad")):
        transport.before = lambda number, error=error: error  # type: ignore[misc]
        with pytest.raises(SandboxLost, match="OOMKilled"):
            box.exec("true")
        with pytest.raises(SandboxLost, match="OOMKilled"):
            box.run("x", "true", limits(transport))
    transport.gone = None
    transport.before = lambda number: NotFound("pods n/p")
    with pytest.raises(Unavailable, match="n/p"):  # the look says that it is alive
        box.exec("true")


def test_an_error_of_the_source_is_the_sources_own(transport: LocalTransport, box: ShellSandbox) -> None:
    def chunks(error: Exception) -> Iterator[bytes]:
        yield b"half"
        raise error

    path = f"{transport.folder}/data/half"
    for error in (NotFound("artifact"), Unavailable("GitLab", "away"), ValueError("bug")):
        opened = transport.opened
        with pytest.raises(type(error)) as caught:
            box.stream_to_file(path, chunks(error))
        assert caught.value is error
        assert not Path(path).exists()
        assert transport.opened <= opened + 2


def test_an_abort_ends_a_command_and_what_follows_but_not_the_cleaning_up(transport: LocalTransport) -> None:
    abort = Abort()
    box = made(transport, abort)
    box.start()
    threading.Timer(0.3, abort.set, ["Cancelled"]).start()
    with pytest.raises(Aborted):
        box.run("id", "exec sleep 9", limits(transport))
    for again in (
        lambda: box.exec("true"),
        lambda: box.run("x", "true", limits(transport)),
        lambda: box.write_file(f"{transport.folder}/data/x", b""),
        lambda: list(box.read_file_iter("/dev/null")),
    ):
        with pytest.raises(Aborted):
            again()
    box.cleanup()
    box.linger("s")


def test_a_script_that_was_removed_is_put_back(transport: LocalTransport, box: ShellSandbox) -> None:
    box.exec(f"rm -rf {transport.folder}/home")
    assert box.run("id", "echo on", limits(transport)).stdout.head == "on\n"


def test_output_beyond_the_limit_is_dropped_and_said(box: ShellSandbox) -> None:
    result = box.exec("head -c 9000000 /dev/zero | tr '\\0' x; exit 3")
    assert len(result.stdout) < 8_400_000
    assert "were dropped" in result.stderr
    assert result.exit_code == 3


def test_a_path_outside_of_the_data_folder_is_refused(transport: LocalTransport, box: ShellSandbox) -> None:
    for path in ("/etc/passwd", f"{transport.folder}/data/../x", f"{transport.folder}/data/a\nb"):
        with pytest.raises(Invalid):
            box.run("id", "true", RunLimits(stdout_path=path, stderr_path=path))


def test_an_image_that_cannot_run_the_script_is_said(transport: LocalTransport) -> None:
    Path(f"{transport.folder}/data").write_text("a file where a folder must be")
    with pytest.raises(Invalid, match="image"):
        made(transport).start()


@pytest.mark.parametrize("cut", [0, 1, 30, 60, -8, -1])
def test_an_answer_that_is_not_whole_is_no_answer(cut: int) -> None:
    whole = (
        b"known=0 exit=0 timed_out=0 out_bytes=2 out_lines=1 out_cut=0 out_kept=0 out_head=2 out_tail=0"
        b" err_bytes=0 err_lines=0 err_cut=0 err_kept=0 err_head=0 err_tail=0\nx\n\nhb-end\n"
    )
    bounds = RunLimits(stdout_path="/tmp/data/a", stderr_path="/tmp/data/b")
    assert commands.parse_answer(whole, bounds) is not None
    assert commands.parse_answer(whole[:cut], bounds) is None


HONEST = {
    "known": 0,
    "exit": 0,
    "timed_out": 0,
    **{f"{name}_{key}": 0 for name in ("out", "err") for key in ("bytes", "lines", "cut", "kept", "head", "tail")},
}
BOUNDS = RunLimits(stdout_path="/tmp/data/a", stderr_path="/tmp/data/b")


def forged(body: bytes = b"", **counts: int) -> bytes:
    return " ".join(f"{key}={value}" for key, value in (HONEST | counts).items()).encode() + b"\n" + body + commands.END


@pytest.mark.parametrize(
    "counts",
    [
        {"out_head": 4097, "out_bytes": 4097},
        {"err_head": 4_000_000, "err_bytes": 4_000_000},
        {"out_tail": 513, "out_bytes": 9999},
        {"err_tail": 4_000_000, "err_bytes": 4_000_000},
        {"out_head": -1},
        {"out_tail": -8, "out_bytes": 8},
        {"out_bytes": 10**300},
        {"exit": -1},
    ],
    ids=str,
)
def test_a_record_with_counts_that_the_script_does_not_write_is_refused(counts: dict[str, int]) -> None:
    """A forged record brought four million characters into the conversation."""
    body = b"x" * max(0, sum(value for key, value in counts.items() if key.endswith(("_head", "_tail"))))
    with pytest.raises(Invalid, match=r"tampered with: .*(head|tail|bytes|exit) is "):
        commands.parse_answer(forged(body, **counts), BOUNDS)


def test_a_record_at_its_bounds_is_read_and_fits_into_an_answer() -> None:
    counts = {f"{name}_{key}": most for name in ("out", "err") for key, most in (("head", 4096), ("tail", 512))}
    sizes = {"out_bytes": 1 << 28, "err_bytes": 1 << 28, "out_lines": 1 << 28, "exit": 255}
    answer = forged(b"x" * 2 * 4608, **counts, **sizes)
    result = commands.parse_answer(answer, BOUNDS)
    assert result is not None
    assert (len(result.stdout.head), len(result.stderr.tail)) == (4096, 512)
    assert len(answer) <= commands.answer_bytes(BOUNDS)


@pytest.mark.parametrize("sizes", [4_000_000, 20_000], ids=["much", "a little more"])
def test_a_forged_record_is_not_read_beyond_its_bounds_and_not_asked_for_again(
    transport: LocalTransport, box: ShellSandbox, sizes: int
) -> None:
    box.run("id", "echo x", limits(transport))
    record = next(Path(f"{transport.folder}/home/runs").glob("*/result"))
    header = forged(b"x" * sizes, out_head=sizes, out_bytes=sizes).removeprefix(b"known=0 ")
    record.write_bytes(header)
    opened = transport.opened
    with pytest.raises(Invalid, match="tampered"):
        box.run("id", "echo x", limits(transport))
    assert transport.opened == opened + 1


def test_a_sweep_is_refused_as_root_so_that_it_never_ends_a_machine() -> None:
    text = commands.script().decode()
    guard = text.index('if [ "$(id -u)" -eq 0 ]')
    assert guard < text.index("kill -KILL -1")
