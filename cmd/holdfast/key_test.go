package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"strings"
	"testing"
	"time"

	"holdfast/internal/access"
	"holdfast/internal/config"
)

func TestKeyCreate(t *testing.T) {
	h := newHouse(t)
	h.env[config.EnvTable] = "t"
	r := h.run("key", "create", "--tenant", "acme", "--principal", "bob@acme.example", "--name", "ci", "--scopes", "read,admin").is(0, "won't be shown again")
	secret := strings.TrimSuffix(r.stdout, "\n")
	k, err := h.mem.Table.Keys.Get(t.Context(), access.HashSecret(secret))
	if err != nil || k.Tenant != "acme" || k.Principal != "bob@acme.example" || k.Name != "ci" || len(k.Scopes) != 2 || !k.ExpiresAt.IsZero() {
		t.Errorf("stored %+v, %v; stdout %q", k, err, r.stdout)
	}
	if strings.Contains(r.stderr, secret) {
		t.Error("the secret is on stderr too")
	}
	// It opens the door.
	h.env[envKey] = secret
	h.env["unused"] = ""
	h.run("status", "batch_unknown0000000000000001").is(1, "batch_not_found")
}

func TestKeyCreateJSON(t *testing.T) {
	h := newHouse(t)
	h.env[config.EnvTable] = "t"
	var out struct {
		Secret    string
		Tenant    string
		Scopes    []string
		ExpiresAt *time.Time `json:"expires_at"`
	}
	h.run("key", "create", "--tenant", "acme", "--principal", "bob", "--name", "ci", "--expires", "720h", "--json").is(0).object(&out)
	k, err := h.mem.Table.Keys.Get(t.Context(), access.HashSecret(out.Secret))
	if err != nil || out.Tenant != "acme" || strings.Join(out.Scopes, ",") != "submit,read" {
		t.Errorf("%+v, %v", out, err)
	}
	if out.ExpiresAt == nil || !out.ExpiresAt.Equal(k.ExpiresAt) || time.Until(k.ExpiresAt) < 719*time.Hour {
		t.Errorf("expires %v, stored %v", out.ExpiresAt, k.ExpiresAt)
	}
}

func TestKeyCreateRefusals(t *testing.T) {
	h := newHouse(t)
	h.env[config.EnvTable] = "t"
	all := func(change ...string) []string {
		args := []string{"key", "create", "--tenant", "acme", "--principal", "bob", "--name", "ci"}
		return append(args, change...)
	}
	h.run("key", "create").is(2, "required and not given: --principal, --name, --tenant\n", "See holdfast key create --help.")
	h.run(all("--tenant", "A/B", "--scopes", "write", "--expires", "-1h")...).is(2, "tenant: ", "scopes: ", "expires: ")
	h.run(all("--expires", "soon")...).is(2, "--expires soon")
	h.run(all("extra")...).is(2, "holdfast key create takes no argument\n", "See holdfast key create --help.")
	delete(h.env, config.EnvTable)
	h.run(all()...).is(2, config.EnvTable)
}

type brokenKeys struct{ access.Store }

func (brokenKeys) Put(context.Context, access.Key) error { return errors.New("AccessDenied") }

func TestKeyThatCannotBeStored(t *testing.T) {
	var out, errs strings.Builder
	code := run(t.Context(), []string{"key", "create", "--tenant", "acme", "--principal", "bob", "--name", "ci"}, &app{
		stdout: &out, stderr: &errs, now: time.Now, getenv: func(string) string { return "t" },
		keys: func(context.Context, string) (access.Store, error) { return brokenKeys{}, nil },
	})
	if code != 1 || out.String() != "" || !strings.Contains(errs.String(), "AccessDenied") || !strings.Contains(errs.String(), "credentials") {
		t.Errorf("%d, %q, %q: a secret that opens nothing must not be shown", code, &out, &errs)
	}
}

type unreachableKeys struct {
	access.Store
	err error
}

func (k unreachableKeys) Put(context.Context, access.Key) error { return k.err }

