#!/usr/bin/env bash
# Copies this repository (its last commit) to all workers and installs it there.
#   TPU_NAME=specdec ZONE=us-central2-b PROJECT=mine experiments/cloud_tpu/install.sh [--dry_run]
. "$(dirname "$0")/common.sh"
archive=${TMPDIR:-/tmp}/specdec_jax.tar.gz
pack "$archive"
copy all "$archive" "$TPU_NAME:specdec_jax.tar.gz"
tpu ssh --worker=all --command="$(unpack tpu)"
