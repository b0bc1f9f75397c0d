"""One sandbox with a kernel: forked, started or found, rolled back, ended."""
from __future__ import annotations

import asyncio
import json
import secrets
import shlex
from contextlib import AsyncExitStack
from dataclasses import dataclass
from importlib import resources
from typing import Any

import forkd

#: Seconds after which a sandbox without connections is paused.
PAUSE_AFTER = 60

#: Seconds that a command in the guest may take.
COMMAND = 60

#: Bytes of a connection file.
MAX_FILE = 64 << 10

#: The channels that are forwarded. The relay answers heartbeats itself.
CHANNELS = ("shell", "control", "stdin", "iopub")

#: Where kernels keep their files, in the home directory of the guest's user.
FOLDER = ".forkd-jupyter"

# Prints the connection file of a kernel that runs, or the absolute path of the folder. The port in /proc/net/tcp
# would not be enough: a snapshot of a dead kernel has the file, too.
_LOOK = f"""d=$HOME/{FOLDER}; mkdir -p -m 700 "$d" && cd "$d" || exit 1
if [ -s pid ] && kill -0 "$(cat pid)" 2>/dev/null; then echo running; cat pid; head -c {MAX_FILE} kernel.json
else echo none; pwd; fi"""

# The shell has background jobs ignore SIGINT, so env brings it back.
_START = """umask 077; d=$1; shift; cd "$d" && cat > kernel.json && cd "$HOME" || exit 1
setsid env --default-signal=INT,QUIT PYTHONPATH="$d${PYTHONPATH:+:$PYTHONPATH}" "$@" >"$d/log" 2>&1 </dev/null &
echo $! > "$d/pid"; echo $!"""


class KernelError(RuntimeError):
    """A kernel does not start, or has ended. The text has the reason and the cure."""


@dataclass
class Connection:
    """Where a kernel listens in its guest, and its key."""

    key: bytes
    scheme: str
    ports: dict[str, int]
    pid: int

    @classmethod
    def parse(cls, pid: str, text: str) -> Connection:
        """Reads the connection file of a guest. Raises ValueError."""
        try:
            got = json.loads(text)
            scheme, key = got.get("signature_scheme", "hmac-sha256"), got["key"]
            ports = {c: got[f"{c}_port"] for c in CHANNELS}
            if not (isinstance(key, str) and scheme in ("hmac-sha256", "hmac-sha512")):
                raise ValueError("unusual key")
            if not all(type(p) is int and 0 < p < 65536 for p in ports.values()):
                raise ValueError("unusual ports")
            return cls(key.encode(), scheme, ports, int(pid))
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as e:
            raise ValueError(f"the connection file of the kernel in the snapshot cannot be read: {e}") from e

    def file(self) -> str:
        """Returns the connection file."""
        return json.dumps({"transport": "tcp", "ip": "127.0.0.1", "key": self.key.decode(), "hb_port": self.hb,
                           "signature_scheme": self.scheme, **{f"{c}_port": p for c, p in self.ports.items()}})

    @property
    def hb(self) -> int:
        """The port of the heartbeat, which only the kernel needs."""
        return max(self.ports.values()) + 1

    @classmethod
    def new(cls) -> Connection:
        """Returns a connection on random ports, below those that guests use for outgoing connections."""
        first = 20000 + secrets.randbelow(10000)
        return cls(secrets.token_hex(32).encode(), "hmac-sha256", {c: first + i for i, c in enumerate(CHANNELS)}, 0)


