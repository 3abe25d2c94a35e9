#!/usr/bin/env bash
# Looks at the source: formatting, vet, staticcheck, tests.
. "$(dirname "$0")/settings.sh"

tool() { go tool -modfile=localstack/tools/go.mod "$@"; }

# quick: the packages that need neither the local AWS nor the CDK's minutes of compiling.
quick() { go list ./... | grep -vE '^holdfast/(infra|internal/aws|localstack/e2e)(/|$)'; }

case ${1:-} in
  format)
    unformatted=$(gofmt -l ./*/) # hidden folders, .local among them, are not ours
    [ -z "$unformatted" ] || die "not formatted (gofmt -w mends it):
$unformatted"
    ;;
  vet) go vet ./... ;;
  staticcheck) tool staticcheck ./... ;;
  tests) # tests PACKAGE...
    shift
    tool gotestsum --format pkgname -- -count=1 -p 2 -parallel 4 -timeout 10m "$@"
    ;;
  check) # what takes under a minute
    bash "$0" format
    packages=$(quick)
    # shellcheck disable=SC2086 # package paths hold no spaces
    go vet $packages
    # shellcheck disable=SC2086
    bash "$0" tests $packages
    ;;
  *) die "usage: source.sh format|vet|staticcheck|tests PACKAGE...|check" ;;
esac
