"""Runs in the sandbox: IPython's kernel, with magics that ask the provisioner.

A magic publishes a ``forkd_request`` and waits for a ``forkd_answer`` on the control channel, which has its own thread.
A kernel that a snapshot brought back gets ``forkd_restored`` instead: the cell that it was in ends there.
"""
import os
import sys
import threading
import uuid

import zmq
from IPython.core.error import UsageError
from IPython.core.magic import Magics, line_magic, magics_class
from ipykernel.ipkernel import IPythonKernel
from ipykernel.kernelapp import IPKernelApp

#: Messages of output that wait for a slow connection. The default of 1000 is one loop of display().
OUTPUT_QUEUE = 100_000


class Restored(BaseException):
    """Ends the cell that made the snapshot, in a kernel that the snapshot brought back."""


class Question:
    """A request that waits for its answer."""

    def __init__(self):
        self.done = threading.Event()
        self.answer = {"restored": True}


class ForkdKernel(IPythonKernel):
    """IPython's kernel in a sandbox."""

    def __init__(self, **options):
        super().__init__(**options)
        self.questions = {}
        self.control_handlers["forkd_answer"] = self.answered
        self.control_handlers["forkd_restored"] = self.restored
        if self.shell is not None:
            self.shell.register_magics(ForkdMagics(self.shell, self))
            self.shell.events.register("pre_execute", renewer())
            self.shell.set_custom_exc((Restored,), quietly)

    def ask(self, do, name=""):
        """Asks the provisioner, and returns its answer."""
        sys.stdout.flush()
        sys.stderr.flush()
        ident, question = uuid.uuid4().hex, Question()
        self.questions[ident] = question
        self.send_response(self.iopub_socket, "forkd_request", {
            "id": ident, "do": do, "name": name, "execution_count": self.execution_count})
        try:
            question.done.wait()
        finally:
            self.questions.pop(ident, None)
        if question.answer.get("restored"):
            raise Restored
        if "error" in question.answer:
            raise UsageError(question.answer["error"])
        sys.stdout.write(question.answer.get("text", "") + "\n")

    def answered(self, stream, ident, message):
        """Takes an answer. Runs in the thread of the control channel."""
        content = message["content"]
        question = self.questions.get(content.get("id"))
        if question is not None:
            question.answer = content
            question.done.set()

    def restored(self, stream, ident, message):
        """Ends all questions: their answers went to another kernel."""
        for question in list(self.questions.values()):
            question.done.set()


def quietly(shell, kind, value, tb, tb_offset=None):
    """Shows no traceback."""


def renewer():
    """Returns a function that renews random states in a new fork. They are copies of the snapshot's."""
    def boot_id():
        try:
            with open("/proc/sys/kernel/random/boot_id") as f:
                return f.read()
        except OSError:
            return ""

    boot = boot_id()

    def renew():
        nonlocal boot
        now = boot_id()
        if now == boot:
            return
        boot = now
        if "random" in sys.modules:
            sys.modules["random"].seed()
        if "numpy.random" in sys.modules:
            sys.modules["numpy.random"].seed()
        if "_ssl" in sys.modules:
            sys.modules["_ssl"].RAND_add(os.urandom(32), 32.0)

    return renew


@magics_class
class ForkdMagics(Magics):
    """Magics that save and restore the whole sandbox."""

    def __init__(self, shell, kernel):
        super().__init__(shell)
        self.kernel = kernel

    @line_magic
    def branch(self, line):
        """%branch [NAME] saves variables, processes and files. %rollback goes back to it."""
        self.kernel.ask("branch", line.strip())

    @line_magic
    def branches(self, line):
        """%branches lists the branches of this notebook."""
        self.kernel.ask("branches")

    @line_magic
    def rollback(self, line):
        """%rollback [NAME] goes back to a branch, by default to the last one."""
        self.kernel.ask("rollback", line.strip())

    @line_magic
    def snapshot(self, line):
        """%snapshot TAG saves a snapshot that stays when the notebook ends."""
        self.kernel.ask("snapshot", line.strip())

    @line_magic
    def sandbox(self, line):
        """%sandbox shows the sandbox."""
        self.kernel.ask("sandbox")


class ForkdKernelApp(IPKernelApp):
    """The program of the kernel."""

    def init_iopub(self, context):
        """Makes the socket for output, with a longer queue."""
        context.setsockopt(zmq.SNDHWM, OUTPUT_QUEUE)
        super().init_iopub(context)
        context.setsockopt(zmq.SNDHWM, 1000)


if __name__ == "__main__":
    ForkdKernelApp.launch_instance(kernel_class=ForkdKernel)
