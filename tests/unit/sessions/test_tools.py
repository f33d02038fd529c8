from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hummingbird_ai.messages import ToolCall, ToolDef
from hummingbird_operator.errors import Aborted, Invalid, SandboxLost
from hummingbird_operator.sessions.testing import FakeSandbox
from hummingbird_operator.sessions.tools import SourceResult, StreamingResponse, ToolRegistry, confined

NUMBER = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"], "additionalProperties": False}


@pytest.fixture
def sandbox(tmp_path: Path) -> FakeSandbox:
    sandbox = FakeSandbox(tmp_path / "sandbox")
    sandbox.start()
    return sandbox


@pytest.fixture
def registry(sandbox: FakeSandbox) -> ToolRegistry:
    return ToolRegistry(sandbox)


def offer(registry: ToolRegistry, result: Any, **metadata: Any) -> None:
    definition = ToolDef("source", "A source.", {"type": "object"}, notes=" About the source. ")
    registry.register_data_source(definition, lambda **_: result, metadata)


def call(registry: ToolRegistry, name: str, command_id: str | None = None, /, **arguments: Any) -> dict[str, Any]:
    return registry.execute(ToolCall("1", name, arguments), command_id)


def broken(*chunks: bytes) -> Iterator[bytes]:
    yield from chunks
    raise ConnectionError("reset by peer")


def test_a_command_returns_its_exit_code_and_both_streams(registry: ToolRegistry) -> None:
    result = call(registry, "sandbox_exec", command="echo out; echo err >&2; exit 7")
    assert result == {"exit_code": 7, "stdout": "out\n", "stderr": "err\n"}


def test_a_long_stream_stays_in_the_sandbox_and_shows_head_tail_and_counts(
    registry: ToolRegistry, sandbox: FakeSandbox
) -> None:
    result = call(registry, "sandbox_exec", command="seq 10000; echo short >&2")
    assert result == {
        "exit_code": 0,
        "stdout": "".join(f"{n}\n" for n in range(1, 10_001))[:4096],
        "stdout_truncated": True,
        "stdout_file": "/tmp/data/_out/0.txt",
        "stdout_bytes": 48894,
        "stdout_lines": 10_000,
        "stdout_tail": "".join(f"{n}\n" for n in range(1, 10_001))[-512:],
        "stderr": "short\n",
    }
    assert sandbox.path("/tmp/data/_out/0.txt").stat().st_size == 48894


def test_one_counter_numbers_every_spilled_file(registry: ToolRegistry) -> None:
    offer(registry, "x" * 5000)
    first = call(registry, "sandbox_exec", command="seq 2000; seq 2000 >&2")
    second = call(registry, "source")
    third = call(registry, "sandbox_exec", command="echo small")
    fourth = call(registry, "sandbox_exec", command="seq 2000 >&2")
    fifth = call(registry, "source")
    assert first["stdout_file"], first["stderr_file"] == ("/tmp/data/_out/0.txt", "/tmp/data/_out/1.txt")
    assert second["saved_to"] == "/tmp/data/_out/source_2.txt"
    assert "stdout_file" not in third
    assert fourth["stderr_file"] == "/tmp/data/_out/4.txt"
    assert fifth["saved_to"] == "/tmp/data/_out/source_5.txt"


def test_the_counter_starts_above_every_number_that_is_there(sandbox: FakeSandbox) -> None:
    for name in ("0.txt", "source_7.txt", "a_b_11.tar.gz", "mine", "x_3.jsonl"):
        sandbox.write_file(f"/tmp/data/_out/{name}", b"")
    registry = ToolRegistry(sandbox)
    offer(registry, "x" * 5000)
    assert call(registry, "source")["saved_to"] == "/tmp/data/_out/source_12.txt"


def test_the_counter_starts_above_every_number_that_the_history_names(registry: ToolRegistry) -> None:
    registry.never_reuse([{"stdout_file": "/tmp/data/_out/4.txt"}, {"text": "see /tmp/data/_out/x_9.tar.gz"}])
    offer(registry, "x" * 5000)
    assert call(registry, "source")["saved_to"] == "/tmp/data/_out/source_10.txt"


def test_a_known_command_id_is_answered_from_its_record(registry: ToolRegistry, sandbox: FakeSandbox) -> None:
    first = call(registry, "sandbox_exec", "run/1/0", command="date +%N; seq 2000 >&2")
    assert call(registry, "sandbox_exec", "run/1/0", command="date +%N; seq 2000 >&2") == first
    assert sandbox.executed == ["run/1/0"]


def test_a_command_that_takes_too_long_is_killed_and_said_to_be(registry: ToolRegistry) -> None:
    result = call(registry, "sandbox_exec", command="echo begun; sleep 60", timeout_seconds=1)
    assert result["stdout"] == "begun\n"
    assert "killed after 1 seconds" in result["error"]


