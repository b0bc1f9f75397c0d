"""Kernels that speak Jupyter's protocol: IPython's, bash_kernel, and R's.

A kernel is used by one execution at a time; its context sees to that. Nothing here wakes by
itself: no heartbeat is asked for, and the end of the process is told by a descriptor.
"""
import asyncio
import json
import os
import re
import shlex
import shutil
import sys
import uuid

from jupyter_client.kernelspec import KernelSpec
from jupyter_client.manager import AsyncKernelManager

import contexts
import process
import results

HERE = os.path.dirname(os.path.abspath(__file__))
COLOURS = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
STARTUP = 240  # seconds; an emulated CPU takes its time


class Kernel(process.Process):
    argv = []
    spawn_env = {}

    def __init__(self, cwd, env, run):
        super().__init__()
        self.cwd, self.run_dir = cwd, run
        # Base of the kernel's environment, to which env_vars of an execution return.
        self.env = {**os.environ, **env, **self.spawn_env}
        self.current = None  # id of the request whose messages are wanted
        self.manager = self.client = self.pidfd = None
        self.pumps = []

    async def start(self):
        name = os.path.join(self.run_dir, "kernel-%s" % uuid.uuid4().hex[:12])
        self.manager = AsyncKernelManager(transport="ipc", connection_file=name + ".json", ip=name)
        self.manager._kernel_spec = KernelSpec(argv=self.argv, display_name="", language="", interrupt_mode="signal")
        await self.manager.start_kernel(cwd=self.cwd, env=dict(self.env))
        self.pidfd = os.pidfd_open(self.manager.provisioner.pid)
        asyncio.get_running_loop().add_reader(self.pidfd, self.ended)
        self.client = self.manager.client()
        self.client.start_channels(hb=False, stdin=False, control=False)
        await self.client.wait_for_ready(timeout=STARTUP)
        self.pumps = [asyncio.ensure_future(self.pump(get))
                      for get in (self.client.get_iopub_msg, self.client.get_shell_msg)]

    async def pump(self, get):
        while True:
            message = await get()
            if message["parent_header"].get("msg_id") == self.current:
                self.inbox.put_nowait(message)

    def ended(self):
        asyncio.get_running_loop().remove_reader(self.pidfd)
        os.close(self.pidfd)
        self.pidfd = None
        self.died()

    def pid(self):
        return self.manager.provisioner.pid if self.manager is not None and self.manager.has_kernel else None

    async def stop(self):
        for p in self.pumps:
            p.cancel()
        self.kill()
        if self.client is not None:
            self.client.stop_channels()
        if self.manager is not None and self.manager.has_kernel:
            await self.manager.shutdown_kernel(now=True)
        if self.pidfd is not None:
            self.ended()

    def telling(self, emit):
        """What is told the messages of an execution."""
        return Run(emit)

    async def run(self, code, language, emit, silent=False):
        """Runs code and emits what comes of it. False if the kernel ended instead."""
        self.forget()
        if self.dead.is_set():
            return False
        state = self.telling(emit)
        self.current = self.client.execute(code, silent=silent, store_history=not silent, allow_stdin=False,
                                           stop_on_error=False)  # else the next may come in time to be aborted
        while not state.over():
            try:
                # A kernel that floods its output may lose the message that it is idle. One whose interrupt
                # comes between two of its own steps is idle and never replies.
                message = await asyncio.wait_for(self.inbox.get(), 1 if state.replied or state.idle else None)
            except asyncio.TimeoutError:
                state.lost()
                break
            if message is None:
                return False
            state.take(message)
        state.end()
        return True

    async def quietly(self, code):
        await self.run(code, None, lambda event: None, silent=True)

    async def settle(self):
        await self.quietly("0")  # takes an interrupt that comes late


class Run:
    """One execution, told by the kernel's messages."""

    def __init__(self, emit):
        self.emit = emit
        self.replied = self.idle = self.failed = False

    def over(self):
        return self.replied and self.idle

    def end(self):
        """There is no more."""

    def lost(self):
        """The kernel says no more. Without a reply nobody knows how far the code came."""
        if not self.replied and not self.failed:
            self.failed = True
            self.emit(contexts.error("KeyboardInterrupt", "The execution was interrupted"))

    def take(self, message):
        content = message["content"]
        handle = getattr(self, message["msg_type"], None)
        if handle is not None:
            handle(content)

    def status(self, content):
        self.idle = self.idle or content["execution_state"] == "idle"

    def execute_input(self, content):
        self.emit({"type": "number_of_executions", "execution_count": content["execution_count"]})

    def stream(self, content):
        self.emit({"type": content["name"], "text": content["text"], "timestamp": contexts.now()})

    def display_data(self, content):
        self.emit(results.result(content["data"], False))

    def execute_result(self, content):
        self.emit(results.result(content["data"], True))

    def error(self, content):
        if self.failed:
            return
        self.failed = True
        traceback = COLOURS.sub("", "\n".join(content.get("traceback") or []))
        self.emit(contexts.error(content.get("ename") or "Error", COLOURS.sub("", str(content.get("evalue"))), traceback))

    def execute_reply(self, content):
        self.replied = True
        if content["status"] == "error":
            self.error(content)  # if nothing else told of it
        elif content["status"] in ("abort", "aborted") and not self.failed:
            self.failed = True
            self.emit(contexts.error("ExecutionAborted", "The execution was aborted"))


