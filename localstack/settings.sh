# What every script of this folder shares: places, ports and a clean environment. Sourced, never run.
# shellcheck disable=SC2034 # used by the scripts that source this
# shellcheck shell=bash
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
cd "$root"

die() { printf '%s\n' "$*" >&2; exit 1; }

# A machine without a home folder (CI, `env -i`) still needs one for Go's, npm's and CDK's caches.
if [ -z "${HOME:-}" ] || [ ! -d "$HOME" ] || [ ! -w "$HOME" ]; then
  HOME="$root/.local/home"
  mkdir -p "$HOME"
fi
export HOME

# One folder per stack; the demo's and the test's differ here and in their ports, in nothing else.
local_dir=${HOLDFAST_LOCAL:-.local}
mkdir -p "$local_dir"
local_dir=$(cd "$local_dir" && pwd -P)
export HOLDFAST_LOCAL="$local_dir"
run_dir="$local_dir/run"          # everything that ends with the emulator
stack_dir="$run_dir/stack"        # what was deployed into it
log_dir="$local_dir/log"
mkdir -p "$run_dir" "$log_dir"

# Shared by all stacks of this checkout, and only read once made.
tools_dir="$root/.local/tools"
build_dir="$root/.local/build"
bin_dir="$root/.local/bin"
export HOLDFAST_NODE_MODULES="$tools_dir/node_modules"

# Go: one set of flags for functions, commands, app and tests, so that each dependency is compiled once; and no stamp
# of the commit, or every commit would be deployed again.
case " ${GOFLAGS:-} " in
  *' -buildvcs=false -trimpath '*) ;;
  *) export GOFLAGS="${GOFLAGS:+$GOFLAGS }-buildvcs=false -trimpath" ;;
esac
export CGO_ENABLED=0

# The venv's Python where there is one; any other will do for process.py, which must run before and after.
python_path() { if [ -x "$tools_dir/venv/bin/python" ]; then echo "$tools_dir/venv/bin/python"; else echo python3; fi; }
python() { "$(python_path)" "$@"; }
process() { python localstack/process.py "$@"; }

# digest FILE...: one fingerprint of all the files' names and bytes.
digest() { openssl dgst -sha256 -r "$@" | openssl dgst -sha256 -r | cut -c1-64; }

# A running stack keeps its port; HOLDFAST_PORT chooses it for a new one.
emulator_port() {
  if [ -s "$run_dir/emulator.port" ]; then cat "$run_dir/emulator.port"; else echo "${HOLDFAST_PORT:-4566}"; fi
}
model_port() {
  if [ -s "$run_dir/model.port" ]; then cat "$run_dir/model.port"; else echo "${HOLDFAST_MODEL_PORT:-4567}"; fi
}
model_url() { echo "${UPSTREAM_URL:-http://127.0.0.1:$(model_port)}"; }

# right_ports: what no server could listen on is said here, where the variable is known.
right_ports() {
  local name
  for name in HOLDFAST_PORT HOLDFAST_MODEL_PORT; do
    case ${!name:-1} in
      *[!0-9]* | 0* | ??????*) die "$name=${!name}: must be a port, a number from 1 to 65535" ;;
    esac
    [ "${!name:-1}" -le 65535 ] || die "$name=${!name}: must be a port, a number from 1 to 65535"
  done
  [ -n "${UPSTREAM_URL:-}" ] || [ "${HOLDFAST_PORT:-4566}" != "${HOLDFAST_MODEL_PORT:-4567}" ] ||
    die "port ${HOLDFAST_PORT:-4566} is chosen twice: the AWS and the model need one each (HOLDFAST_PORT, HOLDFAST_MODEL_PORT)"
}
right_ports

# local_aws: the variables that point AWS clients of this shell, and its children, at the emulator and at nothing else.
local_aws() {
  AWS_ENDPOINT_URL="https://127.0.0.1:$(emulator_port)"
  AWS_ENDPOINT_URL_S3=$AWS_ENDPOINT_URL
  AWS_REGION=us-east-1 AWS_DEFAULT_REGION=us-east-1
  AWS_ACCESS_KEY_ID=test AWS_SECRET_ACCESS_KEY=test   # the emulator's root; every other caller is a role it checks
  AWS_CONFIG_FILE=/dev/null AWS_SHARED_CREDENTIALS_FILE=/dev/null
  SSL_CERT_FILE="$local_dir/tls/bundle.pem" AWS_CA_BUNDLE="$local_dir/tls/bundle.pem" NODE_EXTRA_CA_CERTS="$local_dir/tls/bundle.pem"
  CURL_CA_BUNDLE="$local_dir/tls/bundle.pem"   # goes before SSL_CERT_FILE where somebody has set it
  export AWS_ENDPOINT_URL AWS_ENDPOINT_URL_S3 AWS_REGION AWS_DEFAULT_REGION AWS_ACCESS_KEY_ID AWS_SECRET_ACCESS_KEY \
    AWS_CONFIG_FILE AWS_SHARED_CREDENTIALS_FILE SSL_CERT_FILE AWS_CA_BUNDLE NODE_EXTRA_CA_CERTS CURL_CA_BUNDLE
  unset AWS_PROFILE AWS_DEFAULT_PROFILE AWS_SESSION_TOKEN AWS_SECURITY_TOKEN AWS_ROLE_ARN AWS_WEB_IDENTITY_TOKEN_FILE
}
