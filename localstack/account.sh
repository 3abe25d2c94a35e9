#!/usr/bin/env bash
# Deploys to a real AWS account: the one that your AWS credentials, profile and region name. arm64 functions.
. "$(dirname "$0")/settings.sh"
# shellcheck source=stage.sh
. "$root/localstack/stage.sh"

if [ -n "${AWS_ENDPOINT_URL:-}" ]; then
  die "this shell points at a local stack (AWS_ENDPOINT_URL=$AWS_ENDPOINT_URL): open a new one to deploy to an account"
fi
[ -n "${HOLDFAST_UPSTREAM_URL:-}${HOLDFAST_UPSTREAMS:-}" ] || die 'which model server should the batches go to? For example:
  HOLDFAST_UPSTREAM_URL=https://models.example.com make deploy
It is the base URL of an OpenAI-compatible server, without /v1. If it wants a bearer token, keep that in
Secrets Manager and name the secret: HOLDFAST_UPSTREAM_SECRET=holdfast/upstream
Several, by model: docs/upstreams.md'

sh localstack/doctor.sh
stage commands bash localstack/binaries.sh locked commands holdfast
stage settings "$bin_dir/holdfast" config --deploy # names everything that won't do, before minutes are spent
stage tools bash localstack/tools.sh locked
echo 'building the functions for arm64, then the app: some minutes each when it is the first time'
stage functions bash localstack/binaries.sh locked functions arm64
stage infra bash localstack/binaries.sh locked infra
trap - INT TERM HUP # cdk asks questions, so it is no stage: it needs the terminal

outputs="$root/.local/outputs.json"
cdk=("$tools_dir/node_modules/.bin/cdk" --no-notices)
printf 'upstream   %s\naccount    %s\nregion     %s\n' "${HOLDFAST_UPSTREAM_URL:-by model}" "${CDK_DEFAULT_ACCOUNT:-that of your credentials${AWS_PROFILE:+ (profile $AWS_PROFILE)}}" \
  "${AWS_REGION:-${AWS_DEFAULT_REGION:-that of your profile}}"
"${cdk[@]}" deploy Holdfast --app "$build_dir/infra" --output "$root/.local/cdk.out" --outputs-file "$outputs" \
  --context functions="$build_dir/arm64" --context architecture=arm64 \
  ${ALARM_EMAIL:+--context "alarmEmail=$ALARM_EMAIL"} ${DOORS:+--context "doors=$DOORS"} ${GATEWAY:+--context "gateway=$GATEWAY"} \
  ${VPC:+--context "vpc=$VPC"} ${SUBNETS:+--context "subnets=$SUBNETS"} ${ROUTE_TABLES:+--context "routeTables=$ROUTE_TABLES"} ${ENDPOINTS:+--context "endpoints=$ENDPOINTS"} || die "
The deploy failed. If the account was never used with CDK in this region:
  $tools_dir/node_modules/.bin/cdk bootstrap aws://ACCOUNT/REGION"

output() { python -c 'import json, sys; print(json.load(open(sys.argv[1]))["Holdfast"][sys.argv[2]])' "$outputs" "$1"; }
printf '\nDeployed; all outputs are in %s. Next, an API key and a first batch:\n\n' "$outputs"
printf '  HOLDFAST_TABLE=%s %s key create --tenant TENANT --principal YOU@EXAMPLE.COM --scopes submit,read --name first\n' "$(output TableName)" "$bin_dir/holdfast"
printf '  HOLDFAST_URL=%s HOLDFAST_API_KEY=<that key> %s submit FILE.jsonl --wait\n' "$(output ApiUrl)" "$bin_dir/holdfast"
