#!/usr/bin/env bash
# Deploys the real CDK app into the emulator and writes the environment file that its clients load.
. "$(dirname "$0")/settings.sh"

outputs="$stack_dir/outputs.json"
mkdir -p "$stack_dir"

cdk() {
  local_aws
  # Resource names of a stack whose environment file this shell may have loaded are not settings of the one deployed here.
  unset HOLDFAST_TABLE HOLDFAST_INPUTS_BUCKET HOLDFAST_RESULTS_BUCKET HOLDFAST_WORK_QUEUE_URL HOLDFAST_STATE_MACHINE_ARN \
    HOLDFAST_DEAD_LETTERS_URL HOLDFAST_REAP_FUNCTION HOLDFAST_INGEST_QUEUE_URL HOLDFAST_INGEST_DEAD_LETTERS_URL HOLDFAST_INGEST_FUNCTION HOLDFAST_GATEWAY_URL
  CDK_DISABLE_CLI_TELEMETRY=true CDK_DISABLE_VERSION_CHECK=1 "$tools_dir/node_modules/.bin/cdk" --no-notices --no-version-reporting "$@"
}

output() { python -c 'import json, sys; print(json.load(open(sys.argv[1]))["Holdfast"][sys.argv[2]])' "$outputs" "$1"; }

