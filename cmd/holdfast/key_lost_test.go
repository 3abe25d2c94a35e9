package main

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"holdfast/internal/access"
)

// Where a key may have been made although nobody got its secret, that is said; and
// where it can't, it isn't.
func TestKeyWhoseAnswerIsLost(t *testing.T) {
	const perhaps = "It may have been done all the same"
	for _, c := range []struct {
		name  string
		reply func(w http.ResponseWriter)
		maybe bool
	}{
		{"cut off", func(http.ResponseWriter) { panic(http.ErrAbortHandler) }, true},
		{"in trouble", func(w http.ResponseWriter) {
			w.Header().Set("X-Request-Id", "r")
			w.WriteHeader(503)
			_, _ = w.Write([]byte(`{"error":{"message":"later","code":"service_unavailable"}}`))
		}, true},
		{"refused", func(w http.ResponseWriter) {
			w.Header().Set("X-Request-Id", "r")
			w.WriteHeader(400)
			_, _ = w.Write([]byte(`{"error":{"message":"no","code":"invalid_name"}}`))
		}, false},
		{"nobody there", nil, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := operator(t)
			k := h.made("--tenant=acme")
			if c.reply == nil {
				h.env[envURL] = "http://127.0.0.1:1"
			}
			h.before = func(w http.ResponseWriter, r *http.Request) bool {
				if r.Method == http.MethodPost {
					c.reply(w)
				}
				return r.Method == http.MethodPost
			}
			for _, args := range [][]string{{"create", "--principal", "p", "--name", "n"}, {"rotate", k.ID}} {
				r := h.run(append([]string{"key", "--api"}, args...)...).is(1)
				if strings.Contains(r.stderr, perhaps) != c.maybe || c.maybe && !strings.Contains(r.stderr, "holdfast key list --api") {
					t.Errorf("%s: %s", args[0], r.stderr)
				}
			}
		})
	}
}

type fullDisk struct{}

func (fullDisk) Write([]byte) (int, error) { return 0, errors.New("no space left on device") }

// A secret that couldn't be written down names its key, with --json too: else it is one
// that works and that nobody knows of.
func TestSecretThatCannotBeWritten(t *testing.T) {
	for _, way := range []string{"--json", "--json=false"} {
		h := operator(t)
		var errs strings.Builder
		code := run(t.Context(), []string{"key", "create", way, "--tenant=acme", "--principal", "p", "--name", "n"}, &app{
			stdout: fullDisk{}, stderr: &errs, now: time.Now, getenv: func(name string) string { return h.env[name] },
			keys: func(context.Context, string) (access.Store, error) { return h.mem.Table.Keys, nil },
		})
		keys, _, err := h.mem.Table.Keys.List(t.Context(), "acme", "", 10)
		if err != nil || len(keys) != 2 {
			t.Fatalf("%d keys, %v", len(keys), err)
		}
		own := access.KeyID(access.HashSecret(h.env[envKey]))
		for _, k := range keys {
			if k.ID() != own && (code != 1 || !strings.Contains(errs.String(), "The key "+k.ID()+" is made all the same") || !strings.Contains(errs.String(), "no space left")) {
				t.Errorf("%s: %d, %s", way, code, &errs)
			}
		}
	}
}

// Whoever found a secret doesn't know whose it is. The operator is told, and nothing is
// done to it before the tenant is named.
func TestKeyFoundOfAnotherTenant(t *testing.T) {
	h := operator(t)
	k := h.made("--tenant=acme")
	h.stdin = k.Secret
	for _, verb := range []string{"disable", "rotate"} {
		h.run("key", verb, "--tenant=other", "-").is(1, "no such key", k.ID+" is a key of the tenant acme", "--tenant acme")
	}
	if got, _ := h.mem.Table.Keys.Get(t.Context(), k.hash()); !got.DisabledAt.IsZero() || got.ReplacedBy != "" {
		t.Errorf("changed: %+v", got)
	}
}

// A key of an older release with scopes that no longer go together can't be rotated,
// and that isn't the table's fault.
func TestRotateKeyOfAnOlderRelease(t *testing.T) {
	h := operator(t)
	old := access.Key{Hash: access.HashSecret("hf_old"), Tenant: "acme", Principal: "p", Name: "n", Scopes: []access.Scope{access.Read, access.BatchReplay}, CreatedAt: time.Now()}
	if err := h.mem.Table.Keys.Put(t.Context(), old); err != nil {
		t.Fatal(err)
	}
	r := h.run("key", "rotate", "--tenant=acme", old.ID()).is(1, "scopes: must be", "batch_replay alone", "holdfast key create")
	if strings.Contains(r.stderr, "HOLDFAST_TABLE") {
		t.Errorf("%s", r.stderr)
	}
}

// No end is taken for never that isn't, and none has no form in JSON.
func TestKeyEndsThatWontDo(t *testing.T) {
	h := operator(t)
	for _, end := range []string{"0001-01-01T00:00:00Z", "0001-01-01T01:00:00+01:00", "9999-12-31T23:59:59-12:00"} {
		for _, way := range []string{"--tenant=acme", "--api"} {
			h.run("key", "create", way, "--principal", "p", "--name", "n", "--expires", end).is(2, "expires: must be in the future, and not after the year 9999")
		}
	}
	h.run("key", "create", "--tenant=acme", "--principal", "p", "--name", "n", "--expires", "9999-12-31T23:59:59Z").is(0)
	if r := h.run("key", "list", "--json", "--tenant=acme").is(0); !strings.Contains(r.stdout, "9999-12-31T23:59:59Z") {
		t.Errorf("%s", r.stdout)
	}
}
