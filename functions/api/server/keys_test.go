package server_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"holdfast/internal/access"
	"holdfast/internal/openai"
)

// keyID is the id of one of the house's keys.
func (h *house) keyID(name string) string { return access.KeyID(access.HashSecret(h.key[name])) }

// addKey puts a key of the tenant with these scopes into the house, under a name.
func (h *house) addKey(name, tenant string, scopes ...access.Scope) string {
	h.t.Helper()
	k, secret, err := access.New(access.Key{Tenant: tenant, Principal: "ann@acme.example", Name: name, Scopes: scopes[:1]}, h.now)
	if err != nil {
		h.t.Fatal(err)
	}
	k.Scopes = scopes // all of them, as older releases did even with batch_replay
	if err := h.mem.Table.Keys.Put(h.t.Context(), k); err != nil {
		h.t.Fatal(err)
	}
	h.key[name] = secret
	return k.ID()
}

func adminCall(method, path, body string) call {
	return call{method: method, path: "/v1/admin/keys" + path, as: "acme admin", body: body}
}

const goodKey = `{"principal":"bob@acme.example","name":"ci","scopes":["submit","read"]}`

func TestCreateKey(t *testing.T) {
	h := newHouse(t)
	var k openai.APIKey
	a := h.do(adminCall("POST", "", `{"principal":"bob@acme.example","name":"ci","scopes":["submit","read"],"tenant":"acme","expires_at":1793000000,"unknown":1}`))
	a.ok(&k)
	if a.Header().Get("Cache-Control") != "no-store" {
		t.Error("an answer with a secret may be kept")
	}
	end, maker := int64(1793000000), h.keyID("acme admin")
	if k.Object != "api_key" || k.Tenant != "acme" || k.Principal != "bob@acme.example" || k.Name != "ci" || !slices.Equal(k.Scopes, []string{"submit", "read"}) ||
		k.Status != "active" || k.CreatedAt != start.Unix() || *k.ExpiresAt != end || *k.CreatedBy != maker || k.DisabledAt != nil || k.LastUsedOn != nil {
		t.Errorf("%+v", k)
	}
	stored, err := h.mem.Table.Keys.Get(t.Context(), access.HashSecret(k.Secret))
	if err != nil || stored.Tenant != "acme" || stored.ID() != k.ID {
		t.Errorf("stored %+v, %v", stored, err)
	}
	// It is who it says, at once.
	h.key["new"] = k.Secret
	h.do(call{method: "GET", path: "/v1/batches", as: "new"}).ok(&struct{}{})
	c := createCall(h.file())
	c.as = "new"
	var b wireBatch
	h.do(c).ok(&b)
	if got, _ := h.mem.Table.Batch("acme", b.ID); got.Submitter != "bob@acme.example" {
		t.Errorf("submitter %s", got.Submitter)
	}
	// Asked for twice is two keys.
	var again openai.APIKey
	h.do(adminCall("POST", "", goodKey)).ok(&again)
	if again.Secret == k.Secret || again.ID == k.ID || again.ExpiresAt != nil {
		t.Errorf("again: %+v", again)
	}
}

