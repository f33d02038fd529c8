from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from cluster import processes
from cluster.processes import Process

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")

IGNORES_TERM = (
    "import signal,time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('on', flush=True); time.sleep(60)"
)


def stat_line(pid: int, name: str, state: str, start: int) -> str:
    rest = [state, *("0" for _ in range(18)), str(start), "0", "0"]
    return f"{pid} ({name}) {' '.join(rest)}\n"


def fake(proc: Path, pid: int, name: str = "etcd", state: str = "S", start: int = 5) -> None:
    (proc / str(pid)).mkdir(parents=True)
    (proc / str(pid) / "stat").write_text(stat_line(pid, name, state, start))


@pytest.fixture
def sleeper(tmp_path: Path) -> Iterator[Process]:
    process = processes.start("sleeper", ["/bin/sleep", "60"], tmp_path / "log")
    yield process
    processes.stop([process], 0)


def test_the_start_time_is_read_past_a_name_with_spaces_and_parentheses(tmp_path: Path) -> None:
    fake(tmp_path, 7, name="a ) b (c", start=12345)
    assert processes.start_time(7, tmp_path) == 12345


def test_a_process_that_only_waits_to_be_reaped_is_gone(tmp_path: Path) -> None:
    fake(tmp_path, 7, state="Z")
    assert processes.start_time(7, tmp_path) is None
    assert processes.identify("x", 7, tmp_path) is None


def test_a_recycled_id_is_another_process(tmp_path: Path) -> None:
    fake(tmp_path, 7, start=100)
    ours = Process("etcd", 7, 99)
    assert not processes.alive(ours, tmp_path)
    assert processes.alive(replace(ours, start=100), tmp_path)


def test_a_recycled_id_is_never_signalled(sleeper: Process) -> None:
    stranger = replace(sleeper, start=sleeper.start - 1)
    processes.send(stranger, signal.SIGKILL)
    processes.stop([stranger], 0)
    time.sleep(0.05)
    assert processes.alive(sleeper)


def test_a_started_process_leads_its_own_session_and_writes_to_its_log(tmp_path: Path) -> None:
    log = tmp_path / "log"
    process = processes.start("x", ["/bin/sh", "-c", "echo out; echo err >&2; sleep 60"], log)
    try:
        assert os.getsid(process.pid) == process.pid
        deadline = time.monotonic() + 5
        while log.read_text() != "out\nerr\n" and time.monotonic() < deadline:
            time.sleep(0.01)
        assert log.read_text() == "out\nerr\n"
    finally:
        processes.stop([process], 0)
    assert not processes.alive(process)


def test_stop_ends_a_process_and_leaves_no_zombie(sleeper: Process) -> None:
    processes.stop([sleeper], 5)
    assert not Path(f"/proc/{sleeper.pid}").exists()
    processes.stop([sleeper], 5)  # a second time does nothing


def test_stop_kills_what_ignores_the_request(tmp_path: Path) -> None:
    log = tmp_path / "log"
    process = processes.start("stubborn", [sys.executable, "-c", IGNORES_TERM], log)
    deadline = time.monotonic() + 10
    while "on" not in log.read_text() and time.monotonic() < deadline:
        time.sleep(0.01)
    processes.stop([process], 0.2)
    assert not processes.alive(process)


def test_a_child_of_somebody_else_is_left_to_be_reaped_by_them() -> None:
    child = subprocess.Popen(["/bin/sleep", "60"])
    process = processes.identify("x", child.pid)
    assert process is not None
    processes.stop([process], 0)
    child.wait()
    assert not processes.alive(process)
