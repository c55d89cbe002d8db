# Sourced by every script here: the hosts.
. "$(dirname "${BASH_SOURCE[0]}")/../launch.sh"

need HOSTS 'the GPU hosts as ssh knows them, the first one writes'
FOLDER=${FOLDER:-specdec_jax}  # on the hosts
PORT=${PORT:-8476}             # of the first host, open to the others
