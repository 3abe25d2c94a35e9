#!/usr/bin/env bash
# Makes the certificate of the local AWS, and the bundle (system roots and that certificate) that its clients trust.
# Both are made anew a month before they expire. Nothing of it is installed anywhere.
. "$(dirname "$0")/settings.sh"

tls_dir="$local_dir/tls"
mark='# Holdfast: system roots and the certificate of the local AWS'

valid() { openssl x509 -in "$tls_dir/certificate.pem" -noout -checkend 2592000 >/dev/null 2>&1 && [ -s "$tls_dir/key.pem" ]; }

certificate() {
  # A file and not -addext, which older LibreSSL lacks. Not a CA: some clients refuse one that serves itself.
  cat >"$tls_dir/openssl.cnf" <<'CONF'
[req]
distinguished_name = name
x509_extensions = extensions
prompt = no
[name]
CN = Holdfast local AWS
[extensions]
basicConstraints = critical,CA:FALSE
keyUsage = critical,digitalSignature,keyEncipherment
extendedKeyUsage = serverAuth
subjectAltName = DNS:localhost,DNS:*.localhost,IP:127.0.0.1
CONF
  (umask 077 && openssl req -x509 -newkey rsa:2048 -nodes -sha256 -days 365 -config "$tls_dir/openssl.cnf" \
    -keyout "$tls_dir/key.pem" -out "$tls_dir/certificate.pem" 2>"$tls_dir/openssl.log") || die "openssl failed: $(cat "$tls_dir/openssl.log")"
  rm -f "$tls_dir/bundle.pem" "$tls_dir/openssl.cnf" "$tls_dir/openssl.log"
}

# roots: the files of the system's trusted roots: those the caller's own variables name, else the first usual place that exists.
roots() {
  local file named=''
  for file in "${SSL_CERT_FILE:-}" "${NODE_EXTRA_CA_CERTS:-}"; do
    # A shell that loaded .local/env names our own bundle: taking that would pile bundle on bundle.
    if [ -s "$file" ] && [ "$(head -n 1 "$file")" != "$mark" ] && [ "$file" != "$named" ]; then
      echo "$file"
      named=$file
    fi
  done
  for file in /etc/ssl/certs/ca-certificates.crt /etc/pki/tls/certs/ca-bundle.crt /etc/ssl/cert.pem /etc/ssl/ca-bundle.pem \
    /opt/homebrew/etc/ca-certificates/cert.pem /usr/local/etc/ca-certificates/cert.pem; do
    if [ -s "$file" ]; then
      [ "$file" = "$named" ] || echo "$file"
      return
    fi
  done
}

bundle() {
  local file
  {
    echo "$mark"
    roots | while IFS= read -r file; do cat "$file"; echo; done
    cat "$tls_dir/certificate.pem"
  } >"$tls_dir/bundle.new"
  # Only a real change touches it: a running stack reads this file.
  if cmp -s "$tls_dir/bundle.new" "$tls_dir/bundle.pem"; then rm "$tls_dir/bundle.new"; else mv "$tls_dir/bundle.new" "$tls_dir/bundle.pem"; fi
}

mkdir -p "$tls_dir"
valid || certificate
bundle
