"""Progress for people, on stderr: stdout belongs to the caller."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

HEARTBEAT_SECONDS = 20.0


def say(text: str) -> None:
    """One line."""
    print(f"cluster: {text}", file=sys.stderr, flush=True)


@contextmanager
def step(what: str) -> Iterator[None]:
    """Say when something long begins, that it still goes on, and how long it took."""
    began = time.monotonic()
    done = threading.Event()

    def beat() -> None:
        while not done.wait(HEARTBEAT_SECONDS):
            say(f"{what} … {time.monotonic() - began:.0f} s")

    say(f"{what} …")
    thread = threading.Thread(target=beat, daemon=True)
    thread.start()
    try:
        yield
    except BaseException:
        say(f"{what}: failed after {time.monotonic() - began:.1f} s")
        raise
    else:
        say(f"{what}: {time.monotonic() - began:.1f} s")
    finally:
        done.set()
        thread.join()
