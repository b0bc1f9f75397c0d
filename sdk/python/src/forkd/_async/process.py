"""Running programs of a sandbox."""
from __future__ import annotations

import base64
import re
from collections.abc import AsyncIterator, Callable
from typing import Any, Literal

from .. import _aio
from .._codes import GuestGoneError, GuestTimeoutError, TooLargeError
from .._results import ExecResult, Output
from .connection import AsyncConnection, text64

#: Bytes of output that wait() keeps by default.
MAX_OUTPUT = 64 << 20

#: Seconds of silence after which the agent sends a keepalive.
KEEPALIVE = 20

#: Header that has the agent kill the program and its children when this stream ends.
KILL_ON_DISCONNECT = "Forkd-Kill-On-Disconnect"

_SIGNALS = {"hangup": 1, "interrupt": 2, "quit": 3, "illegal instruction": 4, "aborted": 6, "bus error": 7,
            "floating point exception": 8, "killed": 9, "segmentation fault": 11, "broken pipe": 13,
            "alarm clock": 14, "terminated": 15}


class AsyncProcess:
    """A program that runs in a sandbox. Iterate over its output, or wait for its end.

    It ends when it is closed, with all processes it started. Use it as a context manager.
    """

    def __init__(self, connection: AsyncConnection, sandbox: str, config: dict[str, Any], user: str | None,
                 timeout: float | None) -> None:
        self._connection = connection
        self.sandbox_id = sandbox
        self._user = user
        self._events = connection.agent_stream(sandbox, "process.Process/Start", config, user, timeout=3 * KEEPALIVE,
                                               more=_limits(timeout))
        self._pty = "pty" in config
        self.pid = 0
        self.exit_code: int | None = None
        self.status = ""
        self.killed_by = ""
        self.dropped_bytes = 0

    async def _start(self) -> AsyncProcess:
        """Waits until the program has started."""
        async for event in self._events:
            got = event.get("event", {})
            if "start" in got:
                self.pid = int(got["start"].get("pid", 0))
                return self
        raise GuestGoneError(f"the program in {self.sandbox_id} did not start")

    async def __aenter__(self) -> AsyncProcess:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Ends the stream, and thereby the program."""
        await self._events.aclose()  # type: ignore[attr-defined]

    async def __aiter__(self) -> AsyncIterator[Output]:
        async for event in self._events:
            got = event.get("event", {})
            if "data" in got:
                for stream, data in got["data"].items():
                    yield Output(stream, base64.b64decode(data))
            elif "end" in got:
                self._ended(got["end"])
            elif "keepalive" in got:
                self.dropped_bytes += int(got["keepalive"].get("outputDropped", 0))

    def _ended(self, end: dict[str, Any]) -> None:
        self.status = str(end.get("status", ""))
        code = int(end.get("exitCode", 0))
        said = str(end.get("error", ""))
        if said.startswith("killed by the guest's kernel"):
            self.killed_by = said
        self.exit_code = code if end.get("exited") and code >= 0 else 128 + _signal(self.status)

    async def wait(self, *, max_output: int = MAX_OUTPUT, on_stdout: Callable[[bytes], Any] | None = None,
                   on_stderr: Callable[[bytes], Any] | None = None) -> ExecResult:
        """Reads all output and returns the end.

        A stream with a callback is not kept. Raises TooLargeError if more than max_output bytes would be kept.
        """
        kept: dict[str, bytearray] = {"stdout": bytearray(), "stderr": bytearray()}
        timed_out = False
        async for piece in _until_limit(self):
            if piece is None:
                timed_out = True
                break
            callback = on_stderr if piece.stream == "stderr" else on_stdout
            if callback is not None:
                await _aio.call(callback, piece.data)
                continue
            to = kept["stderr" if piece.stream == "stderr" else "stdout"]
            to += piece.data
            if len(kept["stdout"]) + len(kept["stderr"]) > max_output:
                await self.aclose()
                raise TooLargeError(f"the program in {self.sandbox_id} wrote more than {max_output} bytes",
                                    hint="read the output with callbacks, or give a higher max_output")
        if timed_out:
            self.exit_code = 124
        if self.exit_code is None:
            raise GuestGoneError(f"{self.sandbox_id} ended before its program")
        return ExecResult(bytes(kept["stdout"]), bytes(kept["stderr"]), self.exit_code, timed_out, self.killed_by,
                          self.dropped_bytes)

    async def write(self, data: str | bytes) -> None:
        """Writes to the program's standard input, or to its terminal."""
        raw = data.encode() if isinstance(data, str) else data
        kind = "pty" if self._pty else "stdin"
        for i in range(0, len(raw), 1 << 20):
            await self._call("SendInput", input={kind: text64(raw[i:i + (1 << 20)])})

    async def feed(self, source: _aio.Input) -> None:
        """Writes all of source to the program's standard input, and closes it."""
        async for chunk in _aio.chunks(source):
            await self.write(chunk)
        await self.close_stdin()

    async def close_stdin(self) -> None:
        """Ends the program's standard input."""
        await self._call("CloseStdin")

    async def signal(self, name: Literal["SIGTERM", "SIGKILL"]) -> None:
        """Sends a signal: SIGKILL to the program and all processes it started, SIGTERM to its group."""
        await self._call("SendSignal", signal="SIGNAL_" + name)

    async def terminate(self) -> None:
        """Sends SIGTERM to the program and its group."""
        await self.signal("SIGTERM")

    async def kill(self) -> None:
        """Kills the program and all processes it started."""
        await self.signal("SIGKILL")

    async def resize(self, columns: int, rows: int) -> None:
        """Changes the size of the program's terminal."""
        await self._call("Update", pty={"size": {"cols": columns, "rows": rows}})

    async def _call(self, method: str, **body: Any) -> None:
        await self._connection.agent(self.sandbox_id, "process.Process/" + method,
                                     {"process": {"pid": self.pid}, **body}, self._user)


def _signal(status: str) -> int:
    """Returns the number of the signal in a status such as "signal: killed"."""
    name = status.removeprefix("signal: ")
    if m := re.match(r"signal (\d+)", name):
        return int(m.group(1))
    return next((n for known, n in _SIGNALS.items() if name.startswith(known)), 9)


def _limits(timeout: float | None) -> dict[str, str]:
    """Returns the headers of a program's start."""
    headers = {KILL_ON_DISCONNECT: "1", "Keepalive-Ping-Interval": str(KEEPALIVE)}
    if timeout is not None:
        headers["Connect-Timeout-Ms"] = str(min(max(1, int(timeout * 1000)), 9_999_999_999))  # ten digits
    return headers


async def _until_limit(process: AsyncProcess) -> AsyncIterator[Output | None]:
    """Yields the output of a program, and None if it exceeds its limit."""
    try:
        async for piece in process:
            yield piece
    except GuestTimeoutError:
        yield None
