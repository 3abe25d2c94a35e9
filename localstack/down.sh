#!/usr/bin/env bash
# Ends the local stack wholly: both servers, their children, what was deployed. Tools and builds stay.
. "$(dirname "$0")/settings.sh"

bash localstack/model.sh stop
bash localstack/emulator.sh stop
rm -rf "$run_dir"
echo 'the local stack is down'
