"""Commands in a real pod: the websocket, the script, and what a lost sandbox is called."""

from __future__ import annotations

import asyncio
import hashlib
import os
import secrets
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from hummingbird_ai.abort import Abort
from hummingbird_operator.errors import Aborted, Invalid, NotFound, SandboxLost, Unavailable
from hummingbird_operator.kube.client import PODS, Kube
from hummingbird_operator.kube.connection import Endpoint
from hummingbird_operator.kube.exec import ExecConnection, ExecTimeout, StreamBroken, exec_stream
from hummingbird_operator.sandboxes.pod import PodSandbox
from hummingbird_operator.sessions.sandbox import CommandResult, RunLimits

LIMITS = RunLimits(stdout_path="/tmp/data/_out/0.txt", stderr_path="/tmp/data/_out/1.txt")
PID_1 = 'trap "exit 0" TERM; while :; do sleep 3600 & wait $!; done'

MakeSandbox = Callable[..., PodSandbox]


def manifest(name: str, memory: str = "256Mi") -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {
            "automountServiceAccountToken": False,
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 2,
            "securityContext": {"runAsNonRoot": True, "runAsUser": 65532},
            "containers": [
                {
                    "name": "sandbox",
                    "image": "localhost/hummingbird-sandbox:dev",
                    "imagePullPolicy": "IfNotPresent",
                    "command": ["sh", "-c", PID_1],
                    "workingDir": "/tmp",
                    "resources": {"limits": {"memory": memory}},
                }
            ],
        },
    }


@pytest.fixture(scope="module")
def connection(kubeconfig: str) -> ExecConnection:
    return ExecConnection(asyncio.run(Endpoint.load(kubeconfig=kubeconfig)))


@pytest.fixture(scope="module")
def make_pod(kubeconfig: str, namespace: str) -> Callable[..., dict[str, Any]]:
    def make(**changes: Any) -> dict[str, Any]:
        async def create() -> dict[str, Any]:
            kube = await Kube.connect(kubeconfig=kubeconfig)
            try:
                name = f"box-{secrets.token_hex(3)}"
                await kube.create(PODS, namespace, manifest(name, **changes))
                for _ in range(300):
                    pod = await kube.get(PODS, namespace, name)
                    conditions = pod.get("status", {}).get("conditions", [])
                    if any(c["type"] == "Ready" and c["status"] == "True" for c in conditions):
                        return pod
                    await asyncio.sleep(0.1)
                raise AssertionError(pod.get("status"))
            finally:
                await kube.close()

        return asyncio.run(create())

    return make


def delete(kubeconfig: str, namespace: str, name: str) -> None:
    async def go() -> None:
        kube = await Kube.connect(kubeconfig=kubeconfig)
        await kube.delete(PODS, namespace, name)
        await kube.close()

    asyncio.run(go())


def sandbox_of(connection: ExecConnection, pod: dict[str, Any], abort: Abort | None = None) -> PodSandbox:
    metadata = pod["metadata"]
    return PodSandbox(
        connection,
        metadata["namespace"],
        metadata["name"],
        metadata["uid"],
        abort,
        on_cleanup=lambda: None,
        on_linger=lambda session: None,
    )


@pytest.fixture(scope="module")
def pod(make_pod: Callable[..., dict[str, Any]]) -> dict[str, Any]:
    return make_pod()


@pytest.fixture
def sandbox(connection: ExecConnection, pod: dict[str, Any]) -> Iterator[PodSandbox]:
    box = sandbox_of(connection, pod)
    box.start()
    yield box
    box.sweep()


def test_a_command_answers_with_its_streams_and_exit_code(sandbox: PodSandbox) -> None:
    result = sandbox.exec("echo out; echo err >&2; printf 'a\\\\b'; exit 7")
    assert (result.exit_code, result.stdout, result.stderr) == (7, "out\na\\b", "err\n")


def test_stdin_ends_for_the_command(sandbox: PodSandbox) -> None:
    """Seed 003 §8.4 no. 1: `cat` hung for ever with versions 1 to 4 of the protocol."""
    assert sandbox.exec("wc -c", stdin_data=b"x" * 300_000).stdout.strip() == "300000"


