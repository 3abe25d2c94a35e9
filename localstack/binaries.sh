#!/usr/bin/env bash
# Builds what runs: the functions, the CDK app, the commands. Unchanged sources cost a second.
. "$(dirname "$0")/settings.sh"

# functions OS ARCHITECTURE FOLDER: every functions/<name> to FOLDER/<name>/bootstrap; folders of functions that went away are removed.
functions() {
  local os=$1 architecture=$2 folder=$3 source name
  mkdir -p "$folder"
  for source in "$folder"/*/; do
    name=$(basename "$source")
    if [ -d "$source" ] && [ ! -f "functions/$name/main.go" ]; then rm -rf "$source"; fi
  done
  for source in functions/*/main.go; do
    [ -f "$source" ] || die "no functions under functions/"
    name=$(basename "$(dirname "$source")")
    GOOS=$os GOARCH=$architecture go build -tags lambda.norpc -ldflags='-s -w' -o "$folder/$name/bootstrap" "./functions/$name"
  done
}

case ${1:-} in
  functions)
    case ${2:-host} in
      # The emulator runs functions as processes of this machine.
      host) functions "$(go env GOHOSTOS)" "$(go env GOHOSTARCH)" "$(bash localstack/binaries.sh folder)" ;;
      *) functions linux "$2" "$build_dir/$2" ;;
    esac
    ;;
  folder) # where the functions for this machine are
    if [ "$(go env GOHOSTOS)" = linux ]; then echo "$build_dir/$(go env GOHOSTARCH)"; else echo "$build_dir/$(go env GOHOSTOS)-$(go env GOHOSTARCH)"; fi
    ;;
  infra)
    mkdir -p "$build_dir"
    go build -o "$build_dir/infra" ./infra
    ;;
  commands) # commands [NAME...]: those named, else those that a stack needs
    shift
    [ "$#" -gt 0 ] || set -- holdfast modelsim
    mkdir -p "$bin_dir"
    go build -o "$bin_dir/" "${@/#/./cmd/}"
    ;;
  locked) # locked ARGUMENT...: one terminal at a time, since demo and tests share the folders
    shift
    process lock "$root/.local/binaries.lock" -- bash "$0" "$@"
    ;;
  *) die "usage: binaries.sh functions [host|arm64|amd64] | folder | infra | commands [NAME...] | locked ..." ;;
esac
