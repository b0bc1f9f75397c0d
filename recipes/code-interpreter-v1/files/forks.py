"""What the fork hook leaves in a clone: that it is one, and the clone's environment.

The hook writes two files and wakes nothing. Before each execution the first is read, and a kernel
that was made before the fork gets new random state and the clone's environment first.
"""
import os

# Of the hook's process, not of the sandbox.
OWN = {"HOME", "USER", "LOGNAME", "SHELL", "PWD", "OLDPWD", "SHLVL", "_", "TERM", "PATH"}


class Forks:
    def __init__(self, run):
        self.generation, self.env = os.path.join(run, "fork"), os.path.join(run, "env")

    def latest(self):
        """A text that is another after each fork, and the environment; "" before the first."""
        # The hook writes the environment first.
        generation = read(self.generation).strip()
        if not generation:
            return "", {}
        env = {}
        for pair in read(self.env).split("\0"):
            key, equals, value = pair.partition("=")
            if equals and key not in OWN:
                env[key] = value
        return generation, env


def read(path):
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as f:
            return f.read()
    except FileNotFoundError:
        return ""


def info(env):
    """What functions of forkd_guest.on_fork are told."""
    return {"sandbox_id": env.get("FORKD_SANDBOX_ID", ""), "index": env.get("FORKD_INDEX", ""),
            "parent": env.get("FORKD_PARENT", "")}
