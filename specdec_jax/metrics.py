"""Records to settings: alpha, c, tokens per round, factors with their spread.

Every figure comes from the rows of `examples.jsonl` and `costs.jsonl` by the
formulas written here; one that has nothing to rest on is None. Runs anywhere:
no jax.
"""

from collections.abc import Sequence
import itertools
import math
from typing import Any

import numpy as np
from rouge_score import rouge_scorer
import sacrebleu

from specdec_jax import theory

Row = dict[str, Any]

_ROUGE = ('rouge1', 'rouge2', 'rougeLsum')


def known(value: float | None) -> float | None:
  """The value, None where it is no finite number."""
  return None if value is None or not math.isfinite(value) else value


def ratio(over: float | None, under: float | None) -> float | None:
  """over / under, None where one is not known or there is nothing to divide by.
  """
  return over / under if under and over is not None else None


def total(rows: Sequence[Row], *names: str) -> float | None:
  """Sum of what the rows hold; None where one of them lacks it, or no row."""
  values: list[Any] = [row.get(name) for row in rows for name in names]
  if not values or None in map(known, values):
    return None
  return sum(values)


def counts(rows: Sequence[Row], name: str) -> int | None:
  """Sum over the rounds of each row; None where a row lacks them."""
  values: list[Any] = [row.get(name) for row in rows]
  return None if None in values else sum(map(sum, values))


def paired(
    plain: Sequence[Row], other: Sequence[Row]
) -> tuple[list[Row], list[Row]]:
  """Rows of those sentences and repeats that both sides have.

  A file that was cut may end in a turn that has some of its lines.
  """
  def key(row):
    return row['index'], row['repeat']
  both = set(map(key, plain)) & set(map(key, other))
  return ([row for row in plain if key(row) in both],
          [row for row in other if key(row) in both])


def speedup(plain: Sequence[Row], other: Sequence[Row], *names: str):
  """Total plain seconds over total other seconds: never a mean of ratios.

  Example: two sentences of 1.0 s plain that take 0.5 s and 2.0 s give 0.8.
  """
  return ratio(total(plain, *names), total(other, *names))


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
  if not tokens or None in map(known, itertools.chain(*betas)):
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
    for d, a in zip(row.get('drafted') or (), row.get('accepted') or (),
                    strict=False):
      drafted[:d] += 1
      accepted[:a] += 1
  return [ratio(int(a), int(d))
          for a, d in zip(accepted, drafted, strict=True)]


def most_drafted(rows: Sequence[Row]) -> int:
  """The longest block of any round."""
  return max((d for row in rows for d in row.get('drafted') or ()), default=0)


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
    texts = [row.get('text') for row in rows]
    references = [row.get('reference') for row in rows]
    for score in scores:
      complete = rows and None not in (*texts, *references)
      values = _SCORERS[score](texts, references) if complete else {}
      found |= {name + suffix: values.get(name)
                for name in _SCORE_KEYS[score]}
  return found


def identical(plain: Sequence[Row], other: Sequence[Row]) -> int | None:
  """Sentences whose ids equal plain ones in every repeat; None where a row
  does not say its ids."""
  if any(row.get('ids') is None for row in (*plain, *other)):
    return None
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
  head = other[0]
  gamma = head['gamma']
  fixed = isinstance(gamma, int)  # and not chosen round by round
  mean_alpha, alpha_se = alpha([r for r in plain if r['repeat'] == 0])
  if head.get('synthetic') is not None:
    mean_alpha, alpha_se = head['synthetic'], None
  c = known(cost.get('c')) if cost else None
  ratios = (cost.get('verify_ratio') or {}) if cost else {}
  verify = known(ratios.get(str(gamma)))

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
      'batch_size': head.get('batch_size'),
      'dtype': head.get('dtype'),
      'matmul_precision': head.get('matmul_precision'),
      'sentences': len(first), 'repeats': len({r['repeat'] for r in other}),
      'tokens': total(first, 'output_length'), 'rounds': total(first, 'rounds'),
      'alpha': mean_alpha, 'alpha_se': alpha_se,
      'acceptance': ratio(counts(first, 'accepted'), counts(first, 'drafted')),
      'acceptance_by_position': acceptance_by_position(
          first, gamma if fixed else most_drafted(first)),
      'tokens_per_round': ratio(
          total(first, 'output_length'), total(first, 'rounds')),
      'discarded': counts(first, 'discarded'),
      'c': c, 'verify_ratio': verify,
      'predicted_thm38': predicted(1.0),
      'predicted_with_verify': predicted(verify),
      **against_plain(*paired(plain, other), scores),
      'tokens_per_second': ratio(
          total(other, 'output_length'), total(other, 'decoder_seconds')),
      'tokens_per_second_with_encoder': ratio(
          total(other, 'output_length'),
          total(other, 'decoder_seconds', 'encoder_seconds')),
      'tokens_per_second_plain': ratio(
          total(plain, 'output_length'), total(plain, 'decoder_seconds')),
      'cut_by_length': sum(r.get('finish_reason') == 'length' for r in first),
      'cut_sources': sum(bool(r.get('source_truncated')) for r in first),
  }


def against_plain(
    plain: Sequence[Row], other: Sequence[Row], scores: Sequence[str]
) -> Row:
  """The part of a setting that compares the same sentences on both sides."""
  first, plain_first = ([row for row in rows if row['repeat'] == 0]
                        for rows in (other, plain))
  greedy = any(row.get('greedy', not row['temperature']) for row in other)
  same = identical(plain, other) if greedy else None
  low, high = spread(plain, other)
  return {
      'speedup': speedup(plain, other, 'decoder_seconds'),
      'speedup_low': low, 'speedup_high': high,
      'speedup_with_encoder': speedup(
          plain, other, 'decoder_seconds', 'encoder_seconds'),
      'identical': same,
      'differing': None if same is None else len(first) - same,
      **text_scores(plain_first, first, scores),
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
