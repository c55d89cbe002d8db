#!/usr/bin/env bash
# The whole ladder: corpus, target, its translations, drafts, tables, assets.
#
#     experiments/ladder/train_all.sh runs
#
# Works in RUNS/corpus, RUNS/ladder/MODEL and RUNS/taught. Every step that is
# done is skipped and one that was killed goes on, so run it again until it ends.
# Needs Debian 12 with apt for the corpus, or a RUNS/corpus from elsewhere.
# Two cores: about five hours. An accelerator, with larger batches:
#
#     BATCH_TOKENS=16384 TEACH_BATCH=512 TARGET_STEPS=6000 \
#       experiments/ladder/train_all.sh runs
#
# Anything in TARGET_FLAGS and DRAFT_FLAGS goes to the trainer as it stands, as
# in DRAFT_FLAGS='--config.distill_loss=total_variation'. SHIP=0 leaves the
# package as it is: the models stay in RUNS/ladder/MODEL/model, float32, in
# files that may be over 16 MB; what ships is bfloat16 and under it.
set -euo pipefail

runs=${1:?usage: train_all.sh RUNS}
corpus=$runs/corpus ladder=$runs/ladder taught=$runs/taught
target_steps=${TARGET_STEPS:-9000}
draft_steps=${DRAFT_STEPS:-6000}
batch_tokens=${BATCH_TOKENS:-768}
teach_batch=${TEACH_BATCH:-32}
python=${PYTHON:-python}

# train MODEL STEPS CONFIG-ARGUMENTS FLAGS...
train() {
  local model=$1 steps=$2 arguments=$3
  shift 3
  echo "== train $model"
  "$python" -m specdec_jax.train \
    --config="configs/ladder.py:$model,corpus=$corpus$arguments" \
    --workdir="$ladder/$model" --config.steps="$steps" \
    --config.decay_steps=$((steps / 2)) --config.warmup_steps=$((steps / 20)) \
    --config.batch_tokens="$batch_tokens" "$@"
}

# The vocabulary comes last, and all at once; until then its file is empty.
if [ ! -s "$corpus/sentencepiece.model" ]; then
  echo '== corpus'
  "$python" -m experiments.ladder.corpus --output="$corpus"
fi

if [ ! -d "$ladder/target/model" ]; then
  # shellcheck disable=SC2086  # flags are words
  train target "$target_steps" '' ${TARGET_FLAGS:-}
fi

for part in validation train; do
  for domain in help packages; do
    file=$domain.$part.tsv
    if [ ! -e "$taught/$file" ]; then
      echo "== teach $file"
      "$python" -m experiments.ladder.teach --teacher="$ladder/target/model" \
        --data="tsv:$corpus/$file" --output="$taught/$file" \
        --batch_size="$teach_batch"
    fi
  done
done

for model in small base large; do
  if [ ! -d "$ladder/$model/model" ]; then
    # shellcheck disable=SC2086
    train "$model" "$draft_steps" \
      ",taught=$taught,teacher=$ladder/target/model" ${DRAFT_FLAGS:-}
  fi
done

if [ "${SHIP:-1}" = 1 ]; then
  echo '== tables'
  "$python" -m experiments.ladder.ngrams --corpus="$corpus" \
    --taught="$taught" --output=specdec_jax/assets/ende_mini
  echo '== ship'
  "$python" -m experiments.ladder.ship --corpus="$corpus" --ladder="$ladder"
fi
