"""Records to settings: alpha, c, tokens per round, factors with their spread.

Every figure comes from the rows of `examples.jsonl` and `costs.jsonl` by the
formulas written here; one that has nothing to rest on is None. Runs anywhere:
no jax.
"""

from collections.abc import Iterable, Sequence
import math
from typing import Any

import numpy as np
from rouge_score import rouge_scorer
import sacrebleu

from specdec_jax import theory

Row = dict[str, Any]

_ROUGE = ('rouge1', 'rouge2', 'rougeLsum')


def ratio(over: float, under: float) -> float | None:
  """over / under, None where there is nothing to divide by."""
  return over / under if under else None


def total(rows: Iterable[Row], name: str) -> float:
  return sum(row[name] for row in rows)


def speedup(plain: Sequence[Row], other: Sequence[Row], *names: str):
  """Total plain seconds over total other seconds: never a mean of ratios.

  Example: two sentences of 1.0 s plain that take 0.5 s and 2.0 s give 0.8.
  """
  return ratio(sum(total(plain, n) for n in names),
               sum(total(other, n) for n in names))


def spread(plain: Sequence[Row], other: Sequence[Row]):
  """Smallest and largest `speedup` of a single repeat; None for one repeat."""
  repeats = sorted({row['repeat'] for row in plain})
  if len(repeats) < 2:
    return None, None
  ratios = [
      speedup([r for r in plain if r['repeat'] == k],
              [r for r in other if r['repeat'] == k], 'decoder_seconds')
      for k in repeats]
  known = [r for r in ratios if r is not None]
  return (min(known), max(known)) if known else (None, None)


def alpha(plain: Sequence[Row]) -> tuple[float | None, float | None]:
  """Mean of sum min(p, q) over the target's tokens, and its standard error.

  Tokens of one sentence are not independent, so the error is that of a ratio
  of sums over sentences.
  """
  betas = [row['beta'] for row in plain if row.get('beta')]
  tokens = sum(map(len, betas))
  if not tokens:
    return None, None
  mean = sum(map(math.fsum, betas)) / tokens
  n = len(betas)
  if n < 2:
    return mean, None
  errors = [math.fsum(b) - mean * len(b) for b in betas]
  variance = math.fsum(e * e for e in errors) * n / (n - 1)
  return mean, math.sqrt(variance) / tokens


def acceptance_by_position(rows: Sequence[Row], gamma: int):
  """For each place in the block: accepted over drafted there (or None)."""
  drafted, accepted = np.zeros(gamma, int), np.zeros(gamma, int)
  for row in rows:
    for d, a in zip(row['drafted'], row['accepted'], strict=True):
      drafted[:d] += 1
      accepted[:a] += 1
  return [ratio(int(a), int(d))
          for a, d in zip(accepted, drafted, strict=True)]


def _check_texts(hypotheses: Sequence[Any], references: Sequence[Any]) -> None:
  """Two lists of as many texts: a list of one-line lists is not a corpus."""
  for name, side in (('hypotheses', hypotheses), ('references', references)):
    if isinstance(side, str) or not all(isinstance(x, str) for x in side):
      raise ValueError(f'{name}: allowed is a list of texts')
  if len(hypotheses) != len(references) or not hypotheses:
    raise ValueError(
        f'{len(hypotheses)} hypotheses and {len(references)} references: '
        'allowed are as many of both, at least one')


def bleu(
    hypotheses: Sequence[Any], references: Sequence[Any]
) -> dict[str, float]:
  """sacrebleu's corpus BLEU, 0 to 100.

  Raises:
    ValueError: unless both are lists of as many texts.
  """
  _check_texts(hypotheses, references)
  score = sacrebleu.corpus_bleu(list(hypotheses), [list(references)]).score
  return {'bleu': score}


def rouge(
    hypotheses: Sequence[Any], references: Sequence[Any]
) -> dict[str, float]:
  """Mean F-measures of ROUGE-1, -2 and -Lsum (stemmed), 0 to 100.

  Raises:
    ValueError: unless both are lists of as many texts.
  """
  _check_texts(hypotheses, references)
  scorer = rouge_scorer.RougeScorer(_ROUGE, use_stemmer=True)
  scores = [scorer.score(reference, hypothesis) for hypothesis, reference
            in zip(hypotheses, references, strict=True)]
  return {kind: 100 * math.fsum(score[kind].fmeasure for score in scores)
                / len(scores) for kind in _ROUGE}


_SCORERS = {'bleu': bleu, 'rouge': rouge}
_SCORE_KEYS = {'bleu': ('bleu',), 'rouge': _ROUGE}


