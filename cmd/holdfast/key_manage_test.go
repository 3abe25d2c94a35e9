package main

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"holdfast/internal/access"
	"holdfast/internal/config"
	"holdfast/internal/memory"
)

// operator is a house whose environment has the table.
func operator(t *testing.T) *house {
	h := newHouse(t)
	h.env[config.EnvTable] = "t"
	return h
}

// made is a key of acme's made at the command line.
func (h *house) made(args ...string) keyRecord {
	h.t.Helper()
	var k keyRecord
	h.run(append([]string{"key", "create", "--json", "--principal", "bob@acme.example", "--name", "ci"}, args...)...).is(0).object(&k)
	if k.ID != access.KeyID(access.HashSecret(k.Secret)) || k.Status != "active" || k.Tenant != "acme" {
		h.t.Fatalf("made %+v", k)
	}
	return k
}

// Both ways say the same of the same keys.
func TestKeysBothWays(t *testing.T) {
	for name, way := range map[string]string{"table": "--tenant=acme", "API": "--api"} {
		t.Run(name, func(t *testing.T) {
			h := operator(t)
			first := h.made(way, "--expires", "720h")
			admin := access.KeyID(access.HashSecret(h.env[envKey]))
			if (first.CreatedBy != nil) != (name == "API") || first.CreatedBy != nil && *first.CreatedBy != admin {
				t.Errorf("made by %v", first.CreatedBy)
			}
			if first.ExpiresAt == nil || time.Until(*first.ExpiresAt) < 719*time.Hour || time.Until(*first.ExpiresAt) > 721*time.Hour {
				t.Errorf("ends %v", first.ExpiresAt)
			}
			var next keyRecord
			r := h.run("key", "rotate", way, "--grace", "1h", "--json", first.ID).is(0)
			r.object(&next)
			if next.Replaces == nil || *next.Replaces != first.ID || next.Secret == "" || next.Secret == first.Secret || next.Principal != "bob@acme.example" {
				t.Errorf("rotated %+v", next)
			}
			h.run("key", "rotate", way, first.ID).is(1, next.ID, "rotate")
			r = h.run("key", "disable", way, next.ID).is(0, next.ID, "disabled since", "60 seconds")
			if r.stdout != "" {
				t.Errorf("stdout %q", r.stdout)
			}
			var gone keyRecord
			h.run("key", "disable", way, "--json", next.ID).is(0).object(&gone)
			if gone.Status != "disabled" || gone.DisabledAt == nil || gone.Secret != "" {
				t.Errorf("disabled %+v", gone)
			}
			h.run("key", "rotate", way, next.ID).is(1, "disabled")

			var list struct{ Keys []keyRecord }
			r = h.run("key", "list", way, "--json").is(0)
			r.object(&list)
			if len(list.Keys) != 3 {
				t.Fatalf("%s", r.stdout)
			}
			for _, k := range list.Keys {
				switch k.ID {
				case first.ID:
					if k.ReplacedBy == nil || *k.ReplacedBy != next.ID || k.Status != "active" || time.Until(*k.ExpiresAt) > time.Hour {
						t.Errorf("the old one: %+v", k)
					}
				case next.ID:
					if k.Status != "disabled" || k.Replaces == nil {
						t.Errorf("the new one: %+v", k)
					}
				}
			}
			r = h.run("key", "list", way).is(0)
			for _, want := range []string{first.ID, next.ID, "bob@acme.example", "submit,read", "disabled", "LAST USED"} {
				if !strings.Contains(r.stdout, want) {
					t.Errorf("list lacks %q:\n%s", want, r.stdout)
				}
			}
			for _, secret := range []string{first.Secret, next.Secret} {
				if strings.Contains(r.stdout+r.stderr, secret) || strings.Contains(r.stdout+r.stderr, access.HashSecret(secret)) {
					t.Errorf("the list tells too much:\n%s", r.stdout)
				}
			}
		})
	}
}

