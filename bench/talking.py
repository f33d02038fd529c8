"""Many conversations at once, each in a thread, as a process of its own: `python -m bench.talking`.

Takes URL, model, count and turns, and prints one JSON object; `answer` is the script of the server it talks to.
"""

from __future__ import annotations

import gc
import json
import sys
import threading
import time
from pathlib import Path
from typing import Any

from google.oauth2.credentials import Credentials

from bench.figures import percentile
from hummingbird_ai.auth import VertexAuth
from hummingbird_ai.calls import generate_with_retry
from hummingbird_ai.messages import ModelAdapter, ToolDef
from hummingbird_ai.models import build_model
from hummingbird_ai.testing import Answer

_AUTH = VertexAuth("project", credentials=Credentials("test-token"))  # type: ignore[no-untyped-call]
RUN = ToolDef("run", "Run a command", {"type": "object", "properties": {"command": {"type": "string"}}})
SYSTEM = "You look into failed pipelines. " * 100
RESULT = {"exit_code": 0, "stdout": "line of a log\n" * 300}
"""4 KB, as much as a command's output takes in a conversation at most."""


def answer(body: dict[str, Any], number: int) -> Answer:
    """A thought and a call, again and again; the conversation's end is the caller's business."""
    return Answer(thought="Let me see. " * 20, calls=(("run", {"command": f"sed -n {number}p build.log"}),))


def adapter(url: str, name: str) -> ModelAdapter:
    """As the operator builds one, with a token that needs no renewal."""
    if name.startswith("gemini-"):
        return build_model(name, google_api_key="test-key", base_url=url)
    return build_model(name, auth=_AUTH, base_url=url)


def resident() -> int:
    """Bytes of this process in memory."""
    status = Path("/proc/self/status").read_text()
    return int(next(row for row in status.splitlines() if row.startswith("VmRSS")).split()[1]) << 10


def main(url: str, name: str, count: int, turns: int) -> dict[str, float]:
    """Hold all conversations until each has had its turns, so that what they take is seen together."""
    waits: list[float] = []
    ended = threading.Barrier(count + 1)
    measured = threading.Event()

    def talk() -> None:
        model = adapter(url, name)
        contents = [model.make_user_content("Why does the build fail?")]
        for _ in range(turns):
            began = time.monotonic()
            reply = generate_with_retry(model, contents, system=SYSTEM, tools=[RUN], max_attempts=1)
            waits.append(time.monotonic() - began)
            assert reply.raw_content is not None
            contents += [reply.raw_content, model.make_tool_responses(reply.tool_calls, [RESULT])]
        ended.wait()
        measured.wait()

    _once(url, name)
    before = resident()
    threads = [threading.Thread(target=talk) for _ in range(count)]
    began = time.monotonic()
    for thread in threads:
        thread.start()
    ended.wait()
    seconds = time.monotonic() - began
    gc.collect()
    held = resident() - before
    measured.set()
    for thread in threads:
        thread.join()
    return {
        "calls": count * turns + 1,
        "seconds": seconds,
        "kb_each": held / count / 1024,
        "p50": percentile(waits, 0.5),
        "p95": percentile(waits, 0.95),
    }


def _once(url: str, name: str) -> None:
    """What the first call of a process loads is not the conversations'."""
    model = adapter(url, name)
    generate_with_retry(model, [model.make_user_content("go")], system=SYSTEM, tools=[RUN], max_attempts=1)


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))))
