"""Results of programs and code."""
from __future__ import annotations

from dataclasses import dataclass

from ._base import ProgramError


@dataclass(frozen=True)
class ExecResult:
    """The end of a program.

    ``exit_code`` is 128+n if signal n ended the program. ``killed_by`` says so if the guest's kernel
    ended it for lack of memory. ``dropped_bytes`` of the output are missing in ``stdout`` and ``stderr``.
    """

    stdout_bytes: bytes
    stderr_bytes: bytes
    exit_code: int
    timed_out: bool = False
    killed_by: str = ""
    dropped_bytes: int = 0

    @property
    def stdout(self) -> str:
        """Standard output as text; bytes that are not UTF-8 are replaced."""
        return self.stdout_bytes.decode("utf-8", "replace")

    @property
    def stderr(self) -> str:
        """Standard error as text; bytes that are not UTF-8 are replaced."""
        return self.stderr_bytes.decode("utf-8", "replace")

    @property
    def ok(self) -> bool:
        """Reports whether the program ended with 0."""
        return self.exit_code == 0

    def check(self) -> ExecResult:
        """Returns the result. Raises ProgramError unless the program ended with 0."""
        if self.exit_code != 0:
            last = (self.stderr.strip() or self.stdout.strip()).splitlines()[-1:] or ["no output"]
            raise ProgramError(f"the program ended with {self.exit_code}: {last[0]}", self.exit_code, self.stdout,
                               self.stderr)
        return self


@dataclass(frozen=True)
class Output:
    """A piece of a running program's output. ``stream`` is stdout, stderr or pty."""

    stream: str
    data: bytes

    @property
    def text(self) -> str:
        """The piece as text; a character may be cut between two pieces."""
        return self.data.decode("utf-8", "replace")


@dataclass(frozen=True)
class Entry:
    """A file, directory or link in a sandbox."""

    name: str
    path: str
    type: str  # file, directory, symlink or other
    size: int  # bytes
    mode: int  # permission bits
    owner: str
    group: str
    modified: str  # RFC 3339
    symlink_target: str | None = None

    @property
    def is_dir(self) -> bool:
        """Reports whether it is a directory."""
        return self.type == "directory"


@dataclass(frozen=True)
class Change:
    """A change below a watched directory. ``name`` is relative to it."""

    type: str  # create, write, remove, rename or chmod
    name: str
