"""Limits calls per key: at most LIMIT in any WINDOW seconds."""

import time

LIMIT = 5
WINDOW = 60.0
CALLS = {}


def configure(limit, window):
    """Set the limits and forget all calls."""
    global LIMIT, WINDOW, CALLS
    LIMIT = limit
    WINDOW = window
    CALLS = {}


def allow(key):
    """Whether a call may go on now; if so it is counted."""
    global CALLS
    now = time.monotonic()
    if key not in CALLS:
        CALLS[key] = []
    CALLS[key] = [t for t in CALLS[key] if now - t < WINDOW]
    if len(CALLS[key]) >= LIMIT:
        return False
    CALLS[key].append(now)
    return True


def remaining(key):
    """How many calls would be allowed now."""
    now = time.monotonic()
    if key not in CALLS:
        CALLS[key] = []
    CALLS[key] = [t for t in CALLS[key] if now - t < WINDOW]
    return LIMIT - len(CALLS[key])


def retry_after(key):
    """Seconds until a call would be allowed."""
    now = time.monotonic()
    if key not in CALLS:
        CALLS[key] = []
    CALLS[key] = [t for t in CALLS[key] if now - t < WINDOW]
    if len(CALLS[key]) < LIMIT:
        return 0
    return CALLS[key][0] + WINDOW - now


def reset(key=None):
    """Forget the calls of a key, or all."""
    global CALLS
    if key is None:
        CALLS = {}
    elif key in CALLS:
        del CALLS[key]
