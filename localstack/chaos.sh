#!/usr/bin/env bash
# Kills workers, stops them beyond their lease, empties the queue and stops the workflow while batches run, and does the like to those
# who start batches, on a stack of its own with short leases; ends with one line, and with 1 when a line was lost or doubled, or another promise not kept.
#   KILLS         workers to be killed (20)
#   CHAOS_LINES   lines of a batch (5000)
#   CHAOS_SEED    of the choice of workers, places and pauses; the run prints its own
#   CHAOS_SMALL   set: one batch with everything but the cancel, as `make test` runs it
#   CHAOS_ONLY    doors: nothing but what befalls those who start batches
# Any HOLDFAST_ setting that this shell exports is the stack's. Needs /proc: workers are told by their environment.
export HOLDFAST_LOCAL=${CHAOS_LOCAL:-.local/chaos}
unset HOLDFAST_PORT HOLDFAST_MODEL_PORT UPSTREAM_URL HOLDFAST_URL HOLDFAST_API_KEY MODEL_URL
. "$(dirname "$0")/up.sh"

if [ "${1:-}" != locked ] && command -v python3 >/dev/null; then
  exec python3 localstack/process.py lock "$local_dir.lock" --busy 'another chaos runs here' -- bash "$0" locked
fi

# Small windows and short lives, so that a run of minutes has many of each; the defaults stay what they are.
export HOLDFAST_LEASE=${HOLDFAST_LEASE:-6s} HOLDFAST_SKEW=${HOLDFAST_SKEW:-1s}
export HOLDFAST_PART_LINES=${HOLDFAST_PART_LINES:-50} HOLDFAST_CHECKPOINT_LINES=${HOLDFAST_CHECKPOINT_LINES:-16} HOLDFAST_CHECKPOINT_EVERY=${HOLDFAST_CHECKPOINT_EVERY:-2s}
export HOLDFAST_CONCURRENCY=${HOLDFAST_CONCURRENCY:-8} HOLDFAST_MAX_CONCURRENCY=${HOLDFAST_MAX_CONCURRENCY:-4}
export HOLDFAST_CONCURRENCY_FLOOR=${HOLDFAST_CONCURRENCY_FLOOR:-$HOLDFAST_CONCURRENCY} HOLDFAST_CONCURRENCY_CEILING=${HOLDFAST_CONCURRENCY_CEILING:-$HOLDFAST_CONCURRENCY}
export HOLDFAST_FUNCTION_TIMEOUT=${HOLDFAST_FUNCTION_TIMEOUT:-60s} HOLDFAST_LINE_TIMEOUT=${HOLDFAST_LINE_TIMEOUT:-5s} HOLDFAST_MARGIN=${HOLDFAST_MARGIN:-5s}
export HOLDFAST_OVERDUE=${HOLDFAST_OVERDUE:-20s} HOLDFAST_DRAIN=${HOLDFAST_DRAIN:-5s} HOLDFAST_DEAD_GRACE=${HOLDFAST_DEAD_GRACE:-15s}
# A claim's shortest life; and a function's time above it, so that who sleeps beyond it wakes.
export HOLDFAST_CLAIM_STALE=${HOLDFAST_CLAIM_STALE:-30s} HOLDFAST_SUBMIT_TIMEOUT=${HOLDFAST_SUBMIT_TIMEOUT:-10s}

[ -d /proc/self ] || die "chaos needs /proc, which this system hasn't: workers are found by their environment"
doctor
own_stack
export HOLDFAST_FRONT_PORT=$spare_port

prepare
build
stage driver go build -o "$bin_dir/" ./localstack/chaos
deploy
stage_table

# shellcheck source=/dev/null
. "$local_dir/env"
local_aws
stage_wait "$(python_path)" localstack/process.py run -- "$bin_dir/chaos" --stack "$local_dir" --listen "127.0.0.1:$HOLDFAST_FRONT_PORT" \
  --json "$local_dir.json" --kills "${KILLS:-20}" --lines "${CHAOS_LINES:-5000}" ${CHAOS_SEED:+--seed "$CHAOS_SEED"} ${CHAOS_SMALL:+--small} ${CHAOS_ONLY:+--only "$CHAOS_ONLY"}
