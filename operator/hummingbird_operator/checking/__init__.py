"""What `hummingbird check` says of a configuration beyond its schema. Needs no network and starts nothing.

Faults keep a process from working; warnings are about what is allowed and does nothing, or not what was meant.
"""

from __future__ import annotations

from hummingbird_operator.checking.doubts import warnings
from hummingbird_operator.checking.faults import faults
from hummingbird_operator.checking.needed import PROCESSES, Process, missing

__all__ = ["PROCESSES", "Process", "faults", "missing", "warnings"]
