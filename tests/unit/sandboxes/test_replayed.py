"""After a death the model is told of files that are there: a record holds the paths of whoever asked first."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from hummingbird_ai.messages import ToolCall
from hummingbird_operator.errors import Invalid, Unavailable
from hummingbird_operator.sandboxes import commands
from hummingbird_operator.sandboxes.shell import ShellSandbox
from hummingbird_operator.sessions import spill
from hummingbird_operator.sessions.sandbox import SPILL_DIR, RunLimits, Sandbox
from hummingbird_operator.sessions.testing import FakeSandbox
from hummingbird_operator.sessions.tools import ToolRegistry
from tests.unit.sandboxes.test_script import SHELLS, Box
from tests.unit.sandboxes.test_shell import BOUNDS, LocalTransport, forged

SEQ = "".join(f"{number}\n" for number in range(1, 5001))
Process = Callable[[], ToolRegistry]


@pytest.fixture(params=["shell", "fake"])
def process(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Process:
    """One life of the operator after the other, with the same sandbox: the real one on a folder, or the fake."""
    if request.param == "fake":
        fake = FakeSandbox(tmp_path)
        fake.start()
        return lambda: ToolRegistry(fake)
    out = f"{tmp_path}/data/_out"
    monkeypatch.setattr(spill, "_HIGHEST_NUMBER", spill._HIGHEST_NUMBER.replace(SPILL_DIR, out))
    monkeypatch.setattr(spill, "_SPILLED_NAME", re.compile(spill._SPILLED_NAME.pattern.replace(SPILL_DIR, out)))
    monkeypatch.setattr(spill, "SPILL_DIR", out)

    def live() -> ToolRegistry:
        sandbox = real(LocalTransport(tmp_path))
        sandbox.start()
        return ToolRegistry(sandbox)

    return live


def real(transport: LocalTransport) -> ShellSandbox:
    folder = transport.folder
    return ShellSandbox(
        transport,
        on_cleanup=lambda: None,
        on_linger=lambda session: None,
        places=commands.Places(home=f"{folder}/home", data=f"{folder}/data"),
    )


def local(path: str, folder: Path) -> Path:
    """Where the fake keeps it, or the path as it is."""
    return Path(path if path.startswith(str(folder)) else path.replace("/tmp", str(folder), 1))


def seq(number: int, command: str = "seq 5000") -> tuple[ToolCall, str]:
    return ToolCall("call", "sandbox_exec", {"command": command}), f"run/1/{number}"


def test_the_next_process_names_the_files_that_are_there_and_gives_their_numbers_to_no_other(
    process: Process, tmp_path: Path
) -> None:
    registry = process()
    first = [registry.execute(*seq(0)), registry.execute(*seq(1, "seq 5000 >&2"))]
    registry = process()  # the first one died before it recorded these results
    again = [registry.execute(*seq(0)), registry.execute(*seq(1, "seq 5000 >&2"))]
    assert again == first
    files = [again[0]["stdout_file"], again[1]["stderr_file"]]
    assert [local(path, tmp_path).read_text() for path in files] == [SEQ, SEQ]
    later = registry.execute(*seq(2, "echo later; seq 5000"))["stdout_file"]
    assert local(later, tmp_path).read_text() == f"later\n{SEQ}"
    assert [local(path, tmp_path).read_text() for path in files] == [SEQ, SEQ]
    numbers = [int(re.findall(r"(\d+)\.txt", path)[0]) for path in [*files, later]]
    assert len(set(numbers)) == 3


@pytest.mark.parametrize("process", ["shell"], indirect=True)
def test_a_command_that_could_not_be_waited_for_keeps_its_numbers(
    process: Process, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may still end, and its output must not be put over that of another one."""
    registry, run = process(), ShellSandbox.run
    paths: list[str] = []

    def fail(self: Sandbox, command_id: str, command: str, limits: RunLimits) -> object:
        paths.extend((limits.stdout_path, limits.stderr_path))
        raise Unavailable("the sandbox", "away")

    monkeypatch.setattr(ShellSandbox, "run", fail)
    for number in (0, 1):
        assert "away" in registry.execute(*seq(number))["error"]
    monkeypatch.setattr(ShellSandbox, "run", run)
    registry.execute(*seq(2, "echo short"))
    last = registry.execute(*seq(3, "seq 5000; seq 5000 >&2"))
    paths += [last["stdout_file"], last["stderr_file"]]
    assert len(set(paths)) == 6


