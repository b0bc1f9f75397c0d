"""The program forkd-jupyter: installs kernelspecs."""
from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import tempfile
from typing import Any

import forkd
from jupyter_client.kernelspec import KernelSpecManager

from . import loop
from .guest import Place
from .relay import STARTUP
from .upstream import Upstream

#: The program of the kernel in the sandbox.
ARGV = ["python3", "-m", "forkd_kernel", "-f", "{connection_file}"]

#: The variable that names the snapshot of a kernel of forkd_jupyter.interpreter.
SNAPSHOT = "FORKD_JUPYTER_SNAPSHOT"


def install(arguments: list[str] | None = None) -> None:
    """Installs a kernel for this user: ``forkd-jupyter --snapshot jupyter``."""
    parser = argparse.ArgumentParser(prog="forkd-jupyter", description="Install a Jupyter kernel that runs in forks.")
    parser.add_argument("--snapshot", default="jupyter", help="snapshot that kernels are forked from (jupyter)")
    parser.add_argument("--name", help="name of the kernel (forkd-SNAPSHOT)")
    parser.add_argument("--idle", type=float, default=3600, metavar="SECONDS",
                        help="pause the sandbox after SECONDS without use, 0 never (3600)")
    parser.add_argument("--option", action="append", default=[], metavar="NAME=VALUE",
                        help="option of the fork, such as network=none or ttl=7200; may be repeated")
    parser.add_argument("--interpreter", action="store_true",
                        help="evaluate cells in the snapshot's warm interpreter: it needs no ipykernel")
    parser.add_argument("--warm", action="store_true",
                        help="make the snapshot SNAPSHOT-kernel with a running kernel first, and fork that")
    parser.add_argument("--prefix", help="install below this directory, such as a virtual environment")
    args = parser.parse_args(arguments)
    try:
        options = dict(option(o) for o in args.option)
    except ValueError as e:
        parser.error(str(e))
    if args.warm:
        args.snapshot = warm(args.snapshot)
    name = args.name or f"forkd-{args.snapshot}".lower()
    spec = interpreter(args.snapshot) if args.interpreter else kernel(args.snapshot, args.idle, options)
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        with open(os.path.join(folder, "kernel.json"), "w") as f:
            json.dump(spec, f, indent=1)
        place = KernelSpecManager().install_kernel_spec(folder, name, user=args.prefix is None, prefix=args.prefix)
    print(f"kernel {name}: {place}")


def option(text: str) -> tuple[str, Any]:
    """Reads NAME=VALUE. A value is JSON, or text."""
    name, equals, value = text.partition("=")
    if not equals or not name.isidentifier():
        raise ValueError(f"--option {text}: write it as NAME=VALUE")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value


def kernel(snapshot: str, idle: float, options: dict[str, Any]) -> dict[str, Any]:
    """Returns the kernelspec of IPython's kernel in a fork."""
    config = {"snapshot": snapshot, "idle": idle, "options": options}
    return {"argv": ARGV, "language": "python",
            "display_name": f"forkd: {snapshot}", "interrupt_mode": "signal",
            "metadata": {"kernel_provisioner": {"provisioner_name": "forkd-provisioner", "config": config}}}


def warm(snapshot: str) -> str:
    """Makes a snapshot of a running kernel, unless there is one, and returns its tag."""
    tag = f"{snapshot}-kernel"
    with forkd.Forkd() as client:
        try:
            client.snapshot(tag).info()
            return tag
        except forkd.NotFoundError:
            pass
    return asyncio.run(loop.run(_warm(snapshot, tag)))


async def _warm(snapshot: str, tag: str) -> str:
    place = Place(snapshot, ARGV, {}, {})
    try:
        await place.start()
        up = Upstream(place, lambda channel, message: None, lambda: None)
        try:
            await up.connect(STARTUP, restored=False)
        finally:
            await up.close()
        await place.keep(tag)
    finally:
        await place.end()
        await place.close()
    return tag


def interpreter(snapshot: str) -> dict[str, Any]:
    """Returns the kernelspec of the kernel that evaluates cells in a warm interpreter."""
    return {"argv": [sys.executable, "-m", "forkd_jupyter.interpreter", "-f", "{connection_file}"],
            "language": "python", "display_name": f"forkd: {snapshot} (interpreter)", "interrupt_mode": "signal",
            "env": {SNAPSHOT: snapshot}}
