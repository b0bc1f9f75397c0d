"""The kernel of Java: the JDK's own jshell in Kernel.java."""
import asyncio
import base64
import os
import shutil
import tempfile

import lines

SOURCE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "Kernel.java")

# A kernel that nobody uses is to sleep: with the first of these its JVM wakes about once a second. What is
# opened is what Kernel.java reseeds in a clone. A heap has half of the memory, where the JVM would take
# a quarter.
FLAGS = ["-XX:+IgnoreUnrecognizedVMOptions", "-XX:+UnlockDiagnosticVMOptions", "-XX:-UsePerfData",
         "-XX:GuaranteedSafepointInterval=0", "-XX:AsyncDeflationInterval=0",
         "-XX:+UseSerialGC", "-XX:MaxRAMPercentage=50", "-Dfile.encoding=UTF-8", "-Djava.awt.headless=true",
         "--add-opens=java.base/java.lang=ALL-UNNAMED", "--add-opens=java.base/java.util=ALL-UNNAMED",
         "--add-opens=java.base/java.util.concurrent=ALL-UNNAMED"]


def packed(text):
    """text in a request, whose parts are put apart by spaces."""
    return base64.b64encode(text.encode(errors="surrogateescape")).decode()


class Java(lines.Kernel):
    @staticmethod
    def absent():
        return shutil.which("javac") is None

    async def command(self, requests, answers):
        return ["java", *FLAGS, "-cp", await self.compiled(), "Kernel", requests, answers]

    async def compiled(self):
        """The folder with Kernel.java's classes, which the first kernel of a run folder makes."""
        classes = os.path.join(self.run_dir, "java")
        if not os.path.isdir(classes):
            made = tempfile.mkdtemp(dir=self.run_dir)
            p = await asyncio.create_subprocess_exec("javac", "-proc:none", "-nowarn", "-d", made, SOURCE,
                                                     stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE,
                                                     stderr=asyncio.subprocess.STDOUT)
            said, _ = await p.communicate()
            if p.returncode != 0:
                shutil.rmtree(made)
                raise RuntimeError("javac: " + said.decode(errors="replace")[-2000:])
            try:
                os.rename(made, classes)
            except OSError:  # another kernel's were there first
                shutil.rmtree(made)
        return classes

    def asking(self, code, language):
        return "run " + packed(code)

    async def environ(self, values, remove):
        """As system properties: the environment of a JVM cannot be changed."""
        await self.quietly(" ".join(["properties"] + ["%s:%s" % (packed(k), packed(v)) for k, v in values.items()] +
                                    [packed(k) for k in remove]))

    async def settle(self):
        """A program that the code runs may end by the interrupt before the JVM handles it."""
        await self.quietly("settle")

    async def renew(self, seed, env, info):
        await self.environ(env, [])
        await self.quietly("reseed %d" % int.from_bytes(seed[:8], "big", signed=True))
