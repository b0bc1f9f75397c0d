"""A Jupyter kernel for snapshots without ipykernel: cells run in the warm interpreter of a fork.

The kernel's process runs beside the notebook server and evaluates cells in the sandbox. A restart of the kernel is a
fresh fork. Lines that begin with % are commands:

    %branch [NAME]      save memory, variables, processes and files as a snapshot
    %branches           list the snapshots of this notebook
    %rollback [NAME]    go back to a snapshot; without a name to the last one
    %sandbox            show the sandbox
"""
from __future__ import annotations

import os
from typing import Any

import forkd
from ipykernel.kernelapp import IPKernelApp
from ipykernel.kernelbase import Kernel

from .install import SNAPSHOT

IDLE = 3600  # seconds without a cell after which the sandbox is paused; the next cell resumes it


class ForkdKernel(Kernel):
    """Evaluates cells in one sandbox, which begins with the first cell."""

    implementation = "forkd"
    implementation_version = "0.1.0"
    banner = "Python in a fork. %branch saves this moment, %rollback goes back to it."
    language_info = {"name": "python", "mimetype": "text/x-python", "file_extension": ".py",
                     "codemirror_mode": {"name": "ipython", "version": 3}, "pygments_lexer": "ipython3"}

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.client: forkd.Forkd | None = None
        self.box: forkd.Sandbox | None = None
        self.branches: dict[str, str] = {}  # tags by name, oldest first

    @property
    def sandbox(self) -> forkd.Sandbox:
        """The sandbox. It is forked when it is first needed."""
        if self.box is None:
            self.client = self.client or forkd.Forkd()
            snapshot = self.client.snapshot(os.environ.get(SNAPSHOT, "py"))
            self.box = snapshot.fork(idle=IDLE, at_end="pause", auto_resume=True)
        return self.box

    def do_execute(self, code: str, silent: bool, store_history: bool = True, user_expressions: Any = None,
                   allow_stdin: bool = False, **_: Any) -> dict[str, Any]:
        """Runs a cell. An interrupt ends the evaluation in the sandbox."""
        try:
            rest = []
            for line in code.splitlines():
                word, _, argument = line.strip().partition(" ")
                command = COMMANDS.get(word)
                if command is None:
                    rest.append(line)
                    continue
                self._evaluate("\n".join(rest), silent)
                rest = []
                self._say("stdout", command(self, argument.strip()) + "\n", silent)
            self._evaluate("\n".join(rest), silent)
        except forkd.EvalError as e:
            name, _, value = e.traceback.strip().splitlines()[-1].partition(": ")
            return self._failed(name, value, e.traceback, silent)
        except forkd.ForkdError as e:
            return self._failed(type(e).__name__, e.message, f"{e.message}\n{e.hint}" if e.hint else e.message, silent)
        except KeyboardInterrupt:
            return self._failed("KeyboardInterrupt", "", "the cell was interrupted", silent)
        return {"status": "ok", "execution_count": self.execution_count, "payload": [], "user_expressions": {}}

    def _evaluate(self, code: str, silent: bool) -> None:
        if not code.strip():
            return
        got = self.sandbox.eval_raw(code)
        self._say("stdout", got.stdout or "", silent)
        self._say("stderr", got.stderr or "", silent)
        if got.error:
            raise forkd.EvalError(got.error, "", "")
        if got.result is not None and got.result != "None" and not silent:
            self.send_response(self.iopub_socket, "execute_result", {
                "execution_count": self.execution_count, "data": {"text/plain": got.result}, "metadata": {}})

    def _say(self, stream: str, text: str, silent: bool) -> None:
        if text and not silent:
            self.send_response(self.iopub_socket, "stream", {"name": stream, "text": text})

    def _failed(self, name: str, value: str, text: str, silent: bool) -> dict[str, Any]:
        error = {"ename": name, "evalue": value, "traceback": text.splitlines()}
        if not silent:
            self.send_response(self.iopub_socket, "error", error)
        return {"status": "error", "execution_count": self.execution_count, **error}

    def branch(self, name: str) -> str:
        """Saves the sandbox. The name is for %rollback."""
        name = name or f"branch {len(self.branches) + 1}"
        branch = self.sandbox.branch()
        self.branches.pop(name, None)
        self.branches[name] = branch.tag
        return f"{name}: {branch.tag}, a pause of {branch.pause_ms or 0:.1f} ms"

    def rollback(self, name: str) -> str:
        """Goes back to a branch. Later ones stay."""
        if not self.branches:
            raise forkd.InvalidRequestError("this notebook has no branch", hint="%branch makes one")
        name = name or list(self.branches)[-1]
        if name not in self.branches:
            raise forkd.InvalidRequestError(f"there is no branch {name!r}", hint="%branches lists them")
        self.sandbox.rollback(self.branches[name])
        return f"back at {name}"

    def listed(self, _: str) -> str:
        """Lists the branches."""
        return "\n".join(f"{name}: {tag}" for name, tag in self.branches.items()) or "no branches"

    def shown(self, _: str) -> str:
        """Shows the sandbox."""
        info = self.sandbox.info()
        return f"{info.id} of {info.snapshot_tag}, {info.status}"

    def do_shutdown(self, restart: bool) -> dict[str, Any]:
        """Ends the sandbox and deletes its branches. After a restart, the next cell has a fresh fork."""
        box, self.box = self.box, None
        tags, self.branches = list(self.branches.values()), {}
        if box is not None and self.client is not None:
            self._end(self.client, box, tags)
        return {"status": "ok", "restart": restart}

    def _end(self, client: forkd.Forkd, box: forkd.Sandbox, tags: list[str]) -> None:
        try:
            box.kill()
        except forkd.NotFoundError:
            pass
        except forkd.ForkdError as e:
            self.log.warning("end of %s: %s", box.id, e)
        for tag in reversed(tags):
            try:
                client.snapshot(tag).delete()
            except forkd.ForkdError as e:  # somebody may use it: it stays
                self.log.warning("snapshot %s: %s", tag, e)


COMMANDS = {"%branch": ForkdKernel.branch, "%rollback": ForkdKernel.rollback, "%branches": ForkdKernel.listed,
            "%sandbox": ForkdKernel.shown}


if __name__ == "__main__":
    IPKernelApp.launch_instance(kernel_class=ForkdKernel)
