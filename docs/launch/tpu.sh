#!/bin/bash
# The same command on all hosts of a TPU slice: bash docs/launch/tpu.sh NAME ZONE RUN
# RUN is a folder that all hosts see, such as a mounted bucket; JAX finds the hosts by itself.
set -euo pipefail
name=$1 zone=$2 run=$3

gcloud compute tpus tpu-vm ssh "$name" --zone="$zone" --worker=all --command="
  cd zero &&
  if [ -f '$run/config.json' ]; then resume=--resume; fi &&
  uv run --no-sync othello train --preset standard --out '$run' \${resume:-}"
