"""Laws of the shapes: whatever the bytes are, nothing is lost in the sandbox and nothing long is shown."""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import given, settings
from hypothesis import strategies as st

from hummingbird_operator.sessions.spill import Preview, Spill, StreamingResponse, head_text, merged, tail_text
from hummingbird_operator.sessions.testing import FakeSandbox

texts = st.text(max_size=30).map(lambda text: text * 400) | st.text()


@given(st.text(), st.integers(0, 60))
def test_a_head_is_the_longest_beginning_that_splits_no_character(text: str, limit: int) -> None:
    data = text.encode(errors="replace")
    head = head_text(data, limit)
    assert data.decode().startswith(head)
    assert len(head.encode()) <= limit
    assert len(head) == len(data.decode()) or len(data.decode()[: len(head) + 1].encode()) > limit


@given(st.text(), st.integers(0, 60))
def test_a_tail_is_the_longest_end_that_splits_no_character(text: str, limit: int) -> None:
    data = text.encode(errors="replace")
    tail = tail_text(data, limit)
    assert data.decode().endswith(tail)
    assert len(tail.encode()) <= limit
    assert limit - len(tail.encode()) < 4 or tail == data.decode()


@given(st.binary(), st.integers(0, 60), st.booleans())
def test_any_bytes_become_text_of_at_most_the_limit_where_they_are_cut(data: bytes, limit: int, more: bool) -> None:
    head = head_text(data, limit, more=more)
    if more or len(data) > limit:
        assert len(head.encode()) <= limit
    tail_text(data, limit, more=more).encode()


@settings(deadline=None)  # it starts processes
@given(texts)
def test_with_a_sandbox_a_text_is_whole_here_or_whole_in_its_file(text: str) -> None:
    data = text.encode(errors="replace")
    with TemporaryDirectory() as folder:
        sandbox = FakeSandbox(Path(folder))
        sandbox.start()
        result = Spill(sandbox).inline("tool", text)
        if len(data) <= 4096:
            assert result == {"output": text}
            return
        assert set(result) == {"saved_to", "bytes", "lines", "preview"}
        assert sandbox.path(result["saved_to"]).read_bytes() == data
        assert (result["bytes"], result["lines"]) == (len(data), data.count(b"\n"))
        assert 4092 < len(result["preview"].encode()) <= 4096
        assert data.decode().startswith(result["preview"])


@settings(deadline=None)  # it starts processes
@given(st.lists(st.binary(max_size=3000), max_size=6), st.booleans())
def test_a_stream_has_the_same_file_and_counts_however_it_is_cut_into_chunks(chunks: list[bytes], binary: bool) -> None:
    whole = b"".join(chunks)
    with TemporaryDirectory() as folder:
        sandbox = FakeSandbox(Path(folder))
        sandbox.start()
        result = Spill(sandbox).inline("tool", StreamingResponse(chunks, ".log", binary=binary))
        assert sandbox.path(result["saved_to"]).read_bytes() == whole
        assert result["bytes"] == len(whole)
        if binary:
            assert set(result) == {"saved_to", "bytes"}
        else:
            assert result["preview"] == head_text(whole, 4096)
            assert result["lines"] == whole.count(b"\n")
        json.dumps(result)


@given(texts)
def test_without_a_sandbox_no_result_is_long(text: str) -> None:
    result = Preview().inline("tool", text)
    assert len(json.dumps(result, ensure_ascii=False).encode(errors="replace")) < 3 * 4096 + 100
    assert set(result) in ({"output"}, {"preview", "truncated"})


def test_every_part_s_gaps_are_kept_and_later_fields_win() -> None:
    assert merged({"a": 1, "incomplete": ["x"]}, {"a": 2}, {"incomplete": "y"}, {"incomplete": []}) == {
        "a": 2,
        "incomplete": ["x", "y"],
    }
    assert merged({"incomplete": []}) == {}
