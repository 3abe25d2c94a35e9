#!/usr/bin/env bash
# The demo: brings the stack up and sends a batch through it. Leaves the stack up; `make down` ends it.
. "$(dirname "$0")/up.sh"

doctor
prepare
build
deploy
upstream
stage_shown batch bash localstack/batch.sh
stage_table
printf 'The stack stays up. For its variables: . %s    To end it: make down\n' "$local_dir/env"