def test_a_file_goes_in_and_comes_out_byte_for_byte(sandbox: PodSandbox) -> None:
    """Seed 003 §8.4 no. 2: more than 1 MB broke the pipe."""
    data = os.urandom(5_000_001)
    sandbox.write_file('/tmp/data/deep/er/it\'s "odd".bin', data)
    back = list(sandbox.read_file_iter('/tmp/data/deep/er/it\'s "odd".bin'))
    assert b"".join(back) == data
    assert max(map(len, back)) <= 65536


def test_a_stream_is_counted_on_both_sides(sandbox: PodSandbox) -> None:
    chunks = [f"line {number}\n".encode() * 100 for number in range(500)]
    total = sum(map(len, chunks))
    assert sandbox.stream_to_file("/tmp/data/log.txt", iter(chunks)) == (total, 50_000)
    digest = sandbox.stream_exec("sha256sum | cut -d' ' -f1", iter(chunks)).stdout.strip()
    assert digest == hashlib.sha256(b"".join(chunks)).hexdigest()


def test_a_source_that_fails_leaves_no_half_file_and_keeps_its_own_error(sandbox: PodSandbox) -> None:
    def chunks() -> Iterator[bytes]:
        yield b"half"
        raise NotFound("the artifact has expired")

    with pytest.raises(NotFound, match="artifact"):
        sandbox.stream_to_file("/tmp/data/half.txt", chunks())
    assert sandbox.exec("test -e /tmp/data/half.txt").exit_code == 1


def test_a_command_that_ends_before_its_stdin_does_is_no_error(sandbox: PodSandbox) -> None:
    result = sandbox.stream_exec("head -c 3", (b"abc" * 100_000 for _ in range(40)))
    assert (result.exit_code, result.stdout) == (0, "abc")


def test_a_missing_file_is_named(sandbox: PodSandbox) -> None:
    with pytest.raises(NotFound, match="nowhere"):
        list(sandbox.read_file_iter("/tmp/data/nowhere"))


def test_a_file_in_a_place_that_cannot_be_written_is_refused(sandbox: PodSandbox) -> None:
    with pytest.raises(Invalid, match="/proc/x"):
        sandbox.write_file("/proc/x", b"data")


def test_a_long_output_stays_in_the_sandbox(sandbox: PodSandbox) -> None:
    result = sandbox.run("long", "seq 1 300000", LIMITS)
    assert (result.stdout.lines, result.stdout.path, result.exit_code) == (300_000, LIMITS.stdout_path, 0)
    assert result.stdout.tail.endswith("300000\n")
    assert sandbox.exec(f"tail -n 1 {LIMITS.stdout_path}").stdout == "300000\n"
    later = RunLimits(stdout_path="/tmp/data/_out/7.txt", stderr_path="/tmp/data/_out/8.txt")
    again = sandbox.run("long", "seq 1 300000", later)  # as the next process asks, which sees the file
    assert (again.replayed, again.stdout.path) == (True, LIMITS.stdout_path)


def test_the_records_are_not_in_what_is_archived(sandbox: PodSandbox) -> None:
    sandbox.run("archived", "echo x", LIMITS)
    assert "hummingbird" not in sandbox.exec("find /tmp/data").stdout


def test_a_script_that_the_model_removed_is_put_back(sandbox: PodSandbox) -> None:
    sandbox.exec("rm -rf /tmp/.hummingbird")
    assert sandbox.run("after-rm", "echo back", LIMITS).stdout.head == "back\n"


def test_a_command_that_kills_everything_ends_as_killed(sandbox: PodSandbox) -> None:
    result = sandbox.run("suicide", "echo begun; sleep 0.2; kill -KILL -1", LIMITS)
    assert (result.exit_code, result.stdout.head) == (137, "begun\n")


