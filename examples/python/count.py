"""Counts in a file under the write lock: count.py URL SCRIPTS LOCK FILE TIMES."""

import sys
import time
from pathlib import Path

import rwlease

url, scripts, lock, file, times = sys.argv[1:]
client = rwlease.Client(rwlease.connect(url), rwlease.load(scripts), poll=0.02)
file = Path(file)
last = 0
for _ in range(int(times)):
    with client.write(lock, lease=10) as guard:
        assert guard.token > last, f"token {guard.token} after {last}"
        last = guard.token
        count = int(file.read_text())
        time.sleep(0.01)  # two at a time would lose a count
        guard.check()
        file.write_text(f"{count + 1}\n")
client.close()
