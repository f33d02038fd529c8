"""commands.sh under the shells that images have, run here on this machine's processes."""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import subprocess
import time
from dataclasses import replace
from pathlib import Path

import pytest

from hummingbird_operator.sandboxes import commands
from hummingbird_operator.sessions.sandbox import CommandResult, RunLimits

SHELLS = [["dash"], ["bash", "--posix"], ["busybox", "sh"]]


class Box:
    """One sandbox's folders and one shell to run commands.sh with."""

    def __init__(self, root: Path, shell: list[str]) -> None:
        self.places = commands.Places(home=f"{root}/home", data=f"{root}/data")
        self.limits = RunLimits(
            stdout_path=f"{root}/data/_out/0.txt", stderr_path=f"{root}/data/_out/1.txt", timeout_seconds=20
        )
        (root / "home").mkdir()
        (root / "data").mkdir()
        # the script calls `sh`: make that the shell under test, applets included where it is busybox
        (root / "bin").mkdir()
        (root / "bin/sh").write_text(f'#!/bin/sh\nexec {" ".join(shell)} "$@"\n')
        (root / "bin/sh").chmod(0o755)
        if shell[0] == "busybox":
            for applet in ("setsid", "head", "tail", "wc", "grep", "mkfifo", "dd", "sleep", "cat", "ln", "mkdir", "tr"):
                (root / "bin" / applet).symlink_to(str(shutil.which("busybox")))
        self.environment = {"PATH": f"{root}/bin:{os.environ['PATH']}"}
        Path(self.places.script).write_bytes(commands.script())

    def popen(self, command_id: str, command: str, limits: RunLimits) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            ["sh", self.places.script, "run"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=self.environment,
            executable=f"{self.environment['PATH'].split(':')[0]}/sh",
        )
        assert process.stdin is not None
        process.stdin.write(commands.request(self.places, f"{self.places.home}/{command_id}", command, limits))
        process.stdin.close()
        process.stdin = None
        return process

    def answer(self, process: subprocess.Popen[bytes], limits: RunLimits) -> CommandResult:
        out, _ = process.communicate(timeout=40)
        answer = commands.parse_answer(out, limits)
        assert answer is not None, out
        return answer

    def run(self, command_id: str, command: str, **changes: object) -> CommandResult:
        limits = replace(self.limits, **changes)  # type: ignore[arg-type]
        return self.answer(self.popen(command_id, command, limits), limits)

    def record(self, command_id: str) -> Path:
        return (
            Path(self.places.home)
            / "runs"
            / hashlib.sha256(f"{self.places.home}/{command_id}".encode()).hexdigest()[:32]
        )


@pytest.fixture(params=SHELLS, ids=lambda shell: shell[0])
def box(request: pytest.FixtureRequest, tmp_path: Path) -> Box:
    if shutil.which(request.param[0]) is None:
        pytest.skip(f"{request.param[0]} is not installed")
    return Box(tmp_path, request.param)


def test_a_short_command_answers_with_both_streams_and_its_exit_code(box: Box) -> None:
    result = box.run("a", "echo out; echo err >&2; exit 3")
    assert (result.exit_code, result.stdout.head, result.stderr.head) == (3, "out\n", "err\n")
    assert (result.stdout.bytes, result.stdout.lines, result.stdout.path, result.replayed) == (4, 1, None, False)


def test_a_command_keeps_its_quotes_backslashes_and_newlines(box: Box) -> None:
    result = box.run("a", "printf '%s|' 'a\\nb' \"it's\" $'x' && cat <<'END'\n\\t \"quoted\"\nEND\n: ")
    assert "a\\nb|it's|" in result.stdout.head
    assert result.stdout.head.endswith('\\t "quoted"\n')


def test_a_command_is_in_no_argument_list_while_it_runs(box: Box) -> None:
    result = box.run(
        "a", "secret=fourtytwo-in-a-command; cat /proc/[0-9]*/cmdline 2>/dev/null | grep -ac '[f]ourtytwo'"
    )
    assert result.stdout.head == "0\n"


def test_a_known_id_returns_the_record_and_runs_nothing(box: Box) -> None:
    first = box.run("run/1/2", f"echo x >>{box.places.data}/count; echo done")
    again = box.run("run/1/2", f"echo x >>{box.places.data}/count; echo done")
    assert (first.replayed, again.replayed) == (False, True)
    assert replace(again, replayed=False) == first
    assert Path(box.places.data, "count").read_text() == "x\n"


def test_two_requests_at_once_start_a_command_once_and_both_get_its_result(box: Box) -> None:
    command = f"echo x >>{box.places.data}/count; sleep 0.5; echo done"
    both = [box.popen("same", command, box.limits) for _ in range(4)]
    results = [box.answer(process, box.limits) for process in both]
    assert Path(box.places.data, "count").read_text() == "x\n"
    assert [result.stdout.head for result in results] == ["done\n"] * 4
    assert sorted(result.replayed for result in results) == [False, True, True, True]


def test_a_command_outlives_the_connection_that_asked_for_it(box: Box) -> None:
    """kopf.md §2 no. 26: silent execs are cut; the command goes on and is asked for again."""
    process = box.popen("a", "sleep 1; echo survived", box.limits)
    deadline = time.monotonic() + 10
    while not (box.record("a") / "pid").exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    process.kill()
    process.communicate()
    result = box.run("a", "sleep 1; echo survived")
    assert (result.stdout.head, result.exit_code, result.replayed) == ("survived\n", 0, True)


