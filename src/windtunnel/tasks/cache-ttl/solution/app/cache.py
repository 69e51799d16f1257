"""A least-recently-used cache whose entries may expire."""

import time
from collections import OrderedDict

_DEFAULT = object()


class Cache:
    """Holds at most `capacity` live entries; expired ones make room first, then the least recently used one."""

    def __init__(self, capacity, ttl=None, clock=time.monotonic):
        if capacity < 1:
            raise ValueError("capacity must be at least 1")
        self._capacity = capacity
        self._clock = clock
        self._entries = OrderedDict()  # key -> (value, deadline or None)
        self._counts = {"hits": 0, "misses": 0, "evicted": 0, "expired": 0}
        self._ttl = None
        self._ttl = self._checked(ttl)

    def get(self, key, default=None):
        if not self._alive(key):
            self._counts["misses"] += 1
            return default
        self._counts["hits"] += 1
        self._entries.move_to_end(key)
        return self._entries[key][0]

    def put(self, key, value, ttl=_DEFAULT):
        deadline = self._deadline(ttl)
        if not self._alive(key) and len(self._entries) >= self._capacity:
            self._purge()
            if len(self._entries) >= self._capacity:
                self._entries.popitem(last=False)
                self._counts["evicted"] += 1
        self._entries[key] = (value, deadline)
        self._entries.move_to_end(key)

    def touch(self, key, ttl=_DEFAULT):
        """Give a live entry a new time to live; False when there is none."""
        deadline = self._deadline(ttl)
        if not self._alive(key):
            return False
        self._entries[key] = (self._entries[key][0], deadline)
        self._entries.move_to_end(key)
        return True

    def delete(self, key):
        """Whether there was something to delete."""
        return self._alive(key) and self._entries.pop(key) is not None

    def stats(self):
        self._purge()
        return dict(self._counts)

    def __contains__(self, key):
        return self._alive(key)

    def __len__(self):
        self._purge()
        return len(self._entries)

    def _checked(self, ttl):
        if ttl is _DEFAULT:
            return self._ttl
        if ttl is not None and not ttl > 0:
            raise ValueError("a time to live must be above 0")
        return ttl

    def _deadline(self, ttl):
        ttl = self._checked(ttl)
        return None if ttl is None else self._clock() + ttl

    def _alive(self, key):
        """Whether there is a live entry; an expired one is removed and counted."""
        if key not in self._entries:
            return False
        deadline = self._entries[key][1]
        if deadline is None or self._clock() < deadline:
            return True
        del self._entries[key]
        self._counts["expired"] += 1
        return False

    def _purge(self):
        for key in list(self._entries):
            self._alive(key)
