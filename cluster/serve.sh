#!/usr/bin/env bash
# bash cluster/serve.sh [STORAGE]     on the head, after `ray start --head`; the launcher files do it
#
# The service of a team, `tuner serve`, on loopback alone: people come by ssh. Each needs a token, which
# `python -m tuner token add NAME --storage STORAGE` on the head makes. STORAGE: by default that of the launcher file. The
# service is started again if it ends, until Ray ends on this host. Log and process id are in ~/tuner_serve.
set -euo pipefail

home=$HOME/tuner_serve
ray_is_up() { pgrep -u "$(id -u)" -x gcs_server > /dev/null; }

if [ "${1-}" = --keep ]; then # `--keep STORAGE [MLFLOW]`: in the foreground
  service=
  trap 'kill -TERM $service 2> /dev/null; wait; exit' INT TERM
  while ray_is_up; do
    python -m tuner serve --storage "$2" ${3:+--mlflow "$3"} &
    service=$!
    while kill -0 "$service" 2> /dev/null && ray_is_up; do sleep 2; done
    kill -TERM "$service" 2> /dev/null || true
    status=0
    wait "$service" || status=$?
    echo "tuner serve has ended with exit status $status"
  done
  exit
fi

storage=${1-}
mlflow=
if [ -z "$storage" ]; then
  read_file='from tuner.jobs.cluster_address import ClusterFile as F; import sys; f = F.read(sys.argv[1])'
  { read -r storage && read -r mlflow; } < <(python -c "$read_file; print(f.storage or '', f.mlflow or '', sep='\n')" \
    ~/ray_bootstrap_config.yaml) || true
  [ -n "$storage" ] || { echo "no service: metadata.storage is missing in the launcher file" >&2; exit 1; }
fi
mkdir -p -m 700 "$home"
if pid=$(cat "$home/pid" 2> /dev/null) && grep -qsa serve.sh "/proc/$pid/cmdline"; then # of an earlier `ray up`
  kill -TERM "$pid"
  for _ in $(seq 150); do
    kill -0 "$pid" 2> /dev/null || break
    sleep 0.2
  done
  kill -KILL -- "-$pid" 2> /dev/null || true
fi
: > "$home/log" # now: below, an earlier service's address must not be found in it
setsid bash "$0" --keep "$storage" "$mlflow" >> "$home/log" 2>&1 < /dev/null &
pid=$!
echo "$pid" > "$home/pid"

for _ in $(seq 360); do # 3 minutes: a new machine reads all of it from a cold disk
  if url=$(grep -m 1 '^http://' "$home/log"); then
    echo "the service of a team: $url on this host, and nowhere else; storage $storage"
    exit
  fi
  grep -q '^tuner serve has ended' "$home/log" && break
  sleep 0.5
done
echo "the service of a team did not come up; it is tried again until it does. The end of $home/log:" >&2
tail -n 20 "$home/log" >&2
exit 1
