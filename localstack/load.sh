#!/usr/bin/env bash
# Load runs on a stack of its own: what surrounds a small batch, what the doors take, 10,000 lines through a few workers, 10,000 parts of dead workers, thousands of small
# parts; each figure beside its bound, all of them in .local/load.json. It takes less than ten minutes, or says what it waited for.
#   LOAD_BATCHES, LOAD_LINES, LOAD_PARTS, LOAD_PART_LINES   how much of each (10, 10000, 3000, 10)
#   MODEL_SLOTS                                             requests that the model answers at once (100)
# Any HOLDFAST_ setting that this shell exports is the stack's.
export HOLDFAST_LOCAL=.local/load
unset HOLDFAST_PORT HOLDFAST_MODEL_PORT UPSTREAM_URL HOLDFAST_URL HOLDFAST_API_KEY MODEL_URL
. "$(dirname "$0")/up.sh"

if [ "${1:-}" != locked ] && command -v python3 >/dev/null; then
  exec python3 localstack/process.py lock "$root/.local/load.lock" --busy 'another make load runs in this checkout' -- bash "$0" locked
fi

# K = 32 and no more nor less of it; four workers, so that they could have more in flight than the model takes.
export MODEL_SLOTS=${MODEL_SLOTS:-100}
export HOLDFAST_MAX_CONCURRENCY=${HOLDFAST_MAX_CONCURRENCY:-4} HOLDFAST_CONCURRENCY=${HOLDFAST_CONCURRENCY:-32}
export HOLDFAST_CONCURRENCY_FLOOR=${HOLDFAST_CONCURRENCY_FLOOR:-$HOLDFAST_CONCURRENCY}
export HOLDFAST_CONCURRENCY_CEILING=${HOLDFAST_CONCURRENCY_CEILING:-$HOLDFAST_CONCURRENCY}

doctor
own_stack

# measure ARGUMENT...: the driver, ended with whatever it started when this script is.
measure() {
  stage_wait "$(python_path)" localstack/process.py run -- "$bin_dir/bench" load --stack "$local_dir" --slots "$MODEL_SLOTS" "$@"
}

prepare
build
stage bench bash localstack/binaries.sh locked commands bench
deploy
# shellcheck source=/dev/null
. "$local_dir/env"
# A missed bound (1) is told again by the second run, which prints the figures of both.
measure --json "$local_dir/first.json" --batches "${LOAD_BATCHES:-10}" --lines "${LOAD_LINES:-10000}" waits doors lines reap >"$log_dir/first.txt" ||
  [ "$?" -eq 1 ] || { cat "$log_dir/first.txt"; exit 2; }

# A stack has one size of parts, so the many small ones are another deploy of it.
parts=${LOAD_PARTS:-3000}
export HOLDFAST_PART_LINES=${LOAD_PART_LINES:-10}
stage narrow bash localstack/stack.sh deploy
stage_table
measure --json "$root/.local/load.json" --after "$local_dir/first.json" --parts "$parts" parts
