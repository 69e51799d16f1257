"""A caller of the limiter."""

import limiter

limiter.configure(2, 60.0)


def handle(user, text):
    """Shout back, but not too often."""
    if not limiter.allow(user):
        return f"{user}: wait"
    return f"{user}: {text.upper()} ({limiter.remaining(user)} left)"
