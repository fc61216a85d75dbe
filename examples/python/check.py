"""Checks of the client that need no server: python3 check.py."""

import itertools
import threading
import unittest
from unittest import mock

import redis
import rwlease

NOW = 1_700_000_000_000
HOLDS = f"not_held {NOW} 0 further words"
RELEASED = "released 0 0 further words"
# Stands for the id of the acquisition that made the call.
CALLER = "<caller>"


class Answers:
    """Stands for a cluster: answers calls with these texts, and keeps what they asked."""

    def __init__(self, *texts):
        self.texts = list(texts)
        self.calls = []
        self.disconnects = 0

    def evalsha(self, name, _, key, *words):
        self.calls.append((name, key, *words))
        text = self.texts.pop(0) if self.texts else redis.ResponseError("no answer")
        if isinstance(text, Exception):
            raise text
        return text.replace(CALLER, str(words[2]) if len(words) > 2 else "")

    def disconnect_connection_pools(self):
        self.disconnects += 1

    def of(self, name):
        return [call for call in self.calls if call[0] == name]

    def names(self):
        return [call[0] for call in self.calls]


def client(*texts):
    answers = Answers(*texts)
    # A script's name does for its digest.
    scripts = {name: rwlease.Script("", name) for name in rwlease.SCRIPTS}
    return rwlease.Client(answers, scripts, poll=0.001), answers


def granted(token=7, caller=CALLER):
    return f"granted {NOW} 0 {caller} {token} {NOW + 30_000} further words"


