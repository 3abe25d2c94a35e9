#!/usr/bin/env bash
# Starts and ends the simulated model server. With UPSTREAM_URL there is none: the stack calls that server.
# MODEL_SLOTS bounds how many requests it answers at once (0: any number).
. "$(dirname "$0")/settings.sh"

state="$run_dir/model.json"

start() {
  if [ -n "${UPSTREAM_URL:-}" ]; then
    stop
    return
  fi
  local port built
  built="$(digest "$bin_dir/modelsim") ${MODEL_SLOTS:-0}"
  if process alive --state "$state"; then
    [ "$(cat "$run_dir/model.built" 2>/dev/null)" != "$built" ] || return 0
    port=$(model_port)
    stop
  fi
  stop
  port=${port:-$(model_port)}
  process port "$port" || die "port $port is in use: end what listens there, or choose another for the simulated model: HOLDFAST_MODEL_PORT=$((port + 100)) make up"
  process start --state "$state" --log "$log_dir/model.log" --ready-line 'listening on' --timeout 20 -- "$bin_dir/modelsim" --listen "127.0.0.1:$port" --slots "${MODEL_SLOTS:-0}"
  echo "$port" >"$run_dir/model.port"
  echo "$built" >"$run_dir/model.built"
}

stop() {
  process stop --state "$state" --grace 2
  rm -f "$run_dir/model.port" "$run_dir/model.built"
}

case ${1:-} in
  start) start ;;
  stop) stop ;;
  *) die "usage: model.sh start|stop" ;;
esac
