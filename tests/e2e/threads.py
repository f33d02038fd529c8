"""The demo's way to print what people read, for tests that print it too."""

from __future__ import annotations

from demo.threads import Said, page, read

__all__ = ["Said", "page", "read"]
