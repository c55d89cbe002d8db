#!/usr/bin/env bash
# Runs the job on every host; killed or lost, it goes on when run again.
#   HOSTS='gpu0 gpu1' CONFIG=configs/ende.py:mini FLAGS='' experiments/gpu/run.sh [--dry_run]
. "$(dirname "$0")/common.sh"
need CONFIG 'for example configs/ende.py:mini'
read -r -a hosts <<< "$HOSTS"
joined=
pids=()
for i in "${!hosts[@]}"; do
  if (( ${#hosts[@]} > 1 )); then
    joined="--coordinator=${hosts[0]}:$PORT --processes=${#hosts[@]} --process_index=$i"
  fi
  command="cd $FOLDER && .venv/bin/python -m specdec_jax.main \
--config=$CONFIG --workdir=runs/gpu $joined ${FLAGS:-}"
  if $dry_run; then step ssh "${hosts[i]}" "$command"
  else ssh "${hosts[i]}" "$command" & pids+=("$!"); fi
done
for pid in "${pids[@]}"; do wait "$pid"; done
