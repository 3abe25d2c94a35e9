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

# Workers are killed on a stack of its own, before anything else works here: its leases are short, and it kills whoever works.
chaos_dir=$root/.local/test-chaos
chaos() {
  # Workers are found by their environment, which macOS doesn't show.
  [ -d /proc/self ] || { echo 'stage chaos          left out: no /proc here'; return; }
  stage chaos env CHAOS_LOCAL="$chaos_dir" CHAOS_SMALL=1 CHAOS_LINES=1000 KILLS=5 HOLDFAST_SKEW=500ms HOLDFAST_OVERDUE=8s \
    HOLDFAST_CHECKPOINT_LINES=8 HOLDFAST_CONCURRENCY=4 HOLDFAST_MAX_ATTEMPTS=6 bash localstack/chaos.sh
  [ -n "${V:-}" ] || tail -n 1 "$log_dir/stage-chaos.log"
}

doctor
# shellcheck disable=SC2317 # called by the trap
ended() {
  local status=$?
  trap '' INT TERM HUP EXIT
  bash localstack/down.sh >"$log_dir/down.log" 2>&1 || { cat "$log_dir/down.log" >&2; status=1; }
  HOLDFAST_LOCAL=$chaos_dir bash localstack/down.sh >/dev/null 2>&1 # unless chaos was interrupted there is nothing
  exit "$status"
}
own_stack

prepare
stage clients bash localstack/tools.sh locked clients
stage format bash localstack/source.sh format
build
stage vet bash localstack/source.sh vet
stage staticcheck bash localstack/source.sh staticcheck
chaos
# Beside the simulated model, services that the end-to-end tests are themselves: whose secret they rotate, and one whose secret is never right.
# shellcheck disable=SC2154 # spare_port is own_stack's
upstreams='[{"models":["second-*"],"url":"http://127.0.0.1:'$spare_port'","secret":"e2e/second"},{"models":["denied-*"],"url":"http://127.0.0.1:'$spare_port'","secret":"e2e/denied"}]'
HOLDFAST_UPSTREAMS=$upstreams deploy
stage_table

# shellcheck source=/dev/null
. "$local_dir/env"
export HOLDFAST_CLI="$bin_dir/holdfast"
export E2E_UPSTREAMS=$upstreams
local_aws # nor may the AWS configuration of whoever runs them
# Last and unwrapped, because its own last line is the summary of the whole. What waits for the local AWS runs beside what needs a processor, and
# the longest first.
stage_wait "$(python_path)" localstack/process.py run -- bash localstack/source.sh tests \
  ./localstack/e2e ./internal/batch ./internal/sim ./internal/bench ./...
