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

# look: one line on stderr where UPSTREAM_URL names a server that isn't there. No fault: it may be started later.
look() {
  [ -n "${UPSTREAM_URL:-}" ] || return 0
  python - "$UPSTREAM_URL" <<'END' >&2
import socket, sys, urllib.parse
try:
    url = urllib.parse.urlsplit(sys.argv[1])
    place = url.hostname, url.port or {"http": 80}.get(url.scheme, 443)
    socket.create_connection(place, timeout=3).close()
except ValueError as error:
    print(f"UPSTREAM_URL is no URL: {error}")
except OSError as error:
    print("nobody answers at %s, port %d, where UPSTREAM_URL leads (%s): start that server, or make up again with another URL; until then no line is answered" % (*place, error))
END
}

case ${1:-} in
  start) start ;;
  stop) stop ;;
  look) look ;;
  *) die "usage: model.sh start|look|stop" ;;
esac
