#!/bin/sh
# Names what this machine lacks for the local stack, one line each, and how to get it. Exit 1 when something is missing.
# Plain sh: it must run where bash itself is what is missing.
missing=0

lacks() {
  missing=$((missing + 1))
  printf 'missing: %s\n' "$1"
}

has() { command -v "$1" >/dev/null 2>&1; }

# at_least WANTED FOUND: compares MAJOR.MINOR.
at_least() {
  awk -v wanted="$1" -v found="$2" 'BEGIN {
    split(wanted, w, "."); split(found, f, ".")
    exit !(f[1] + 0 > w[1] + 0 || (f[1] + 0 == w[1] + 0 && f[2] + 0 >= w[2] + 0))
  }'
}

if ! has awk; then lacks 'awk: your package manager has it (gawk or mawk)'; fi
has bash || lacks 'bash: your package manager has it'
has make || lacks 'make: Debian "apt install make", Alpine "apk add make", macOS "xcode-select --install"'
has openssl || lacks 'openssl: your package manager has it; it makes the certificate of the local AWS'

if has go; then
  found=$(GOTOOLCHAIN=local go env GOVERSION 2>/dev/null | sed 's/^go//')
  at_least 1.26 "$found" || lacks "Go 1.26 or later (found ${found:-none that runs}): https://go.dev/doc/install"
else
  lacks 'Go 1.26 or later: https://go.dev/doc/install'
fi

if has node; then
  found=$(node --version 2>/dev/null | sed 's/^v//')
  at_least 20.0 "$found" || lacks "Node 20 or later (found ${found:-none that runs}): https://nodejs.org/en/download"
else
  lacks 'Node 20 or later: https://nodejs.org/en/download'
fi
has npm || lacks 'npm: it comes with Node (Debian: "apt install npm")'

if has python3; then
  found=$(python3 -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null)
  if ! at_least 3.10 "$found"; then
    lacks "Python 3.10 or later as python3 (found ${found:-none that runs}): https://www.python.org/downloads/"
  elif ! python3 -c 'import venv, ensurepip' >/dev/null 2>&1; then
    lacks "Python's venv module: Debian \"apt install python3-venv\""
  fi
else
  lacks 'Python 3.10 or later as python3, with its venv module: https://www.python.org/downloads/ (Debian "apt install python3-venv")'
fi

if [ "$missing" -gt 0 ]; then
  exit 1
fi
if [ "${1:-}" != quiet ]; then
  printf 'nothing is missing: %s, Node %s, Python %s\n' "$(go env GOVERSION)" "$(node --version)" "$(python3 -c 'import platform; print(platform.python_version())')"
fi