func TestKeyWithoutATable(t *testing.T) {
	sdk := func(err error) error {
		return fmt.Errorf("operation error DynamoDB: PutItem, exceeded maximum number of attempts, 5, %w", &url.Error{Op: "Post", URL: "http://127.0.0.1:1/", Err: err})
	}
	refused := sdk(&net.OpError{Op: "dial", Net: "tcp", Err: errors.New("connection refused")})
	for name, c := range map[string]struct {
		err      error
		endpoint string
		say      []string
		not      string
	}{
		"down":           {refused, "http://127.0.0.1:1", []string{"could not reach the endpoint of the table t, AWS_ENDPOINT_URL=http://127.0.0.1:1: dial tcp: connection refused", "make up", "AWS_ENDPOINT_URL", "credentials"}, "operation error"},
		"no such host":   {sdk(&net.DNSError{Err: "no such host", Name: "nope"}), "http://nope", []string{"could not reach", "lookup nope: no such host", "make up"}, "operation error"},
		"TLS port":       {sdk(io.EOF), "http://127.0.0.1:1", []string{"could not reach", "EOF"}, "operation error"},
		"AWS itself":     {refused, "", []string{"could not reach the endpoint of the table t, AWS: ", "AWS_ENDPOINT_URL is not set"}, "make up"},
		"no credentials": {errors.New("get identity: get credentials: no EC2 IMDS role found"), "http://127.0.0.1:1", []string{"no AWS credentials", "AWS_ACCESS_KEY_ID", ".local/env"}, "could not reach"},
		"another secret": {refused, "http://user:pass@127.0.0.1:1", []string{"AWS_ENDPOINT_URL=http://127.0.0.1:1:"}, "pass@"},
	} {
		t.Run(name, func(t *testing.T) {
			var out, errs strings.Builder
			env := map[string]string{config.EnvTable: "t", "AWS_ENDPOINT_URL": c.endpoint}
			code := run(t.Context(), []string{"key", "create", "--tenant", "acme", "--principal", "bob", "--name", "ci"}, &app{
				stdout: &out, stderr: &errs, now: time.Now, getenv: func(name string) string { return env[name] },
				keys: func(context.Context, string) (access.Store, error) { return unreachableKeys{err: c.err}, nil },
			})
			r := ran{t, code, out.String(), errs.String()}.is(1, c.say...)
			if r.stdout != "" || strings.Contains(r.stderr, c.not) {
				t.Errorf("stdout %q, stderr %q", r.stdout, r.stderr)
			}
		})
	}
}

func TestConfig(t *testing.T) {
	h := newHouse(t)
	h.env["HOLDFAST_LEASE"] = "80s"
	r := h.run("config").is(0)
	if !strings.Contains(r.stdout, "HOLDFAST_LEASE") || !strings.Contains(r.stdout, "1m20s") {
		t.Errorf("%s", r.stdout)
	}
	var out struct{ Settings []config.Row }
	h.run("config", "--json").is(0).object(&out)
	if len(out.Settings) != len(config.Rows(config.Default())) {
		t.Errorf("%d settings", len(out.Settings))
	}
	h.env["HOLDFAST_LEASE"], h.env["HOLDFAST_PART_LINES"] = "soon", "0"
	h.run("config").is(2, "HOLDFAST_LEASE", "HOLDFAST_PART_LINES")
}

// What make deploy asks before it builds anything.
func TestConfigForADeploy(t *testing.T) {
	h := newHouse(t)
	h.run("config", "--deploy").is(2, "HOLDFAST_UPSTREAM_URL is missing")
	h.env["HOLDFAST_UPSTREAM_URL"] = "https://models.example.com"
	if r := h.run("config", "--deploy").is(0); !strings.Contains(r.stdout, "HOLDFAST_LEASE") {
		t.Errorf("%s", r.stdout)
	}
	h.env["HOLDFAST_LEESE"] = "1s"
	h.run("config").is(0, "HOLDFAST_LEESE: nothing reads it; is HOLDFAST_LEASE meant?")
	h.env["HOLDFAST_LEASE"], h.env["DOORS"], h.env["HOLDFAST_UPSTREAM_URL"] = "1s", "ajar", "http://127.0.0.1:9"
	h.env["HOLDFAST_UPSTREAMS"] = `[{"models":["a"],"url":"https://a.example.com","secrett":"b"}]`
	h.run("config", "--deploy").is(2, "HOLDFAST_LEESE", "HOLDFAST_LEASE=1s", "doors=ajar (DOORS of make deploy)", "127.0.0.1: address is refused", `entry 1: "secrett"`)
}

func TestUsage(t *testing.T) {
	h := newHouse(t)
	h.run("bogus").is(2, "bogus", "--help")
	h.run("key", "bogus").is(2, `unknown command "bogus" for "holdfast key"`, "See holdfast key --help.")
	h.run("dead", "redrive").is(2, "name a BATCH and a PART: holdfast dead redrive BATCH PART...")
	h.run("dead", "redrive", someBatch).is(2, "name a PART: ")
	h.run("receipts", someBatch, someBatch).is(2, "too many arguments: holdfast receipts BATCH [flags]", "See holdfast receipts --help.")
	if r := h.run("key", "rotate", "--help").is(0); !strings.Contains(r.stdout, "(default 24h)") {
		t.Errorf("%s", r.stdout)
	}
	if r := h.run("--help").is(0); !strings.Contains(r.stdout, "submit") || r.stderr != "" {
		t.Errorf("%q, %q", r.stdout, r.stderr)
	}
	if r := h.run().is(0); !strings.Contains(r.stdout, "submit") {
		t.Errorf("%q", r.stdout)
	}
}
