"""A kernel, and a client of it, for the warm interpreter: run(code) returns the text that a notebook shows."""
import queue

from jupyter_client.manager import KernelManager

FILE = "/home/user/kernel.json"  # for other clients: jupyter console --existing
STARTUP = 300  # seconds; an emulated CPU takes its time

_manager = _client = None


def start():
    """Starts the kernel. It listens on sockets of the file system, which only its user reaches."""
    global _manager, _client
    _manager = KernelManager(transport="ipc", connection_file=FILE, ip="/home/user/.kernel")
    _manager.start_kernel()
    _client = _manager.client()
    _client.start_channels(hb=False, stdin=False, control=False)  # a heartbeat would wake each child
    _client.wait_for_ready(timeout=STARTUP)


def run(code, timeout=None):
    """Runs code in the kernel. An exception there is a RuntimeError with its traceback."""
    ident = _client.execute(code, allow_stdin=False)
    out = []
    while True:
        try:
            message = _client.get_iopub_msg(timeout=timeout)
        except queue.Empty:
            _manager.interrupt_kernel()
            raise TimeoutError("the kernel has not finished after %s s" % timeout) from None
        if message["parent_header"].get("msg_id") != ident:
            continue
        kind, content = message["msg_type"], message["content"]
        if kind == "stream":
            out.append(content["text"])
        elif kind in ("execute_result", "display_data"):
            out.append(content["data"].get("text/plain", ""))
        elif kind == "error":
            raise RuntimeError("\n".join(content["traceback"]))
        elif kind == "status" and content["execution_state"] == "idle":
            return "".join(out)