// The secret is alone on stdout, so that a script can take it.
func TestKeySecretOnStdout(t *testing.T) {
	h := operator(t)
	for _, way := range []string{"--tenant=acme", "--api"} {
		k := h.made(way)
		r := h.run("key", "rotate", way, k.ID).is(0, "takes the place of "+k.ID, " 24h more", "won't be shown again")
		secret := strings.TrimSuffix(r.stdout, "\n")
		if !access.WellFormed(secret) || strings.Contains(r.stderr, secret) {
			t.Errorf("stdout %q, stderr %q", r.stdout, r.stderr)
		}
		h.run("key", "rotate", way, "--grace", "0", access.KeyID(access.HashSecret(secret))).is(0, "has ended and stops within 60 seconds")
		r = h.run("key", "create", way, "--principal", "p", "--name", "n").is(0, "key_", "tenant acme", "won't be shown again")
		if secret := strings.TrimSuffix(r.stdout, "\n"); !access.WellFormed(secret) || strings.Contains(r.stderr, secret) {
			t.Errorf("stdout %q, stderr %q", r.stdout, r.stderr)
		}
	}
}

// A key that was found somewhere is ended by its secret, also one that no list shows.
func TestKeyDisableFound(t *testing.T) {
	for _, way := range []string{"--tenant=acme", "--api"} {
		h := operator(t)
		k := h.made(way)
		h.stdin = k.Secret + "\n"
		h.run("key", "disable", way, "-").is(0, k.ID)
		if got, _ := h.mem.Table.Keys.Get(t.Context(), access.HashSecret(k.Secret)); got.DisabledAt.IsZero() {
			t.Error("it isn't disabled")
		}
		for _, stdin := range []string{"", "hf_short\n", strings.Repeat("x", 1<<20)} {
			h.stdin = stdin
			h.run("key", "disable", way, "-").is(2, "no key's secret on stdin")
		}
	}
	h := operator(t)
	k := h.made("--tenant=acme")
	h.stdin = k.Secret
	h.run("key", "disable", "--tenant=other", "-").is(1, "no such key")
}

// The operator gives every scope, an admin key two of them.
func TestKeyScopesBothWays(t *testing.T) {
	h := operator(t)
	for _, scope := range access.Scopes {
		k := h.made("--tenant=acme", "--scopes", string(scope))
		args := []string{"key", "create", "--api", "--principal", "p", "--name", "n", "--scopes", string(scope)}
		if access.Ungrantable([]access.Scope{scope}) == "" {
			h.run(args...).is(0)
			h.run("key", "rotate", "--api", k.ID).is(0)
			continue
		}
		h.run(args...).is(1, "scope_not_allowed", "without --api")
		h.run("key", "rotate", "--api", k.ID).is(1, "scope_not_allowed", "without --api")
		h.run("key", "rotate", "--tenant=acme", k.ID).is(0)
		h.run("key", "disable", "--api", k.ID).is(0)
	}
}

