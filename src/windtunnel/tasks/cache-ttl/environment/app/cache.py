"""A least-recently-used cache."""

from collections import OrderedDict


class Cache:
    """Holds at most `capacity` entries; the least recently used one makes room."""

    def __init__(self, capacity):
        if capacity < 1:
            raise ValueError("capacity must be at least 1")
        self._capacity = capacity
        self._entries = OrderedDict()

    def get(self, key, default=None):
        if key not in self._entries:
            return default
        self._entries.move_to_end(key)
        return self._entries[key]

    def put(self, key, value):
        self._entries[key] = value
        self._entries.move_to_end(key)
        if len(self._entries) > self._capacity:
            self._entries.popitem(last=False)

    def delete(self, key):
        """Whether there was something to delete."""
        return self._entries.pop(key, self) is not self

    def __contains__(self, key):
        return key in self._entries

    def __len__(self):
        return len(self._entries)