func TestCreateKeyRefusals(t *testing.T) {
	h := newHouse(t)
	with := func(members string) string {
		return `{"principal":"bob","name":"ci","scopes":["read"],` + members + `}`
	}
	for _, c := range []struct {
		body   string
		status int
		code   string
		param  string
	}{
		{``, 400, "invalid_json", ""},
		{`[]`, 400, "invalid_json", ""},
		{`{`, 400, "invalid_json", ""},
		{strings.Repeat(`{"a":`, 100_000), 400, "invalid_json", ""},
		{`{"x":"` + strings.Repeat("y", 1<<20) + `"}`, 413, "request_too_large", ""},
		{`{}`, 400, "missing_required_parameter", "principal"},
		{`{"principal":"bob"}`, 400, "missing_required_parameter", "name"},
		{`{"principal":"bob","name":"ci"}`, 400, "missing_required_parameter", "scopes"},
		{`{"principal":7,"name":"ci","scopes":["read"]}`, 400, "invalid_type", "principal"},
		{`{"principal":"bob","name":{},"scopes":["read"]}`, 400, "invalid_type", "name"},
		{`{"principal":"bob","name":"ci","scopes":"read"}`, 400, "invalid_type", "scopes"},
		{`{"principal":"bob","name":"ci","scopes":[1]}`, 400, "invalid_type", "scopes"},
		{`{"principal":"bob","name":"ci","scopes":[]}`, 400, "invalid_scopes", "scopes"},
		{`{"principal":"bob","name":"ci","scopes":["read","read"]}`, 400, "invalid_scopes", "scopes"},
		{`{"principal":"bob","name":"ci","scopes":["write"]}`, 400, "invalid_scopes", "scopes"},
		{`{"principal":"b b","name":"ci","scopes":["read"]}`, 400, "invalid_principal", "principal"},
		{`{"principal":"bob\r\nX-Evil: 1","name":"ci","scopes":["read"]}`, 400, "invalid_principal", "principal"},
		{`{"principal":"bob","name":"\ud800","scopes":["read"]}`, 400, "invalid_json", ""},
		{`{"principal":"bob","name":"a\u0000b","scopes":["read"]}`, 400, "invalid_name", "name"},
		{with(`"expires_at":"soon"`), 400, "invalid_type", "expires_at"},
		{with(`"expires_at":1e12`), 400, "invalid_type", "expires_at"},
		{with(`"expires_at":253402300800`), 400, "invalid_type", "expires_at"},
		{with(`"expires_at":1`), 400, "invalid_expires_at", "expires_at"},
		{with(`"tenant":"other"`), 400, "invalid_tenant", "tenant"},
		{with(`"tenant":7`), 400, "invalid_type", "tenant"},
		{`{"principal":"bob","name":"ci","scopes":["admin"]}`, 403, "scope_not_allowed", "scopes"},
		{`{"principal":"bob","name":"ci","scopes":["submit","batch_replay"]}`, 403, "scope_not_allowed", "scopes"},
		{`{"principal":"bob","name":"ci","scopes":["work","read"]}`, 403, "scope_not_allowed", "scopes"},
	} {
		t.Run(c.code+" "+c.param, func(t *testing.T) {
			h.t = t
			h.do(adminCall("POST", "", c.body)).refused(c.status, c.code, c.param)
		})
	}
	h.t = t
	for body, want := range map[string]string{with(`"n\u0061me":"other"`): `the name "name" occurs twice`, with(`"x":{"y":1,"y":2}`): `the name "y" occurs twice`} {
		var said struct{ Error struct{ Message string } }
		a := h.do(adminCall("POST", "", body))
		a.refused(400, "invalid_json", "")
		if err := json.Unmarshal(a.Body.Bytes(), &said); err != nil || !strings.Contains(said.Error.Message, want) {
			t.Errorf("%s: %s, want %s", body, a.Body, want)
		}
	}
	if page, _, _ := h.mem.Table.Keys.List(t.Context(), "acme", "", 100); len(page) != 4 {
		t.Errorf("%d keys: a refusal made some", len(page))
	}
}

type keyPage struct {
	Object  string
	Data    []openai.APIKey
	LastID  string `json:"last_id"`
	HasMore bool   `json:"has_more"`
}

func TestListKeys(t *testing.T) {
	h := newHouse(t)
	for n := range 5 {
		h.now = start.Add(time.Duration(n+1) * time.Minute)
		h.addKey(fmt.Sprint("new ", n), "acme", access.Read)
	}
	h.addKey("foreign", "other", access.Read)
	for _, limit := range []int{1, 4, 100} {
		var seen []string
		var l keyPage
		for after := ""; ; after = l.LastID {
			l = keyPage{}
			h.do(adminCall("GET", fmt.Sprintf("?limit=%d&after=%s", limit, after), "")).ok(&l)
			for _, k := range l.Data {
				if k.Tenant != "acme" || k.Object != "api_key" || k.Secret != "" {
					t.Errorf("%+v", k)
				}
				seen = append(seen, k.Name)
			}
			if !l.HasMore {
				break
			}
		}
		if len(seen) != 9 || !slices.Equal(seen[:5], []string{"new 4", "new 3", "new 2", "new 1", "new 0"}) {
			t.Errorf("by %d: %v", limit, seen)
		}
	}
	for path, c := range map[string]struct{ code, param string }{
		"?limit=0": {"invalid_limit", "limit"}, "?limit=101": {"invalid_limit", "limit"}, "?order=asc": {"invalid_order", "order"},
		"?after=x": {"invalid_cursor", "after"}, "?after=" + h.keyID("other read"): {"invalid_cursor", "after"},
	} {
		h.do(adminCall("GET", path, "")).refused(400, c.code, c.param)
	}
	// The day of the last use is told once there was one.
	h.do(call{method: "GET", path: "/v1/batches", as: "new 4"}).ok(&struct{}{})
	var l keyPage
	h.do(adminCall("GET", "?limit=1", "")).ok(&l)
	if k := l.Data[0]; k.LastUsedOn == nil || *k.LastUsedOn != "2026-10-12" {
		t.Errorf("last used %v", k.LastUsedOn)
	}
}

