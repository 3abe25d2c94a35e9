#!/usr/bin/env bash
# Replaces a stack of an earlier commit (FROM) by the working tree's while it runs a batch, on a stack of its own. Apart from
# `make test` because it needs the history, builds two CDK apps and takes minutes.
#   FROM          the commit to upgrade from; the last one whose code isn't the working tree's, unless set
#   UPGRADE_LINES lines of the batch (7000)
#   UPGRADE_KILL  set: the old workers are killed in mid-run, where they would otherwise end in good order
export HOLDFAST_LOCAL=.local/upgrade
unset HOLDFAST_PORT HOLDFAST_MODEL_PORT UPSTREAM_URL HOLDFAST_URL HOLDFAST_API_KEY MODEL_URL
# Few slots, so that the batch lasts; short lives, so that an old worker hands over to a new one in good order.
export HOLDFAST_PART_LINES=200 HOLDFAST_CHECKPOINT_LINES=50 HOLDFAST_CONCURRENCY=3 HOLDFAST_CONCURRENCY_CEILING=3 HOLDFAST_MAX_CONCURRENCY=3
export HOLDFAST_LEASE=8s HOLDFAST_HEARTBEAT=2s HOLDFAST_SKEW=1s HOLDFAST_FUNCTION_TIMEOUT=20s HOLDFAST_LINE_TIMEOUT=5s HOLDFAST_MARGIN=5s
. "$(dirname "$0")/up.sh"

if [ "${1:-}" != locked ] && command -v python3 >/dev/null; then
  exec python3 localstack/process.py lock "$root/.local/upgrade.lock" --busy 'another make upgrade runs in this checkout' -- bash "$0" locked
fi

code=(cmd functions internal infra go.mod)
git rev-parse --git-dir >/dev/null 2>&1 || die "make upgrade needs the history: this is no git checkout"
from=${FROM:-}
if [ -z "$from" ]; then
  from=HEAD
  # Nothing changed since: then the last change of the code is what is looked at.
  if [ -z "$(git status --porcelain -- "${code[@]}")" ]; then from="$(git log -1 --format=%H -- "${code[@]}")~"; fi
fi
from=$(git rev-parse --verify --quiet "$from^{commit}") || die "there is no commit ${FROM:-before this one} here (a shallow clone has no history)"
echo "from $(git log -1 --format='%h %s' "$from")"

doctor
before="$local_dir/before" # the earlier commit's tree, with builds of its own
own_stack
rm -rf "$before"
mkdir -p "$before/.local"
git archive "$from" | tar xf - -C "$before"

prepare
ln -s "$tools_dir" "$before/.local/tools" # the earlier commit's own locks install what they lack beside it

# The new code first: what doesn't build would stop it late.
build
stage driver go build -o "$bin_dir/" ./localstack/upgrade
stage before bash "$before/localstack/up.sh"
stage_table

# shellcheck source=/dev/null
. "$local_dir/env"
local_aws
# Neither emulator nor model is touched by the deploy: only what an operator's would change.
stage_wait "$(python_path)" localstack/process.py run -- "$bin_dir/upgrade" --lines "${UPGRADE_LINES:-7000}" \
  --functions "$(bash localstack/binaries.sh folder)" --deploy 'bash localstack/stack.sh deploy' \
  ${UPGRADE_KILL:+--kill} --crash "$((HOLDFAST_CHECKPOINT_LINES + HOLDFAST_CONCURRENCY))"
