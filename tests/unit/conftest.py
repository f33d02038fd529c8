"""Laws are about values, not about time: how fast hypothesis draws on a machine that is busy is no property of ours."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")
