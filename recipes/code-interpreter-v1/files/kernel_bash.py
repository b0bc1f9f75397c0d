"""Starts bash_kernel with a request of its own: SETTLE.

bash_kernel sends a line and takes what comes before the next prompt for its output. An interrupt that
comes while it waits for the prompt of an earlier interrupt leaves that prompt unread, and every later
command is answered with the output of the one before it.
"""
import os
import signal
import sys
import uuid

sys.path.remove(os.path.dirname(os.path.abspath(__file__)))  # user code finds nothing of it

import pexpect  # noqa: E402
from bash_kernel.kernel import BashKernel  # noqa: E402
from ipykernel import kernelapp  # noqa: E402

SETTLE = "\0settle"  # no command holds this byte
PATIENCE = 1  # seconds until a program that ignores an interrupt gets another


class Kernel(BashKernel):
    def do_execute(self, code, silent, store_history=True, user_expressions=None, allow_stdin=False):
        if code != SETTLE:
            return super().do_execute(code, silent, store_history, user_expressions, allow_stdin)
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)
        try:
            self.settle()
        finally:
            signal.signal(signal.SIGINT, before)
        return {"status": "ok", "execution_count": self.execution_count, "payload": [], "user_expressions": {}}

    def settle(self):
        """Ends the command that runs and reads up to the prompt that follows it."""
        child = self.bashwrapper.child
        while True:
            mark = uuid.uuid4().hex
            try:
                child.sendintr()
                child.sendline(" echo %s''%s" % (mark[:16], mark[16:]))
                child.expect_exact(mark, timeout=PATIENCE)
                self.bashwrapper._expect_prompt()
                return
            except pexpect.TIMEOUT:
                pass
            except pexpect.EOF:
                return self._start_bash()


kernelapp.launch_new_instance(kernel_class=Kernel)
