from __future__ import annotations

import multiprocessing
from pathlib import Path

import pytest

from hummingbird_operator.errors import Conflict, Unavailable
from hummingbird_operator.stores import FolderStore


def test_a_reader_keeps_the_blob_that_it_opened_while_a_new_one_takes_its_place(tmp_path: Path) -> None:
    store = FolderStore(tmp_path)
    store.put("a", b"old" * 200_000)
    chunks = store.open("a")
    assert chunks is not None
    first = next(chunks)
    store.put("a", b"new")
    assert first + b"".join(chunks) == b"old" * 200_000


def test_a_file_where_a_folder_must_be_is_said_with_its_path(tmp_path: Path) -> None:
    store = FolderStore(tmp_path)
    store.put("a", b"x")
    with pytest.raises(Unavailable, match=r"a/b"):
        store.put("a/b", b"y")


def test_a_folder_that_cannot_be_made_is_unavailable(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    store = FolderStore(tmp_path / "file")
    with pytest.raises(Unavailable, match="the session store"):
        store.create("a", b"x")
    with pytest.raises(Unavailable):
        store.get("a")


def test_a_writer_that_died_leaves_nothing_that_is_listed(tmp_path: Path) -> None:
    store = FolderStore(tmp_path)
    store.put("runs/u/answer.md", b"x")
    (tmp_path / "runs/u/.tmp1234").write_bytes(b"half")
    assert store.list("runs/") == ["runs/u/answer.md"]


def test_what_cannot_be_listed_is_not_empty(tmp_path: Path) -> None:
    store = FolderStore(tmp_path)
    store.put("runs/u", b"x")
    assert store.list("runs/nobody/next/") == []
    with pytest.raises(Unavailable, match=r"runs/u/next/"):
        store.list("runs/u/next/")


def test_of_two_processes_that_swap_over_the_same_etag_exactly_one_wins(tmp_path: Path) -> None:
    store = FolderStore(tmp_path)
    etag = store.put("a", b"0")
    context = multiprocessing.get_context("fork" if "fork" in multiprocessing.get_all_start_methods() else None)
    results: multiprocessing.SimpleQueue[bool] = context.SimpleQueue()
    workers = [context.Process(target=_swap, args=(tmp_path, etag, b"%d" % number, results)) for number in range(1, 5)]
    for worker in workers:
        worker.start()
    won = [results.get() for _ in workers]
    for worker in workers:
        worker.join()
    assert won.count(True) == 1


def _swap(root: Path, etag: str, data: bytes, results: multiprocessing.SimpleQueue[bool]) -> None:
    try:
        FolderStore(root).put("a", data, if_match=etag)
        results.put(True)
    except Conflict:
        results.put(False)
