"""What all kernels have in common: a process with its group, a queue of what it says, and its end."""
import asyncio
import os
import signal


class Process:
    def __init__(self):
        self.dead = asyncio.Event()
        self.inbox = asyncio.Queue()  # what the kernel said; None: it has ended
        self.counted = self.forgotten = 0  # executions, by the kernel's count, and how many of them are not shown

    def pid(self):
        """The leader of the kernel's process group; None before there is one."""
        raise NotImplementedError

    def died(self):
        self.dead.set()
        self.inbox.put_nowait(None)

    def signal(self, number):
        """To the kernel and the programs that it runs, which are in its process group."""
        pid = self.pid()
        if pid is None or self.dead.is_set():
            return
        try:
            os.killpg(pid, number)
        except ProcessLookupError:
            pass

    def interrupt(self):
        self.signal(signal.SIGINT)

    def kill(self):
        self.signal(signal.SIGKILL)

    def forget(self):
        """What was said to the execution before."""
        while not self.inbox.empty():
            self.inbox.get_nowait()

    async def settle(self):
        """Called when an execution that was interrupted is over: no interrupt is left for the next one."""

    def counting(self, emit):
        """emit, with executions counted from the first that is shown."""
        def count(event):
            if event["type"] == "number_of_executions":
                self.counted = event["execution_count"]
                event = {**event, "execution_count": self.counted - self.forgotten}
            emit(event)
        return count

    async def count_anew(self):
        """The next execution is shown as the first."""
        self.forgotten = self.counted
