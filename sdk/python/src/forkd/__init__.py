"""Fork warm virtual machines.

    import forkd

    with forkd.Forkd() as client, client.snapshot("py").fork() as sandbox:
        print(sandbox.eval("6 * 7"))

``Forkd`` is synchronous, ``AsyncForkd`` has the same methods with ``await``.
"""
from ._async.client import AsyncForkd
from ._async.process import AsyncProcess
from ._async.sandbox import AsyncSandbox
from ._async.snapshot import AsyncForks, AsyncSnapshot
from ._map import map, map_async
from ._results import Change, Entry, ExecResult, Output
from ._sync.client import Forkd
from ._sync.process import Process
from ._sync.sandbox import Branch, Sandbox
from ._sync.snapshot import Forks, Snapshot
from ._version import VERSION as __version__
from . import _codes
from .models import HeaderRule, NetworkLimits, NetworkPolicy
from ._base import EvalError, ForkdError, ForkError, ProgramError
from ._codes import *  # noqa: F403
from .original import Controller, ControllerError

__all__ = ["AsyncForkd", "AsyncForks", "AsyncProcess", "AsyncSandbox", "AsyncSnapshot", "Branch", "Change", "Controller",
           "ControllerError", "Entry",
           "EvalError", "ForkError", "ForkdError", "ProgramError",
           "ExecResult", "Forkd", "Forks", "HeaderRule",
           "NetworkLimits", "NetworkPolicy", "Output", "Process", "Sandbox", "Snapshot", "__version__", "map",
           "map_async"]
__all__ += _codes.__all__