def test_a_sweep_ends_everything_but_pid_1_even_what_has_a_session_of_its_own(sandbox: PodSandbox) -> None:
    """kopf.md §2 no. 27; DESIGN §5: a setsid child survives a process-group kill."""
    sandbox.run("daemon", "setsid sleep 4321 & sleep 4322 & echo ok", LIMITS)
    assert sandbox.exec("cat /proc/[0-9]*/cmdline | grep -ac 'sleep.432[12]'").stdout == "1\n"
    sandbox.sweep(seconds=20)
    commands = sandbox.exec("cat /proc/[0-9]*/comm | sort | uniq -c").stdout.split()
    assert sandbox.exec("cat /proc/[0-9]*/cmdline | grep -ac 'sleep.432[12]'").stdout == "0\n", commands
    assert sandbox.exec("cat /proc/1/cmdline | grep -ac 'sleep 3600'").stdout == "1\n"


def test_pid_1_leaves_no_zombies(sandbox: PodSandbox) -> None:
    for number in range(5):
        sandbox.run(f"orphan-{number}", "setsid sh -c 'sleep 0.1 & exit 0' & exit 0", LIMITS)
    time.sleep(0.6)
    sandbox.exec("true")
    states = sandbox.exec("cat /proc/[0-9]*/stat | sed 's/.*) //' | cut -c1 | sort | uniq -c").stdout
    assert "Z" not in states


def test_an_abort_ends_a_command_within_a_second(connection: ExecConnection, pod: dict[str, Any]) -> None:
    abort = Abort()
    box = sandbox_of(connection, pod, abort)
    box.start()
    threading.Timer(0.5, abort.set, ["Cancelled"]).start()
    started = time.monotonic()
    with pytest.raises(Aborted, match="Cancelled"):
        box.run("endless", "sleep 4444", LIMITS)
    assert time.monotonic() - started < 1.5
    with pytest.raises(Aborted):
        box.exec("true")
    box.sweep()
    assert sandbox_of(connection, pod).exec("cat /proc/[0-9]*/cmdline | grep -ac 'sleep.444[4]'").stdout == "0\n"


def test_an_abort_ends_a_send_that_is_blocked(connection: ExecConnection, pod: dict[str, Any]) -> None:
    abort = Abort()
    box = sandbox_of(connection, pod, abort)
    threading.Timer(1.0, abort.set, ["TimedOut"]).start()
    started = time.monotonic()
    with pytest.raises(Aborted, match="TimedOut"):
        box.stream_exec("sleep 60", (b"x" * 1_000_000 for _ in range(500)))
    assert time.monotonic() - started < 3


def test_a_time_limit_holds_inside(sandbox: PodSandbox) -> None:
    result = sandbox.run(
        "slow",
        "sleep 600",
        RunLimits(stdout_path="/tmp/data/_out/2", stderr_path="/tmp/data/_out/3", timeout_seconds=1),
    )
    assert (result.timed_out, result.exit_code) == (True, 124)


def test_a_deadline_holds_outside_too(connection: ExecConnection, pod: dict[str, Any]) -> None:
    """kopf.md §2 no. 24: an exec may never return."""
    started = time.monotonic()
    metadata = pod["metadata"]
    with (
        pytest.raises(ExecTimeout),
        connection.open(metadata["namespace"], metadata["name"], ["sleep", "50"], deadline_seconds=0.5) as stream,
    ):
        exec_stream(stream, lambda channel, data: None)
    assert time.monotonic() - started < 2


def test_a_cut_connection_is_opened_again_and_the_command_ran_once(sandbox: PodSandbox, pod: dict[str, Any]) -> None:
    """DESIGN §5: commands carry an id; the sandbox returns the recorded result of one that it knows."""

    class Cutting:
        """Shuts the first stream half a second after it was opened."""

        def __init__(self, inner: Any) -> None:
            self.inner, self.opened = inner, 0

        def open(self, *args: Any, **options: Any) -> Any:
            context = self.inner.open(*args, **options)
            self.opened += 1
            if self.opened > 1:
                return context
            return _Cut(context)

        def lost(self) -> SandboxLost | None:
            lost: SandboxLost | None = self.inner.lost()
            return lost

    cutting = Cutting(sandbox._transport)
    sandbox._transport = cutting
    result = sandbox.run("cut", "echo x >>/tmp/data/once; sleep 2; wc -l </tmp/data/once", LIMITS)
    assert cutting.opened >= 2
    assert (result.stdout.head.strip(), result.exit_code, result.replayed) == ("1", 0, False)


