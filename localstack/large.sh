#!/usr/bin/env bash
# A 512 MB file by presigned parts, killed in the middle and resumed, on a stack of its own whose files may be that large.
# Apart from `make test` for its time, and because the local AWS holds objects in memory: 1.5 GB of it at the peak.
export HOLDFAST_LOCAL=.local/large HOLDFAST_FILE_BYTES=600000000 HOLDFAST_E2E_UPLOAD_BYTES=536870912
unset HOLDFAST_PORT HOLDFAST_MODEL_PORT UPSTREAM_URL HOLDFAST_URL HOLDFAST_API_KEY MODEL_URL
. "$(dirname "$0")/up.sh"

if [ "${1:-}" != locked ] && command -v python3 >/dev/null; then
  exec python3 localstack/process.py lock "$root/.local/large.lock" --busy 'another make large runs in this checkout' -- bash "$0" locked
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
build
deploy
stage_table

# shellcheck source=/dev/null
. "$local_dir/env"
export HOLDFAST_CLI="$bin_dir/holdfast"
local_aws
go test -count=1 -timeout 10m -v -run '^TestLargeUploadKilledAndResumed$' ./localstack/e2e
