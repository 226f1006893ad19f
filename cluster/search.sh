#!/usr/bin/env bash
# bash cluster/search.sh NAME EXPERIMENT STORAGE [OPTIONS of run]     by a batch system, on a node of a running cluster
#
# Starts the search, or continues it if it has been started: what a batch system starts again after a node was lost
# is the same search. STORAGE: a folder that all nodes see.
set -euo pipefail

name=$1 experiment=$2 storage=$3
shift 3
if [ -e "$storage/$name/experiment.yaml" ]; then
  exec python -m tuner resume "$name" --storage "$storage" --ray-address auto
fi
exec python -m tuner run "$experiment" --name "$name" --storage "$storage" --ray-address auto "$@"