def test_a_command_with_a_nul_is_refused(registry: ToolRegistry) -> None:
    assert "NUL" in call(registry, "sandbox_exec", command="echo \0")["error"]


@pytest.mark.parametrize(
    ("value", "result"),
    [
        ({"a": 1}, {"a": 1, "ui": "u"}),
        ("text", {"output": "text", "ui": "u"}),
        ([1, 2], {"output": [1, 2], "ui": "u"}),
        ({"error": "no such job"}, {"error": "no such job", "ui": "u"}),
        ({"ui": "mine"}, {"ui": "mine"}),
    ],
)
def test_a_short_answer_is_whole_and_carries_the_metadata(
    registry: ToolRegistry, value: SourceResult, result: dict[str, Any]
) -> None:
    offer(registry, value, ui="u")
    assert call(registry, "source") == result


def test_a_long_text_is_saved_with_a_preview(registry: ToolRegistry, sandbox: FakeSandbox) -> None:
    text = "é\n" * 3000
    offer(registry, text, ui="u")
    assert call(registry, "source") == {
        "ui": "u",
        "saved_to": "/tmp/data/_out/source_0.txt",
        "bytes": 9000,
        "lines": 3000,
        "preview": "é\n" * 1365,
    }
    assert sandbox.path("/tmp/data/_out/source_0.txt").read_text() == text


def test_long_data_is_saved_as_json(registry: ToolRegistry, sandbox: FakeSandbox) -> None:
    offer(registry, [{"n": n} for n in range(1000)])
    result = call(registry, "source")
    assert json.loads(sandbox.path(result["saved_to"]).read_text())[999] == {"n": 999}


def test_bytes_are_saved_without_a_preview(registry: ToolRegistry, sandbox: FakeSandbox) -> None:
    offer(registry, b"\0\1")
    assert call(registry, "source") == {"saved_to": "/tmp/data/_out/source_0.bin", "bytes": 2}
    assert sandbox.path("/tmp/data/_out/source_0.bin").read_bytes() == b"\0\1"


def test_a_text_stream_is_saved_as_it_comes_and_its_metadata_is_read_afterwards(registry: ToolRegistry) -> None:
    metadata: dict[str, Any] = {}

    def chunks() -> Iterator[bytes]:
        yield b"one\n"
        yield b"two\n"
        metadata.update(rows=2, incomplete=["page 3 was refused"])

    offer(registry, StreamingResponse(chunks(), ".jsonl", metadata=metadata), ui="u", incomplete=["old runs"])
    assert call(registry, "source") == {
        "ui": "u",
        "rows": 2,
        "saved_to": "/tmp/data/_out/source_0.jsonl",
        "bytes": 8,
        "lines": 2,
        "preview": "one\ntwo\n",
        "incomplete": ["old runs", "page 3 was refused"],
    }


def test_a_binary_stream_has_neither_lines_nor_preview(registry: ToolRegistry) -> None:
    offer(registry, StreamingResponse([b"\x1f\x8b", b"\n"], ".tar.gz", binary=True))
    assert call(registry, "source") == {"saved_to": "/tmp/data/_out/source_0.tar.gz", "bytes": 3}


def test_a_stream_that_breaks_off_keeps_what_came_and_says_so(registry: ToolRegistry, sandbox: FakeSandbox) -> None:
    offer(registry, StreamingResponse(broken(b"half"), metadata={"job": 1}))
    result = call(registry, "source")
    assert result["incomplete"] == ["the source broke off after 4 bytes: reset by peer"]
    assert (result["bytes"], result["preview"], result["job"]) == (4, "half", 1)
    assert sandbox.path(result["saved_to"]).read_bytes() == b"half"


def test_a_stream_that_breaks_at_once_is_an_error(registry: ToolRegistry) -> None:
    offer(registry, StreamingResponse(broken(), metadata={"job": 1}))
    assert call(registry, "source") == {"job": 1, "error": "the source broke off after 0 bytes: reset by peer"}


@pytest.mark.parametrize("error", [SandboxLost("Evicted", "x"), Aborted("Cancelled")])
def test_the_end_of_the_sandbox_or_the_run_is_no_gap_of_a_source(registry: ToolRegistry, error: Exception) -> None:
    def chunks() -> Iterator[bytes]:
        yield b"x"
        raise error

    offer(registry, StreamingResponse(chunks()))
    with pytest.raises(type(error)):
        call(registry, "source")


