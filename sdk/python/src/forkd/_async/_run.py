"""Programs by one request."""
from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import Any

from .._codes import TooLargeError
from .._results import ExecResult
from .connection import AsyncConnection, sandbox_path


async def run(connection: AsyncConnection, sandbox: str, args: Sequence[str], *, stdin: str | None = None,
              env: Mapping[str, str] | None = None, cwd: str | None = None, user: str | None = None,
              timeout: float | None = None) -> ExecResult:
    """Runs a program and returns its end. The daemon keeps the first 8 MiB of each stream.

    Raises TooLargeError if there was more, except after a time-out, whose output is incomplete anyway.
    """
    body: dict[str, Any] = {"args": list(args)}
    for name, value in (("stdin", stdin), ("env", dict(env) if env else None), ("cwd", cwd), ("user", user),
                        ("timeout_secs", timeout)):
        if value is not None:
            body[name] = value
    wait = timeout + 30 if timeout is not None else 24 * 3600
    got = await connection.call("POST", sandbox_path(sandbox, "/exec"), body=body, timeout=wait)
    result = ExecResult(_bytes(got, "stdout"), _bytes(got, "stderr"), int(got["exit_code"]), bool(got.get("timed_out")),
                        str(got.get("killed_by") or ""), int(got.get("dropped_bytes") or 0))
    if result.dropped_bytes and not result.timed_out:
        raise TooLargeError(f"the program in {sandbox} ended with {result.exit_code}, but wrote {result.dropped_bytes} "
                            "bytes more than one answer holds",
                            hint="give max_output, or read the output with callbacks")
    return result


def _bytes(got: dict[str, Any], stream: str) -> bytes:
    raw = got.get(stream + "_base64")
    return base64.b64decode(raw) if raw else str(got.get(stream) or "").encode()
