# Sourced by every script here: the machine, and how to speak to it.
. "$(dirname "${BASH_SOURCE[0]}")/../launch.sh"

need TPU_NAME 'what the machine is called'
need ZONE 'for example us-central2-b'
need PROJECT 'the Google Cloud project'
ACCELERATOR=${ACCELERATOR:-v4-8}           # v4-8: four chips, one host
RUNTIME=${RUNTIME:-tpu-ubuntu2204-base}
FOLDER=${FOLDER:-specdec_jax}              # on the machine

tpu() {  # tpu VERB ARGUMENT...
  step gcloud compute tpus tpu-vm "$1" "$TPU_NAME" --zone="$ZONE" \
    --project="$PROJECT" "${@:2}"
}

copy() {  # copy WORKERS FROM TO
  step gcloud compute tpus tpu-vm scp --recurse "$2" "$3" --worker="$1" \
    --zone="$ZONE" --project="$PROJECT"
}
