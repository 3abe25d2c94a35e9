#!/usr/bin/env bash
# Everything from formatting to the end-to-end tests, on a stack of its own: own folder, free ports, ended whatever happens.
export HOLDFAST_LOCAL=.local/test
# A demo's variables, if this shell has loaded them, must not reach the tests' stack.
unset HOLDFAST_PORT HOLDFAST_MODEL_PORT UPSTREAM_URL HOLDFAST_URL HOLDFAST_API_KEY MODEL_URL
. "$(dirname "$0")/up.sh"

# One at a time in this checkout: a second one would end the first one's stack. (The doctor will tell if Python is missing.)
if [ "${1:-}" != locked ] && command -v python3 >/dev/null; then
  exec python3 localstack/process.py lock "$root/.local/test.lock" --busy 'another make test runs in this checkout' -- bash "$0" locked
fi

doctor
# shellcheck disable=SC2317 # called by the trap
ended() {
  local status=$?
  trap '' INT TERM HUP EXIT
  bash localstack/down.sh >"$log_dir/down.log" 2>&1 || { cat "$log_dir/down.log" >&2; status=1; }
  exit "$status"
}
trap ended EXIT
bash localstack/down.sh >/dev/null # ends what a killed run left behind
read -r HOLDFAST_PORT HOLDFAST_MODEL_PORT <<<"$(python3 localstack/process.py ports 2)"
export HOLDFAST_PORT HOLDFAST_MODEL_PORT

prepare
stage clients bash localstack/tools.sh locked clients
stage format bash localstack/source.sh format
build
stage vet bash localstack/source.sh vet
stage staticcheck bash localstack/source.sh staticcheck
deploy
stage_table

# shellcheck source=/dev/null
. "$local_dir/env"
export HOLDFAST_CLI="$bin_dir/holdfast"
local_aws # nor may the AWS configuration of whoever runs them
# Last and unwrapped, because its own last line is the summary of the whole.
stage_wait "$(python_path)" localstack/process.py run -- bash localstack/source.sh tests ./...
