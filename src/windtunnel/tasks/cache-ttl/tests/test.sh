#!/bin/sh
# The verifier's command. Isolated (-I) and without site (-S): nothing the agent planted is imported by the runner.
cd / || exit 1
exec python3 -I -S -B "${WINDTUNNEL_TESTS:-/tests}/run.py"
