"""What a demo that was killed left running is ended by the next, and nothing else is."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from cluster.processes import identify
from demo.place import end_processes


def running(*words: str) -> subprocess.Popen[bytes]:
    """A process with these words in its command line, which has begun."""
    program = "print(flush=True); input()"
    process = subprocess.Popen([sys.executable, "-c", program, *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    return process


def test_processes_with_the_folders_configuration_are_ended_and_no_others(tmp_path: Path) -> None:
    ours, another = tmp_path / "config.yaml", tmp_path / "another" / "config.yaml"
    with (
        running("hummingbird_operator", "operator", "--config", str(ours)) as left,
        running("hummingbird_operator", "operator", "--config", str(another)) as tests,
        running("cat", str(ours)) as reader,
    ):
        assert end_processes(tmp_path) == 1
        assert (tests.poll(), reader.poll()) == (None, None)
        for process in (tests, reader):
            process.kill()
        assert identify("left over", left.pid) is None
    assert end_processes(tmp_path) == 0
