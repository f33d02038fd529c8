"""Laws are about values, not about time: how fast hypothesis draws on a machine that is busy is no property of ours.

What was imported stays to the end, so the garbage collector need not look through it again and again.
"""

from __future__ import annotations

import gc

from hypothesis import HealthCheck, settings

settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")


def pytest_collection() -> None:
    gc.disable()


def pytest_collection_finish() -> None:
    gc.collect()
    gc.freeze()
    gc.enable()
