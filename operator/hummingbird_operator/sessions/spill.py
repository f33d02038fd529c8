"""Keeps long results out of the conversation: the whole goes to a file in the sandbox, the model sees head and tail.

Both provider APIs replay the full history with every call, so one long result would be paid for again each turn
(seed 003 §7.2). Every path that spills shares one counter, and a number that any earlier result named is never used
again, neither after a restart nor in a resumed session.
"""

from __future__ import annotations

import codecs
import json
import logging
import re
from collections.abc import Generator, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from hummingbird_operator.errors import Aborted, SandboxLost
from hummingbird_operator.sessions.sandbox import OUTPUT_PREVIEW_BYTES, SPILL_DIR, RunLimits, Sandbox, StreamOutput

logger = logging.getLogger(__name__)

Result = dict[str, Any]
"""What a tool hands to the model: a JSON object."""

MAX_INLINE_SIZE = OUTPUT_PREVIEW_BYTES
"""Bytes of a data source's answer that still go into the conversation whole (seed 003 §7.2)."""

_SPILLED_NAME = re.compile(re.escape(SPILL_DIR) + r"/(?:[A-Za-z0-9_-]*_)?(\d{1,18})\.")
_HIGHEST_NUMBER = (
    f"ls -1 {SPILL_DIR} 2>/dev/null | sed -n 's/^\\(.*_\\)\\{{0,1\\}}\\([0-9]\\{{1,18\\}}\\)\\..*$/\\2/p'"
    " | sort -n | tail -n 1"
)


@dataclass(frozen=True)
class StreamingResponse:
    """A data source's answer that is never held whole: chunks of bytes as they come.

    `suffix` ends the file's name. `binary` streams get no preview. `metadata` is read after the last chunk, so that a
    source may fill it on the way; a list under `incomplete` in it says what is missing.
    """

    chunks: Iterable[bytes]
    suffix: str = ".txt"
    binary: bool = False
    metadata: dict[str, Any] = field(default_factory=dict)


def head_text(data: bytes, limit: int, *, more: bool = False) -> str:
    """The first `limit` bytes as text; `more` says that the stream goes on behind `data`. No character is split."""
    cut = more or len(data) > limit
    text = codecs.getincrementaldecoder("utf-8")("replace").decode(data[:limit], final=not cut)
    encoded = text.encode()
    if cut and len(encoded) > limit:  # undecodable bytes grow to three each
        text = codecs.getincrementaldecoder("utf-8")("replace").decode(encoded[:limit])
    return text


def tail_text(data: bytes, limit: int, *, more: bool = False) -> str:
    """The last `limit` bytes as text; `more` says that the stream began before `data`. No character is split."""
    kept = data[-limit:] if limit else b""
    if more or len(data) > limit:
        begun_before = 0
        while begun_before < min(3, len(kept)) and kept[begun_before] & 0xC0 == 0x80:
            begun_before += 1
        kept = kept[begun_before:]
    return kept.decode(errors="replace")


def merged(*parts: Mapping[str, Any]) -> Result:
    """One result; later parts win, except that every part's `incomplete` is kept."""
    result: Result = {}
    incomplete: list[Any] = []
    for part in parts:
        result.update(part)
        missing = part.get("incomplete") or []
        incomplete += missing if isinstance(missing, list) else [missing]
    result.pop("incomplete", None)
    return {**result, "incomplete": incomplete} if incomplete else result


def files_named(results: Iterable[Mapping[str, Any]]) -> list[str]:
    """The files in the sandbox that those results told the model of, each once, in their order."""
    found: dict[str, None] = {}
    for result in results:
        for key, value in result.items():
            if isinstance(value, list):
                nested = [item for item in value if isinstance(item, Mapping)]
                found |= dict.fromkeys(files_named(nested))
            elif (key == "saved_to" or key.endswith("_file")) and isinstance(value, str):
                found[value] = None
    return list(found)


class SpillCounter:
    """The one number that names spilled files. It starts above every number that is there or was ever named."""

    def __init__(self, sb: Sandbox) -> None:
        self._sb = sb
        self._floor = 0
        self._promised = 0
        self._next: int | None = None

    def never_reuse(self, text: str) -> None:
        """Stay above every spilled file that the text names: the history of a resumed session, recorded results."""
        self._floor = max([self._floor, *(int(number) + 1 for number in _SPILLED_NAME.findall(text))])

    def peek(self) -> int:
        """The next free number; the sandbox is asked once, when the first is needed: it may be a restored one."""
        if self._next is None:
            highest = self._sb.exec(_HIGHEST_NUMBER).stdout.strip()
            self._next = int(highest) + 1 if highest.isdecimal() else 0
        return max(self._next, self._floor, self._promised)

    def promise(self, count: int) -> int:
        """The first of that many free numbers; they stay taken until `settle`, for ever if it never comes."""
        number = self._floor = self.peek()
        self._promised = number + count
        return number

    def settle(self) -> None:
        """What the last promise was for is over: the numbers that it used were named, the others are free again."""
        self._promised = 0

    def take(self) -> int:
        """The next free number, now used."""
        number = self.peek()
        self._next = number + 1
        return number


