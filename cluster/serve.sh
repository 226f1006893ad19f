#!/usr/bin/env bash
# bash cluster/serve.sh [STORAGE]     on the head, after `ray start --head`; the launcher files do it
#
# The service of a team (`tuner serve`), on loopback alone: people come by ssh. Who has no token gets nothing, and
# `python -m tuner token add NAME --storage STORAGE` on the head makes one. STORAGE: by default metadata.storage of the
# launcher file. It is started again if it dies, and ends when Ray ends on this host. Log and process id are in ~/tuner_serve.
set -euo pipefail

home=$HOME/tuner_serve

ray_is_up() { pgrep -u "$(id -u)" -x gcs_server > /dev/null; }
answers() { (: < /dev/tcp/127.0.0.1/8380) 2> /dev/null; }

if [ "${1-}" = --keep ]; then # in a session of its own, whose processes end together
  while ray_is_up; do
    python -m tuner serve --storage "$2" &
    service=$!
    while kill -0 "$service" 2> /dev/null && ray_is_up; do sleep 2; done
    ray_is_up && sleep 3 # after a fault that comes again at once
  done
  trap '' TERM
  kill -TERM -- "-$$"
  wait
  exit
fi

storage=${1-}
if [ -z "$storage" ]; then
  read_storage='from tuner.jobs.cluster_address import ClusterFile as F; import sys; print(F.read(sys.argv[1]).storage or "")'
  storage=$(python -c "$read_storage" ~/ray_bootstrap_config.yaml)
  [ -n "$storage" ] || { echo "no service: metadata.storage is missing in the launcher file" >&2; exit 1; }
fi
mkdir -p -m 700 "$home"
if pid=$(cat "$home/pid" 2> /dev/null) && grep -qsa serve.sh "/proc/$pid/cmdline"; then # of an earlier `ray up`
  kill -TERM -- "-$pid" || true
  for _ in $(seq 100); do
    kill -0 "$pid" 2> /dev/null || break
    sleep 0.2
  done
  kill -KILL -- "-$pid" 2> /dev/null || true
fi
setsid bash "$0" --keep "$storage" > "$home/log" 2>&1 < /dev/null &
pid=$!
echo "$pid" > "$home/pid"

for _ in $(seq 360); do # 3 minutes: a new machine reads all of it from a cold disk
  kill -0 "$pid" 2> /dev/null || break
  if answers; then
    echo "tuner serve: http://127.0.0.1:8380 on this host, and nowhere else"
    exit
  fi
  sleep 0.5
done
echo "tuner serve did not come up at 127.0.0.1:8380; the end of $home/log:" >&2
tail -n 20 "$home/log" >&2
exit 1
