"""Read/write locks of rwlease from Python, over redis-py: docs/protocol.md as a small client.

Waiters poll. Locks are not reentrant, upgraded or downgraded here.
"""

import hashlib
import secrets
import threading
import time
from contextlib import suppress
from functools import cache
from itertools import product
from pathlib import Path
from string import ascii_lowercase, ascii_uppercase, digits
from typing import NamedTuple

import redis
from redis.backoff import NoBackoff
from redis.cluster import PRIMARY, ClusterNode
from redis.crc import key_slot
from redis.retry import Retry

PREFIX = "rwlease:"
SCRIPTS = ("acquire_read", "acquire_write", "grant_waiters", "holds", "release", "renew")
# The server's name and the tag of a channel, of a client that only polls.
NONE = "-"
MOST_WAITERS = 10_000
TIME_TO_LIVE = 10_000
# How long after it was sent an acquire may still do something, in ms.
LATEST = 5_000
PAUSE = 0.05
# How long a try waits for a holder that may not be using the lock, seconds.
TRY = 0.2
# Refusals of a cluster that is changing, and all that a call may end in.
CHANGING = (redis.ReadOnlyError, redis.exceptions.ClusterError, redis.exceptions.AskError)
# Other refusals that pass.
PASSING = ("BUSY ", "NOREPLICAS ")
FAILURES = (redis.RedisError, redis.exceptions.RedisClusterException)


class LockError(Exception):
    """A lock was not taken, or was lost."""


class NotAcquired(LockError):
    """Others held the lock all the time."""


class Lost(LockError):
    """The lease ended before its release: others may have held the lock."""


class Unreachable(LockError):
    """No server answered in time. What was sent may still be carried out."""


class Reply(NamedTuple):
    """What a script said, and when on the local clock it was asked and had answered."""

    status: str
    now: int
    more: bool
    values: list
    sent: float
    answered: float

    @classmethod
    def parse(cls, text, sent, answered):
        # Later versions may add words, so only those that are known are looked at, by their places.
        status, now, more, *values = text.split(" ")
        return cls(status, int(now), more == "1", values, sent, answered)


class Script(NamedTuple):
    text: str
    digest: str


def local_time():
    """Seconds of a clock that goes on while the machine is suspended, if the system has one."""
    clock = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if clock is None else time.clock_gettime(clock)


class Cluster(redis.RedisCluster):
    """Follows ASK to servers that have no slot yet, too: redis-py does not know those."""

    def get_node(self, host=None, port=None, node_name=None):
        node = super().get_node(host, port, node_name)
        if node is None and node_name:
            host, _, port = node_name.rpartition(":")
            node = ClusterNode(host, int(port), PRIMARY)
            node = self.nodes_manager.nodes_cache.setdefault(node_name, node)
        return node


def connect(url):
    """A connection that never repeats a command by itself: the client must know of each."""
    return Cluster.from_url(
        url, retry=Retry(NoBackoff(), 0), decode_responses=True, socket_timeout=1
    )


@cache
def tag_of(slot):
    """The first string whose slot this is: the hash tag of the slot's channels."""
    letters = digits + ascii_uppercase + ascii_lowercase
    strings = ("".join(word) for length in (1, 2, 3) for word in product(letters, repeat=length))
    return next(string for string in strings if key_slot(string.encode()) == slot)


def load(folder):
    """The scripts that `rwlease scripts FOLDER` wrote."""
    texts = {name: Path(folder, f"{name}.lua").read_text() for name in SCRIPTS}
    return {
        name: Script(text, hashlib.sha1(text.encode()).hexdigest()) for name, text in texts.items()
    }


