# Sourced by the launch scripts: `need` names what must be set, `step` runs a
# command or, with --dry_run, prints it. What a dry run prints is a script.
set -euo pipefail

dry_run=false
for argument in "$@"; do
  case $argument in
    --dry_run) dry_run=true ;;
    *) echo "error: $argument: allowed is --dry_run" >&2; exit 1 ;;
  esac
done

# need NAME MEANING: a dry run goes on with the name itself as the value.
need() {
  if $dry_run; then
    printf '# %s=%q must be set: %s\n' "$1" "${!1:-}" "$2"
    printf -v "$1" '%s' "${!1:-$1}"
  elif [[ -z ${!1:-} ]]; then
    echo "error: set $1: $2" >&2
    exit 1
  fi
}

step() {
  if $dry_run; then printf '%q ' "$@"; echo; else "$@"; fi
}

# pack ARCHIVE: the last commit of this repository.
pack() {
  step git -C "$(dirname "${BASH_SOURCE[0]}")/.." archive --format=tar.gz \
    --output="$1" HEAD
}

# What installs the archive on a machine; unpack EXTRA.
unpack() {
  echo "mkdir -p $FOLDER && tar -xzf specdec_jax.tar.gz -C $FOLDER && \
cd $FOLDER && python3 -m venv .venv && .venv/bin/pip install -q -e '.[$1]'"
}