class _Cut:
    def __init__(self, context: Any) -> None:
        self.context = context

    def __enter__(self) -> Any:
        stream = self.context.__enter__()
        threading.Timer(0.5, stream.shut).start()
        return stream

    def __exit__(self, *error: Any) -> Any:
        return self.context.__exit__(*error)


def test_a_pod_that_never_was_is_lost(connection: ExecConnection, namespace: str) -> None:
    ghost = {"metadata": {"namespace": namespace, "name": "ghost", "uid": "none"}}
    with pytest.raises(SandboxLost, match="Deleted"):
        sandbox_of(connection, ghost).exec("true")


def test_another_pod_of_the_same_name_is_not_the_sandbox(connection: ExecConnection, pod: dict[str, Any]) -> None:
    """sandbox-pools.md §6 no. 9: key everything by uid, never by name."""
    other = {"metadata": {**pod["metadata"], "uid": "another"}}
    with pytest.raises(SandboxLost, match="another one has its name"):
        sandbox_of(connection, other).exec("true")


def test_a_pod_deleted_under_a_command_names_it(
    connection: ExecConnection, make_pod: Callable[..., dict[str, Any]], kubeconfig: str, namespace: str
) -> None:
    """kopf.md §2 no. 25, sandbox-pools.md §6 no. 46: running execs of a removed pod stay open but frozen."""
    pod = make_pod()
    box = sandbox_of(connection, pod)
    box.start()
    threading.Timer(0.5, delete, [kubeconfig, namespace, pod["metadata"]["name"]]).start()
    started = time.monotonic()
    with pytest.raises(SandboxLost, match="Deleted"):
        box.run("doomed", "sleep 100", LIMITS)
    assert time.monotonic() - started < 30


def test_a_pod_that_ran_out_of_memory_names_its_limit(
    connection: ExecConnection, make_pod: Callable[..., dict[str, Any]]
) -> None:
    """sandbox-pools.md §6 no. 41c: OOM-killed, and nobody says so."""
    pod = make_pod(memory="24Mi")
    box = sandbox_of(connection, pod)
    box.start()
    command = "python3 -c 'x = bytearray(200_000_000)'; echo exit $?; kill -KILL -1"
    outcome: CommandResult | SandboxLost
    try:
        outcome = box.run("hungry", command, LIMITS)
    except SandboxLost as lost:
        outcome = lost
    if isinstance(outcome, SandboxLost):
        assert outcome.cause == "OOMKilled"
        assert "24Mi" in outcome.detail
    else:  # cgroup v1 kills the process alone: the command says so and the sandbox lives
        assert outcome.exit_code == 137


def test_a_missing_role_is_said_and_not_retried(
    kubeconfig: str, pod: dict[str, Any], connection: ExecConnection
) -> None:
    endpoint = asyncio.run(Endpoint.load(kubeconfig=kubeconfig))
    tls = endpoint.access.tls
    assert tls is not None
    bare = ssl.create_default_context(cafile=endpoint.access.configuration.ssl_ca_cert)
    anonymous = Endpoint(replace(endpoint.access, tls=bare, authorization=lambda: None))
    with pytest.raises((Invalid, Unavailable), match=r"Role|forbidden|Unauthorized"):
        sandbox_of(ExecConnection(anonymous), pod).exec("true")


def test_a_stream_without_a_status_is_broken(connection: ExecConnection, pod: dict[str, Any]) -> None:
    metadata = pod["metadata"]
    with connection.open(metadata["namespace"], metadata["name"], ["sleep", "5"]) as stream:
        threading.Timer(0.2, stream.shut).start()
        with pytest.raises(StreamBroken):
            exec_stream(stream, lambda channel, data: None)
