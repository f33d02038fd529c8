"""The words spoken with the shell in a sandbox: requests as bytes for its stdin, answers parsed from its stdout.

`commands.sh` describes the other side. Nothing of a command ever stands in an argument list: the API server's audit
log keeps those, and so does every list of processes.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from hummingbird_operator.errors import Invalid
from hummingbird_operator.sessions.sandbox import DATA_DIR, CommandResult, RunLimits, StreamOutput
from hummingbird_operator.sessions.spill import head_text, tail_text

END = b"\nhb-end\n"
STDIN_CUT, NO_ROOM = 97, 98
HEADER_BYTES = 4096
"""More than an answer has besides the heads and tails."""
COUNT_LIMIT = 1 << 53
"""No count of a record is as large; JSON keeps those below it exact."""
NO_SCRIPT = (2, 126, 127)
"""Exit codes of `sh FILE` when the file cannot be read: dash, bash and busybox differ."""

FORGED = "the command's record in the sandbox was tampered with"
_PATH = re.compile(r"(?=.{1,1000}\Z)(?:/(?!\.\.?(?:/|\Z))[A-Za-z0-9_.-]+)+")
"""A place for long output: it stands as one word in a record, and a forged one must not be a sentence for the model."""
TRAILER = b"\nhb-exit "
LOADER = (
    'IFS= read -r c; ( eval "$(printf %b "$c")" ); s=$?; cat >/dev/null 2>&1; '
    'printf \'\\nhb-exit %s\\n\' "$s" >&2; exit "$s"'
)
"""Runs the command in the first line of stdin, with the rest as its stdin. The exit code that it prints is the proof:
a stream's own Success also comes from a kubelet that restarts. What the command did not read is read to its end: with
stdin left over, kubelets of 1.37 send no Status and may reset the connection with output still in it (measured)."""


@cache
def script() -> bytes:
    """The text of commands.sh."""
    return files(__package__).joinpath("commands.sh").read_bytes()


@dataclass(frozen=True)
class Places:
    """Folders in the sandbox. `home` lies beside `data`, not in it: a session's archive must not carry the records
    of a sandbox that is gone."""

    home: str = "/tmp/.hummingbird"
    data: str = DATA_DIR

    @property
    def script(self) -> str:
        """The script's path; a new version lies beside the old one and shares its records."""
        return f"{self.home}/commands-{hashlib.sha256(script()).hexdigest()[:12]}.sh"


IN_SANDBOX = Places()


def line(command: str) -> bytes:
    """A command as the one line that LOADER reads."""
    return command.replace("\\", "\\\\").replace("\n", "\\n").encode() + b"\n"


def install(places: Places) -> tuple[str, bytes]:
    """(command, stdin) that put the script in place whole or not at all, and create /tmp/data."""
    path, size = places.script, len(script())
    command = (
        f'mkdir -p {places.data} {places.home} && cat >{path}.$$ && [ "$(($(wc -c <{path}.$$)))" -eq {size} ]'
        f" && mv {path}.$$ {path}"
    )
    return command, script()


def request(places: Places, command_id: str, command: str, limits: RunLimits) -> bytes:
    """What `commands.sh run` reads. Raises Invalid for a path outside of the data folder, or with odd characters."""
    for path in (limits.stdout_path, limits.stderr_path):
        if not path.startswith(f"{places.data}/") or not _PATH.fullmatch(path):
            raise Invalid("stdout_path", f"{path!r} is no plain path below {places.data}")
    body = command.encode(errors="surrogateescape") + b"\n"
    fields = (
        hashlib.sha256(command_id.encode()).hexdigest()[:32],
        f"{max(limits.timeout_seconds, 0.1):g}",
        limits.head_bytes,
        limits.tail_bytes,
        limits.max_output_bytes,
        limits.stdout_path,
        limits.stderr_path,
        len(body),
    )
    return "".join(f"{field}\n" for field in fields).encode() + body


def answer_bytes(limits: RunLimits) -> int:
    """Bytes that an answer to a request with these limits has at most."""
    return 2 * (limits.head_bytes + limits.tail_bytes) + HEADER_BYTES


def parse_answer(raw: bytes, limits: RunLimits) -> CommandResult | None:
    """Read what `commands.sh run` wrote; None when a part is missing, whatever the stream said of its end.

    The record names the files of whoever asked first. One of an older script names none: there they are those asked
    for now. Raises Invalid where a count or a path is none that our script writes: the record was forged.
    """
    header, found, body = raw.partition(b"\n")
    if not found or not body.endswith(END):
        return None
    try:
        words = {key: value for key, _, value in (word.partition("=") for word in header.decode().split())}
        out_path = _path(words.pop("out_path", limits.stdout_path), limits.stdout_path)
        err_path = _path(words.pop("err_path", limits.stderr_path), limits.stderr_path)
        fields = {key: int(value) for key, value in words.items()}
        _check_counts(fields, limits)
        out, rest = _stream("out", fields, body[: -len(END)], out_path)
        err, rest = _stream("err", fields, rest, err_path)
        result = CommandResult(
            exit_code=fields["exit"],
            stdout=out,
            stderr=err,
            timed_out=bool(fields["timed_out"]),
            replayed=bool(fields["known"]),
        )
    except (KeyError, ValueError):
        return None
    return None if rest else result


def _path(recorded: str, asked: str) -> str:
    """The path in the record, if it lies where requests keep such files."""
    folder = asked.rpartition("/")[0]
    if recorded.rpartition("/")[0] != folder or not _PATH.fullmatch(recorded):
        raise Invalid(FORGED, f"a path in it is not one below {folder}")
    return recorded


def _check_counts(fields: dict[str, int], limits: RunLimits) -> None:
    most = {"head": limits.head_bytes, "tail": limits.tail_bytes}
    for key, value in fields.items():
        if not 0 <= value <= most.get(key.rpartition("_")[2], COUNT_LIMIT):
            raise Invalid(FORGED, f"{key} is {value}")


def _stream(name: str, fields: dict[str, int], body: bytes, path: str) -> tuple[StreamOutput, bytes]:
    head_bytes, tail_bytes = fields[f"{name}_head"], fields[f"{name}_tail"]
    size = fields[f"{name}_bytes"]
    tail_bytes = min(tail_bytes, size)
    if len(body) < head_bytes + tail_bytes:
        raise ValueError(name)
    head, tail, rest = body[:head_bytes], body[head_bytes : head_bytes + tail_bytes], body[head_bytes + tail_bytes :]
    output = StreamOutput(
        head=head_text(head, head_bytes, more=size > head_bytes),
        tail=tail_text(tail, tail_bytes, more=size > tail_bytes) if tail_bytes else "",
        bytes=size,
        lines=fields[f"{name}_lines"],
        path=path if fields[f"{name}_kept"] else None,
        truncated=bool(fields[f"{name}_cut"]),
    )
    return output, rest
