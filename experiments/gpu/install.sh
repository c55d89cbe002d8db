#!/usr/bin/env bash
# Copies this repository (its last commit) to every GPU host and installs it.
# HOSTS are names that ssh knows, the first one writes.
#   HOSTS='gpu0 gpu1' experiments/gpu/install.sh [--dry_run]
. "$(dirname "$0")/common.sh"
archive=${TMPDIR:-/tmp}/specdec_jax.tar.gz
pack "$archive"
for host in $HOSTS; do
  step scp -q "$archive" "$host:specdec_jax.tar.gz"
  step ssh "$host" "$(unpack cuda)"
done
