"""The errors of this package.

ClusterError            its message tells a person what to do
├── NoProvider          nothing on this machine can run Kubernetes
├── BuildFailed         a binary or an image could not be built
├── StartFailed         a cluster did not come up
└── NotRunning          something was asked of a cluster that is not up
"""

from __future__ import annotations


class ClusterError(Exception):
    """Base of all errors that this package raises on purpose."""


class NoProvider(ClusterError):
    """Nothing on this machine can run Kubernetes."""


class BuildFailed(ClusterError):
    """A binary or an image could not be built."""


class StartFailed(ClusterError):
    """A cluster did not come up."""


class NotRunning(ClusterError):
    """Something was asked of a cluster that is not up."""
