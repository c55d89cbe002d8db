#!/usr/bin/env bash
# Puts a fetched workdir back on the first worker, so that a new machine goes on
# where the old one was when it was fetched.
#   TPU_NAME=specdec ZONE=us-central2-b PROJECT=mine RESULTS=results experiments/cloud_tpu/put.sh [--dry_run]
. "$(dirname "$0")/common.sh"
need RESULTS 'the local folder that fetch.sh wrote'
tpu ssh --worker=0 --command="mkdir -p $FOLDER/runs"
copy 0 "$RESULTS/tpu" "$TPU_NAME:$FOLDER/runs/"
