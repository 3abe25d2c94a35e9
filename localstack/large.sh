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
own_stack

prepare
build
deploy
stage_table

# shellcheck source=/dev/null
. "$local_dir/env"
export HOLDFAST_CLI="$bin_dir/holdfast"
local_aws
go test -count=1 -timeout 10m -v -run '^TestLargeUploadKilledAndResumed$' ./localstack/e2e