class Replies(unittest.TestCase):
    def test_further_words_are_ignored(self):
        locks, answers = client(HOLDS, granted(), RELEASED)
        with locks.write("a") as guard:
            self.assertEqual(guard.token, 7)
            self.assertTrue(guard.is_held)
        self.assertEqual(answers.names(), ["holds", "acquire_write", "release"])

    def test_a_grant_of_another_acquisition_is_no_answer(self):
        locks, answers = client(HOLDS, granted(caller="another"), granted(token=8), RELEASED)
        with locks.write("a") as guard:
            self.assertEqual(guard.token, 8)
        self.assertEqual(answers.names()[1:3], ["acquire_write", "acquire_write"])
        self.assertEqual(answers.disconnects, 1, "the replies are out of step")

    def test_a_waiter_polls_with_its_ticket_and_id(self):
        queued = f"queued {NOW} 0 12 3 {NOW + 9_000} further words"
        locks, answers = client(HOLDS, queued, granted(), RELEASED)
        locks.read("a", wait=5).release()
        first, second = (call for call in answers.calls if call[0] == "acquire_read")
        self.assertEqual(second[4], first[4], "the id")
        self.assertEqual(second[-1], "12")
        self.assertEqual(len(second), len(first) + 1)

    def test_a_poll_falls_into_the_window_that_the_last_call_gave(self):
        queued = f"queued {NOW} 0 12 11 {NOW + 9_000} further words"
        locks, answers = client(HOLDS, queued, queued, granted(), RELEASED)
        locks.poll = 0.25
        # Threads of other tests' locks may sleep at the same time.
        pauses, own_thread = [], threading.get_ident()
        def record(seconds):
            if threading.get_ident() == own_thread:
                pauses.append(seconds * 1000)
        with mock.patch("time.sleep", side_effect=record):
            locks.read("a", wait=60).release()
        places = [call[-2 if at else -1] for at, call in enumerate(answers.of("acquire_read"))]
        windows, times_to_live = zip(*(map(int, place.split(" ")[:2]) for place in places))
        for pause, window in zip(pauses, windows):
            self.assertLessEqual(2 * pause, window)
        self.assertGreater(pauses[1], 2_900, "it is far behind")
        for window, time_to_live in zip(windows, times_to_live):
            self.assertLessEqual(2 * window, time_to_live)

    def test_a_try_that_only_the_dead_are_in_the_way_of_is_repeated(self):
        refused = f"busy {NOW} 1 {NOW + 9_000} further words"
        locks, answers = client(HOLDS, refused, f"done {NOW} 0", granted(), RELEASED)
        locks.write("a", wait=0).release()
        self.assertEqual(answers.names()[1:4], ["acquire_write", "grant_waiters", "acquire_write"])

    def test_a_waiter_keeps_its_place_while_the_memory_is_full(self):
        queued = f"queued {NOW} 0 12 3 {NOW + 9_000} further words"
        full = redis.exceptions.OutOfMemoryError("command not allowed")
        locks, answers = client(HOLDS, queued, full, granted(), RELEASED)
        locks.read("a", wait=5).release()
        self.assertEqual(answers.calls[-2][-1], "12")
        locks, _ = client(HOLDS, full, RELEASED)
        with self.assertRaises(redis.exceptions.OutOfMemoryError):
            locks.read("a", wait=5)

    def test_a_refusal_that_passes_is_repeated(self):
        busy = redis.ResponseError("BUSY Redis is busy running a script")
        locks, _ = client(HOLDS, busy, granted(), RELEASED)
        locks.write("a").release()

    def test_a_release_that_finds_nothing_after_the_bound_says_so(self):
        nothing = f"not_found {NOW + 60_000} 0"
        for late, is_lost in [(0, False), (40, True)]:
            locks, _ = client(HOLDS, granted(), redis.ConnectionError(), nothing, nothing)
            guard = locks.write("a")
            began, sleep = rwlease.local_time(), mock.Mock()
            later = lambda: began + (late if sleep.called else 0)
            with mock.patch("rwlease.local_time", later), mock.patch("time.sleep", sleep):
                if is_lost:
                    self.assertRaises(rwlease.Lost, guard.release)
                else:
                    guard.release()

    def test_settling_ends_where_no_clock_goes_on(self):
        locks, _ = client()
        acquisition = rwlease._Acquisition(locks, "acquire_read", "a", 30)
        acquisition.doubtful = 1
        acquisition.over = rwlease.local_time() + 100
        clock = itertools.count(int(rwlease.local_time()), 10)
        with mock.patch("rwlease.local_time", lambda: next(clock)), mock.patch("time.sleep"):
            acquisition.settle()  # the calls fail: there are no answers
        self.assertEqual(acquisition.doubtful, 1)

    def test_a_try_is_refused(self):
        for status in ("busy", "recalling"):
            refused = f"{status} {NOW} 0 {NOW + 9_000} further words"
            locks, answers = client(HOLDS, refused, f"not_found {NOW} 0")
            with self.assertRaises(rwlease.NotAcquired):
                locks.write("a", wait=0)
            self.assertEqual(len(answers.calls[1]), 10, "two, and the eight arguments of a try")
            self.assertEqual(answers.calls[1][6], "ft")

    def test_a_try_waits_for_one_who_may_not_be_using_the_lock(self):
        queued = f"queued {NOW} 0 12 0 {NOW + 9_000}"
        locks, answers = client(HOLDS, queued, granted(), RELEASED)
        locks.write("a", wait=0).release()
        _, poll = (call for call in answers.calls if call[0] == "acquire_write")
        self.assertEqual((poll[6], poll[-1]), ("f", "12"), "a waiter as any")

    def test_a_queued_try_leaves(self):
        queued = f"queued {NOW} 0 12 0 {NOW + 9_000}"
        locks, answers = client(HOLDS, *[queued] * 10_000)
        evalsha = answers.evalsha
        left = f"left_queue {NOW} 0"
        answers.evalsha = lambda name, *rest: left if name == "release" else evalsha(name, *rest)
        with self.assertRaises(rwlease.NotAcquired):
            locks.write("a", wait=0)
        self.assertGreater(answers.names().count("acquire_write"), 1)

    def test_more_is_granted(self):
        more, no_more = f"done {NOW} 1", f"done {NOW} 0"
        locks, answers = client(
            HOLDS, f"granted {NOW} 1 {CALLER} 7 {NOW + 30_000}", more, no_more, RELEASED
        )
        locks.write("a").release()
        granting = ["grant_waiters", "grant_waiters"]
        self.assertEqual(answers.names()[1:], ["acquire_write", *granting, "release"])
        self.assertEqual(answers.calls[2][3], answers.calls[1][8], "the tag of the slot")

    def test_a_late_call_is_repeated_with_a_new_time(self):
        later = NOW + 60_000
        locks, answers = client(
            HOLDS, f"too_late {later} 0", f"not_found {later} 0", granted(), RELEASED
        )
        locks.write("a").release()
        first, second = (call for call in answers.calls if call[0] == "acquire_write")
        self.assertGreaterEqual(second[3] - first[3], 60_000)
        self.assertEqual(second[4], first[4], "the id")

    def test_a_call_in_doubt_is_released_again_when_it_cannot_come_any_more(self):
        later = NOW + 60_000
        locks, answers = client(
            HOLDS,
            rwlease.redis.ConnectionError("it was sent"),
            granted(),
            RELEASED,
            HOLDS,
            f"not_found {later} 0",
            f"not_found {later} 0",
        )
        locks.write("a").release()
        locks.close()
        self.assertEqual(answers.names()[3:], ["release", "holds", "holds", "release"])

    def test_a_repeated_release_may_find_nothing(self):
        gone = f"not_found {NOW} 0"
        locks, _ = client(HOLDS, granted(), rwlease.redis.ConnectionError("it was sent"), gone)
        locks.write("a").release()
        locks, _ = client(HOLDS, granted(), gone)
        guard = locks.write("a")
        with self.assertRaises(rwlease.Lost):
            guard.release()


class Nodes:
    """Stands for the nodes that redis-py has read from the map: those that have slots."""

    def __init__(self):
        self.nodes_cache = {}

    def get_node(self, host=None, port=None, node_name=None):
        return self.nodes_cache.get(node_name)


class Redirects(unittest.TestCase):
    def test_ask_may_name_a_server_that_has_no_slot_yet(self):
        cluster = object.__new__(rwlease.Cluster)
        cluster.nodes_manager = Nodes()
        node = cluster.get_node(node_name="10.0.0.9:7003")
        self.assertEqual((node.host, node.port), ("10.0.0.9", 7003))
        self.assertIs(cluster.get_node(node_name="10.0.0.9:7003"), node)


if __name__ == "__main__":
    unittest.main()
