# Runs the steps of a long command one after the other, tells how long each took and ends them when interrupted. Sourced, never run.
# shellcheck disable=SC2154 # log_dir is settings.sh's
# shellcheck shell=bash

stage_names=()
stage_times=()
stage_child=''

# Tenths of a second since the shell started, or whole seconds where this bash can't tell tenths (macOS's).
stage_now() {
  if [ -n "${EPOCHREALTIME:-}" ]; then
    local now=${EPOCHREALTIME/[.,]/}
    echo "${now%?????}"
  else
    echo "$(date +%s)0"
  fi
}

tenths() { printf '%d.%d' $(($1 / 10)) $(($1 % 10)); }

# stage NAME COMMAND...: the command's output goes to a log and is shown when it fails, or always with V=1.
stage() {
  local name=$1 began log status
  shift
  began=$(stage_now)
  log="$log_dir/stage-$name.log"
  if [ -n "${V:-}" ]; then
    stage_wait "$(python_path)" localstack/process.py run -- "$@" && status=0 || status=$?
  else
    stage_wait "$(python_path)" localstack/process.py run --log "$log" --label "stage $name" -- "$@" && status=0 || status=$?
  fi
  stage_ended "$name" "$began"
  if [ "$status" -ne 0 ]; then
    if [ -z "${V:-}" ] && [ -s "$log" ]; then
      printf '\nstage %s failed; what it said (%s):\n' "$name" "$log" >&2
      tail -n 60 "$log" >&2
    fi
    exit "$status"
  fi
}

# stage_shown NAME COMMAND...: a stage whose output is for the reader.
stage_shown() {
  local name=$1 began status
  shift
  began=$(stage_now)
  stage_wait "$(python_path)" localstack/process.py run -- "$@" && status=0 || status=$?
  stage_ended "$name" "$began"
  if [ "$status" -ne 0 ]; then
    exit "$status"
  fi
}

# stage_wait COMMAND...: a plain command, not a function, so that the id waited for is the command's own. Waiting for a child in the background lets a trap run at once: bash leaves it until a foreground child is over.
stage_wait() {
  local status
  "$@" &
  stage_child=$!
  wait "$stage_child" && status=0 || status=$?
  stage_child=''
  return "$status"
}

stage_ended() {
  local took=$(($(stage_now) - $2))
  stage_names+=("$1")
  stage_times+=("$took")
  printf 'stage %-14s %6s s\n' "$1" "$(tenths "$took")"
}

# stage_table: all of them, and their sum.
stage_table() {
  local i sum=0
  printf '\n%-20s %8s\n' stage seconds
  for ((i = 0; i < ${#stage_names[@]}; i++)); do
    printf '%-20s %8s\n' "${stage_names[i]}" "$(tenths "${stage_times[i]}")"
    sum=$((sum + stage_times[i]))
  done
  printf '%-20s %8s\n\n' total "$(tenths "$sum")"
}

# stage_interrupted NUMBER: for INT and TERM; ends the running stage and leaves, so that the EXIT trap runs.
stage_interrupted() {
  trap '' INT TERM HUP
  if [ -n "$stage_child" ]; then
    kill -TERM "$stage_child" 2>/dev/null || true
    wait "$stage_child" 2>/dev/null || true
  fi
  printf '\ninterrupted\n' >&2
  exit $((128 + $1))
}
trap 'stage_interrupted 2' INT
trap 'stage_interrupted 15' TERM
trap 'stage_interrupted 1' HUP
