#!/bin/sh
# The reference solution: its files over those of the app.
set -eu
APP="${WINDTUNNEL_WORKDIR:-/app}"
HERE="$(cd "$(dirname "$0")" && pwd)"
cp -R "$HERE/app/." "$APP/"
