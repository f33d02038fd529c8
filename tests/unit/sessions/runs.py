"""Builders for the engine's tests: a run with a scripted model, the fakes that ship, and a clock that stands still."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

from hummingbird_ai.abort import Abort
from hummingbird_ai.calls import generate_with_retry
from hummingbird_ai.messages import Content, ModelResponse, ToolCall, ToolDef, Usage
from hummingbird_ai.testing import ScriptedModel
from hummingbird_ai.testing.scripted import Step, StepSource
from hummingbird_operator.sessions.budget import Budget
from hummingbird_operator.sessions.journal import RunJournal
from hummingbird_operator.sessions.loop import run_agent_loop
from hummingbird_operator.sessions.prompts import system_prompt
from hummingbird_operator.sessions.records import Opening
from hummingbird_operator.sessions.state import LoopResult, Progress
from hummingbird_operator.sessions.testing import FakeSandbox, MemoryStore
from hummingbird_operator.sessions.tools import ToolRegistry
from hummingbird_operator.sessions.turns import JournaledTurns

Script = Iterable[StepSource] | Callable[[Sequence[Content]], Step]

NOTHING = Usage(input_tokens=100, output_tokens=10, context_tokens=110)


@dataclass
class Clock:
    now: float = 0.0

    def __call__(self) -> float:
        return self.now


generate = partial(generate_with_retry, max_attempts=1)


def cheap(*, input_tokens: int, max_output_tokens: int) -> Decimal:
    """A dollar for a million tokens of either kind."""
    return Decimal(input_tokens + max_output_tokens) / 1_000_000


def shell(command: str, number: int = 1) -> ToolCall:
    return ToolCall(f"call-{number}", "sandbox_exec", {"command": command})


def said(text: str = "", calls: Sequence[ToolCall] = (), **fields: Any) -> ModelResponse:
    return ModelResponse(text=text, tool_calls=tuple(calls), **{"usage": NOTHING, **fields})


@dataclass
class Run:
    """One run over its processes: the store and the sandbox live on, model, tools and journal are made anew."""

    root: Path | None
    script: Script
    store: MemoryStore = field(default_factory=MemoryStore)
    budget: Budget = field(default_factory=Budget)
    clock: Clock = field(default_factory=Clock)
    abort: Abort = field(default_factory=Abort)
    worst_case: Any = cheap
    generate: Any = generate
    lines: list[Progress] = field(default_factory=list)
    name: str = "scripted-model"
    opening: Opening | None = None

    def __post_init__(self) -> None:
        self.sandbox = FakeSandbox(self.root) if self.root else None
        if self.sandbox:
            self.sandbox.start()
        self.registry = ToolRegistry(self.sandbox)
        self.model = ScriptedModel(self.script, name=self.name)

    def add_tool(self, name: str, func: Callable[..., Any]) -> None:
        self.registry.register_data_source(ToolDef(name, name, {"type": "object"}), func)

    def start(self, message: str = "hello", contents: Sequence[Content] | None = None) -> LoopResult:
        journal = RunJournal(self.store, "u1", clock=self.clock, wait=lambda _: False)
        turns = JournaledTurns(
            self.model,
            self.registry,
            journal,
            system=system_prompt(self.registry.get_tool_notes(), "Do it."),
            tool_defs=self.registry.get_tool_defs(),
            generate=self.generate,
            worst_case=self.worst_case,
            opening=self.opening,
            abort=self.abort,
        )
        history = contents if contents is not None else [self.model.make_user_content(message)]
        return run_agent_loop(turns, history, self.budget, clock=self.clock, progress=self.lines.append)
