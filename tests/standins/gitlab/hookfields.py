"""What of a hook can be written, and what is shown of it (`lib/api/project_hooks.rb`, `lib/api/entities/hook.rb`)."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from datetime import datetime
from typing import Any
from urllib.parse import urlsplit

from tests.standins.gitlab.records import HOOK_FLAGS, Hook, timestamp
from tests.standins.gitlab.wire import ApiError, flag

SIGNING_PREFIX = "whsec_"


def new_hook(number: int, project_id: int, fields: Mapping[str, Any], now: str) -> Hook:
    """A hook as the fields make it; push events are on unless they are switched off."""
    hook = Hook(number, project_id, "", now)
    write(hook, fields)
    return hook


def write(hook: Hook, fields: Mapping[str, Any], *, signing_tokens: bool = True) -> None:
    """Take over what is named. A new address clears the secrets that do not come with it (`WebHook#reset_token`)."""
    url = str(fields.get("url") or "")
    if not url:
        raise ApiError(400, {"error": "url is missing"})
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise ApiError(422, {"error": "Invalid url given"})
    signing = str(fields.get("signing_token") or "") if signing_tokens else ""
    if signing and not _is_signing_token(signing):
        raise ApiError(400, {"error": "signing_token is invalid"})
    if url != hook.url:
        hook.url, hook.token, hook.signing_token, hook.custom_headers = url, "", "", {}
    hook.flags |= {name: flag(fields[name]) for name in HOOK_FLAGS if name in fields}
    hook.name, hook.description = fields.get("name", hook.name), fields.get("description", hook.description)
    if "enable_ssl_verification" in fields:
        hook.enable_ssl_verification = flag(fields["enable_ssl_verification"])
    if "token" in fields:
        hook.token = str(fields["token"] or "")
    if "signing_token" in fields:
        hook.signing_token = signing
    if "custom_headers" in fields:
        hook.custom_headers = {row["key"]: row["value"] for row in fields["custom_headers"]}


def shown(hook: Hook, now: datetime, *, signing_tokens: bool = True) -> dict[str, Any]:
    """The hook without its secrets; servers from 19.0 on say whether there are any."""
    row = {
        "id": hook.id,
        **({"project_id": hook.project_id} if hook.group_id is None else {"group_id": hook.group_id}),
        "url": hook.url,
        "name": hook.name,
        "description": hook.description,
        "created_at": hook.created_at,
        **hook.flags,
        "enable_ssl_verification": hook.enable_ssl_verification,
        "alert_status": hook.status(now),
        "disabled_until": timestamp(hook.disabled_until) if hook.disabled_until else None,
        "url_variables": [],
        "push_events_branch_filter": None,
        "branch_filter_strategy": "wildcard",
        "custom_webhook_template": None,
        "custom_headers": [{"key": name} for name in hook.custom_headers],
    }
    if signing_tokens:
        row |= {"token_present": bool(hook.token), "signing_token_present": bool(hook.signing_token)}
    return row


def _is_signing_token(value: str) -> bool:
    try:
        return (
            value.startswith(SIGNING_PREFIX) and len(base64.b64decode(value[len(SIGNING_PREFIX) :], validate=True)) > 0
        )
    except binascii.Error:
        return False