class Place:
    """The sandbox of one kernel. A rollback to a snapshot of another sandbox replaces it."""

    def __init__(self, snapshot: str, argv: list[str], env: dict[str, str], options: dict[str, Any]) -> None:
        self.snapshot, self.argv, self.env, self.options = snapshot, argv, env, options
        self.client: forkd.AsyncForkd | None = None
        self.box: forkd.AsyncSandbox | None = None
        self.kernel: Connection | None = None
        self.found = False  # the snapshot had a kernel that ran

    async def keep(self, tag: str) -> None:
        """Saves the sandbox as a snapshot whose forks have this kernel running."""
        await self.box.branch(tag=tag, wait=True)

    async def start(self) -> None:
        """Forks the snapshot, and starts a kernel unless the snapshot has one. After an error, ``end`` it, too."""
        self.client = await asyncio.to_thread(forkd.AsyncForkd)
        await self._fork(self.snapshot)

    async def _fork(self, tag: str) -> None:
        options = {"idle": PAUSE_AFTER, "at_end": "pause", "auto_resume": True, **self.options}
        self.box = await self.client.snapshot(tag).fork(**options)
        await self._find_or_start()

    async def _find_or_start(self) -> None:
        state, _, rest = (await self._sh(_LOOK)).partition("\n")
        first, _, file = rest.partition("\n")
        self.found = state == "running"
        if self.found:
            self.kernel = Connection.parse(first, file)
            return
        folder = first.strip()
        kernel = Connection.new()
        program = resources.files(__package__).joinpath("in_guest", "forkd_kernel.py").read_bytes()
        await self.box.files.write(f"{folder}/forkd_kernel.py", program)
        argv = [a.replace("{connection_file}", f"{folder}/kernel.json") for a in self.argv]
        kernel.pid = int(await self._sh(_START, folder, *argv, stdin=kernel.file(), env=self.env))
        self.kernel = kernel

    async def _sh(self, script: str, *args: str, **more: Any) -> str:
        got = await self.box.exec(["sh", "-c", script, "sh", *args], timeout=COMMAND, **more)
        if got.exit_code:
            raise KernelError(f"the kernel does not start in {self.box.id}: {got.stderr.strip() or got.exit_code}")
        return got.stdout

    async def alive(self) -> bool:
        """Whether the kernel's process runs. Raises NotFoundError if the sandbox has ended."""
        got = await self.box.exec(["sh", "-c", f"kill -0 {self.kernel.pid}"], timeout=COMMAND)
        return got.exit_code == 0

    async def signal(self, number: int) -> None:
        """Sends a signal to the kernel and the programs that it started."""
        pid = self.kernel.pid
        await self._sh(f"kill -{int(number)} -{pid} 2>/dev/null || kill -{int(number)} {pid} 2>/dev/null || true")

    async def log(self) -> str:
        """Returns the last lines that the kernel wrote to its log."""
        try:
            got = await self.box.exec(["sh", "-c", f"tail -c 2000 $HOME/{FOLDER}/log"], timeout=COMMAND)
        except forkd.ForkdError:
            return ""
        lines = [line for line in got.stdout.splitlines() if line.strip()]
        return "\n".join(lines[-5:])

    async def why_not(self) -> str:
        """Explains why the kernel does not run, with the cure."""
        log = await self.log()
        if "No module named" in log and ("ipykernel" in log or "IPython" in log or "zmq" in log):
            return (f"the snapshot {self.snapshot} has no ipykernel: make one by `forkd image build jupyter` and "
                    f"`forkd snapshot create --image jupyter --tag jupyter`, install ipykernel in your image, or use "
                    f"`forkd-jupyter --interpreter --snapshot {shlex.quote(self.snapshot)}`")
        return f"the kernel in {self.box.id} has ended" + (f": {log}" if log else "")

    async def back_to(self, tag: str) -> None:
        """Goes back to a branch: by rollback, or by a fork if the sandbox that made it has ended."""
        try:
            await self.box.rollback(tag)
        except (forkd.ConflictError, forkd.InvalidRequestError, forkd.NotFoundError):
            await self._replace(tag)

    async def _replace(self, tag: str) -> None:
        old = self.box, self.kernel, self.found
        try:
            await self._fork(tag)
        except BaseException:
            if self.box is not old[0]:
                await self._kill(self.box)
            self.box, self.kernel, self.found = old
            raise
        await self._kill(old[0])

    async def forwards(self, stack: AsyncExitStack) -> dict[str, str]:
        """Forwards the channels. Returns their addresses on this host; the stack ends them."""
        got = {}
        for channel, port in self.kernel.ports.items():
            host, local = await stack.enter_async_context(self.box.forward_port(port))
            got[channel] = f"tcp://{host}:{local}"
        return got

    async def end(self) -> None:
        """Ends the sandbox."""
        if self.box is not None:
            await self._kill(self.box)

    async def close(self) -> None:
        """Closes the connection to the daemon."""
        if self.client is not None:
            await self.client.aclose()

    @staticmethod
    async def _kill(box: forkd.AsyncSandbox) -> None:
        try:
            await box.kill()
        except forkd.NotFoundError:
            pass
