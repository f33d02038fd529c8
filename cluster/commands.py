"""Run a tool and turn its failure into an error that a person can use."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from cluster.errors import ClusterError

# Debian keeps iptables, ip and runc in sbin, which a plain user's or a service's PATH often lacks.
TOOL_PATH = os.pathsep.join(
    [*os.environ.get("PATH", "").split(os.pathsep), "/usr/local/sbin", "/usr/sbin", "/sbin", "/usr/local/go/bin"]
)
TAIL_LINES = 15


def tail(text: str, lines: int = TAIL_LINES) -> str:
    """The last lines, indented, for an error message."""
    return "\n".join(f"    {line}" for line in text.strip().splitlines()[-lines:])


def environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """Our environment with a PATH that finds the tools."""
    return {**os.environ, "PATH": TOOL_PATH, **(extra or {})}


def run(
    argv: Sequence[str | Path],
    *,
    error: type[ClusterError] = ClusterError,
    hint: str = "",
    env: Mapping[str, str] | None = None,
    stdin: str | None = None,
    timeout: float | None = None,
) -> str:
    """Run to the end and give stdout; else raise `error` with the end of stderr and the hint."""
    words = [str(word) for word in argv]
    try:
        done = subprocess.run(
            words, input=stdin if stdin is not None else "", capture_output=True, text=True, timeout=timeout,
            env=environment(env), check=False,
        )  # fmt: skip
    except FileNotFoundError:
        raise error(f"`{words[0]}` is not installed. {hint}".strip()) from None
    except subprocess.TimeoutExpired:
        raise error(f"`{' '.join(words[:4])}` did not end within {timeout} s. {hint}".strip()) from None
    if done.returncode != 0:
        text = f"`{' '.join(words[:6])}` ended with {done.returncode}:\n{tail(done.stderr or done.stdout)}"
        raise error(f"{text}\n{hint}".strip())
    return done.stdout


def attempt(argv: Sequence[str | Path], *, stdin: str | None = None, timeout: float = 30.0) -> str | None:
    """Run; stdout, or None where the tool is missing, fails or hangs. For probes and clean-up."""
    try:
        return run(argv, stdin=stdin, timeout=timeout)
    except ClusterError:
        return None