class Client:
    """Takes locks. Threads may share it.

    `poll` is the interval of a waiter, `patience` how long a call is repeated: both in seconds.
    """

    def __init__(self, connection, scripts, poll=0.1, patience=10):
        self.poll = poll
        self.patience = patience
        self._redis = connection
        self._scripts = scripts
        self._name = secrets.token_urlsafe(8)  # 11 characters
        self._loading = threading.Lock()
        self._settling = []

    def read(self, name, lease=30, wait=None):
        """A guard of the lock, beside other readers. See `write`."""
        return self._acquire("acquire_read", name, lease, wait)

    def write(self, name, lease=30, wait=None):
        """A guard of the lock, alone. Seconds. `wait` is how long to wait for it: 0 tries once."""
        return self._acquire("acquire_write", name, lease, wait)

    def close(self):
        """Waits until none of its calls can still be carried out."""
        for thread in self._settling:
            thread.join()

    def _acquire(self, script, name, lease, wait):
        acquisition = _Acquisition(self, script, name, lease)
        try:
            return acquisition.wait(wait)
        except BaseException:
            # Also where it is not known whether anything was taken.
            with suppress(LockError, redis.RedisError):
                acquisition.end()
            raise

    def _call(self, script, key, args, patience=None, on_doubt=lambda: None):
        """Repeats a call until it is answered; each time with the arguments that `args()` gives."""
        give_up = local_time() + (self.patience if patience is None else patience)
        while True:
            words = args()
            sent = local_time()
            try:
                text = self._eval(self._scripts[script], key, words)
            except FAILURES as error:
                # A refusal by a server says that nothing was done.
                if not isinstance(error, redis.ResponseError):
                    on_doubt()
                elif not isinstance(error, CHANGING) and not str(error).startswith(PASSING):
                    raise
                if local_time() >= give_up:
                    raise Unreachable(f"{script}: {error}") from error
                if isinstance(error, redis.ReadOnlyError):
                    self._look_again()
                time.sleep(PAUSE)
                continue
            except BaseException:  # Ctrl-C
                on_doubt()
                raise
            reply = Reply.parse(text, sent, local_time())
            if reply.status == "granted" and reply.values[0] != words[2]:
                # The reply to another call: all on that connection may be out of step.
                on_doubt()
                if local_time() >= give_up:
                    raise Unreachable(f"{script}: answered with the grant of another acquisition")
                self._redis.disconnect_connection_pools()
                continue
            if reply.more and script != "grant_waiters":
                self._grant_waiters(key)
            return reply

    def _grant_waiters(self, key):
        """Goes on with what a call left over. If nobody answers, the poll of some waiter does."""
        tag = tag_of(key_slot(key.encode()))
        with suppress(LockError, redis.RedisError):
            while self._call("grant_waiters", key, lambda: (NONE, tag), patience=0).more:
                pass

    def _eval(self, script, key, words):
        # redis-py follows MOVED and ASK, and asks masters alone.
        try:
            return self._redis.evalsha(script.digest, 1, key, *words)
        except redis.exceptions.NoScriptError:
            pass
        # All calls in flight come here after a failover. The first one sends the text.
        with self._loading:
            try:
                return self._redis.evalsha(script.digest, 1, key, *words)
            except redis.exceptions.NoScriptError:
                return self._redis.eval(script.text, 1, key, *words)

    def _look_again(self):
        """The masters are others now. (redis-py looks by itself, but not after READONLY.)"""
        with suppress(*FAILURES):  # the call is repeated all the same
            self._redis.nodes_manager.initialize()

    def _settle_later(self, acquisition):
        thread = threading.Thread(target=acquisition.settle, daemon=True)
        self._settling = [other for other in self._settling if other.is_alive()] + [thread]
        thread.start()


