#!/usr/bin/env bash
# Fetches the workdir, which the first host writes. At any time.
#   HOSTS='gpu0 gpu1' RESULTS=results experiments/gpu/fetch.sh [--dry_run]
. "$(dirname "$0")/common.sh"
need RESULTS 'a local folder'
step mkdir -p "$RESULTS"
step scp -q -r "${HOSTS%% *}:$FOLDER/runs/gpu" "$RESULTS/"
