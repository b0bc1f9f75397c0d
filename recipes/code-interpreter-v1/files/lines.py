"""Kernels of our own: programs that take requests on one descriptor and answer on another, a line each.

Answers are JSON. A subclass says which program it is, and how it is asked. Like any kernel, one is
used by one execution at a time; its context sees to that.
"""
import asyncio
import json
import os

import contexts
import process
import results

LINE = 64 << 20  # bytes of one answer


class Kernel(process.Process):
    def __init__(self, cwd, env, run):
        super().__init__()
        self.cwd, self.run_dir = cwd, run
        self.env = {**os.environ, **env}
        self.process = None
        self.tasks = []

    async def command(self, requests, answers):
        """The program and its arguments, two of which are descriptors."""
        raise NotImplementedError

    def asking(self, code, language):
        """The line that asks for an execution."""
        raise NotImplementedError

    async def start(self):
        # Requests and answers have pipes of their own; 1 and 2 are user code's.
        ours, theirs = os.pipe()
        back, forth = os.pipe()
        try:
            command = await self.command(str(ours), str(forth))
            self.process = await asyncio.create_subprocess_exec(
                *command, cwd=self.cwd, env=self.env, stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE, pass_fds=(ours, forth),
                start_new_session=True)
        except BaseException:
            os.close(back)
            os.close(theirs)
            raise
        finally:
            os.close(ours)
            os.close(forth)
        loop = asyncio.get_running_loop()
        lines = asyncio.StreamReader(limit=LINE)
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), os.fdopen(back, "rb"))
        self.requests = os.fdopen(theirs, "wb", buffering=0)
        self.tasks = [asyncio.ensure_future(t) for t in (
            self.read(lines), self.forward("stdout", self.process.stdout), self.forward("stderr", self.process.stderr),
            self.watch())]
        while (event := await self.inbox.get()) is None or event["type"] != "ready":
            if event is None:
                raise RuntimeError("%s ended at once" % command[0])

    async def read(self, lines):
        while line := await lines.readline():
            self.inbox.put_nowait(json.loads(line))

    async def forward(self, name, stream):
        """What programs that the code started have printed."""
        while data := await stream.read(1 << 16):
            self.inbox.put_nowait({"type": name, "text": data.decode(errors="replace")})

    async def watch(self):
        await self.process.wait()
        self.died()

    def pid(self):
        return self.process and self.process.pid

    async def stop(self):
        self.kill()
        if self.process is not None:
            await self.process.wait()
            self.requests.close()
        for t in self.tasks:
            t.cancel()

    async def ask(self, line):
        self.forget()
        if self.dead.is_set():
            return
        data = memoryview(line.encode() + b"\n")
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(None, self.write, data)

    def write(self, data):
        try:
            while data:
                data = data[self.requests.write(data):]
        except BrokenPipeError:
            pass  # watch tells

    async def run(self, code, language, emit):
        await self.ask(self.asking(code, language))
        while not self.dead.is_set() or not self.inbox.empty():
            event = await self.inbox.get()
            if event is None:
                return False
            kind = event["type"]
            if kind == "done":
                return True
            if kind in ("stdout", "stderr"):
                event["timestamp"] = contexts.now()
            elif kind == "result":
                event = results.result(event["data"], event["main"])
            emit(event)
        return False

    async def quietly(self, line):
        await self.ask(line)
        while (event := await self.inbox.get()) is not None and event["type"] != "done":
            pass
