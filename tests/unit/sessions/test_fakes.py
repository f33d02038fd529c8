"""The sandbox that ships for tests behaves as `sandbox.py` says."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from hummingbird_ai.abort import Abort
from hummingbird_operator.errors import Aborted, SandboxLost
from hummingbird_operator.sessions.sandbox import RunLimits
from hummingbird_operator.sessions.testing import FakeSandbox

LIMITS = RunLimits(stdout_path="/tmp/data/_out/0.txt", stderr_path="/tmp/data/_out/1.txt")


@pytest.fixture
def sandbox(tmp_path: Path) -> FakeSandbox:
    made = FakeSandbox(tmp_path / "sandbox")
    made.start()
    return made


def test_paths_in_commands_and_outputs_are_those_of_a_sandbox(sandbox: FakeSandbox) -> None:
    sandbox.write_file("/tmp/data/a", b"hello\n")
    assert sandbox.exec("cat; pwd; echo /var/tmp/x; ls /tmp/data/*", stdin_data=b"in\n").stdout == (
        "in\n/tmp\n/var/tmp/x\n/tmp/data/a\n"
    )


def test_bytes_stream_in_and_out(sandbox: FakeSandbox) -> None:
    assert sandbox.stream_to_file("/tmp/data/sub/a", [b"one\n", b"two"]) == (7, 1)
    assert b"".join(sandbox.read_file_iter("/tmp/data/sub/a")) == b"one\ntwo"
    assert sandbox.stream_exec("wc -c", [b"one", b"two"]).stdout.strip() == "6"


def test_a_stream_over_its_bound_is_cut_and_said_to_be(sandbox: FakeSandbox) -> None:
    limits = RunLimits(stdout_path=LIMITS.stdout_path, stderr_path=LIMITS.stderr_path, max_output_bytes=10_000)
    stdout = sandbox.run("1", "seq 100000", limits).stdout
    assert (stdout.bytes, stdout.truncated, stdout.path) == (10_000, True, "/tmp/data/_out/0.txt")
    assert sandbox.path("/tmp/data/_out/0.txt").stat().st_size == 10_000


def test_a_command_in_flight_ends_within_a_second_of_an_abort(tmp_path: Path) -> None:
    abort = Abort()
    sandbox = FakeSandbox(tmp_path, abort=abort)
    threading.Timer(0.1, abort.set, ["Cancelled"]).start()
    begun = time.monotonic()
    with pytest.raises(Aborted, match="Cancelled"):
        sandbox.run("1", "sleep 30", LIMITS)
    assert time.monotonic() - begun < 1.5


def test_a_sweep_ends_what_a_command_left_running(sandbox: FakeSandbox) -> None:
    sandbox.run("1", "(sleep 0.4; touch /tmp/data/late) >/dev/null 2>&1 &", LIMITS)
    sandbox.sweep()
    time.sleep(0.6)
    assert not sandbox.path("/tmp/data/late").exists()


def test_a_lost_sandbox_says_so_in_every_method(sandbox: FakeSandbox) -> None:
    sandbox.lose("OOMKilled", "limit 1Gi")
    for attempt in (
        lambda: sandbox.exec("true"),
        lambda: sandbox.run("1", "true", LIMITS),
        lambda: sandbox.write_file("/tmp/data/a", b""),
        lambda: sandbox.linger("s1"),
        lambda: list(sandbox.read_file_iter("/tmp/data/a")),
    ):
        with pytest.raises(SandboxLost, match="OOMKilled"):
            attempt()


def test_it_lingers_for_a_session_and_is_gone_after_cleanup(sandbox: FakeSandbox) -> None:
    sandbox.linger("s1")
    assert sandbox.lingers_for == "s1"
    sandbox.cleanup()
    sandbox.cleanup()
    assert not sandbox.root.exists()
