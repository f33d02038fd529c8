from __future__ import annotations

import json
from pathlib import Path

import pytest

import cluster
from cluster import __main__ as cli
from cluster import cleanup, external, local, providers, record, rest
from cluster.errors import ClusterError, StartFailed
from cluster.model import Choice
from cluster.paths import State
from cluster.ports import Ports
from cluster.record import Record

CHOICE = Choice("local", "because")
RUNNING = Record("boot", Ports(), (), "/bin/kubectl", images="images", complete=True)


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> State:
    monkeypatch.setenv("HUMMINGBIRD_CLUSTER_DIR", str(tmp_path / "state"))
    monkeypatch.delenv("HUMMINGBIRD_KUBECONFIG", raising=False)
    monkeypatch.setattr(cleanup, "bridge_exists", lambda: False)
    return State(tmp_path / "state")


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What `up` and `down` do, in order, with nothing done."""
    made: list[str] = []

    def started(_: State) -> Record:
        made.append("start")
        return RUNNING

    def stopped(state: State, keep_logs: bool = False) -> None:
        made.append("stop, keep logs" if keep_logs else "stop")
        state.marker.unlink()

    monkeypatch.setattr(local, "build", lambda: made.append("build"))
    monkeypatch.setattr(local, "start", started)
    monkeypatch.setattr(local, "_stop", stopped)
    monkeypatch.setattr(local, "image_key", lambda: "images")
    return made


def test_up_builds_and_starts_and_tells_where(state: State, calls: list[str]) -> None:
    found = local.up(state, CHOICE)
    assert calls == ["build", "start"]
    assert found == cluster.Cluster(state.kubeconfig, "local", "because", Path("/bin/kubectl"), "127.0.0.1")
    assert state.root.stat().st_mode & 0o077 == 0


def test_up_finds_the_one_that_runs(state: State, calls: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    local.up(state, CHOICE)
    record.write(state, RUNNING)
    monkeypatch.setattr(local, "is_up", lambda *_: True)
    calls.clear()
    local.up(state, CHOICE)
    assert calls == []


def test_up_clears_away_one_that_was_ended_from_outside(
    state: State, calls: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    local.up(state, CHOICE)
    record.write(state, RUNNING)
    monkeypatch.setattr(local, "is_up", lambda *_: False)
    calls.clear()
    local.up(state, CHOICE)
    assert calls == ["stop", "build", "start"]


def test_a_start_that_fails_is_cleared_away_and_its_logs_stay(
    state: State, calls: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: State) -> Record:
        raise StartFailed("etcd ended")

    monkeypatch.setattr(local, "start", fail)
    with pytest.raises(StartFailed, match="etcd ended"):
        local.up(state, CHOICE)
    assert calls == ["build", "stop, keep logs"]


def test_a_folder_with_foreign_files_is_refused(state: State, calls: list[str]) -> None:
    state.root.mkdir()
    (state.root / "thesis.txt").touch()
    with pytest.raises(ClusterError, match="not ours"):
        local.up(state, CHOICE)
    assert calls == []


def test_a_bridge_of_another_cluster_is_refused(
    state: State, calls: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cleanup, "bridge_exists", lambda: True)
    with pytest.raises(ClusterError, match="hb0"):
        local.up(state, CHOICE)
    assert calls == []


def test_down_twice_is_no_error(state: State, calls: list[str]) -> None:
    state.root.mkdir()
    state.marker.touch()
    assert local.down(state)
    state.root.rmdir()
    assert not local.down(state)
    assert calls == ["stop"]


@pytest.mark.parametrize(
    ("node", "ready"),
    [
        ({"status": {"conditions": [{"type": "Ready", "status": "True"}]}}, True),
        ({"status": {"conditions": [{"type": "Ready", "status": "False"}]}}, False),
        ({"spec": {"taints": [{"key": "x"}]}, "status": {"conditions": [{"type": "Ready", "status": "True"}]}}, False),
        ({}, False),
    ],
)
def test_a_node_is_ready_when_pods_would_be_scheduled(
    state: State, node: dict[str, object], ready: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rest, "get", lambda *_: (200, json.dumps(node).encode()))
    assert rest.node_is_ready(state, 1) is ready


def test_nobody_answering_is_not_ready(state: State) -> None:
    assert not rest.is_ready(state, 1)
    assert not rest.node_is_ready(state, 1)


def test_the_command_line_says_that_nothing_is_up(state: State, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["kubeconfig"]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert "python -m cluster up" in err


def test_the_last_line_of_up_is_the_kubeconfig(
    state: State, calls: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(providers, "gather", lambda: providers.Facts(root=True, go="/bin/go", apt=True))
    assert cli.main(["up"]) == 0
    out, err = capsys.readouterr()
    assert out == f"{state.kubeconfig}\n"
    assert "provider local: HUMMINGBIRD_KUBECONFIG is not set" in err


def test_a_kubeconfig_that_is_not_there_is_an_error_that_says_so(tmp_path: Path) -> None:
    with pytest.raises(StartFailed, match="there is no file"):
        external.find(tmp_path / "absent", Choice("kubeconfig", "set"), Path("/bin/false"))


def test_a_users_cluster_must_answer(tmp_path: Path) -> None:
    file = tmp_path / "config"
    file.touch()
    with pytest.raises(StartFailed, match="must answer"):
        external.find(file, Choice("kubeconfig", "set"), Path("/bin/false"))