bootstrap() {
  [ ! -e "$stack_dir/bootstrapped" ] || return 0
  # From a folder without cdk.json, so that no app is run for it.
  (cd "$stack_dir" && cdk bootstrap aws://000000000000/us-east-1)
  touch "$stack_dir/bootstrapped"
}

# wanted: a fingerprint of everything that a deploy depends on.
wanted() {
  local folder=$1
  {
    find "$folder" -type f | LC_ALL=C sort | while IFS= read -r file; do digest "$file"; done
    digest "$build_dir/infra" cdk.json
    env | LC_ALL=C sort | grep -E '^HOLDFAST_' |
      grep -vE '^HOLDFAST_(LOCAL|PORT|MODEL_PORT|FRONT_PORT|NODE_MODULES|URL|API_KEY|TABLE|INPUTS_BUCKET|RESULTS_BUCKET|WORK_QUEUE_URL|STATE_MACHINE_ARN|DEAD_LETTERS_URL|REAP_FUNCTION|INGEST_QUEUE_URL|INGEST_DEAD_LETTERS_URL|INGEST_FUNCTION|GATEWAY_URL)=' || true
  } | openssl dgst -sha256 -r | cut -c1-64
}

# services: which models the stack calls.
services() {
  HOLDFAST_UPSTREAM_URL=$(model_url)
  export HOLDFAST_UPSTREAM_URL
  # The models of a local stack run on this machine, which no upstream elsewhere may lead to.
  export HOLDFAST_UPSTREAM_ALLOW="${HOLDFAST_UPSTREAM_ALLOW:-127.0.0.0/8,::1}"
  if [ -z "${UPSTREAM_URL:-}" ]; then export HOLDFAST_MODELS="${HOLDFAST_MODELS:-sim}"; fi # what the simulated one answers to
}

# settings: says all that deploy would refuse, in a second. What only `make deploy` reads has no say here.
settings() {
  services
  unset ALARM_EMAIL DOORS GATEWAY VPC SUBNETS ROUTE_TABLES ENDPOINTS
  AWS_ENDPOINT_URL="https://127.0.0.1:$(emulator_port)" "$bin_dir/holdfast" config --deploy ||
    die "${UPSTREAM_URL:+HOLDFAST_UPSTREAM_URL is here what UPSTREAM_URL says: correct that one. }Nothing was deployed."
}

deploy() {
  local folder stamp
  folder=$(bash localstack/binaries.sh folder)
  services
  stamp=$(wanted "$folder")
  if [ "$(cat "$stack_dir/deployed" 2>/dev/null)" = "$stamp" ] && [ -s "$outputs" ]; then return; fi
  rm -f "$stack_dir/deployed"
  cdk deploy Holdfast --app "$build_dir/infra" --output "$local_dir/cdk.out" --outputs-file "$outputs" \
    --require-approval never --method direct --progress events --ci \
    --context functions="$folder" --context architecture="$(go env GOHOSTARCH)" --context removal=destroy
  echo "$stamp" >"$stack_dir/deployed"
}

quoted() { printf "'%s'" "$(printf %s "$1" | sed "s/'/'\\\\''/g")"; }

# shellcheck disable=SC2034 # named again, all together, in the loop
environment() {
  local_aws
  local api gateway name
  api=$(output ApiUrl)
  api=${api#*://}
  HOLDFAST_URL="$AWS_ENDPOINT_URL/_aws/execute-api/${api%%.*}/\$default"
  MODEL_URL=$(model_url)
  HOLDFAST_TABLE=$(output TableName)
  HOLDFAST_INPUTS_BUCKET=$(output InputsBucketName)
  HOLDFAST_RESULTS_BUCKET=$(output ResultsBucketName)
  HOLDFAST_WORK_QUEUE_URL=$(output WorkQueueUrl)
  HOLDFAST_STATE_MACHINE_ARN=$(output StateMachineArn)
  HOLDFAST_DEAD_LETTERS_URL=$(output DeadLetterQueueUrl)
  HOLDFAST_REAP_FUNCTION=$(output ReapFunctionName)
  HOLDFAST_INGEST_QUEUE_URL=$(output IngestQueueUrl)
  HOLDFAST_INGEST_DEAD_LETTERS_URL=$(output IngestDeadLettersUrl)
  HOLDFAST_INGEST_FUNCTION=$(output IngestFunctionName)
  gateway=$(output GatewayUrl) # its host is one that nobody resolves
  gateway=${gateway#*://}
  HOLDFAST_GATEWAY_URL="$AWS_ENDPOINT_URL/_aws/lambda-url/${gateway%%.*}"
  HOLDFAST_API_KEY=''
  if [ -s "$stack_dir/key.json" ]; then
    HOLDFAST_API_KEY=$(python -c 'import json, sys; key = json.load(open(sys.argv[1])); print(key["secret"])' "$stack_dir/key.json")
  fi
  (
    umask 077
    {
      echo "# The local stack in $local_dir: '. $local_dir/env' points this shell's clients at it."
      echo 'unset AWS_PROFILE AWS_DEFAULT_PROFILE AWS_SESSION_TOKEN AWS_SECURITY_TOKEN AWS_ROLE_ARN AWS_WEB_IDENTITY_TOKEN_FILE'
      for name in HOLDFAST_URL HOLDFAST_API_KEY MODEL_URL AWS_ENDPOINT_URL AWS_ENDPOINT_URL_S3 AWS_REGION AWS_DEFAULT_REGION \
        AWS_ACCESS_KEY_ID AWS_SECRET_ACCESS_KEY SSL_CERT_FILE NODE_EXTRA_CA_CERTS AWS_CA_BUNDLE CURL_CA_BUNDLE HOLDFAST_TABLE HOLDFAST_INPUTS_BUCKET \
        HOLDFAST_RESULTS_BUCKET HOLDFAST_WORK_QUEUE_URL HOLDFAST_STATE_MACHINE_ARN HOLDFAST_DEAD_LETTERS_URL HOLDFAST_REAP_FUNCTION \
        HOLDFAST_INGEST_QUEUE_URL HOLDFAST_INGEST_DEAD_LETTERS_URL HOLDFAST_INGEST_FUNCTION HOLDFAST_GATEWAY_URL; do
        printf 'export %s=%s\n' "$name" "$(quoted "${!name}")"
      done
    } >"$local_dir/env.new"
  )
  mv "$local_dir/env.new" "$local_dir/env"
}

key() {
  environment
  [ ! -s "$stack_dir/key.json" ] || return 0
  # shellcheck source=/dev/null
  . "$local_dir/env"
  (umask 077 && "$bin_dir/holdfast" key create --tenant demo --principal you@example.com --scopes submit,read,admin --name demo --json >"$stack_dir/key.new")
  mv "$stack_dir/key.new" "$stack_dir/key.json"
  environment
}

case ${1:-} in
  bootstrap) bootstrap ;;
  settings) settings ;;
  deploy) deploy ;;
  key) key ;;
  *) die "usage: stack.sh bootstrap|settings|deploy|key" ;;
esac