@pytest.mark.parametrize(
    ("value", "shape"),
    [
        ("text\n", {"bytes": 5, "lines": 1}),
        ({"a": 1}, {"bytes": 8, "lines": 0}),
        (b"\0\n", {"bytes": 2}),
        (StreamingResponse([b"a\n", b"b\n"], metadata={"rows": 2}), {"bytes": 4, "lines": 2, "rows": 2}),
        (StreamingResponse([b"a\n"], binary=True), {"bytes": 2}),
    ],
)
def test_a_fetch_writes_to_its_path_and_returns_counts_only(
    registry: ToolRegistry, sandbox: FakeSandbox, value: SourceResult, shape: dict[str, Any]
) -> None:
    offer(registry, value, ui="u")
    result = call(registry, "fetch_to_sandbox", tool="source", arguments={}, path="/tmp/data/sub/dir/x.json")
    assert result == {"saved_to": "/tmp/data/sub/dir/x.json", "ui": "u", **shape}
    assert sandbox.path("/tmp/data/sub/dir/x.json").stat().st_size == shape["bytes"]


def test_a_source_s_own_error_is_not_written_as_if_it_were_data(registry: ToolRegistry, sandbox: FakeSandbox) -> None:
    offer(registry, {"error": "no such job"})
    result = call(registry, "fetch_to_sandbox", tool="source", arguments={}, path="x.json")
    assert result == {"error": "no such job"}
    assert not sandbox.path("/tmp/data/x.json").exists()


def test_one_bad_request_of_a_batch_costs_only_itself(registry: ToolRegistry) -> None:
    registry.register_data_source(ToolDef("count", "", NUMBER), lambda n: "x" * n)
    good = {"tool": "count", "arguments": {"n": 3}, "path": "a.txt"}
    requests: list[Any] = [
        good,
        {**good, "arguments": {"n": "three"}},
        {**good, "tool": "sandbox_exec"},
        {**good, "path": "../a"},
        {"tool": "count"},
        "text",
        {**good, "path": "/tmp/data/b.txt"},
    ]
    results = call(registry, "fetch_batch_to_sandbox", requests=requests)["results"]
    assert results[0] == {"saved_to": "/tmp/data/a.txt", "bytes": 3, "lines": 0}
    assert results[1] == {"error": "arguments.n: 'three' is not of type 'integer'"}
    assert results[2] == {"error": "tool: 'sandbox_exec' is not a data source; known: count"}
    assert "must not contain '..'" in results[3]["error"]
    assert "'arguments' is a required property" in results[4]["error"]
    assert "is not of type 'object'" in results[5]["error"]
    assert results[6]["saved_to"] == "/tmp/data/b.txt"


def test_a_source_s_own_error_is_bounded_where_it_would_have_been_a_file(registry: ToolRegistry) -> None:
    offer(registry, {"error": "x" * 9000, "status": 500})
    result = call(registry, "fetch_to_sandbox", tool="source", arguments={}, path="a.txt")
    assert result == {"error": "x" * 2000, "status": 500}


def test_what_one_request_of_a_batch_lacks_is_said_of_the_batch(registry: ToolRegistry) -> None:
    offer(registry, StreamingResponse(broken(b"half")))
    requests: list[Any] = [{"tool": "source", "arguments": {}, "path": "a.log"}]
    result = call(registry, "fetch_batch_to_sandbox", requests=requests)
    assert result["incomplete"] == ["/tmp/data/a.log: the source broke off after 4 bytes: reset by peer"]


def test_a_batch_survives_a_source_that_raises(registry: ToolRegistry) -> None:
    def fail() -> str:
        raise RuntimeError("boom")

    registry.register_data_source(ToolDef("fail", "", {"type": "object"}), fail)
    offer(registry, "fine")
    requests: list[Any] = [{"tool": name, "arguments": {}, "path": f"{name}.txt"} for name in ("fail", "source")]
    results = call(registry, "fetch_batch_to_sandbox", requests=requests)["results"]
    assert results[0] == {"error": "Tool fetch_to_sandbox failed: boom"}
    assert results[1]["bytes"] == 4


def test_an_unknown_tool_names_the_known_ones(registry: ToolRegistry) -> None:
    offer(registry, "x")
    assert call(registry, "nope")["error"] == (
        "unknown tool 'nope'; known tools: sandbox_exec, fetch_to_sandbox, fetch_batch_to_sandbox, source"
    )


def test_arguments_that_do_not_fit_are_refused_before_the_call_and_the_field_is_named(registry: ToolRegistry) -> None:
    registry.register_data_source(ToolDef("count", "", NUMBER), lambda n: pytest.fail("it was called"))
    assert call(registry, "count", n="x") == {"error": "n: 'x' is not of type 'integer'"}
    assert call(registry, "count") == {"error": "arguments: 'n' is a required property"}
    assert "'m' was unexpected" in call(registry, "count", n=1, m=2)["error"]
    assert call(registry, "sandbox_exec", command="x", timeout_seconds=6000)["error"].startswith("timeout_seconds: ")


