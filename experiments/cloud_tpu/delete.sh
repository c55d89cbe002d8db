#!/usr/bin/env bash
# Deletes the machine with everything on it. Fetch first.
#   TPU_NAME=specdec ZONE=us-central2-b PROJECT=mine experiments/cloud_tpu/delete.sh [--dry_run]
. "$(dirname "$0")/common.sh"
tpu delete --quiet