class Python(Kernel):
    argv = [sys.executable, os.path.join(HERE, "kernel.py"), "-f", "{connection_file}",
            "--ext=forkd_kernel",
            "--IPKernelApp.parent_handle=0",  # else a thread looks for its parent every second
            "--HistoryManager.enabled=False"]

    async def environ(self, values, remove):
        await self.call("environ", values, remove)

    async def chdir(self, cwd):
        """Goes to another folder. False if the kernel ended."""
        await self.call("chdir", cwd)
        self.cwd = cwd
        return not self.dead.is_set()

    async def renew(self, seed, env, info):
        await self.call("renew", seed.hex(), env, info)

    async def count_anew(self):
        await self.call("forget")
        self.counted = self.forgotten = 0

    async def call(self, name, *args):
        text = json.dumps(args)
        await self.quietly("__import__('forkd_kernel').%s(*__import__('json').loads(%r))" % (name, text))


class Bash(Kernel):
    argv = [sys.executable, os.path.join(HERE, "kernel_bash.py"), "-f", "{connection_file}",
            "--IPKernelApp.parent_handle=0"]
    name = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")

    async def environ(self, values, remove):
        await self.say(["export %s=%s" % (k, shlex.quote(v)) for k, v in values.items() if self.name.match(k)] +
                       ["unset %s" % k for k in remove if self.name.match(k)])

    async def renew(self, seed, env, info):
        await self.say(["RANDOM=%d" % int.from_bytes(seed[:4], "big")])
        await self.environ(env, [])

    async def settle(self):
        await self.quietly("\0settle")  # kernel_bash.py

    async def say(self, commands):
        # A line each and a value of many lines do not go together: bash_kernel sends lines one by one.
        one = [c if "\n" not in c else c.split("=", 1)[0] + "=" + ansi(shlex.split(c)[1].split("=", 1)[1])
               for c in commands]
        if one:
            await self.quietly("; ".join(one))


def ansi(value):
    """value as one line for bash."""
    return "$'" + value.replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n") + "'"


class RunR(Run):
    """R's kernel shows values and plots alike. The last value is the result of the execution, so what is shown
    is kept until something follows."""
    shown = None

    def end(self):
        if self.shown is not None:
            self.show(not any(mime.startswith("image/") for mime in self.shown))

    def show(self, main):
        data, self.shown = self.shown, None
        self.emit(results.result(data, main))

    def take(self, message):
        if self.shown is not None and message["msg_type"] in ("stream", "display_data", "execute_result", "error"):
            self.show(False)
        super().take(message)

    def display_data(self, content):
        self.shown = content["data"]


class R(Kernel):
    argv = ["R", "--no-save", "--no-restore", "--no-echo", "--file=" + os.path.join(HERE, "kernel.R"), "--args",
            "{connection_file}"]
    libraries = ("/usr/local/lib/R/site-library", "/usr/lib/R/site-library", "/usr/lib/R/library")

    @classmethod
    def absent(cls):
        return shutil.which("R") is None or not any(os.path.isdir(d + "/IRkernel") for d in cls.libraries)

    def telling(self, emit):
        return RunR(emit)

    async def environ(self, values, remove):
        await self.quietly("".join(
            ["do.call(Sys.setenv, structure(list(%s), names=%s))\n" % (quoted(v), quoted(k))
             for k, v in values.items() if k] + ["Sys.unsetenv(%s)\n" % quoted(k) for k in remove if k]))

    async def renew(self, seed, env, info):
        await self.quietly("set.seed(%d)" % (int.from_bytes(seed[:4], "big") >> 1))
        await self.environ(env, [])


def quoted(text):
    """text as a string of R."""
    text = text.encode(errors="surrogateescape").decode(errors="replace")
    return '"%s"' % "".join(c if c.isascii() and c.isalnum() else "\\U{%x}" % ord(c) for c in text)
