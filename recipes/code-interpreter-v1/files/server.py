"""The code interpreter's HTTP side: E2B's protocol on port 49999 (docs/use/code-interpreter.md).

It owns requests and answers; contexts.py has the kernels. It demands no token: who may reach the
port is decided on the host.
"""
import argparse
import asyncio
import gc
import json
import logging

from tornado import httpserver, netutil, web
from tornado.iostream import StreamClosedError

import contexts

KEEPALIVE = 5  # seconds of silence
IDLE = 700  # seconds an unused connection stays; clients count on 640


class Handler(web.RequestHandler):
    def initialize(self, all):
        self.all = all

    def set_default_headers(self):
        self.set_header("Access-Control-Allow-Origin", "*")
        self.set_header("Access-Control-Allow-Methods", "*")
        self.set_header("Access-Control-Allow-Headers", "*")
        self.clear_header("Server")

    def options(self, *_):
        self.set_status(204)

    def compute_etag(self):
        return None

    def body(self):
        """The request's object. Unknown fields are ignored: new clients add some."""
        try:
            value = json.loads(self.request.body or b"{}")
        except ValueError:
            value = None
        if not isinstance(value, dict):
            raise contexts.Refused(422, "The body is not a JSON object")
        return value

    def say(self, value):
        self.set_header("Content-Type", "application/json")
        self.finish(json.dumps(value))

    def write_error(self, status, **kwargs):
        exc = (kwargs.get("exc_info") or (None, None, None))[1]
        if isinstance(exc, contexts.Refused):
            self.set_status(exc.status)
        text = str(exc) if exc is not None else self._reason
        self.set_header("Content-Type", "text/plain; charset=utf-8")
        self.finish(text)

    def log_exception(self, kind, exc, trace):
        if not isinstance(exc, (contexts.Refused, web.HTTPError)):
            super().log_exception(kind, exc, trace)


class Health(Handler):
    def get(self):
        self.say("OK")


class Contexts(Handler):
    def get(self):
        self.say([c.about() for c in self.all.list()])

    async def post(self):
        body = self.body()
        c = await self.all.create(text(body, "language"), text(body, "cwd"))
        self.say(c.about())


class Context(Handler):
    async def delete(self, id):
        await self.all.remove(id)
        self.say(None)


class Spare(Handler):
    """For the warm-up: the next new context, or a restart, takes the kernel of this context."""

    async def post(self, id):
        await self.all.set_aside(id)
        self.say(None)


class Restart(Handler):
    async def post(self, id):
        await self.all.restart(id)
        self.say(None)


class Execute(Handler):
    """Runs code and streams what comes of it, a JSON object a line."""

    def initialize(self, all):
        super().initialize(all)
        self.gone = asyncio.Event()
        self.events = asyncio.Queue()

    def on_connection_close(self):
        self.gone.set()
        self.events.put_nowait(None)

    async def post(self):
        body = self.body()
        code, env = body.get("code"), body.get("env_vars") or {}
        if not isinstance(code, str):
            raise contexts.Refused(422, "code is missing")
        if not isinstance(env, dict):
            raise contexts.Refused(422, "env_vars is not an object")
        env = {str(k): str(v) for k, v in env.items() if v is not None}
        context = self.all.choose(text(body, "context_id"), text(body, "language"))
        self.set_header("Content-Type", "application/x-ndjson")
        self.set_header("Cache-Control", "no-store")
        forget = body.get("forkd_forget") is True  # of the warm-up
        running = asyncio.ensure_future(self.run(context, code, text(body, "language"), env, forget))
        try:
            await self.flush()  # the headers, before the kernel is even started
            await self.stream()
        except StreamClosedError:
            pass
        self.gone.set()
        await running  # which ends at once, or interrupts the kernel if the client is gone

    async def run(self, context, code, language, env, forget):
        put = self.events.put_nowait
        try:
            await context.execute(code, language, env, put, self.gone, forget)
        except contexts.Refused as e:
            put(contexts.error("ContextError", str(e)))
        except Exception as e:  # the client has its headers: all that is left is an error in the stream
            logging.exception("execute")
            put(contexts.error(type(e).__name__, str(e)))
        put({"type": "end_of_execution"})
        put(None)

    async def stream(self):
        while True:
            try:
                event = await asyncio.wait_for(self.events.get(), KEEPALIVE)
            except asyncio.TimeoutError:
                event = {"type": "keepalive"}
            if event is None:
                return
            # ASCII only: a client may decode each piece that it gets by itself.
            self.write(json.dumps(event, ensure_ascii=True, allow_nan=False) + "\n")
            await self.flush()


def text(body, key):
    value = body.get(key)
    if value is not None and not isinstance(value, str):
        raise contexts.Refused(422, "%s is not a string" % key)
    return value or None


def application(all):
    own = {"all": all}
    return web.Application([
        ("/health", Health, own),
        ("/execute", Execute, own),
        ("/contexts", Contexts, own),
        ("/contexts/([^/]+)", Context, own),
        ("/contexts/([^/]+)/restart", Restart, own),
        ("/contexts/([^/]+)/spare", Spare, own),
    ], log_function=lambda handler: None)


async def main():
    p = argparse.ArgumentParser()
    p.add_argument("--host", default="0.0.0.0")
    p.add_argument("--port", type=int, default=49999)
    p.add_argument("--run", default="/run/forkd-code-interpreter", help="folder of sockets and of the fork hook's files")
    p.add_argument("--cwd", default="/home/user", help="where contexts start")
    args = p.parse_args()
    all = contexts.All(args.run, args.cwd)
    try:
        await all.start()
        server = httpserver.HTTPServer(application(all), idle_connection_timeout=IDLE, max_body_size=64 << 20)
        sockets = netutil.bind_sockets(args.port, args.host)
        server.add_sockets(sockets)
        print("listening on port", sockets[0].getsockname()[1], flush=True)
        gc.collect()
        gc.freeze()  # clones share what is here now; a collection would write to it
        await contexts.terminated()
    finally:
        await all.stop()


if __name__ == "__main__":
    asyncio.run(main())
