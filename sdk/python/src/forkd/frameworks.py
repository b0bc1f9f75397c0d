"""Parts that adapters for agent frameworks share: built-in exceptions, long scripts, programs that do not start.

Frameworks expect ``FileNotFoundError`` and its siblings for files, and an exit code for every command.
"""
from __future__ import annotations

import errno
import os
import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from ._async.sandbox import AsyncSandbox
from ._base import ForkdError
from ._codes import ConflictError, ForbiddenError, InvalidRequestError, NotFoundError
from ._results import ExecResult
from ._sync.sandbox import Sandbox

#: Longest argument of a program on Linux, in bytes.
MAX_ARGUMENT = 131071

#: Longest input of a program that goes with the request which starts it, in characters.
MAX_TEXT = 1 << 20

# The agent's answers have no code per errno, so its words decide. They are part of its tests.
_WORDS = (("not a directory", errno.ENOTDIR), ("is a directory", errno.EISDIR), ("already exists", errno.EEXIST),
          ("too many levels", errno.ELOOP), ("name too long", errno.ENAMETOOLONG), ("no space", errno.ENOSPC),
          ("read-only", errno.EROFS), ("does not exist", errno.ENOENT), ("not a regular file", errno.EINVAL))


def os_error(error: ForkdError, path: str) -> OSError | None:
    """Returns the built-in exception for an error about a file, or None if the error is about something else."""
    code = None
    if isinstance(error, ForbiddenError) and "permission" in error.message:
        code = errno.EACCES
    elif isinstance(error, NotFoundError) and path_of(error, path):
        code = errno.ENOENT
    elif isinstance(error, (InvalidRequestError, ConflictError)):
        text = error.message.replace("is not a directory", "already exists" if "already exists" in error.message
                                     else "not a directory")
        code = next((c for words, c in _WORDS if words in text), None)
    return None if code is None else OSError(code, os.strerror(code), path)


def path_of(error: ForkdError, path: str) -> bool:
    """Reports whether an error names a path. An error about the sandbox itself does not."""
    return "path " in error.message or path in error.message


@contextmanager
def builtin_errors(path: str) -> Iterator[None]:
    """Raises FileNotFoundError, PermissionError and so on instead of errors about a file."""
    try:
        yield
    except ForkdError as e:
        translated = os_error(e, path)
        if translated is None:
            raise
        raise translated from e


def shortened(args: Sequence[str]) -> tuple[list[str], tuple[str, bytes] | None]:
    """Returns a command that Linux takes, and the file (path, content) to write first if a script is too long.

    Only a script for ``sh -c`` or ``bash -c`` can be shortened: the shell reads the file, which removes itself.
    """
    args = [str(a) for a in args]
    shell = len(args) > 2 and os.path.basename(args[0]) in ("sh", "bash") and args[1] in ("-c", "-lc", "-ec")
    if not shell or len(args[2].encode("utf-8", "surrogateescape")) <= MAX_ARGUMENT:
        return args, None
    path = f"/tmp/.forkd-script-{secrets.token_hex(8)}"
    content = f"rm -f {path}\n{args[2]}".encode("utf-8", "surrogateescape")
    return [*args[:2], f". {path}", *args[3:]], (path, content)


def not_started(error: ForkdError) -> ExecResult | None:
    """Returns the result that a shell gives for a program that does not exist (127) or cannot be run (126)."""
    text = error.message
    if not isinstance(error, InvalidRequestError) or ": command '" not in ": " + text:
        return None
    said = text[text.index("command '"):] + "\n"
    if "not found" in text or "does not exist" in text:
        return ExecResult(b"", said.encode(), 127)
    return ExecResult(b"", said.encode(), 126)


# Long input goes as a file, in one request; the file is gone before the program starts.
_FROM_FILE = 'exec <"$1" && rm -f "$1" && shift && exec "$@"'


async def run_async(sandbox: AsyncSandbox, args: Sequence[str], *, stdin: str | bytes | None = None,
                    env: Mapping[str, str] | None = None, cwd: str | None = None, user: str | None = None,
                    timeout: float | None = None) -> ExecResult:
    """Runs a program. Scripts may have any length, and a missing program is a result with the code 127."""
    args, script = shortened(args)
    if script is not None:
        files = sandbox.files.as_user(user) if user else sandbox.files
        await files.write(*script)
    data = _text(stdin)
    if isinstance(data, bytes) and len(data) > MAX_TEXT:
        path = f"/tmp/.forkd-input-{secrets.token_hex(8)}"
        files = sandbox.files.as_user(user) if user else sandbox.files
        await files.write(path, data, mode=0o600)
        args, data = ["sh", "-c", _FROM_FILE, "sh", path, *args], None
    try:
        if isinstance(data, bytes):  # a request in JSON has no room for bytes that are not text
            return await _fed(sandbox, args, data, env, cwd, user, timeout)
        return await sandbox.exec(args, stdin=data, env=env, cwd=cwd, user=user, timeout=timeout)
    except InvalidRequestError as e:
        result = not_started(e)
        if result is None:
            raise
        return result


async def _fed(sandbox: AsyncSandbox, args: list[str], data: bytes, env: Mapping[str, str] | None, cwd: str | None,
               user: str | None, timeout: float | None) -> ExecResult:
    from ._codes import GuestTimeoutError
    try:
        return await sandbox.exec(args, stdin=data, env=env, cwd=cwd, user=user, timeout=timeout)
    except GuestTimeoutError as e:
        if e.reason != "program_timeout":
            raise
        return ExecResult(b"", b"", 124, timed_out=True)


def run(sandbox: Sandbox, args: Sequence[str], **options: Any) -> ExecResult:
    """Runs a program, as run_async does, with text as input only."""
    args, script = shortened(args)
    if script is not None:
        sandbox.files.write(*script)
    try:
        return sandbox.exec(args, **options)
    except InvalidRequestError as e:
        result = not_started(e)
        if result is None:
            raise
        return result


def _text(stdin: str | bytes | None) -> str | bytes | None:
    """Returns short input as text, which one request carries, and other input as bytes, which go in pieces."""
    if stdin is None or len(stdin) > MAX_TEXT:
        return stdin.encode() if isinstance(stdin, str) else stdin
    if isinstance(stdin, str):
        return stdin
    try:
        return stdin.decode()
    except UnicodeDecodeError:
        return stdin
