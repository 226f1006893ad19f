#!/usr/bin/env bash
# bash cluster/mlflow.sh [ARTIFACTS]     on the head, after `ray start --head`; the launcher files do it
#
# An MLflow server with its database (sqlite), which listens on loopback alone and asks for no password: the drivers of
# searches run on the head, and people come by ssh. All users of the head can read and delete what is in it. ARTIFACTS: a folder, s3:// or gs://. It ends when Ray ends on this
# host. Database, log and process id are in ~/tuner_mlflow.
set -euo pipefail

home=$HOME/tuner_mlflow

answers() { (: < /dev/tcp/127.0.0.1/5000) 2> /dev/null; }
ray_is_up() { pgrep -u "$(id -u)" -x gcs_server > /dev/null; }

if [ "${1-}" = --serve ]; then # in a session of its own, whose processes end together
  export MLFLOW_SERVER_ENABLE_JOB_EXECUTION=false # eight processes, which nothing here uses
  mlflow server --host 127.0.0.1 --port 5000 --workers 2 \
    --backend-store-uri "sqlite:///$home/mlflow.db" --artifacts-destination "$2" &
  server=$!
  while kill -0 "$server" 2> /dev/null && ray_is_up; do sleep 2; done
  trap '' TERM
  kill -TERM -- "-$$"
  wait
  exit
fi

mkdir -p -m 700 "$home"
if pid=$(cat "$home/pid" 2> /dev/null) && grep -qsa mlflow.sh "/proc/$pid/cmdline"; then # of an earlier `ray up`
  kill -TERM -- "-$pid" || true
  for _ in $(seq 100); do
    answers || break
    sleep 0.2
  done
  kill -KILL -- "-$pid" 2> /dev/null || true
fi
if answers; then
  echo "port 5000 of this host is taken: find out by whom (ss -ltnp), and start MLflow again: bash $0" >&2
  exit 1
fi
setsid bash "$0" --serve "${1:-$home/artifacts}" > "$home/log" 2>&1 < /dev/null &
pid=$!
echo "$pid" > "$home/pid"

for _ in $(seq 360); do # 3 minutes: a new machine reads all of it from a cold disk
  kill -0 "$pid" 2> /dev/null || break
  if answers; then
    echo "MLflow: http://127.0.0.1:5000 on this host, and nowhere else"
    exit
  fi
  sleep 0.5
done
echo "MLflow did not come up at 127.0.0.1:5000; the end of $home/log:" >&2
tail -n 20 "$home/log" >&2
exit 1
