"""Lines in, lines out.

    echo 'Open the file.' | python -m specdec_jax.translate \\
        --target=mini/target --draft=mini/small --gamma=4

Standard output has exactly one line for each input line, in order; `--trace`
and `--stats` write to standard error.
"""

from collections.abc import Iterator, Sequence
import os
import pathlib
import sys

from absl import app
from absl import flags
from absl import logging
import jax

from specdec_jax import checkpoint
from specdec_jax import drafters
from specdec_jax import examples
from specdec_jax import generate
from specdec_jax import trace as trace_lib

# Each fate has a sign as well as a colour (256-colour green, red, blue, grey).
_LOOKS = {
    'accepted': ('32', '{}'), 'rejected': ('31', '[-{}-]'),
    'correction': ('34', '{{+{}+}}'), 'bonus': ('36', '(+{})'),
    'not judged': ('90', '[.{}.]'), 'past the end': ('90', '[.{}.]')}


def read(path: str | None) -> list[str]:
  """Source lines of a file, or of standard input.

  Raises:
    examples.DataError: naming the file, if it is missing or not UTF-8.
  """
  if path is not None:
    return examples.lines(pathlib.Path(path))
  try:
    return examples.split_lines(sys.stdin.buffer.read())
  except UnicodeDecodeError as error:
    raise examples.DataError(
        f'standard input: not readable as UTF-8: {error}') from error


def one_line(text: str) -> str:
  """Text without line ends of any kind: some vocabularies can spell them.

  Example: `a`, line feed, `b` becomes `a b`.
  """
  return ' '.join(text.splitlines())


def printable(piece: str) -> str:
  """A piece that cannot steer a terminal.

  Example: an escape character becomes `\\x1b`.
  """
  return ''.join(
      c if c.isprintable() else c.encode('unicode_escape').decode()
      for c in piece)


def wants_colour(terminal: bool) -> bool:
  """Colour on a terminal, unless NO_COLOR is set (no-color.org)."""
  return terminal and not os.environ.get('NO_COLOR')


def _look(piece: str, mark: str, colour: bool) -> str:
  code, form = _LOOKS[mark]
  shown = form.format(printable(piece))
  return f'\x1b[{code}m{shown}\x1b[0m' if colour else shown


def round_line(seen: trace_lib.TraceRound, colour: bool) -> str:
  """One round as a line: the drafts with their fate, then the next token.

  Example: drafts a b c, one kept, next d: `a [-b-] [.c.] {+d+}`.
  """
  marked = list(zip(seen.pieces, seen.marks, strict=True))
  if not seen.ended:
    marked.append((seen.next_piece, seen.next_mark))
  return ' '.join(_look(piece, mark, colour) for piece, mark in marked)


def legend(colour: bool) -> str:
  return 'trace: ' + ' '.join(
      _look(mark, mark, colour) for mark in _LOOKS if mark != 'past the end')


def stats(outputs: Sequence[generate.Output]) -> str:
  """Counts of all lines; what has nothing to rest on is n/a."""
  rounds = [r for output in outputs for r in output.rounds]
  tokens = sum(len(output.ids) for output in outputs)
  drafted = sum(r.drafted for r in rounds)
  accepted = sum(r.accepted for r in rounds)
  decoder = sum(output.decoder_seconds for output in outputs)
  both = decoder + sum(output.encoder_seconds for output in outputs)

  def ratio(over: float, under: float, digits: int = 2) -> str:
    return f'{over / under:.{digits}f}' if under else 'n/a'
  return (
      f'{len(outputs)} lines, {tokens} tokens in {len(rounds)} rounds '
      f'({ratio(tokens, len(rounds))} a round); {accepted} of {drafted} drafts '
      f'accepted ({ratio(accepted, drafted)}); '
      f'{sum(o.finish_reason == "length" for o in outputs)} lines cut by '
      f'max_new_tokens; {ratio(tokens, decoder, 1)} tokens/s in the decoder, '
      f'{ratio(tokens, both, 1)} with the encoders, compilation outside')


def load_decoder(options) -> generate.Decoder:
  """The decoder that the flags describe."""
  draft = None if options.draft is None else drafters.load(options.draft)
  gamma = options.gamma
  if draft is None and not options['gamma'].present:
    gamma = 0
  return generate.Decoder(
      checkpoint.load(options.target), draft, gamma=gamma,
      temperature=options.temperature, top_k=options.top_k,
      top_p=options.top_p, max_new_tokens=options.max_new_tokens,
      batch_size=options.batch_size, seed=options.seed)


def translate(
    decoder: generate.Decoder, texts: Sequence[str], trace: bool = False
) -> Iterator[generate.Output]:
  """Decodes batch by batch, so that the first lines come early."""
  colour = wants_colour(sys.stderr.isatty())
  if trace:
    print(legend(colour), file=sys.stderr)
  for at in range(0, len(texts), decoder.batch_size):
    batch = texts[at:at + decoder.batch_size]
    for index, output in enumerate(decoder(batch, at), at):
      if trace:
        print(f'{index + 1}: {printable(texts[index])}', file=sys.stderr)
        for seen in trace_lib.trace(decoder, texts[index], index).rounds:
          print('  ' + round_line(seen, colour), file=sys.stderr)
      yield output


def main(argv):
  options = flags.FLAGS
  if len(argv) > 1:
    raise app.UsageError(f'unexpected arguments {argv[1:]}')
  logging.set_verbosity(logging.WARNING)
  try:
    with jax.default_matmul_precision('highest'):
      texts = [options.prefix + line for line in read(options.input)]
      outputs = []
      for output in translate(load_decoder(options), texts, options.trace):
        print(one_line(output.text), flush=True)
        outputs.append(output)
  except BrokenPipeError:
    # The reader has gone; nothing is left to be flushed at exit.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(1)
  except (ValueError, FloatingPointError) as error:
    sys.exit(f'error: {error}')
  if options.stats:
    print(stats(outputs), file=sys.stderr)


if __name__ == '__main__':
  flags.DEFINE_string('target', None, 'Model folder.', required=True)
  flags.DEFINE_string(
      'draft', None, 'Model folder; without one decoding is plain.')
  flags.DEFINE_integer(
      'gamma', 4, 'Drafts a round; 0 without a draft.')
  flags.DEFINE_string(
      'input', None, 'UTF-8 file of a source a line; standard input if none.')
  flags.DEFINE_string(
      'prefix', '', 'Put before every source, as T5 was trained.')
  flags.DEFINE_float('temperature', 0.0, '0 is argmax.')
  flags.DEFINE_integer('top_k', 0, '0 is off.')
  flags.DEFINE_float('top_p', 1.0, '1 is off.')
  flags.DEFINE_integer(
      'max_new_tokens', 256, 'Budget of a line.')
  flags.DEFINE_integer('batch_size', 1, 'Lines decoded together.')
  flags.DEFINE_integer('seed', 0, 'Of sampling.')
  flags.DEFINE_bool(
      'trace', False, "Show the rounds of each line, as the paper's Figure 1.")
  flags.DEFINE_bool(
      'stats', False, 'Print rounds, acceptance, tokens a second at the end.')
  app.run(main)
