"""How much of what comes in is in hand at once, so that memory is bounded and a few large bodies shut nobody out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from hummingbird_operator.errors import HummingbirdError

LARGE_BYTES = 1024 * 1024
"""Of larger bodies one is parsed at a time: as objects they may take twenty times their bytes."""


class Full(HummingbirdError):
    """There is no place now; whoever came shall come again."""


@dataclass
class Room:
    """Bounds on requests and on the bytes of their bodies; `large_bytes` of them for large bodies, the rest is free

    of those: a body is most often far below `large`, and its sender is not known before the last byte of it.
    """

    requests: int = 500
    held_bytes: int = 48 * 1024 * 1024
    large_bytes: int = 32 * 1024 * 1024
    large: int = LARGE_BYTES
    _requests: int = field(default=0, init=False)
    _bytes: int = field(default=0, init=False)
    _large: int = field(default=0, init=False)

    @contextmanager
    def place(self) -> Iterator[Callable[[int], bool]]:
        """A place for one request; what it gives is told of each piece of the body, and says if that is large now.

        Both raise Full.
        """
        if self._requests >= self.requests:
            raise Full("too many events at once")
        self._requests += 1
        held = 0

        def hold(size: int) -> bool:
            nonlocal held
            before, after = self._share(held), self._share(held + size)
            if self._bytes + size > self.held_bytes or self._large - before + after > self.large_bytes:
                raise Full("too many events at once")
            held += size
            self._bytes += size
            self._large += after - before
            return after > 0

        try:
            yield hold
        finally:
            self._requests -= 1
            self._bytes -= held
            self._large -= self._share(held)

    def _share(self, held: int) -> int:
        """What a body of that size takes of `large_bytes`."""
        return held if held > self.large else 0
