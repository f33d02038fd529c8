"""The points at which a process touches the world, and its death at any of them."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any, Protocol, TypeVar, cast

from hummingbird_ai.errors import CallAborted
from hummingbird_operator.errors import Aborted

T = TypeVar("T")


class Death(BaseException):
    """The process ends here, at once: nothing in it may catch this."""


Fatal = Callable[[int, str], bool]
"""Whether the process dies at this point of its life, given its number from 0 and its name."""


class Mortal(Protocol):
    """Whoever may die: a process."""

    aborted: list[str]

    def check(self) -> None:
        """Raise Death if it is dead."""

    def point(self, name: str) -> None:
        """Here it has an effect; raises Death if it dies there."""


def watched(inner: T, process: Mortal, prefix: str, names: Sequence[str]) -> T:
    """The same, but the process may die before and after those calls, and cannot call anything once it is dead."""
    return cast("T", _Watched(inner, process, prefix, frozenset(names)))


class _Watched:
    def __init__(self, inner: object, process: Mortal, prefix: str, names: frozenset[str]) -> None:
        self._inner = inner
        self._process = process
        self._prefix = prefix
        self._names = names

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._inner, name)
        if not callable(value):
            return value
        return self._awaited(name, value) if inspect.iscoroutinefunction(value) else self._called(name, value)

    def _called(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def through(*args: Any, **kwargs: Any) -> Any:
            with self._points(name):
                try:
                    return call(*args, **kwargs)
                except (Aborted, CallAborted):
                    self._process.aborted.append(f"{self._prefix}.{name}")
                    raise

        return through

    def _awaited(self, name: str, call: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        async def through(*args: Any, **kwargs: Any) -> Any:
            with self._points(name):
                return await call(*args, **kwargs)

        return through

    @contextlib.contextmanager
    def _points(self, name: str) -> Iterator[None]:
        self._process.check()
        if name in self._names:
            self._process.point(f"before {self._prefix}.{name}")
        yield
        self._process.check()
        if name in self._names:
            self._process.point(f"after {self._prefix}.{name}")
