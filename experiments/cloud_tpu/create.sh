#!/usr/bin/env bash
# Creates a TPU machine. SPOT=1 asks for one that may be taken away.
#   TPU_NAME=specdec ZONE=us-central2-b PROJECT=mine experiments/cloud_tpu/create.sh [--dry_run]
. "$(dirname "$0")/common.sh"
tpu create --accelerator-type="$ACCELERATOR" --version="$RUNTIME" ${SPOT:+--spot}
