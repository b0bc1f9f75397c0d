"""Contexts: which kernels there are, and one execution at a time in each."""
import asyncio
import os
import signal
import time
import uuid

import forks
import java
import jupyter
import node

ALIASES = {"js": "javascript", "ts": "typescript"}
KERNELS = {"python": jupyter.Python, "bash": jupyter.Bash, "javascript": node.Node, "typescript": node.Node,
           "r": jupyter.R, "java": java.Java}
ON_REQUEST = {"r": "R", "java": "Java"}  # recipes of their own have what these need


class Refused(Exception):
    """What a request is told in place of an answer."""

    def __init__(self, status, message):
        super().__init__(message)
        self.status = status


def error(name, value, traceback=""):
    return {"type": "error", "name": name, "value": value, "traceback": traceback or "%s: %s" % (name, value)}


def normal(language):
    language = (language or "python").strip().lower()
    language = ALIASES.get(language, language)
    if language in ON_REQUEST and KERNELS[language].absent():
        raise Refused(500, "%s is not in this image: make the sandbox of the template code-interpreter-%s "
                      "(`forkd image build code-interpreter-%s`)" % (ON_REQUEST[language], language, language))
    if language not in KERNELS:
        here = [k for k in KERNELS if k not in ON_REQUEST or not KERNELS[k].absent()]
        raise Refused(500, "Unknown language %s: this image has %s" % (language, ", ".join(here)))
    return language


async def terminated():
    """Waits until the server is told to end."""
    end = asyncio.Event()
    for s in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(s, end.set)
    await end.wait()


class Context:
    def __init__(self, language, cwd, all):
        self.id, self.language, self.cwd, self.all = str(uuid.uuid4()), language, cwd, all
        self.kernel = None
        self.turn = asyncio.Lock()
        self.removed = False
        self.ending = None  # why the kernel is being ended, as an error's name and text

    def about(self):
        return {"id": self.id, "language": self.language, "cwd": self.cwd}

    async def start(self):
        """The kernel, started if there is none. The caller has the turn."""
        if self.removed:
            raise Refused(404, "Context %s not found" % self.id)
        if self.kernel is not None and self.kernel.dead.is_set():
            await self.stop()
        if self.kernel is None:
            if not os.path.isdir(self.cwd):
                raise Refused(500, "cwd %s does not exist" % self.cwd)
            self.kernel = await self.all.spare(self.language, self.cwd)
        if self.kernel is None:
            generation, env = self.all.forks.latest()
            kernel = KERNELS[self.language](self.cwd, env, self.all.run)
            try:
                await kernel.start()
            except BaseException:
                await kernel.stop()
                raise
            kernel.generation, self.kernel = generation, kernel
            self.ending = None
        return self.kernel

    async def stop(self):
        kernel, self.kernel = self.kernel, None
        if kernel is not None:
            await kernel.stop()

    async def restart(self):
        self.ending = ("ContextRestarting", "Context was restarted")
        if self.kernel is not None:
            self.kernel.kill()  # which ends what has the turn
        async with self.turn:
            await self.stop()
            await self.start()

    async def remove(self):
        self.removed, self.ending = True, ("UnexpectedEndOfExecution", "Context was removed")
        if self.kernel is not None:
            self.kernel.kill()
        async with self.turn:
            await self.stop()

    async def execute(self, code, language, env, emit, gone, forget=False):
        """forget: the next execution counts as the first."""
        async with self.turn:
            if gone.is_set():
                return
            kernel = await self.start()
            if not await self.renew(kernel):
                kernel = await self.start()
            if env:
                await kernel.environ(env, [])
            await self.attend(kernel, code, normal(language or self.language), kernel.counting(emit), gone)
            if env and not kernel.dead.is_set():
                own = {k: kernel.env[k] for k in env if k in kernel.env}
                await kernel.environ(own, [k for k in env if k not in own])
            if forget and not kernel.dead.is_set():
                await kernel.count_anew()

    async def renew(self, kernel):
        """Tells a kernel that it is a clone's now, if it does not know. False: it died of it."""
        generation, env = self.all.forks.latest()
        if generation != kernel.generation:
            kernel.env.update(env)
            await kernel.renew(os.urandom(32), env, forks.info(env))
            kernel.generation = generation
        return not kernel.dead.is_set()

    async def attend(self, kernel, code, language, emit, gone):
        """Runs code; interrupts it, again and again, once the client is gone."""
        run = asyncio.ensure_future(kernel.run(code, language, emit))
        left = asyncio.ensure_future(gone.wait())
        await asyncio.wait({run, left}, return_when=asyncio.FIRST_COMPLETED)
        interrupted = False
        while not run.done():
            interrupted = True
            kernel.interrupt()
            await asyncio.wait({run}, timeout=1)  # code may have caught it
        left.cancel()
        if interrupted and not kernel.dead.is_set():
            await kernel.settle()
        if not run.result():
            emit(error(*(self.ending or ("UnexpectedEndOfExecution", "The kernel ended before the execution did"))))


class All:
    """All contexts of the sandbox."""

    def __init__(self, run, cwd):
        self.run, self.cwd = run, cwd
        self.forks = forks.Forks(run)
        self.contexts = {}  # in the order in which they were made
        self.defaults = {}
        self.spares = {}  # one started kernel by language, for the next context that needs one

    async def start(self):
        os.makedirs(self.run, mode=0o700, exist_ok=True)
        await self.started(self.default("python"))
        self.default("javascript")  # listed; its kernel starts when it is wanted

    async def stop(self):
        await asyncio.gather(*(c.remove() for c in self.list()), *(k.stop() for k in self.spares.values()))

    async def started(self, context):
        async with context.turn:
            await context.start()

    async def set_aside(self, id):
        """Removes a context, and keeps its kernel as the spare one of its language."""
        c = self.find(id)
        async with c.turn:
            del self.contexts[id]
            c.removed = True
            if c.kernel is None or c.language in self.spares:
                await c.stop()
            else:
                self.spares[c.language], c.kernel = c.kernel, None

    async def spare(self, language, cwd):
        """Returns the spare kernel of a language, now in cwd. None: there is none that lives."""
        kernel = self.spares.pop(language, None)
        if kernel is None:
            return None
        try:
            if not kernel.dead.is_set() and await kernel.chdir(cwd):
                return kernel
            await kernel.stop()
        except BaseException:
            await kernel.stop()
            raise
        return None

    def list(self):
        return list(self.contexts.values())

    def default(self, language):
        if language == "typescript":
            language = "javascript"  # they share a kernel
        if language not in self.defaults:
            c = self.defaults[language] = Context(language, self.cwd, self)
            self.contexts[c.id] = c
        return self.defaults[language]

    def find(self, id):
        if id not in self.contexts:
            raise Refused(404, "Context %s not found" % id)
        return self.contexts[id]

    def choose(self, id, language):
        if id and language:
            raise Refused(400, "Only one of context_id or language can be provided")
        return self.find(id) if id else self.default(normal(language))

    async def create(self, language, cwd):
        c = Context(normal(language), cwd or self.cwd, self)
        try:
            await self.started(c)
        except Refused:
            raise
        except Exception as e:
            raise Refused(500, "start a kernel for %s: %s" % (c.language, e))
        self.contexts[c.id] = c
        return c

    async def restart(self, id):
        await self.find(id).restart()

    async def remove(self, id):
        c = self.find(id)
        del self.contexts[id]
        self.defaults = {k: v for k, v in self.defaults.items() if v is not c}
        await c.remove()


def now():
    t = time.time_ns()
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(t // 10**9)) + ".%09dZ" % (t % 10**9)