@pytest.fixture(params=SHELLS, ids=lambda shell: shell[0])
def box(request: pytest.FixtureRequest, tmp_path: Path) -> Box:
    return Box(tmp_path, request.param)


def test_a_record_names_the_paths_of_the_first_request_under_every_shell(box: Box) -> None:
    first = box.run("a", "seq 5000; seq 5000 >&2")
    data = box.places.data
    again = box.run("a", "seq 5000; seq 5000 >&2", stdout_path=f"{data}/_out/7.txt", stderr_path=f"{data}/_out/8.txt")
    assert again.replayed
    assert again.stdout == first.stdout
    assert again.stderr == first.stderr
    assert again.stdout.path == box.limits.stdout_path
    assert again.stderr.path == box.limits.stderr_path
    assert sorted(path.name for path in Path(data, "_out").iterdir()) == ["0.txt", "1.txt"]


def test_the_record_of_an_older_script_without_paths_is_still_read(box: Box) -> None:
    box.run("a", "seq 5000; echo short >&2")
    record = box.record("a") / "result"
    header, _, body = record.read_bytes().partition(b"\n")
    record.write_bytes(re.sub(rb" (out|err)_path=\S+", b"", header) + b"\n" + body)
    assert b"_path" not in record.read_bytes()
    result = box.run("a", "seq 5000; echo short >&2")
    assert (result.replayed, result.stdout.path, result.stderr.path) == (True, box.limits.stdout_path, None)
    assert result.stderr.head == "short\n"


@pytest.mark.parametrize(
    "path",
    [
        "/tmp/data/../../etc/passwd",
        "/etc/passwd",
        "/tmp/data/deeper/0.txt",
        "/tmp/data/..",
        "/tmp/data/",
        "/tmp/data/x;y",
        "/tmp/data/\u00e4",
        "0.txt",
        "",
        "/tmp/data/" + "x" * 1000,
    ],
)
@pytest.mark.parametrize("name", ["out_path", "err_path"])
def test_a_record_with_a_path_that_no_request_has_is_refused(name: str, path: str) -> None:
    answer = forged().replace(b"\n", f" {name}={path}\n".encode(), 1)
    with pytest.raises(Invalid, match="tampered with: a path"):
        commands.parse_answer(answer, BOUNDS)


@pytest.mark.parametrize("path", ["/tmp/data/a b", "/tmp/data/a;b", "/tmp/data/.", "/tmp/data/" + "x" * 1000])
def test_a_request_with_a_path_that_no_record_may_have_is_refused(path: str) -> None:
    with pytest.raises(Invalid, match="no plain path below"):
        commands.request(commands.IN_SANDBOX, "id", "true", RunLimits(stdout_path=path, stderr_path="/tmp/data/b"))


def test_the_longest_paths_fit_into_an_answer(tmp_path: Path) -> None:
    box = Box(tmp_path, SHELLS[0])
    folder = f"{box.places.data}/{'f' * 200}/{'g' * 200}/{'h' * 200}"
    longest = f"{folder}/{'x' * min(250, 999 - len(folder))}"
    result = box.run("a", "seq 5000; seq 5000 >&2", stdout_path=longest, stderr_path=f"{folder}/1.txt")
    assert result.stdout.path == longest
    counts = len(forged(out_bytes=1 << 52, out_lines=1 << 52, err_bytes=1 << 52, err_lines=1 << 52))
    assert counts + 2 * (len(" out_path=") + 1000) < commands.HEADER_BYTES


def test_a_supervisor_that_was_killed_is_stood_in_for_and_its_output_kept_where_the_record_says(box: Box) -> None:
    box.run("a", "seq 5000; kill -KILL $(cat $0.pid 2>/dev/null || cat ${0%/*}/pid)")
    result = box.run("a", "ignored", stdout_path=f"{box.places.data}/_out/7.txt")
    assert result.stdout.path is not None
    assert Path(result.stdout.path).read_text() == SEQ