def text_scores(
    plain: Sequence[Row], other: Sequence[Row], scores: Sequence[str]
) -> dict[str, float | None]:
  """`NAME` and `NAME_plain` of each score; None without references."""
  found: dict[str, float | None] = {}
  for suffix, rows in (('', other), ('_plain', plain)):
    texts = [row['text'] for row in rows]
    references = [row['reference'] for row in rows]
    for score in scores:
      known = rows and None not in references
      values = _SCORERS[score](texts, references) if known else {}
      found |= {name + suffix: values.get(name)
                for name in _SCORE_KEYS[score]}
  return found


def identical(plain: Sequence[Row], other: Sequence[Row]) -> int:
  """Sentences whose ids equal plain ones in every repeat."""
  ids = {(r['index'], r['repeat']): r['ids'] for r in plain}
  differing = {r['index'] for r in other
               if ids.get((r['index'], r['repeat'])) != r['ids']}
  return len({r['index'] for r in other} - differing)


def setting(
    plain: Sequence[Row], other: Sequence[Row], cost: Row | None,
    scores: Sequence[str] = ('bleu',)
) -> Row:
  """One line of `settings.jsonl`.

  Args:
    plain, other: rows of plain and speculative decoding of the same sentences.
    cost: the line of `costs.jsonl` for this draft and temperature, if any.
    scores: which scores of the text (see `config`).
  """
  first = [row for row in other if row['repeat'] == 0]
  plain_first = [row for row in plain if row['repeat'] == 0]
  head = other[0]
  gamma, greedy = head['gamma'], head['greedy']
  fixed = isinstance(gamma, int)  # and not chosen round by round
  widest = gamma if fixed else max(
      (d for row in first for d in row['drafted']), default=0)
  tokens = total(first, 'output_length')
  rounds = total(first, 'rounds')
  mean_alpha, alpha_se = alpha(plain_first)
  if head.get('synthetic') is not None:
    mean_alpha, alpha_se = head['synthetic'], None
  c = cost['c'] if cost else None
  verify = cost['verify_ratio'].get(str(gamma)) if cost else None
  same = identical(plain, other) if greedy else None
  low, high = spread(plain, other)

  def predicted(verify_ratio):
    if (not fixed or mean_alpha is None or c is None
        or verify_ratio is None):
      return None
    return float(theory.walltime_factor(
        min(mean_alpha, 1.0), gamma, c, verify_ratio))

  return {
      'task': head['task'], 'target': head['target'], 'draft': head['draft'],
      'temperature': head['temperature'], 'gamma': gamma,
      'lenience': head.get('lenience', 1.0),
      'synthetic': head.get('synthetic'),
      'batch_size': head['batch_size'],
      'dtype': head.get('dtype'),
      'matmul_precision': head.get('matmul_precision'),
      'sentences': len(first), 'repeats': len({r['repeat'] for r in other}),
      'tokens': tokens, 'rounds': rounds,
      'alpha': mean_alpha, 'alpha_se': alpha_se,
      'acceptance': ratio(sum(sum(r['accepted']) for r in first),
                          sum(sum(r['drafted']) for r in first)),
      'acceptance_by_position': acceptance_by_position(first, widest),
      'tokens_per_round': ratio(tokens, rounds),
      'discarded': sum(sum(r['discarded']) for r in first),
      'c': c, 'verify_ratio': verify,
      'speedup': speedup(plain, other, 'decoder_seconds'),
      'speedup_low': low, 'speedup_high': high,
      'speedup_with_encoder': speedup(
          plain, other, 'decoder_seconds', 'encoder_seconds'),
      'predicted_thm38': predicted(1.0),
      'predicted_with_verify': predicted(verify),
      'identical': same,
      'differing': None if same is None else len(first) - same,
      **text_scores(plain_first, first, scores),
      'tokens_per_second': ratio(
          total(other, 'output_length'), total(other, 'decoder_seconds')),
      'tokens_per_second_with_encoder': ratio(
          total(other, 'output_length'),
          total(other, 'decoder_seconds') + total(other, 'encoder_seconds')),
      'tokens_per_second_plain': ratio(
          total(plain, 'output_length'), total(plain, 'decoder_seconds')),
      'cut_by_length': sum(r['finish_reason'] == 'length' for r in first),
      'cut_sources': sum(r['source_truncated'] for r in first),
  }


def settings(
    examples: Sequence[Row], costs: Sequence[Row],
    scores: Sequence[str] = ('bleu',)
) -> list[Row]:
  """All lines of `settings.jsonl`, in the order of the records."""
  groups: dict[tuple, dict[int, list[Row]]] = {}
  for row in examples:
    group = groups.setdefault((row['draft'], row['temperature']), {})
    group.setdefault(row['gamma'], []).append(row)
  cost_of = {(c['draft'], c['temperature']): c for c in costs}
  return [
      setting(by_gamma.get(0, []), rows, cost_of.get(key), scores)
      for key, by_gamma in groups.items()
      for gamma, rows in by_gamma.items() if gamma]
