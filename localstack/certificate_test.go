package localstack

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// certificate runs certificate.sh for a stack in dir, on a machine whose roots are in the file roots.
func certificate(t *testing.T, dir, roots string) {
	t.Helper()
	arguments := []string{"-i", "PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir(), "HOLDFAST_LOCAL=" + dir, "SSL_CERT_FILE=" + roots, "bash", "certificate.sh"}
	if output, status := command(t, "env", arguments...); status != 0 {
		t.Fatalf("certificate.sh: %s", output)
	}
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func TestCertificate(t *testing.T) {
	other, dir := t.TempDir(), t.TempDir()
	certificate(t, other, "")
	root := filepath.Join(other, "tls", "certificate.pem") // stands for a root of the caller's own
	certificate(t, dir, root)

	at := func(name string) string { return filepath.Join(dir, "tls", name) }
	pair, err := tls.LoadX509KeyPair(at("certificate.pem"), at("key.pem"))
	if err != nil {
		t.Fatal(err)
	}
	bundle := read(t, at("bundle.pem"))
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(bundle) {
		t.Fatal("the bundle holds no certificate")
	}
	for _, name := range []string{"127.0.0.1", "localhost", "bucket.localhost"} {
		if _, err := pair.Leaf.Verify(x509.VerifyOptions{DNSName: name, Roots: pool}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := pair.Leaf.Verify(x509.VerifyOptions{DNSName: "example.com", Roots: pool}); err == nil {
		t.Error("it is good for example.com")
	}
	if !bytes.Contains(bundle, read(t, root)) {
		t.Error("the bundle lacks the caller's own root")
	}
	if info, err := os.Stat(at("key.pem")); err != nil || info.Mode().Perm()&0o077 != 0 {
		t.Errorf("the key can be read by others: %v %v", info.Mode(), err)
	}

	// A shell that loaded .local/env names the bundle itself as its roots: nothing may pile up.
	certificate(t, dir, at("bundle.pem"))
	if n, want := count(read(t, at("bundle.pem"))), count(bundle)-1; n != want { // less the caller's own root
		t.Errorf("%d certificates after a second run, want %d", n, want)
	}
	if kept, err := tls.LoadX509KeyPair(at("certificate.pem"), at("key.pem")); err != nil || !kept.Leaf.Equal(pair.Leaf) {
		t.Errorf("a good certificate was made anew: %v", err)
	}

	// One that cannot be read is.
	if err := os.WriteFile(at("certificate.pem"), []byte("damaged"), 0o600); err != nil {
		t.Fatal(err)
	}
	certificate(t, dir, "")
	mended, err := tls.LoadX509KeyPair(at("certificate.pem"), at("key.pem"))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(read(t, at("bundle.pem"))), string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: mended.Certificate[0]}))) {
		t.Error("the bundle lacks the new certificate")
	}
}

func count(bundle []byte) int { return bytes.Count(bundle, []byte("BEGIN CERTIFICATE")) }
