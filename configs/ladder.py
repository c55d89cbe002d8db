"""The built-in English-German ladder: one target, three drafts.

    python -m specdec_jax.train --config=configs/ladder.py:small,corpus=DIR \\
        --workdir=runs/ladder/small

Arguments: the model (`target`, `large`, `base`, `small`), then
* `corpus=DIR`, the folder that `experiments.ladder.corpus` wrote,
* `taught=DIR`, the folder that `experiments.ladder.teach` wrote: the teacher's
  own translations are trained on as well, and validated on alone, so that the
  validation accuracy is the rate at which the teacher accepts greedy drafts,
* `teacher=DIR`, a model folder: the loss is also the distance to its law.
"""

import ml_collections

# Widths cost bandwidth and decoder layers cost latency at every step; encoder
# layers cost once a sentence. So drafts are narrow and shallow in the decoder.
MODELS = {
    'target': dict(d_model=384, d_ff=896, num_heads=6, head_dim=64,
                   encoder_layers=3, decoder_layers=4),
    'large': dict(d_model=192, d_ff=512, num_heads=6, head_dim=32,
                  encoder_layers=4, decoder_layers=3),
    'base': dict(d_model=128, d_ff=384, num_heads=4, head_dim=32,
                 encoder_layers=4, decoder_layers=2),
    'small': dict(d_model=96, d_ff=256, num_heads=3, head_dim=32,
                  encoder_layers=3, decoder_layers=1),
}
# Narrow models do not learn a few epochs of text by heart: no dropout.
TRAINING = {
    'target': dict(learning_rate=0.02, dropout_rate=0.1),
    'large': dict(learning_rate=0.02, dropout_rate=0.0),
    'base': dict(learning_rate=0.02, dropout_rate=0.0),
    'small': dict(learning_rate=0.02, dropout_rate=0.0),
}
DOMAINS = ('help', 'packages')


def get_config(arg: str = 'small') -> ml_collections.ConfigDict:
  name, *pairs = arg.split(',')
  options = dict(pair.split('=', 1) for pair in pairs)
  corpus = options.pop('corpus', 'runs/corpus')
  taught = options.pop('taught', '')
  teacher = options.pop('teacher', '')
  if name not in MODELS or options:
    raise ValueError(
        f'{arg!r}: allowed are one of {", ".join(MODELS)}, corpus=DIR, '
        'taught=DIR and teacher=DIR')

  def data(part: str, *folders: str) -> list[str]:
    return [f'tsv:{folder}/{domain}.{part}.tsv'
            for folder in folders if folder for domain in DOMAINS]
  config = ml_collections.ConfigDict(dict(
      model=dict(MODELS[name], vocab_size=4096, gated=True, tied=True),
      vocabulary=f'{corpus}/sentencepiece.model',
      train_data=data('train', corpus, taught),
      validation_data=data('validation', taught or corpus),
      init='',
      seed=0,
      buckets=(16, 32, 48, 64, 96),
      batch_tokens=768,
      steps=4800,
      warmup_steps=500,
      decay_steps=1500,
      adam_b2=0.98,
      min_param_rms=1e-3,
      clip_norm=1.0,
      label_smoothing=0.0,
      ema_decay=0.0,
      teacher=teacher,
      distill_loss='forward_kl',
      distill_weight=0.5,
      distill_temperature=1.0,
      patience=0,
      log_every=50,
      eval_every=400,
      checkpoint_every=200,
      keep_every=0,
      **TRAINING[name],
  ))
  return config.lock()
