#!/usr/bin/env bash
# All checks and benches of a GPU in less than 500 s: benches/on_gpu.sh [OUT] [--small] [--only STEP]; see on_gpu.py.
set -euo pipefail
exec python "$(dirname "$0")/on_gpu.py" "$@"
