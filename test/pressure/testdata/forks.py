# Each VM forks two more of itself, until it is refused, and all of them go on asking.
import forkd
import time

while True:
    try:
        forkd.fork(2)
    except Exception:
        time.sleep(0.2)
