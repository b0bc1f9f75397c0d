"""The kernel of JavaScript and TypeScript: Node's own REPL in node.js."""
import json
import os
import shutil

import contexts
import lines

HERE = os.path.dirname(os.path.abspath(__file__))


class Node(lines.Kernel):
    async def command(self, requests, answers):
        if shutil.which("node") is None:
            raise contexts.Refused(500, "JavaScript is not in this image: there is no node")
        # Without V8's collection of an idle heap, some seconds after it was last used: each clone would do one, and write
        # to what it shares with the others.
        return ["node", "--no-memory-reducer", os.path.join(HERE, "node.js"), requests, answers]

    def asking(self, code, language):
        return json.dumps({"op": "run", "code": code, "typescript": language == "typescript"})

    async def settle(self):
        await self.quietly('{"op": "settle"}')

    async def environ(self, values, remove):
        await self.quietly(json.dumps({"op": "environ", "values": values, "remove": remove}))

    async def renew(self, seed, env, info):
        # Node offers no way to reseed Math.random or OpenSSL: docs/use/code-interpreter.md says so.
        await self.environ(env, [])
