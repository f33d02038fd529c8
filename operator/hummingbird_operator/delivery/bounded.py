"""Answers of a bounded size: anybody who may comment decides how long a thread is, and we read threads whole.

A thread of a hundred notes of a million characters is what GitLab allows. As objects an answer may take nine times its
bytes (one emoji makes each character four bytes wide, in the text and in its parts), so large ones go one at a time.
"""

from __future__ import annotations

import io
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import requests
from urllib3.exceptions import DecodeError, HTTPError, ProtocolError

from hummingbird_operator.delivery.refusals import TooLarge

ANSWER_BYTES = 32 * 1024 * 1024
"""Longest answer that is read, unpacked."""
LARGE_BYTES = 1024 * 1024
_PIECE = 16 * 1024  # packed: it may unpack to a thousand times as much


class Turns:
    """One large answer at a time, from its second mebibyte to the end of what is made of it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._mine = threading.local()

    @contextmanager
    def scope(self) -> Iterator[None]:
        """Around a call and what is made of its answer; without it nobody waits. Not nested."""
        self._mine.scope, self._mine.held = True, False
        try:
            yield
        finally:
            if self._mine.held:
                self._lock.release()
            self._mine.scope = self._mine.held = False

    def large(self) -> None:
        """This thread's answer is a large one: wait for its turn."""
        if getattr(self._mine, "scope", False) and not self._mine.held:
            self._lock.acquire()
            self._mine.held = True


def read_whole(response: requests.Response, turns: Turns, most: int) -> None:
    """Read the body of an answer that was asked for as a stream, so that it is as requests leaves any other.

    Raises TooLarge above `most` bytes, and what requests would raise for a body that breaks off.
    """
    body = io.BytesIO()
    try:
        for piece in response.raw.stream(_PIECE, decode_content=True):
            body.write(piece)
            if body.tell() > most:
                response.close()
                raise TooLarge("GitLab's answer", f"it is longer than {most // 1024} KiB, which is not read")
            if body.tell() > LARGE_BYTES:
                turns.large()
    except DecodeError as error:
        raise requests.exceptions.ContentDecodingError(error) from error
    except ProtocolError as error:
        raise requests.exceptions.ChunkedEncodingError(error) from error
    except HTTPError as error:
        raise requests.exceptions.ConnectionError(error) from error
    body.seek(0)
    response.raw = body