def test_half_a_command_is_not_run(box: Box) -> None:
    raw = commands.request(box.places, "a", f"touch {box.places.data}/ran; true", box.limits)
    done = subprocess.run(
        ["sh", box.places.script, "run"], input=raw[:-7], env=box.environment, capture_output=True, check=False
    )
    assert done.returncode == commands.STDIN_CUT
    assert not Path(box.places.data, "ran").exists()
    assert box.run("a", "echo whole").stdout.head == "whole\n"


def test_the_time_limit_ends_the_command_and_its_children_with_a_session_of_their_own(box: Box) -> None:
    """kopf.md §2 no. 27: what a cancelled exec leaves behind goes on running."""
    started = time.monotonic()
    result = box.run("a", "echo begun; setsid sleep 300 & sleep 300", timeout_seconds=0.5)
    assert time.monotonic() - started < 5
    assert (result.exit_code, result.timed_out, result.stdout.head) == (124, True, "begun\n")
    mark = f"HUMMINGBIRD_COMMAND={box.record('a').name}".encode()
    left = [path for path in Path("/proc").glob("[0-9]*/environ") if mark in _read(path)]
    assert left == []


def test_a_long_stream_is_kept_in_the_sandbox_and_only_its_ends_are_answered(box: Box) -> None:
    result = box.run("a", "seq 1 200000; seq 1 5000 >&2")
    whole = "".join(f"{number}\n" for number in range(1, 200001))
    assert result.stdout.path == box.limits.stdout_path
    assert Path(box.limits.stdout_path).read_text() == whole
    assert (result.stdout.bytes, result.stdout.lines, result.stdout.truncated) == (len(whole), 200000, False)
    assert (result.stdout.head, result.stdout.tail) == (whole[:4096], whole[-512:])
    assert result.stderr.path == box.limits.stderr_path
    assert result.stderr.lines == 5000


def test_a_stream_over_the_limit_is_cut_and_said_and_its_command_ends_well(box: Box) -> None:
    result = box.run("a", "head -c 3000000 /dev/zero | tr '\\0' 'x'; echo end >&2", max_output_bytes=100_000)
    assert (result.stdout.bytes, result.stdout.truncated, result.exit_code) == (100_000, True, 0)
    assert Path(box.limits.stdout_path).stat().st_size == 100_000
    assert (result.stderr.head, result.stderr.truncated) == ("end\n", False)


def test_a_stream_of_exactly_the_limit_is_not_called_cut(box: Box) -> None:
    result = box.run("a", "printf 12345678", max_output_bytes=8)
    assert (result.stdout.bytes, result.stdout.truncated, result.stdout.head) == (8, False, "12345678")


def test_no_character_is_split_at_the_ends_of_a_preview(box: Box) -> None:
    result = box.run("a", "i=0; while [ $i -lt 100 ]; do printf 'ä€'; i=$((i+1)); done", head_bytes=101, tail_bytes=51)
    assert "\ufffd" not in result.stdout.head + result.stdout.tail
    assert result.stdout.head.startswith("ä€ä")


def test_bytes_that_are_not_text_do_not_break_the_answer(box: Box) -> None:
    result = box.run("a", "printf '\\377\\000\\001hb-end\\n'; printf '\\nhb-end\\n'")
    assert result.stdout.bytes == 18


def test_a_server_left_in_the_background_does_not_hold_the_command(box: Box) -> None:
    started = time.monotonic()
    result = box.run("a", "sleep 30 & echo $!")
    assert time.monotonic() - started < 5
    assert result.exit_code == 0
    os.kill(int(result.stdout.head), signal.SIGKILL)


def test_a_supervisor_that_was_killed_is_stood_in_for(box: Box) -> None:
    """A sweep, or a command that kills everything, must not leave an id that is waited for for ever."""
    process = box.popen("a", "echo begun; exec sleep 30", box.limits)
    deadline = time.monotonic() + 10
    while not (box.record("a") / "out").exists() or (box.record("a") / "out").stat().st_size == 0:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    os.kill(int((box.record("a") / "pid").read_text()), signal.SIGKILL)
    result = box.answer(process, box.limits)
    assert (result.exit_code, result.stdout.head) == (137, "begun\n")
    assert box.run("a", "echo again").stdout.head == "begun\n"
    for path in Path("/proc").glob("[0-9]*/environ"):
        if f"HUMMINGBIRD_COMMAND={box.record('a').name}".encode() in _read(path):
            os.kill(int(path.parts[2]), signal.SIGKILL)


def test_a_command_cannot_read_from_the_connection(box: Box) -> None:
    assert box.run("a", "cat; echo end").stdout.head == "end\n"


def test_nothing_sleeps_on_after_a_command(box: Box) -> None:
    seconds = 100_000 + os.getpid() % 100_000  # others may run this test too
    box.run("a", "true", timeout_seconds=seconds)
    deadline = time.monotonic() + 20
    while left := [path for path in Path("/proc").glob("[0-9]*/cmdline") if f"\0{seconds:g}".encode() in _read(path)]:
        assert time.monotonic() < deadline, left
        time.sleep(0.02)


def test_an_unknown_action_is_refused(box: Box) -> None:
    done = subprocess.run(["sh", box.places.script, "dance"], env=box.environment, check=False)
    assert done.returncode == 64


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""
