package e2e

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"holdfast/internal/access"
	"holdfast/internal/openai"
)

// TestKeysOfATenant: an administrator's day, with the rights that the deployed
// function has; and a key that was disabled stops within a minute.
func TestKeysOfATenant(t *testing.T) {
	t.Parallel()
	admin := newTenant(t, "admin")
	as := func(secret string) *client {
		c := *admin
		c.key = secret
		return &c
	}
	post := func(path, body string) openai.APIKey {
		t.Helper()
		status, _, b := admin.do(t, "POST", "/v1/admin/keys"+path, "application/json", []byte(body))
		return decode[openai.APIKey](t, status, b)
	}
	// The index may lag a little behind what was written.
	find := func(id string) (found *openai.APIKey) {
		t.Helper()
		poll(t, 10*time.Second, func() bool {
			for _, k := range get[openai.List[openai.APIKey]](t, admin, "/v1/admin/keys").Data {
				if k.ID == id {
					found = &k
				}
			}
			return found != nil
		}, func() string { return "the list lacks " + id })
		return found
	}
	made := post("", `{"principal":"bob@example.com","name":"ci","scopes":["read"]}`)
	get[openai.List[openai.Batch]](t, as(made.Secret), "/v1/batches")
	find(made.ID)
	next := post("/"+made.ID+"/rotate", `{"grace_seconds":3600}`)
	get[openai.List[openai.Batch]](t, as(next.Secret), "/v1/batches")
	get[openai.List[openai.Batch]](t, as(made.Secret), "/v1/batches")
	if k := find(next.ID); k.Replaces == nil || *k.Replaces != made.ID || k.Secret != "" {
		t.Errorf("%+v", k)
	}
	if k := post("/"+next.ID+"/disable", ""); k.Status != "disabled" {
		t.Errorf("%+v", k)
	}
	began := time.Now()
	poll(t, time.Minute, func() bool {
		status, _, b := as(next.Secret).do(t, "GET", "/v1/batches", "", nil)
		if status != http.StatusOK && status != http.StatusUnauthorized {
			t.Fatalf("status %d: %s", status, b)
		}
		return status == http.StatusUnauthorized
	}, func() string { return "the disabled key is let in" })
	t.Logf("refused after %v", time.Since(began).Round(time.Second))

	// Both command lines agree, and neither tells what nobody should know.
	table, _, code := cli(t, nil, "key", "list", "--json", "--tenant", admin.tenant)
	api, said, code2 := cli(t, []string{"HOLDFAST_API_KEY=" + admin.key}, "key", "list", "--json", "--api")
	var a, b struct{ Keys []map[string]any }
	if code != 0 || code2 != 0 || json.Unmarshal(table, &a) != nil || json.Unmarshal(api, &b) != nil || len(a.Keys) != 3 || len(b.Keys) != 3 {
		t.Fatalf("%d, %d: %s\n%s%s", code, code2, table, api, said)
	}
	for i := range a.Keys {
		for _, member := range []string{"id", "status", "scopes", "created_by", "replaced_by", "last_used_on"} {
			got, want := jsonOf(t, b.Keys[i][member]), jsonOf(t, a.Keys[i][member])
			if got != want {
				t.Errorf("key %d, %s: %s through the API, %s in the table", i, member, got, want)
			}
		}
	}
	for _, secret := range []string{admin.key, made.Secret, next.Secret} {
		if all := string(table) + string(api); strings.Contains(all, secret) || strings.Contains(all, access.HashSecret(secret)) {
			t.Error("a list holds a secret or a hash")
		}
	}
}

// TestKeysAreTheTenants: what another tenant's administrator may do to a key is what
// may be done to one that isn't there.
func TestKeysAreTheTenants(t *testing.T) {
	t.Parallel()
	admin, other := newTenant(t, "admin"), newTenant(t, "read")
	id := access.KeyID(access.HashSecret(other.key))
	for _, verb := range []string{"disable", "rotate"} {
		for _, name := range []string{id, "key_000000000000000000000000"} {
			status, _, b := admin.do(t, "POST", "/v1/admin/keys/"+name+"/"+verb, "", nil)
			if status != http.StatusNotFound || !strings.Contains(string(b), `"key_not_found"`) {
				t.Errorf("%s %s: %d %s", verb, name, status, b)
			}
		}
	}
	get[openai.List[openai.Batch]](t, other, "/v1/batches")
	status, _, b := other.do(t, "GET", "/v1/admin/keys", "", nil)
	if status != http.StatusForbidden {
		t.Errorf("without the scope: %d %s", status, b)
	}
	status, _, b = admin.do(t, "POST", "/v1/admin/keys", "application/json", []byte(`{"principal":"p","name":"n","scopes":["admin"]}`))
	if status != http.StatusForbidden || !strings.Contains(string(b), "scope_not_allowed") {
		t.Errorf("an admin key of an admin key: %d %s", status, b)
	}
}

func jsonOf(t *testing.T, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
