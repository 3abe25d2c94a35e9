#!/usr/bin/env bash
# Invokes a function of the running local stack with its sample event, or shows what the stack logged.
. "$(dirname "$0")/settings.sh"

outputs="$stack_dir/outputs.json"
{ [ -s "$outputs" ] && bash localstack/emulator.sh running; } || die "no stack runs in $local_dir: make up"
local_aws

case ${1:-} in
  invoke) # invoke NAME [EVENT]: events/NAME.json, or else the first events/NAME*.json
    name=${2:?which function?}
    event=${3:-}
    if [ -z "$event" ]; then
      for event in "events/$name.json" "events/$name"*.json; do [ ! -f "$event" ] || break; done
    fi
    [ -f "$event" ] || die "there is no event $event${3:+, which EVENT names}"
    echo "invoking $name with $event" >&2
    python localstack/function.py invoke "$outputs" "$name" "$event"
    ;;
  logs)
    shift
    python localstack/function.py logs "$outputs" "$@"
    printf '\nThe servers: tail -f %s %s\n' "$log_dir/emulator.log" "$log_dir/model.log"
    ;;
  *) die "usage: function.sh invoke NAME [EVENT] | logs [NAME...]" ;;
esac
