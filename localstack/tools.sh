#!/usr/bin/env bash
# Installs the locked Python and Node tools into .local/tools; does nothing while the lock files are the installed ones.
# `tools.sh clients` does so with the official clients that only the end-to-end tests need.
# `tools.sh lock` makes the Python lock files anew from their requirements.in.
. "$(dirname "$0")/settings.sh"

# current STAMP FILE...: whether the stamp was written for exactly these files.
current() {
  local stamp=$1
  shift
  [ -s "$stamp" ] && [ "$(cat "$stamp")" = "$(digest "$@")" ]
}

python_tools() {
  local stamp="$tools_dir/python.lock"
  # A venv breaks when the Python it was made from goes away, so look that it runs.
  if current "$stamp" localstack/requirements.txt && "$tools_dir/venv/bin/python" -c '' 2>/dev/null; then return; fi
  rm -rf "$tools_dir/venv" "$stamp"
  python3 -m venv "$tools_dir/venv"
  "$tools_dir/venv/bin/python" -m pip install --quiet --disable-pip-version-check --require-hashes -r localstack/requirements.txt
  digest localstack/requirements.txt >"$stamp"
}

node_tools() {
  local stamp="$tools_dir/node.lock"
  if current "$stamp" localstack/package.json localstack/package-lock.json && [ -x "$tools_dir/node_modules/.bin/cdk" ]; then return; fi
  rm -rf "$tools_dir/node_modules" "$stamp"
  cp localstack/package.json localstack/package-lock.json "$tools_dir/"
  npm ci --prefix "$tools_dir" --no-audit --no-fund --no-update-notifier --loglevel=error
  digest localstack/package.json localstack/package-lock.json >"$stamp"
}

# The official clients that the end-to-end tests run, apart from the tools: what they need is not what the local AWS needs.
client_tools() {
  local from=localstack/e2e/clients to="$tools_dir/clients"
  local stamp="$to/clients.lock"
  if current "$stamp" "$from/requirements.txt" "$from/package.json" "$from/package-lock.json" && "$to/venv/bin/python" -c '' 2>/dev/null; then return; fi
  rm -rf "$to"
  mkdir -p "$to"
  python3 -m venv "$to/venv"
  "$to/venv/bin/python" -m pip install --quiet --disable-pip-version-check --require-hashes -r "$from/requirements.txt"
  cp "$from/package.json" "$from/package-lock.json" "$to/"
  npm ci --prefix "$to" --no-audit --no-fund --no-update-notifier --loglevel=error
  digest "$from/requirements.txt" "$from/package.json" "$from/package-lock.json" >"$stamp"
}

# lock FOLDER: makes its requirements.txt anew from its requirements.in, under the header that it has.
lock() {
  local header
  header=$(sed -n '/^#/p' "$1/requirements.txt" | sed -n '1,2p')
  "$root/.local/uv/bin/uv" pip compile --quiet --universal --generate-hashes --no-header --python-version 3.10 --upgrade \
    "$1/requirements.in" -o "$root/.local/requirements.txt"
  { printf '%s\n' "$header"; cat "$root/.local/requirements.txt"; } >"$1/requirements.txt"
  rm "$root/.local/requirements.txt"
}

case ${1:-install} in
  install)
    mkdir -p "$tools_dir"
    python_tools
    node_tools
    ;;
  clients) client_tools ;;
  locked) # locked [clients]: install, or clients, but one terminal at a time: demo and tests share the folder
    python3 localstack/process.py lock "$root/.local/tools.lock" -- bash "$0" "${2:-install}"
    ;;
  lock)
    python3 -m venv "$root/.local/uv"
    "$root/.local/uv/bin/python" -m pip install --quiet --disable-pip-version-check uv
    lock localstack
    lock localstack/e2e/clients
    rm -rf "$root/.local/uv"
    ;;
  *) die "usage: tools.sh [install|clients|locked [clients]|lock]" ;;
esac
