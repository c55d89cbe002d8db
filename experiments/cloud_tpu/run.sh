#!/usr/bin/env bash
# Runs the job on all workers; after a preemption create, install and run again:
# with the workdir put back (put.sh) it goes on where it stopped. CONFIG is a
# config with its variant, FLAGS what comes after it.
#   TPU_NAME=specdec ZONE=us-central2-b PROJECT=mine CONFIG=configs/ende.py:mini \
#     FLAGS='--config.dtype=bfloat16' experiments/cloud_tpu/run.sh [--dry_run]
. "$(dirname "$0")/common.sh"
need CONFIG 'for example configs/ende.py:mini'
tpu ssh --worker=all --command="cd $FOLDER && .venv/bin/python -m \
specdec_jax.main --config=$CONFIG --workdir=runs/tpu --distributed ${FLAGS:-}"