class Tap:
    """Passes a source's chunks through: keeps their head, counts, and turns a break into a stated gap.

    The source's failure must not lose what already came: the file is kept and the model is told (`gap`).
    """

    def __init__(self, chunks: Iterable[bytes]) -> None:
        self._chunks = chunks
        self._head = bytearray()
        self.bytes = 0
        self.gap: str | None = None

    def __iter__(self) -> Generator[bytes, None, None]:
        try:
            for chunk in self._chunks:
                self.bytes += len(chunk)
                if len(self._head) < OUTPUT_PREVIEW_BYTES:
                    self._head += chunk[:OUTPUT_PREVIEW_BYTES]
                yield chunk
        except (SandboxLost, Aborted):
            raise
        except Exception as error:
            logger.warning("a data source broke off after %d bytes", self.bytes, exc_info=True)
            self.gap = f"the source broke off after {self.bytes} bytes: {error}"[:500]
        finally:
            close = getattr(self._chunks, "close", None)
            if close is not None:
                close()

    @property
    def preview(self) -> str:
        """The head as text, at most 4096 bytes."""
        return head_text(bytes(self._head), OUTPUT_PREVIEW_BYTES, more=self.bytes > len(self._head))

    @property
    def incomplete(self) -> Result:
        """The gap as a part of a result; empty if there is none."""
        return {"incomplete": [self.gap]} if self.gap else {}


class Spill:
    """Gives every kind of result its shape where there is a sandbox (seed 003 §7.2)."""

    def __init__(self, sb: Sandbox) -> None:
        self._sb = sb
        self.counter = SpillCounter(sb)

    def limits(self, timeout_seconds: float) -> RunLimits:
        """Limits for one command, with the two paths that its streams get if they are long.

        They stay its own until its output is here: where nobody could wait for it, it may still write there.
        """
        number = self.counter.promise(2)
        out, err = f"{SPILL_DIR}/{number}.txt", f"{SPILL_DIR}/{number + 1}.txt"
        return RunLimits(stdout_path=out, stderr_path=err, timeout_seconds=timeout_seconds)

    def command_output(self, name: str, stream: StreamOutput) -> Result:
        """The fields of stdout or stderr."""
        self.counter.settle()
        shape: Result = {name: stream.head}
        if stream.path is not None:
            self.counter.never_reuse(stream.path)
            shape |= {
                f"{name}_truncated": True,
                f"{name}_file": stream.path,
                f"{name}_bytes": stream.bytes,
                f"{name}_lines": stream.lines,
                f"{name}_tail": stream.tail,
            }
        if stream.truncated:
            shape["incomplete"] = [f"{name} was cut after {stream.bytes} bytes"]
        return shape

    def inline(self, name: str, value: object) -> Result:
        """A data source's answer: whole if it is short, else as a file with a preview."""
        if isinstance(value, StreamingResponse):
            tap = Tap(value.chunks)
            shape = self._save_stream(self._path(name, value.suffix), value, tap)
            return shape if value.binary or "error" in shape else {**shape, "preview": tap.preview}
        if isinstance(value, bytes):
            return self.save(self._path(name, ".bin"), value)
        data = _encoded(value)
        if len(data) <= MAX_INLINE_SIZE:
            return _whole(value)
        path = self._path(name, ".txt")
        self._sb.write_file(path, data)
        return {**_saved_text(path, data), "preview": head_text(data, OUTPUT_PREVIEW_BYTES)}

    def save(self, path: str, value: object) -> Result:
        """A data source's answer as the file `path`: where, how many bytes and, of text, how many lines."""
        if isinstance(value, StreamingResponse):
            return self._save_stream(path, value, Tap(value.chunks))
        if isinstance(value, Mapping) and "error" in value:  # as a file it would look like data
            return {**value, "error": str(value["error"])[:2000]}
        if isinstance(value, bytes):
            self._sb.write_file(path, value)
            return {"saved_to": path, "bytes": len(value)}
        data = _encoded(value)
        self._sb.write_file(path, data)
        return _saved_text(path, data)

    def _save_stream(self, path: str, response: StreamingResponse, tap: Tap) -> Result:
        size, lines = self._sb.stream_to_file(path, tap)
        if tap.gap and not size:
            return merged(response.metadata, {"error": tap.gap})
        shape: Result = {"saved_to": path, "bytes": size}
        if not response.binary:
            shape["lines"] = lines
        return merged(response.metadata, shape, tap.incomplete)

    def _path(self, name: str, suffix: str) -> str:
        return f"{SPILL_DIR}/{re.sub(r'[^A-Za-z0-9_-]', '_', name)}_{self.counter.take()}{suffix}"


class Preview:
    """The shapes without a sandbox: text is cut to a preview, binary data is an error (seed 003 §7.2)."""

    def inline(self, name: str, value: object) -> Result:
        """A data source's answer, as much of it as the conversation takes; `name` has no file to go into."""
        if isinstance(value, StreamingResponse):
            return self._stream(value)
        if isinstance(value, bytes):
            return _binary(len(value))
        data = _encoded(value)
        if len(data) <= MAX_INLINE_SIZE:
            return _whole(value)
        return {"preview": head_text(data, OUTPUT_PREVIEW_BYTES), "truncated": True}

    def _stream(self, response: StreamingResponse) -> Result:
        """Text is read as far as the preview goes and no further; binary data is only counted."""
        tap = Tap(response.chunks)
        chunks = iter(tap)
        more = False
        for _ in chunks:
            more = not response.binary and tap.bytes > OUTPUT_PREVIEW_BYTES
            if more:
                break
        chunks.close()
        shape = _binary(tap.bytes) if response.binary else {"preview": tap.preview, "truncated": more}
        return merged(response.metadata, shape, tap.incomplete)


def _encoded(value: object) -> bytes:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return text.encode(errors="replace")


def _whole(value: object) -> Result:
    """A short answer as it is; what is not an object goes under `output`, the providers' name for a result."""
    return dict(value) if isinstance(value, Mapping) else {"output": value}


def _saved_text(path: str, data: bytes) -> Result:
    return {"saved_to": path, "bytes": len(data), "lines": data.count(b"\n")}


def _binary(size: int) -> Result:
    return {"error": "binary data cannot be shown without a sandbox", "bytes": size}