func TestKeyUsage(t *testing.T) {
	h := operator(t)
	k := h.made("--tenant=acme")
	other := access.Key{Tenant: "other", Principal: "o", Name: "o", Scopes: []access.Scope{access.Read}}
	foreign, secret, err := access.New(other, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	if err := h.mem.Table.Keys.Put(t.Context(), foreign); err != nil {
		t.Fatal(err)
	}
	for _, verb := range []string{"disable", "rotate"} {
		h.run("key", verb).is(2, "name an ID: holdfast key "+verb+" ID [flags]", "See holdfast key "+verb+" --help.")
		h.run("key", verb, k.ID).is(2, "required and not given: --tenant\n", "See holdfast key "+verb+" --help.")
		h.run("key", verb, "--api", "--tenant=acme", k.ID).is(2, "--tenant")
		h.run("key", verb, "--tenant=A/B", k.ID).is(2, "tenant: ")
		h.run("key", verb, "--tenant=acme", foreign.ID()).is(1, "no such key", "key list")
		h.run("key", verb, "--api", foreign.ID()).is(1, "key_not_found", "key list")
		// A secret in the place of an id is refused, and not repeated.
		if r := h.run("key", verb, "--tenant=acme", secret).is(2, "no id of a key"); strings.Contains(r.stdout+r.stderr, secret) {
			t.Error("a secret was repeated")
		}
	}
	h.run("key", "list").is(2, "--tenant")
	h.run("key", "list", "--api", "--tenant=acme").is(2, "--tenant")
	if r := h.run("key", "list", "--tenant=nobody").is(0, "no key"); r.stdout != "" {
		t.Errorf("%q", r.stdout)
	}
	h.run("key", "rotate", "--tenant=acme", "--grace", "-1s", k.ID).is(2, "--grace")
	h.run("key", "rotate", "--tenant=acme", "--grace", "721h", k.ID).is(2, "--grace must be from 0 to 720h, in")
	h.run("key", "rotate", "--tenant=acme", "--grace", "1500ms", k.ID).is(2, "--grace")
	delete(h.env, envKey)
	h.run("key", "list", "--api").is(2, envKey)
	delete(h.env, config.EnvTable)
	h.run("key", "list", "--tenant=acme").is(2, config.EnvTable)
	if got, _ := h.mem.Table.Keys.Get(t.Context(), k.hash()); !got.DisabledAt.IsZero() || got.ReplacedBy != "" {
		t.Errorf("changed by what was refused: %+v", got)
	}
}

func (k keyRecord) hash() string { return access.HashSecret(k.Secret) }

// An admin key can end itself, and is told so.
func TestKeyDisablesItself(t *testing.T) {
	h := operator(t)
	own := access.KeyID(access.HashSecret(h.env[envKey]))
	h.run("key", "disable", "--api", own).is(0, own, "disabled")
}

// Trouble of the table names what was tried, no hash and no secret.
func TestKeysOfATableInTrouble(t *testing.T) {
	for _, c := range []struct{ op, say string }{
		{"Keys.List", "list keys"}, {"Keys.Find", "disable the key"}, {"Keys.Disable", "disable the key"}, {"Keys.Rotate", "rotate the key"},
	} {
		h := operator(t)
		k := h.made("--tenant=acme")
		faults := memory.NewFaults()
		faults.Before(c.op, 0, memory.Fail(nil))
		view := h.mem.Table.With(faults)
		args := map[string][]string{
			"list keys": {"key", "list", "--tenant=acme"}, "disable the key": {"key", "disable", "--tenant=acme", k.ID}, "rotate the key": {"key", "rotate", "--tenant=acme", k.ID},
		}[c.say]
		var out, errs strings.Builder
		code := run(t.Context(), args, &app{
			stdout: &out, stderr: &errs, now: time.Now, getenv: func(name string) string { return h.env[name] },
			keys: func(context.Context, string) (access.Store, error) { return view.Keys, nil },
		})
		r := ran{t, code, out.String(), errs.String()}.is(1, c.say, "table t", "credentials")
		if r.stdout != "" || strings.Contains(r.stderr, k.hash()) || strings.Contains(r.stderr, k.Secret) {
			t.Errorf("%s: %q, %q", c.op, r.stdout, r.stderr)
		}
	}
}

// A script that made a key before there were ids finds what it found then.
func TestKeyCreateJSONMembers(t *testing.T) {
	h := operator(t)
	r := h.run("key", "create", "--json", "--tenant=acme", "--principal", "p", "--name", "n").is(0)
	var members map[string]any
	if err := json.Unmarshal([]byte(r.stdout), &members); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"secret", "tenant", "principal", "scopes", "name", "created_at", "expires_at"} {
		if _, there := members[name]; !there {
			t.Errorf("no %q: %s", name, r.stdout)
		}
	}
	if _, err := time.Parse(time.RFC3339, members["created_at"].(string)); err != nil || members["expires_at"] != nil {
		t.Errorf("times: %s", r.stdout)
	}
}
