# Fills its disk, makes room, and fills it again.
import os

while True:
    try:
        with open("/var/tmp/full", "wb") as f:
            while True:
                f.write(os.urandom(1 << 20))
                f.flush()
                os.fsync(f.fileno())
    except OSError:
        try:
            os.remove("/var/tmp/full")
        except OSError:
            pass