func TestDisableKey(t *testing.T) {
	h := newHouse(t)
	id := h.keyID("acme read")
	h.do(call{method: "GET", path: "/v1/batches", as: "acme read"}).ok(&struct{}{})
	var k openai.APIKey
	h.do(adminCall("POST", "/"+id+"/disable", "")).ok(&k)
	if k.ID != id || k.Status != "disabled" || *k.DisabledAt != start.Unix() || k.Secret != "" {
		t.Errorf("%+v", k)
	}
	h.now = start.Add(time.Minute)
	h.do(call{method: "GET", path: "/v1/batches", as: "acme read"}).refused(401, "invalid_api_key", "")
	h.do(adminCall("POST", "/"+id+"/disable", "whatever")).ok(&k)
	if *k.DisabledAt != start.Unix() {
		t.Errorf("again: %d", *k.DisabledAt)
	}
	// Any key of the tenant, whatever it can do; and the caller's own.
	for _, scopes := range [][]access.Scope{{access.BatchReplay}, {access.Work}, {access.Admin, access.Submit}} {
		h.do(adminCall("POST", "/"+h.addKey("strong", "acme", scopes...)+"/disable", "")).ok(&k)
		if k.Status != "disabled" {
			t.Errorf("%v: %+v", scopes, k)
		}
	}
	own := h.keyID("acme admin")
	k = openai.APIKey{}
	h.do(adminCall("POST", "/"+own+"/disable", "")).ok(&k)
	if k.ID != own || k.Status != "disabled" {
		t.Errorf("itself: %+v", k)
	}
	h.now = h.now.Add(time.Minute)
	h.do(adminCall("GET", "", "")).refused(401, "invalid_api_key", "")
}

func TestRotateKey(t *testing.T) {
	h := newHouse(t)
	id := h.keyID("acme both")
	h.now = start.Add(time.Hour)
	var k openai.APIKey
	a := h.do(adminCall("POST", "/"+id+"/rotate", ""))
	a.ok(&k)
	if k.ID == id || k.Tenant != "acme" || k.Principal != "both@acme" || k.Name != "both" || !slices.Equal(k.Scopes, []string{"submit", "read"}) ||
		*k.Replaces != id || *k.CreatedBy != h.keyID("acme admin") || a.Header().Get("Cache-Control") != "no-store" {
		t.Errorf("%+v", k)
	}
	h.key["next"] = k.Secret
	list := func(as string) call { return call{method: "GET", path: "/v1/batches", as: as} }
	h.do(list("next")).ok(&struct{}{})
	// The old one works for a day.
	h.now = start.Add(25*time.Hour - time.Millisecond)
	h.do(list("acme both")).ok(&struct{}{})
	h.now = start.Add(25 * time.Hour)
	h.do(list("acme both")).refused(401, "invalid_api_key", "")
	h.do(list("next")).ok(&struct{}{})
	// Whoever asks again is told of the first.
	again := h.do(adminCall("POST", "/"+id+"/rotate", ""))
	again.refused(400, "key_replaced", "key_id")
	if !strings.Contains(again.Body.String(), k.ID) {
		t.Errorf("no successor: %s", again.Body)
	}
	// Without grace.
	var last openai.APIKey
	h.do(adminCall("POST", "/"+k.ID+"/rotate", `{"grace_seconds":0}`)).ok(&last)
	h.now = h.now.Add(time.Minute)
	h.do(list("next")).refused(401, "invalid_api_key", "")
	var l keyPage
	h.do(adminCall("GET", "?limit=2", "")).ok(&l)
	if old := l.Data[1]; old.ID != k.ID || old.Status != "expired" || *old.ReplacedBy != last.ID {
		t.Errorf("%+v", old)
	}
}

