#!/usr/bin/env bash
# Starts and ends the emulator (MiniStack): loopback only, every role's policies enforced, over TLS.
# Its state is in memory, so what was deployed into it ends with it.
. "$(dirname "$0")/settings.sh"

state="$run_dir/emulator.json"

running() { process alive --state "$state"; }

start() {
  local port
  if running; then
    port=$(emulator_port)
    if [ -n "${HOLDFAST_PORT:-}" ] && [ "$HOLDFAST_PORT" != "$port" ]; then
      die "the emulator of $local_dir runs on port $port, not $HOLDFAST_PORT: make down first"
    fi
    return
  fi
  stop # functions and records that an emulator which crashed left behind
  port=$(emulator_port)
  process port "$port" || die "port $port is in use: end what listens there, or choose another: HOLDFAST_PORT=$((port + 100)) make up"
  echo "$port" >"$run_dir/emulator.port"
  mkdir -p "$run_dir/tmp"
  local -a clean=(
    PATH="$PATH" HOME="$HOME" LANG=C.UTF-8 PYTHONUNBUFFERED=1
    TMPDIR="$run_dir/tmp"                     # functions are unpacked here: gone after stop
    BIND_HOST=127.0.0.1 GATEWAY_PORT="$port"
    AUTH=true USE_SSL=1 MINISTACK_SSL_CERT="$local_dir/tls/certificate.pem" MINISTACK_SSL_KEY="$local_dir/tls/key.pem"
    IOT_MTLS_ENABLED=0 SFTP_ENABLED=0         # servers of their own that nothing here uses
    # From here on for the functions, which inherit them.
    # HOLDFAST_FRONT_PORT: where something stands in front of it (chaos.sh).
    AWS_ENDPOINT_URL="https://127.0.0.1:${HOLDFAST_FRONT_PORT:-$port}" AWS_ENDPOINT_URL_S3="https://127.0.0.1:${HOLDFAST_FRONT_PORT:-$port}"
    AWS_REGION=us-east-1 AWS_DEFAULT_REGION=us-east-1 AWS_ACCESS_KEY_ID=test AWS_SECRET_ACCESS_KEY=test
    SSL_CERT_FILE="$local_dir/tls/bundle.pem" AWS_CA_BUNDLE="$local_dir/tls/bundle.pem"
  )
  local name
  for name in HTTP_PROXY HTTPS_PROXY NO_PROXY http_proxy https_proxy no_proxy SYSTEMROOT; do
    [ -z "${!name:-}" ] || clean+=("$name=${!name}")
  done
  # Hypercorn and not the `ministack` command: run as root over TLS, that one also takes port 443.
  env -i "${clean[@]}" "$tools_dir/venv/bin/python" localstack/process.py start --state "$state" --log "$log_dir/emulator.log" \
    --ready-url "https://127.0.0.1:$port/_ministack/health" --ca "$local_dir/tls/certificate.pem" --timeout 60 -- \
    "$tools_dir/venv/bin/python" -m hypercorn ministack.app:app --workers 0 --bind "127.0.0.1:$port" --keep-alive 75 --log-level info \
    --certfile "$local_dir/tls/certificate.pem" --keyfile "$local_dir/tls/key.pem" || { stop; exit 1; }
}

stop() {
  process stop --state "$state" --grace 2
  rm -rf "$stack_dir" "$run_dir/tmp" "$run_dir/emulator.port" "$local_dir/env" "$local_dir/cdk.out"
}

case ${1:-} in
  start) start ;;
  stop) stop ;;
  running) running ;;
  *) die "usage: emulator.sh start|stop|running" ;;
esac