def test_a_source_that_raises_is_an_error_with_its_words_only(registry: ToolRegistry) -> None:
    def fail(**_: Any) -> str:
        raise ValueError("x" * 9000)

    registry.register_data_source(ToolDef("fail", "", {"type": "object"}), fail)
    error = call(registry, "fail")["error"]
    assert error.startswith("Tool fail failed: xxx")
    assert len(error) == 2000


def test_a_name_that_is_taken_and_a_schema_that_is_none_are_invalid(registry: ToolRegistry) -> None:
    with pytest.raises(Invalid, match="sandbox_exec"):
        registry.register_data_source(ToolDef("sandbox_exec", "", {"type": "object"}), lambda: "")
    with pytest.raises(Invalid, match="not a JSON Schema"):
        registry.register_data_source(ToolDef("a", "", {"type": "nonsense"}), lambda: "")


def test_definitions_keep_their_order_and_notes_become_one_section(registry: ToolRegistry) -> None:
    assert registry.get_tool_notes() == ""
    offer(registry, "x")
    assert [tool.name for tool in registry.get_tool_defs()][-1] == "source"
    assert registry.get_tool_notes() == "## Data Source Notes\n\nAbout the source."


class TestWithoutASandbox:
    @pytest.fixture
    def registry(self) -> ToolRegistry:
        return ToolRegistry()

    def test_the_sandbox_tools_do_not_exist(self, registry: ToolRegistry) -> None:
        registry.never_reuse(["/tmp/data/_out/1.txt"])
        assert registry.get_tool_defs() == []
        assert "unknown tool" in call(registry, "sandbox_exec", command="ls")["error"]

    def test_short_text_is_whole_and_long_text_is_cut(self, registry: ToolRegistry) -> None:
        offer(registry, "x" * 4096)
        assert call(registry, "source") == {"output": "x" * 4096}
        longer = ToolRegistry()
        offer(longer, "x" * 4097, ui="u")
        assert call(longer, "source") == {"preview": "x" * 4096, "truncated": True, "ui": "u"}

    def test_binary_data_is_an_error_with_its_size(self, registry: ToolRegistry) -> None:
        offer(registry, b"\0" * 10)
        error = "binary data cannot be shown without a sandbox"
        assert call(registry, "source") == {"error": error, "bytes": 10}
        streamed = ToolRegistry()
        offer(streamed, StreamingResponse([b"\0" * 10] * 3, binary=True))
        assert call(streamed, "source") == {"error": error, "bytes": 30}

    def test_a_text_stream_is_read_no_further_than_its_preview(self, registry: ToolRegistry) -> None:
        read: list[int] = []

        def chunks() -> Iterator[bytes]:
            for number in range(100):
                read.append(number)
                yield b"x" * 1000

        offer(registry, StreamingResponse(chunks(), metadata={"job": 1}))
        assert call(registry, "source") == {"preview": "x" * 4096, "truncated": True, "job": 1}
        assert len(read) == 5

    def test_a_short_text_stream_is_not_said_to_be_cut(self, registry: ToolRegistry) -> None:
        offer(registry, StreamingResponse([b"a"]))
        assert call(registry, "source") == {"preview": "a", "truncated": False}
        cut = ToolRegistry()
        offer(cut, StreamingResponse(broken(b"a")))
        assert call(cut, "source")["incomplete"] == ["the source broke off after 1 bytes: reset by peer"]


@pytest.mark.parametrize(
    ("path", "whole"),
    [
        ("a.json", "/tmp/data/a.json"),
        ("/tmp/data/a.json", "/tmp/data/a.json"),
        ("//tmp//data/./b/a.json", "/tmp/data/b/a.json"),
        ("./a b/é.json", "/tmp/data/a b/é.json"),
        ("_outer/a", "/tmp/data/_outer/a"),
    ],
)
def test_a_path_is_normalised_under_the_data_folder(path: str, whole: str) -> None:
    assert confined(path) == whole


@pytest.mark.parametrize(
    "path",
    ["", "/", "/tmp/data", "/tmp/data/", "a/", "/etc/passwd", "../a", "a/../b", "/tmp/database/a", "a\0b", "a\nb",
     "_out/1.txt", "/tmp/data/_out", "x" * 300, "a/" * 600 + "a"],
)  # fmt: skip
def test_a_path_that_leads_elsewhere_is_refused_with_its_reason(path: str) -> None:
    with pytest.raises(Invalid, match=r"^path: "):
        confined(path)


@given(st.text(st.characters(codec="utf-8") | st.sampled_from("/./..~")) | st.from_regex(r"(/tmp/data)?(/|\.|\w)*"))
def test_no_path_ever_leads_out_of_the_data_folder(path: str) -> None:
    try:
        whole = confined(path)
    except Invalid:
        return
    assert whole.startswith("/tmp/data/")
    assert not {"..", ".", ""} & set(whole.split("/")[1:])
    assert not whole.startswith("/tmp/data/_out/")
    assert confined(whole) == whole
