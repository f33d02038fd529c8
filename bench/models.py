"""The library alone: what the prompt cache saves, 200 conversations at once, and how soon an abort is one.

It needs no cluster; the models are provider servers on loopback.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import requests

from bench.aborts import measure_aborts
from bench.figures import line
from bench.talking import RESULT, RUN, SYSTEM, adapter
from hummingbird_ai.http import new_session, post
from hummingbird_ai.messages import ModelResponse, Usage
from hummingbird_ai.pricing import estimate_cost
from hummingbird_ai.providers.claude.adapter import CLEAR_AT_BETA
from hummingbird_ai.providers.claude.reply import read
from hummingbird_ai.testing import Answer, ClaudeServer

CLAUDE = "claude-opus-5-5"
GEMINI = "gemini-3.8-flash"
CONVERSATIONS = 200
TURNS = 5


def measure() -> None:
    """All three."""
    _cache()
    for name in (GEMINI, CLAUDE):
        _conversations(name)
    measure_aborts()


# -- the prompt cache --


def _cache() -> None:
    """Ten turns with two warnings, saved and resumed after the fifth; then the same requests without marks."""

    def script(body: dict[str, Any], number: int) -> Answer:
        done = number % 10 == 9
        return Answer(thought="Let me see.", text="It is the cache." if done else "", calls=() if done else _CALL)

    with ClaudeServer(script) as server:
        usages = [reply.usage for reply in _ten_turns(server.url)]
        bodies = [call.body for call in server.calls]
        refused = sum(call.refused is not None for call in server.calls)
    with ClaudeServer(script) as server:
        plain = [_sent_without_marks(server.url, body) for body in bodies]
    for turn, (marked, unmarked) in enumerate(zip(usages, plain, strict=True)):
        note = " (warning)" if turn in _WARNED else " (resumed)" if turn == _RESUMED else ""
        counts = f"{marked.cache_read_tokens:>6} {marked.cache_write_tokens:>6} {marked.input_tokens:>6}"
        what = f"turn {turn + 1}{note}: tokens read, written, fresh; fresh without marks"
        line(what, f"{counts}; {unmarked.input_tokens:>6}")
    costs = [sum(estimate_cost(CLAUDE, usage) or 0 for usage in all_of) for all_of in (usages, plain)]
    line("cost of the ten turns, with and without marks", f"${costs[0]:.4f} / ${costs[1]:.4f}")
    line("  ratio", f"{costs[0] / costs[1]:.2f}")
    line("requests refused", f"{refused}")


_CALL = (("run", {"command": "sed -n 1,80p build.log"}), ("run", {"command": "ls"}))
_WARNED = {2: "You have used most of your turns.", 3: "You have used most of your turns.", 8: "Answer now."}
_RESUMED = 5


def _ten_turns(url: str) -> Iterator[ModelResponse]:
    model = adapter(url, CLAUDE)
    contents = [model.make_user_content("Why does the build fail?")]
    for turn in range(10):
        if turn == _RESUMED:
            stored = json.loads(json.dumps(model.to_canonical(contents)))
            model = adapter(url, CLAUDE)
            contents = model.from_canonical(stored)
        words = [_WARNED[turn]] if turn in _WARNED else []
        reply = model.generate(contents, system=SYSTEM, tools=[RUN], ephemeral=words)
        assert reply.raw_content is not None
        contents.append(reply.raw_content)
        if reply.tool_calls:
            contents.append(model.make_tool_responses(reply.tool_calls, [RESULT] * len(reply.tool_calls)))
        yield reply


def _sent_without_marks(url: str, body: dict[str, Any]) -> Usage:
    path = f"{url}/v1/projects/p/locations/global/publishers/anthropic/models/{CLAUDE}:rawPredict"
    beta = {"anthropic-beta": CLEAR_AT_BETA} if "clear_at" in json.dumps(body) else {}
    data = json.dumps(_unmarked(body)).encode()
    headers = {"Authorization": "Bearer test-token", "Content-Type": "application/json", **beta}
    return read(post(new_session(), path, body=data, headers=headers)).usage


def _unmarked(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _unmarked(item) for key, item in value.items() if key != "cache_control"}
    return [_unmarked(item) for item in value] if isinstance(value, list) else value


# -- many at once --


def _conversations(name: str) -> None:
    with _server("gemini_server" if name == GEMINI else "claude_server") as url:
        argv = [sys.executable, "-m", "bench.talking", url, name, str(CONVERSATIONS), str(TURNS)]
        found = json.loads(subprocess.run(argv, check=True, capture_output=True, text=True).stdout)
        seen = requests.get(f"{url}/calls", timeout=10).json()["calls"]
    line(f"{name}: {CONVERSATIONS} conversations of {TURNS} turns: memory of each", f"{found['kb_each']:.0f} KB")
    line("  requests a second, with the server on the same machine", f"{found['calls'] / found['seconds']:.0f}")
    line("  a call, p50 / p95", f"{found['p50'] * 1e3:.0f} / {found['p95'] * 1e3:.0f} ms")
    line("  calls made / requests that the server saw", f"{found['calls']:.0f} / {len(seen)}")


@contextmanager
def _server(module: str) -> Iterator[str]:
    argv = [sys.executable, "-m", f"hummingbird_ai.testing.{module}", "--script", "bench.talking:answer"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.terminate()
