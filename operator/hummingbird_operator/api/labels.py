"""Names under our group that stand on objects in the cluster. Nothing else spells them."""

from __future__ import annotations

import hashlib

GROUP = "hummingbird-project.io"
VERSION = "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"
CATEGORY = "hummingbird"

MANAGED_BY = "app.kubernetes.io/managed-by"
MANAGER = "hummingbird"
APP_NAME = "app.kubernetes.io/name"
SANDBOX_APP = "hummingbird-agent-sandbox"
"""Value of `app.kubernetes.io/name` on every sandbox (seed 003 §8.5)."""

# On members of a pool and on cold sandboxes.
POOL = f"{GROUP}/pool"
ROLE = f"{GROUP}/role"
RUN = f"{GROUP}/run"
"""The uid of the run that holds the member: never a name, a name can come back."""
TEMPLATE_HASH = f"{GROUP}/template-hash"

ROLE_STANDBY = "standby"
ROLE_ACTIVE = "active"
ROLE_LINGERING = "lingering"

# Annotations of members.
REAP_BY = f"{GROUP}/reap-by"
"""Absolute UTC, RFC 3339, written with the operator's clock only."""
SESSION_ID = f"{GROUP}/session-id"
"""Stands on a member only while it lingers: its absence is what keeps a second reply away."""

# On runs.
WORKFLOW = f"{GROUP}/workflow"
SESSION = f"{GROUP}/session"
LANE = f"{GROUP}/lane"
CONTENT_KEY = f"{GROUP}/content-key"
"""Annotation: the full key whose hash is in the run's name."""

FINALIZER = f"{GROUP}/operator"


def lane_of(target: str, workflow: str) -> str:
    """Value of the label LANE: runs of one workflow on one target (as `render_target` writes it) exclude each other.

    Empty without a target.
    """
    return hashlib.sha256(f"{target}\n{workflow}".encode()).hexdigest()[:16] if target else ""
