"""Limits calls per key: at most so many in any window of seconds."""

import time
from collections import deque


class Limiter:
    """Sliding windows, one a key. Holds only calls that are inside the window."""

    def __init__(self, limit, window, clock=time.monotonic):
        if limit < 1:
            raise ValueError("limit must be at least 1")
        if not window > 0:
            raise ValueError("window must be above 0")
        self._limit = limit
        self._window = window
        self._clock = clock
        self._calls = {}

    def allow(self, key):
        """Whether a call may go on now; if so it is counted."""
        now = self._clock()
        self._forget(now)
        calls = self._calls.get(key, ())
        if len(calls) >= self._limit:
            return False
        self._calls.setdefault(key, deque()).append(now)
        return True

    def remaining(self, key):
        """How many calls would be allowed now."""
        return self._limit - len(self._inside(key, self._clock()))

    def retry_after(self, key):
        """Seconds until a call would be allowed."""
        now = self._clock()
        calls = self._inside(key, now)
        return 0 if len(calls) < self._limit else calls[0] + self._window - now

    def reset(self, key=None):
        """Forget the calls of a key, or all."""
        if key is None:
            self._calls.clear()
        else:
            self._calls.pop(key, None)

    def __len__(self):
        self._forget(self._clock())
        return len(self._calls)

    def _inside(self, key, now):
        return [moment for moment in self._calls.get(key, ()) if now - moment < self._window]

    def _forget(self, now):
        for key in list(self._calls):
            inside = self._inside(key, now)
            if inside:
                self._calls[key] = deque(inside)
            else:
                del self._calls[key]


_shared = [Limiter(5, 60.0)]


def configure(limit, window):
    """Set the limits and forget all calls."""
    _shared[0] = Limiter(limit, window, clock=lambda: time.monotonic())


def allow(key):
    """Whether a call may go on now; if so it is counted."""
    return _shared[0].allow(key)


def remaining(key):
    """How many calls would be allowed now."""
    return _shared[0].remaining(key)


def retry_after(key):
    """Seconds until a call would be allowed."""
    return _shared[0].retry_after(key)


def reset(key=None):
    """Forget the calls of a key, or all."""
    _shared[0].reset(key)