func TestRotateKeyRefusals(t *testing.T) {
	h := newHouse(t)
	id := h.keyID("acme read")
	for _, body := range []string{`{"grace_seconds":-1}`, `{"grace_seconds":2592001}`, `{"grace_seconds":"1h"}`, `{"grace_seconds":1.5}`, `{"grace_seconds":999999999}`} {
		h.do(adminCall("POST", "/"+id+"/rotate", body)).refused(400, "invalid_grace_seconds", "grace_seconds")
	}
	h.do(adminCall("POST", "/"+id+"/rotate", `[]`)).refused(400, "invalid_json", "")
	for _, s := range []access.Scope{access.Admin, access.BatchReplay, access.Work} {
		strong := h.addKey(string(s), "acme", access.Read, s)
		h.do(adminCall("POST", "/"+strong+"/rotate", "")).refused(403, "scope_not_allowed", "key_id")
	}
	h.do(adminCall("POST", "/"+h.keyID("acme admin")+"/rotate", "")).refused(403, "scope_not_allowed", "key_id")
	h.do(adminCall("POST", "/"+id+"/disable", "")).ok(&struct{}{})
	h.do(adminCall("POST", "/"+id+"/rotate", "")).refused(400, "key_not_active", "key_id")
	page, _, _ := h.mem.Table.Keys.List(t.Context(), "acme", "", 100)
	for _, k := range page {
		if k.ReplacedBy != "" || k.Replaces != "" {
			t.Errorf("%s was rotated", k.Name)
		}
	}
}

// Each route, by each scope, on the tenant's own key, on another tenant's, and on
// none: only admin is let in, and the latter two look alike.
func TestKeyRoutesByScope(t *testing.T) {
	const none = "key_000000000000000000000000"
	for _, scope := range access.Scopes {
		t.Run(string(scope), func(t *testing.T) {
			h := newHouse(t)
			h.addKey("caller", "acme", scope)
			for _, c := range []struct {
				name, method, path string
				own                bool
			}{
				{"list", "GET", "", true},
				{"create", "POST", "", true},
				{"rotate", "POST", "/" + h.keyID("acme both") + "/rotate", true},
				{"disable", "POST", "/" + h.keyID("acme both") + "/disable", true},
				{"rotate another's", "POST", "/" + h.keyID("other both") + "/rotate", false},
				{"disable another's", "POST", "/" + h.keyID("other both") + "/disable", false},
				{"rotate none", "POST", "/" + none + "/rotate", false},
				{"disable none", "POST", "/" + none + "/disable", false},
				{"rotate no id", "POST", "/a%2Fb%00/rotate", false},
				{"disable a hash", "POST", "/" + access.HashSecret(h.key["acme both"]) + "/disable", false},
			} {
				body := ""
				if c.name == "create" {
					body = goodKey
				}
				a := h.do(call{method: c.method, path: "/v1/admin/keys" + c.path, as: "caller", body: body})
				switch {
				case scope == access.BatchReplay:
					a.refused(403, "batch_replay_not_authorized", "")
				case scope != access.Admin:
					a.refused(403, "insufficient_permissions", "")
				case c.own:
					a.ok(&struct{}{})
				default:
					a.refused(404, "key_not_found", "key_id")
				}
				h.do(call{method: c.method, path: "/v1/admin/keys" + c.path, body: body}).refused(401, "invalid_api_key", "")
			}
			others, _, _ := h.mem.Table.Keys.List(t.Context(), "other", "", 100)
			if slices.ContainsFunc(others, func(k access.Key) bool { return !k.DisabledAt.IsZero() || k.ReplacedBy != "" }) || len(others) != 4 {
				t.Errorf("another tenant's keys were touched: %+v", others)
			}
			h.do(call{method: "DELETE", path: "/v1/admin/keys", as: "caller"}).refused(405, "method_not_allowed", "")
			h.do(call{method: "GET", path: "/v1/admin/keys/" + none, as: "caller"}).refused(404, "unknown_url", "")
		})
	}
}

// Another tenant's key and no key are told apart by nothing but their names.
func TestForeignKeyLooksLikeNone(t *testing.T) {
	h := newHouse(t)
	foreign, none := h.keyID("other read"), "key_"+strings.Repeat("0", 24)
	for _, verb := range []string{"/rotate", "/disable"} {
		a, b := h.do(adminCall("POST", "/"+foreign+verb, "")), h.do(adminCall("POST", "/"+none+verb, ""))
		if strings.ReplaceAll(a.Body.String(), foreign, "ID") != strings.ReplaceAll(b.Body.String(), none, "ID") {
			t.Errorf("%s\n%s", a.Body, b.Body)
		}
	}
}
