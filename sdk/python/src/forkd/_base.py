"""The base class of errors."""
from __future__ import annotations

from collections.abc import Mapping


class ForkdError(Exception):
    """An error of the daemon or of the connection to it.

    Attributes:
        code: stable identifier of the kind of error, such as ``not_found``.
        reason: more precise identifier; empty if the code has one cause only.
        details: names that belong to the reason, such as the tag of a snapshot.
        hint: advice for people; may be empty.
        status: HTTP status of the answer, or 0 without an answer.
        request_id: ID of the request in the daemon's log; may be empty.
    """

    code: str = "internal"

    def __init__(self, message: str, *, code: str | None = None, reason: str = "",
                 details: Mapping[str, str] | None = None, hint: str = "", status: int = 0,
                 request_id: str = "") -> None:
        super().__init__(message)
        if code is not None:
            self.code = code
        self.message = message
        self.reason = reason
        self.details = dict(details or {})
        self.hint = hint
        self.status = status
        self.request_id = request_id

    def __str__(self) -> str:
        return f"{self.message}\nhint: {self.hint}" if self.hint else self.message


class ForkError(ForkdError):
    """Some children of a fork failed. ``sandboxes`` are those that run, ``errors`` those that failed."""

    code = "partial"

    def __init__(self, message: str, sandboxes: list[object], errors: list[ForkdError]) -> None:
        super().__init__(message)
        self.sandboxes = sandboxes
        self.errors = errors


class EvalError(ForkdError):
    """Code in the warmed interpreter raised an exception. ``traceback`` is its text."""

    code = "eval"

    def __init__(self, traceback: str, stdout: str = "", stderr: str = "") -> None:
        last = traceback.strip().splitlines()[-1] if traceback.strip() else "the code failed"
        super().__init__(last)
        self.traceback = traceback
        self.stdout = stdout
        self.stderr = stderr

    def __str__(self) -> str:
        return self.traceback or self.message


class ProgramError(ForkdError):
    """A program ended with another exit code than 0, and ``check`` was set."""

    code = "program"

    def __init__(self, message: str, exit_code: int, stdout: str, stderr: str) -> None:
        super().__init__(message)
        self.exit_code = exit_code
        self.stdout = stdout
        self.stderr = stderr