class _Acquisition:
    """One request for a lock and the lease that comes of it, under one id."""

    def __init__(self, client, script, name, lease):
        self.client = client
        self.script = script
        self.key = PREFIX + name
        self.tag = tag_of(key_slot(self.key.encode()))
        self.id = client._name + secrets.token_urlsafe(5)  # 7 characters; never used again
        self.lease = int(lease * 1000)
        self.ticket = None
        self.ahead = 0  # how many wait before it, at most
        self.window = 0  # how long a grant waits for its next call: milliseconds
        self.clock = None  # the server's time, and the local time when it was known
        self.not_after = 0  # of the call that was sent last
        self.doubtful = 0  # until this time of the server, a call may still be carried out
        self.over = 0  # the local time when all that such a call may take has ended by itself

    def wait(self, seconds):
        """A guard, as soon as it is this one's turn."""
        give_up = float("inf") if seconds is None else local_time() + seconds
        began = local_time()
        is_try = seconds == 0
        while True:
            try:
                reply = self._ask(is_try)
            except redis.exceptions.OutOfMemoryError:
                if self.ticket is None or local_time() >= give_up:
                    raise
                time.sleep(self._pause())  # its ticket is still good
                continue
            if reply.status == "granted":
                return Guard(self, reply)
            if reply.status == "queue_full":
                raise NotAcquired(f"{self.key}: too many wait")
            if reply.status == "too_late":
                # The server's clock went on further than this side knew, or another one decides.
                self.clock = None
                if is_try and local_time() - began > self.client.patience:
                    raise NotAcquired(f"{self.key}: every call came too late")
            elif reply.status == "queued":
                self.ticket, self.ahead = reply.values[0], int(reply.values[1])
                if is_try:
                    # Nobody but cached holders is in its way, and they were asked for the lock.
                    is_try, give_up = False, local_time() + TRY
            elif not reply.more or local_time() - began > self.client.patience:
                # busy; or recalling, which is no other thing to a try that may wait
                raise NotAcquired(self.key)
            # Else perhaps only dead readers were in its way, and they are swept away.
            left = give_up - local_time()
            if left <= 0 and not is_try:
                raise NotAcquired(self.key)
            if reply.status == "queued":
                # The first call did not know its place yet.
                time.sleep(min(self._pause(), self.window / 2000, left))

    def _pause(self):
        """Until the next poll: those further back poll less often."""
        return min(self.client.poll * (self.ahead + 1), TIME_TO_LIVE / 3000)

    def end(self, until=float("inf")):
        """Gives back whatever it has. True if it had it until then, or until local time `until`."""
        repeated = False

        def doubt():
            nonlocal repeated
            repeated = True

        try:
            reply = self._call("release", lambda: (NONE, self.id), on_doubt=doubt)
        finally:
            if self.doubtful:
                self.client._settle_later(self)
        # A release that was carried out and not answered leaves nothing for its repetition.
        is_in_time = repeated and reply.answered < until
        return reply.status == "released" or (reply.status == "not_found" and is_in_time)

    def renew(self, token, patience):
        mode = "w" if self.script == "acquire_write" else "r"
        return self._call("renew", lambda: (NONE, self.id, self.lease, mode, token), patience)

    def settle(self):
        """Releases once more, when no call of unknown outcome can come any more."""
        while self.doubtful and local_time() < self.over:
            time.sleep(self.client.poll)
            with suppress(LockError, redis.RedisError):
                self._read_clock()
        with suppress(LockError, redis.RedisError):  # else its lease ends it
            self._call("release", lambda: (NONE, self.id))

    def _ask(self, is_try):
        """An acquire, or the poll of a waiter."""

        def args():
            if self.clock is None:
                self._read_clock()
            now, at = self.clock
            self.not_after = now + int((local_time() - at) * 1000) + LATEST
            flags = "ft" if is_try else "f"
            self.window = max(1000, int(self._pause() * 3000))
            ttl = max(TIME_TO_LIVE, 2 * self.window)
            place = f"{self.window} {ttl} {MOST_WAITERS} {NONE}"
            words = [NONE, self.not_after, self.id, self.lease, flags, 1, self.tag, place]
            if self.ticket:
                words.append(self.ticket)
            return words

        def doubt():
            self.doubtful = max(self.doubtful, self.not_after)
            most = max(self.lease, 2 * TIME_TO_LIVE + self.window)
            self.over = local_time() + (LATEST + most) / 1000

        return self._call(self.script, args, on_doubt=doubt)

    def _read_clock(self):
        """Asks the server that has the lock for its time, by the one call that changes nothing."""
        self._call("holds", lambda: (NONE, self.id))

    def _call(self, script, args, patience=None, on_doubt=lambda: None):
        reply = self.client._call(script, self.key, args, patience, on_doubt)
        if reply.now:  # 0: the script did not look at the clock
            self.clock = (reply.now, reply.answered)
            if reply.now > self.doubtful:
                self.doubtful = 0
        return reply


class Guard:
    """A lock that is held, and renewed by a thread. Its end, or `release`, gives it back."""

    def __init__(self, acquisition, granted):
        self._acquisition = acquisition
        self._ended = threading.Event()
        self._lost = False
        self.token = int(granted.values[1])  # behind the id
        self._until = self._bound(granted, int(granted.values[2]))
        if not self.is_held:
            raise Lost(f"{acquisition.key}: granted too late")
        threading.Thread(target=self._keep, daemon=True).start()

    @property
    def is_held(self):
        """Whether the server's clock cannot have reached the end of the lease."""
        return not self._lost and local_time() < self._until

    def check(self):
        """Raises `Lost` if the lock may be somebody else's. A store compares `token` besides."""
        if not self.is_held:
            raise Lost(self._acquisition.key)

    def release(self):
        """Raises `Lost` if the lock may have been somebody else's meanwhile."""
        if self._ended.is_set():
            return
        self._ended.set()
        was_held = self.is_held
        if not self._acquisition.end(self._until) or not was_held:
            raise Lost(self._acquisition.key)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.release()

    def _bound(self, reply, deadline):
        # The server's clock may have been almost 1 ms further than it said. A tenth of the lease is
        # for another server's clock, which decides after a failover.
        left = deadline - reply.now - 1 - self._acquisition.lease / 10
        return reply.sent + left / 1000

    def _keep(self):
        """Renews until the release, or until the lease has ended."""
        pause = self._acquisition.lease / 3000
        while not self._ended.wait(pause):
            left = self._until - local_time()
            if left <= 0:
                break
            try:
                reply = self._acquisition.renew(self.token, left)
            except (LockError, redis.RedisError):
                continue
            if reply.status == "not_held":
                break
            if reply.status == "other":
                # Another lease of this acquisition, which nobody uses: the lock was lost between.
                self._lost = True
                with suppress(LockError, redis.RedisError):  # else its lease ends it
                    self._acquisition.end()
                return
            # Where it is `revoked`, this is its last.
            self._until = self._bound(reply, int(reply.values[1]))
        # A release that is under way has taken the lease away by itself.
        self._lost = self._lost or not self._ended.is_set()
