"""One lock of redis-py, told by lines of its standard input what to do: it answers each with a line."""

import sys

import redis

port, name, lease = sys.argv[1:]
lock = redis.Redis(port=int(port)).lock(name, timeout=float(lease), sleep=0.01)
does = {
    "try": lambda: lock.acquire(blocking=False),
    "wait": lambda: lock.acquire(blocking_timeout=50),
    "release": lambda: lock.release() or "released",
    "extend": lambda: lock.extend(60),
    "owned": lock.owned,
    "locked": lock.locked,
    "value": lambda: lock.local.token.decode(),
}
print("ready", flush=True)
for line in sys.stdin:
    try:
        print(does[line.strip()](), flush=True)
    except redis.exceptions.LockError as error:
        print(type(error).__name__, flush=True)
