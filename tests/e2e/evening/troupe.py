"""The processes of the evening, and who ends them: each is killed and comes back, at moments drawn from a seed."""

from __future__ import annotations

import json
import random
import re
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from demo.stage import Operator
from tests.e2e.scene import Scene

LOOK_SECONDS = 0.1
LONGEST_AWAY_SECONDS = 2.5
DOOMED = 0.6
"""How many operators die by themselves at one of their effects, not from outside."""


@dataclass
class Part:
    """One process, whoever plays it now."""

    name: str
    start: Callable[[], Operator]
    gone: Callable[[], None] = lambda: None
    """Called when it has died."""
    process: Operator | None = None
    back_at: float = 0.0
    deaths: int = 0


@dataclass
class Troupe:
    """Starts all parts, and again whoever died. A context manager."""

    world: Scene
    webhook_ports: tuple[int, ...]
    queues: int
    seed: int
    doomed: bool = True
    """Whether operators may die at an effect of theirs."""
    parts: dict[str, Part] = field(default_factory=dict)
    falls: list[str] = field(default_factory=list)
    """Who ended otherwise than by SIGKILL, with what the log says."""

    def __post_init__(self) -> None:
        self._draw = random.Random(self.seed)  # noqa: S311 - reproducible, not secret
        self._lock = threading.RLock()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self.fault: BaseException | None = None
        stage = self.world.stage
        for number, port in enumerate(self.webhook_ports):
            name = f"webhook-{number}"
            self.parts[name] = Part(name, lambda name=name, port=port: stage.ingest("webhook", name, port=port))  # type: ignore[misc]
        for number in range(self.queues):
            name = f"sqs-{number}"
            self.parts[name] = Part(name, lambda name=name: stage.ingest("sqs", name))  # type: ignore[misc]
        self.parts["operator"] = Part("operator", self._operator, self.world.free_lease)

    def __enter__(self) -> Troupe:
        with self._lock:
            for part in self.parts.values():
                part.process = part.start()
        for part in self.parts.values():
            assert part.process is not None
            part.process.wait_until_ready()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join(60)
        for part in self.parts.values():
            if part.process is not None:
                part.process.stop()

    def kill(self, name: str) -> None:
        """End it at once; it comes back by itself. One that is dead already was quicker."""
        with self._lock:
            process = self.parts[name].process
            if process is not None:
                process.process.kill()

    def settle(self, seconds: float = 60) -> None:
        """From now on nobody dies; returns when all are ready."""
        with self._lock:
            self.doomed = False
        self.kill("operator")
        end = time.monotonic() + seconds
        while time.monotonic() < end and self.fault is None:
            with self._lock:
                processes = [part.process for part in self.parts.values()]
            if all(
                each is not None and each.process.poll() is None and each.probe("readyz") == 200 for each in processes
            ):
                return
            time.sleep(LOOK_SECONDS)
        raise TimeoutError(f"not all came back: {self.fault}\n{self.log()}")

    @property
    def deaths(self) -> dict[str, int]:
        """How often each part died."""
        return {name: part.deaths for name, part in self.parts.items()}

    @property
    def points(self) -> list[str]:
        """The effects at which operators died by themselves."""
        log = (self.world.stage.folder / "operator.log").read_text(errors="replace")
        return re.findall(r'\{"killed": "([^"]+)"\}', log)

    def log(self) -> str:
        """The end of every log."""
        paths = sorted(self.world.stage.folder.glob("*.log"))
        tails = [(path.name, path.read_text(errors="replace").splitlines()[-15:]) for path in paths]
        return "\n".join(f"--- {name}\n" + "\n".join(lines) for name, lines in tails)

    def _operator(self) -> Operator:
        """The real one, or the real one that dies at an effect: after a placeholder, in a save, wherever."""
        if self.doomed and self._draw.random() < DOOMED:
            fate = {"FATE": json.dumps({"kill_at": self._draw.randint(5, 80)})}
            return self.world.stage.start("operator", program="tests.e2e.mortal", environ=fate)
        return self.world.stage.start("operator")

    def _watch(self) -> None:
        try:
            while not self._over.wait(LOOK_SECONDS):
                for part in self.parts.values():
                    self._look(part)
        except BaseException as error:
            self.fault = error
            raise

    def _look(self, part: Part) -> None:
        with self._lock:
            if part.process is not None and part.process.process.poll() is not None:
                if (status := part.process.process.wait()) != -signal.SIGKILL:
                    self.falls.append(f"{part.name} ended with {status}:\n{part.process.tail()}")
                part.process, part.deaths = None, part.deaths + 1
                part.back_at = time.monotonic() + self._draw.uniform(0, LONGEST_AWAY_SECONDS)
            if part.process is None and time.monotonic() >= part.back_at:
                part.gone()
                part.process = part.start()
