#!/usr/bin/env bash
# Brings the local stack up, or up to date: emulator, deployed app, model server, an API key, the environment file.
# Sourced by demo.sh and test.sh for its `up`.
# shellcheck source=settings.sh
. "$(dirname "${BASH_SOURCE[0]}")/settings.sh"
# shellcheck source=stage.sh
. "$root/localstack/stage.sh"

doctor() {
  local began
  began=$(stage_now)
  sh localstack/doctor.sh || exit 1
  stage_ended doctor "$began"
}

# upstream: what a person who set one of the two variables would wonder about later.
upstream() {
  if [ -n "${HOLDFAST_UPSTREAM_URL:-}" ]; then
    printf 'HOLDFAST_UPSTREAM_URL is for make deploy and ignored here: UPSTREAM_URL=%s names the model server of a local stack\n' "$HOLDFAST_UPSTREAM_URL" >&2
  fi
  bash localstack/model.sh look
}

prepare() {
  stage tools bash localstack/tools.sh locked
  stage certificate bash localstack/certificate.sh
}

build() {
  stage commands bash localstack/binaries.sh locked commands
  # Before minutes are spent on what a bad setting would stop in the end.
  stage settings bash localstack/stack.sh settings
  stage functions bash localstack/binaries.sh locked functions host
  stage infra bash localstack/binaries.sh locked infra
}

deploy() {
  stage emulator bash localstack/emulator.sh start
  stage model bash localstack/model.sh start
  stage bootstrap bash localstack/stack.sh bootstrap
  stage deploy bash localstack/stack.sh deploy
  stage key bash localstack/stack.sh key
}

# own_stack: a stack for this script alone, on free ports (and one to spare, spare_port), ended whatever happens.
# shellcheck disable=SC2317 # called by the trap
ended() {
  local status=$?
  trap '' INT TERM HUP EXIT
  bash localstack/down.sh >"$log_dir/down.log" 2>&1 || { cat "$log_dir/down.log" >&2; status=1; }
  exit "$status"
}
own_stack() {
  trap ended EXIT
  bash localstack/down.sh >/dev/null # ends what a killed run left behind
  # shellcheck disable=SC2034 # spare_port is chaos.sh's
  read -r HOLDFAST_PORT HOLDFAST_MODEL_PORT spare_port <<<"$(python3 localstack/process.py ports 3)"
  export HOLDFAST_PORT HOLDFAST_MODEL_PORT
}

if [ "${BASH_SOURCE[0]}" = "$0" ]; then
  doctor
  prepare
  build
  deploy
  stage_table
  upstream
  # shellcheck source=/dev/null
  (. "$local_dir/env" && printf 'The stack is up: %s\n  model  %s\n  load   . %s\n  end    make down\n' "$HOLDFAST_URL" "$MODEL_URL" "$local_dir/env")
fi
