from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from cluster import record
from cluster.paths import State
from cluster.ports import Ports
from cluster.processes import Process
from cluster.record import Record

ONE = Record("boot-1", Ports(), ("etcd-v1",), "/bin/kubectl", processes=(Process("etcd", 7, 100),))


def test_a_record_comes_back_as_it_was_written(tmp_path: Path) -> None:
    state = State(tmp_path)
    record.write(state, ONE.with_process(Process("kubelet", 8, 101)))
    assert record.read(state) == replace(ONE, processes=(Process("etcd", 7, 100), Process("kubelet", 8, 101)))


@pytest.mark.parametrize("text", ["", "{", "[]", '{"format": 99}', '{"format": 1}', '{"format": 1, "ports": 3}'])
def test_a_record_that_is_not_understood_is_none(tmp_path: Path, text: str) -> None:
    (tmp_path / "state.json").write_text(text)
    assert record.read(State(tmp_path)) is None


def test_no_record_is_none(tmp_path: Path) -> None:
    assert record.read(State(tmp_path)) is None


def test_after_a_reboot_every_process_counts_as_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record, "alive", lambda _: True)
    monkeypatch.setattr(record, "boot_id", lambda: "boot-2")
    assert ONE.alive() == []
    assert ONE.dead() == ["etcd"]
    monkeypatch.setattr(record, "boot_id", lambda: "boot-1")
    assert ONE.dead() == []
