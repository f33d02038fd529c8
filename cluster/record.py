"""What is known about the running cluster, on disk: written after every start, so that a crash forgets nothing."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace

from cluster.paths import State
from cluster.ports import Ports
from cluster.processes import Process, alive, boot_id

FORMAT = 1


@dataclass(frozen=True)
class Record:
    """One running cluster."""

    boot: str
    ports: Ports
    builds: tuple[str, ...]  # the cache keys that it runs
    kubectl: str
    images: str = ""
    complete: bool = False  # False while it is being started
    processes: tuple[Process, ...] = ()

    def with_process(self, process: Process) -> Record:
        """The same with one more process."""
        return replace(self, processes=(*self.processes, process))

    def alive(self) -> list[Process]:
        """The processes that are still the ones we started; none after a reboot."""
        return [process for process in self.processes if self.boot == boot_id() and alive(process)]

    def dead(self) -> list[str]:
        """The names of those that ended."""
        living = self.alive()
        return [process.name for process in self.processes if process not in living]


def write(state: State, record: Record) -> None:
    """Replace the file as a whole."""
    temporary = state.record.with_suffix(".new")
    temporary.write_text(json.dumps({"format": FORMAT, **asdict(record)}, indent=2))
    temporary.replace(state.record)


def read(state: State) -> Record | None:
    """The record, or None if there is none that we understand."""
    try:
        values = json.loads(state.record.read_text())
        if values.pop("format") != FORMAT:
            return None
        values["ports"] = Ports(**values["ports"])
        values["builds"] = tuple(values["builds"])
        values["processes"] = tuple(Process(**one) for one in values["processes"])
        return Record(**values)
    except (OSError, ValueError, KeyError, TypeError):
        return None
