"""The kernel of JavaScript and TypeScript: Node's own REPL in node.js, a line of JSON each way."""
import asyncio
import json
import os
import shutil
import signal

import contexts
import results

HERE = os.path.dirname(os.path.abspath(__file__))
LINE = 64 << 20  # bytes of one answer


class Node:
    def __init__(self, cwd, env, run):
        self.cwd = cwd
        self.env = {**os.environ, **env}
        self.dead = asyncio.Event()
        self.inbox = asyncio.Queue()
        self.process = None
        self.tasks = []

    async def start(self):
        if shutil.which("node") is None:
            raise contexts.Refused(500, "JavaScript is not in this image: there is no node")
        # Requests and answers have pipes of their own; 1 and 2 are user code's.
        ours, theirs = os.pipe()
        back, forth = os.pipe()
        self.process = await asyncio.create_subprocess_exec(
            "node", os.path.join(HERE, "node.js"), str(ours), str(forth),
            cwd=self.cwd, env=self.env, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE, pass_fds=(ours, forth), start_new_session=True)
        os.close(ours)
        os.close(forth)
        loop = asyncio.get_running_loop()
        answers = asyncio.StreamReader(limit=LINE)
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(answers), os.fdopen(back, "rb"))
        self.requests = os.fdopen(theirs, "wb", buffering=0)
        self.tasks = [asyncio.ensure_future(t) for t in (
            self.read(answers), self.forward("stdout", self.process.stdout), self.forward("stderr", self.process.stderr),
            self.watch())]
        while (event := await self.inbox.get()) is None or event["type"] != "ready":
            if event is None:
                raise RuntimeError("node ended at once")

    async def read(self, answers):
        while line := await answers.readline():
            self.inbox.put_nowait(json.loads(line))

    async def forward(self, name, stream):
        """What programs that the code started have printed."""
        while data := await stream.read(1 << 16):
            self.inbox.put_nowait({"type": name, "text": data.decode(errors="replace")})

    async def watch(self):
        await self.process.wait()
        self.dead.set()
        self.inbox.put_nowait(None)

    def signal(self, number):
        if self.process is not None and not self.dead.is_set():
            try:
                os.killpg(self.process.pid, number)
            except ProcessLookupError:
                pass

    def interrupt(self):
        self.signal(signal.SIGINT)

    def kill(self):
        self.signal(signal.SIGKILL)

    async def stop(self):
        self.kill()
        if self.process is not None:
            await self.process.wait()
            self.requests.close()
        for t in self.tasks:
            t.cancel()

    async def ask(self, request):
        while not self.inbox.empty():
            self.inbox.get_nowait()
        if self.dead.is_set():
            return
        data = memoryview(json.dumps(request).encode() + b"\n")
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(None, self.write, data)

    def write(self, data):
        try:
            while data:
                data = data[self.requests.write(data):]
        except BrokenPipeError:
            pass  # watch tells

    async def run(self, code, language, emit):
        await self.ask({"op": "run", "code": code, "typescript": language == "typescript"})
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

    async def environ(self, values, remove):
        await self.ask({"op": "environ", "values": values, "remove": remove})
        while (event := await self.inbox.get()) is not None and event["type"] != "done":
            pass

    async def renew(self, seed, env, info):
        # Node offers no way to reseed Math.random or OpenSSL: docs/code-interpreter.md says so.
        await self.environ(env, [])
