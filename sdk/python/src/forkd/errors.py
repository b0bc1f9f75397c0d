"""Errors. Each code of the API has a class, so that ``except forkd.NotFoundError`` works."""
from __future__ import annotations

import json
import re
from typing import Any

from . import _codes
from ._base import EvalError, ForkdError, ForkError, ProgramError
from ._codes import *  # noqa: F403

__all__ = ["EvalError", "ForkError", "ForkdError", "ProgramError"]
__all__ += _codes.__all__

_PLACEHOLDER = re.compile(r"\{[a-z]+\}")


def hint_of(code: str, reason: str, details: dict[str, str], *, own: bool) -> str:
    """Returns advice about an error. ``own`` means that the daemon or this client made it."""
    if reason:
        text = _codes.REASONS.get(reason, "")
        missing = [p for p in _PLACEHOLDER.findall(text) if p[1:-1] not in details]
        if missing:
            return ""
        return _PLACEHOLDER.sub(lambda m: details[m.group()[1:-1]], text)
    return _codes.HINTS.get(code, "") if own else ""


def make(message: str, code: str, reason: str = "", details: dict[str, str] | None = None, *,
         status: int = 0, request_id: str = "", own: bool = True) -> ForkdError:
    """Returns the error of a code. A code that this version does not know becomes ForkdError."""
    cls = _codes.CLASSES.get(code, ForkdError)
    details = details or {}
    return cls(message, code=code, reason=reason, details=details, status=status, request_id=request_id,
               hint=hint_of(code, reason, details, own=own))


def of_object(e: dict[str, Any], status: int = 0, *, own: bool = True) -> ForkdError:
    """Returns the error that an object of the API describes."""
    code = str(e.get("code") or _codes.STATUS.get(status, "internal"))
    details = {str(k): str(v) for k, v in (e.get("details") or {}).items()}
    return make(str(e.get("error") or e.get("message") or code), code, str(e.get("reason") or ""), details,
                status=status, request_id=str(e.get("request_id") or ""), own=own)


# Codes of the Connect protocol, which the guest's agent speaks.
_CONNECT = {
    "invalid_argument": "invalid_request", "not_found": "not_found", "already_exists": "conflict",
    "failed_precondition": "conflict", "permission_denied": "forbidden",
    "unauthenticated": "invalid_request",  # the guest has no such user
    "resource_exhausted": "no_space", "unimplemented": "unsupported", "deadline_exceeded": "timeout",
    "unavailable": "guest_gone", "aborted": "guest_gone", "canceled": "connection_broken",
    "data_loss": "guest_gone",  # with the reason sandbox_broken: its user removed system files
}


def of_answer(status: int, body: bytes, *, own: bool) -> ForkdError:
    """Returns the error of an HTTP answer."""
    try:
        e = json.loads(body)
    except ValueError:
        e = {}
    if not isinstance(e, dict) or not (e.get("error") or e.get("message")):
        text = body[:500].decode("utf-8", "replace").strip()
        e = {"error": text or f"the answer has status {status}"}
    if "code" in e and str(e["code"]) in _CONNECT and "error" not in e:
        broken = {"reason": "sandbox_broken"} if e["code"] == "data_loss" else {}
        e = {**e, **broken, "code": _CONNECT[str(e["code"])]}
    elif not isinstance(e.get("code"), str):
        e = {k: v for k, v in e.items() if k != "code"}
    return of_object(e, status, own=own)
