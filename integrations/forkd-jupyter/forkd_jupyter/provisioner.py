"""The kernel provisioner: Jupyter's interface to the life of a kernel's process."""
from __future__ import annotations

import asyncio
import signal
from typing import Any

import forkd
from jupyter_client.provisioning import KernelProvisionerBase
from traitlets import Dict, Float, Unicode

from . import loop
from .front import CHANNELS
from .guest import Place
from .relay import SHUTDOWN, Relay
from .wire import Wire


class ForkdProvisioner(KernelProvisionerBase):
    """Runs a kernel in a sandbox.

    The environment of the notebook server stays outside: the kernel has the variables of its kernelspec only.
    """

    snapshot = Unicode("jupyter", config=True, help="snapshot that kernels are forked from")
    idle = Float(3600, config=True, help="seconds without use after which the sandbox is paused (0: never)")
    options = Dict(config=True, help="further options of the fork, such as ttl, network or memory_limit_mib")

    _relay: Relay | None = None
    _place: Place | None = None
    _waited = False  # Jupyter has seen the end

    @property
    def has_process(self) -> bool:
        """Whether there is a kernel whose end Jupyter has not seen."""
        return self._place is not None and not self._waited

    async def pre_launch(self, **kwargs: Any) -> dict[str, Any]:
        """Binds the sockets, and writes the connection file."""
        manager = self.parent
        if manager is None:
            raise RuntimeError("the provisioner needs a kernel manager")
        kwargs = await super().pre_launch(**kwargs)
        kwargs.pop("transport_encryption", None)  # the sockets stay on this host
        extra = kwargs.pop("extra_arguments", [])
        if self._relay is None:
            wire = Wire(manager.session.key, manager.session.signature_scheme)
            self._relay = Relay(wire, self.log, self.idle)
            loop.at_exit(self._relay.close)
        if manager.transport == "ipc":
            manager.write_connection_file()
        ports = {c: getattr(manager, f"{c}_port") for c in CHANNELS}
        for channel, port in (await loop.run(self._relay.front.bind(manager.transport, manager.ip, ports))).items():
            setattr(manager, f"{channel}_port", port)
        manager.write_connection_file(jupyter_session=kwargs["env"].get("JPY_SESSION_NAME", ""))
        self.connection_info = manager.get_connection_info()
        return {**kwargs, "cmd": [*self.kernel_spec.argv, *extra]}

    async def launch_kernel(self, cmd: list[str], **kwargs: Any) -> dict[str, Any]:
        """Forks the snapshot, and starts the kernel in it. A kernel that runs in the snapshot continues."""
        env = {name: kwargs["env"][name] for name in self.kernel_spec.env if name in kwargs["env"]}
        place = Place(self.snapshot, cmd, env, dict(self.options))
        try:
            await loop.run(self._started(place))
        except forkd.ForkdError as e:
            await self.cleanup()
            raise RuntimeError(f"a fork of {self.snapshot}: {e}") from e
        except BaseException:
            await self.cleanup()
            raise
        return self.connection_info

    async def _started(self, place: Place) -> None:
        old, self._place, self._waited = self._place, place, False
        if old is not None:
            await old.close()
        await self._relay.start(place)

    async def poll(self) -> int | None:
        """Returns the exit code of the kernel, or None while it runs."""
        if self._place is None or self._relay is None:
            return 0
        return self._relay.exit_code

    async def wait(self) -> int | None:
        """Waits for the end of the kernel."""
        while (code := await self.poll()) is None:
            await asyncio.sleep(0.1)
        self._waited = True
        return code

    async def send_signal(self, signum: int) -> None:
        """Sends a signal to the kernel in the sandbox, and to the programs that it started."""
        if await self.poll() is not None:
            return
        if signum in (signal.SIGTERM, getattr(signal, "SIGKILL", 9)):
            await loop.run(self._relay.end(128 + signum))
            return
        try:
            await loop.run(self._place.signal(signum))
        except (forkd.ForkdError, RuntimeError) as e:  # the sandbox may have ended
            self.log.warning("signal %d: %s", signum, e)

    async def kill(self, restart: bool = False) -> None:
        """Ends the sandbox."""
        await self.send_signal(9)

    async def terminate(self, restart: bool = False) -> None:
        """Ends the sandbox."""
        await self.send_signal(signal.SIGTERM)

    async def cleanup(self, restart: bool = False) -> None:
        """Ends the sandbox, and without a restart deletes the branches."""
        if self._relay is None:
            return
        if restart:
            await loop.run(self._relay.end())
            return
        relay, self._relay, self._place = self._relay, None, None
        loop.forget(relay.close)
        await loop.run(relay.close())

    def get_shutdown_wait_time(self, recommended: float = 5.0) -> float:
        """Returns the seconds that the kernel has for its end."""
        return max(recommended, 2.0 * SHUTDOWN)

    def get_stable_start_time(self, recommended: float = 10.0) -> float:
        """Returns the seconds that a start may take."""
        return max(recommended, 30.0)

    async def get_provisioner_info(self) -> dict[str, Any]:
        """Returns the id of the sandbox, with what the base class returns."""
        info = await super().get_provisioner_info()
        if self._place is not None and self._place.box is not None:
            info["sandbox"] = self._place.box.id
        return info
