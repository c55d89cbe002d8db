#!/usr/bin/env bash
# Fetches the workdir, which the first worker writes. At any time.
#   TPU_NAME=specdec ZONE=us-central2-b PROJECT=mine RESULTS=results experiments/cloud_tpu/fetch.sh [--dry_run]
. "$(dirname "$0")/common.sh"
need RESULTS 'a local folder'
step mkdir -p "$RESULTS"
copy 0 "$TPU_NAME:$FOLDER/runs/tpu" "$RESULTS/"
