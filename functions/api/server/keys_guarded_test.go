package server_test

import (
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"holdfast/internal/access"
	"holdfast/internal/memory"
	"holdfast/internal/openai"
)

// A source that guesses is refused unread, whatever it says in headers of where it
// comes from; others, and those that are known, are not.
func TestTooManyWrongKeys(t *testing.T) {
	h := newHouse(t)
	get := func(header, from string, n int) answer {
		r := httptest.NewRequest("GET", "/v1/batches", nil)
		r.Header.Set("Authorization", header)
		r.Header.Set("X-Forwarded-For", fmt.Sprintf("198.51.100.%d", n))
		r.Header.Set("Forwarded", fmt.Sprintf("for=198.51.100.%d", n))
		r.Header.Set("X-Real-Ip", fmt.Sprintf("198.51.100.%d", n))
		r.RemoteAddr = from
		return h.send(r)
	}
	wrong := func(n int) string { return "Bearer hf_" + strings.Repeat(string(rune('a'+n)), 32) }
	known, unknown := "Bearer "+h.key["acme read"], "Bearer "+h.key["acme both"]
	get(known, "203.0.113.7", 0).ok(&struct{}{})
	for n := range 10 {
		get(wrong(n), "203.0.113.7", n).refused(401, "invalid_api_key", "")
	}
	before := h.faults.Count("Keys.Get")
	for n, header := range []string{wrong(11), wrong(12), unknown} {
		a := get(header, "203.0.113.7", 20+n)
		var body struct {
			Error struct{ Type, Code string }
		}
		if err := json.Unmarshal(a.Body.Bytes(), &body); err != nil || a.Code != 429 || body.Error.Type != "rate_limit_error" || body.Error.Code != "rate_limit_exceeded" ||
			a.Header().Get("Retry-After") != "6" || a.Header().Get("Retry-After-Ms") != "6000" || a.Header().Get("WWW-Authenticate") != "" {
			t.Errorf("%d %s, headers %v", a.Code, a.Body, a.Header())
		}
	}
	if n := h.faults.Count("Keys.Get") - before; n != 0 {
		t.Errorf("%d reads for refused keys", n)
	}
	get(known, "203.0.113.7", 1).ok(&struct{}{})
	get("Bearer sk-1", "203.0.113.7", 1).refused(401, "invalid_api_key", "")
	get(wrong(13), "203.0.113.8", 1).refused(401, "invalid_api_key", "")
	get(unknown, "203.0.113.8", 1).ok(&struct{}{})
	h.now = h.now.Add(6 * time.Second)
	get(unknown, "203.0.113.7", 1).ok(&struct{}{})
}

// Trouble of the table is told as such, and no word of what it was.
func TestKeysInTrouble(t *testing.T) {
	for _, c := range []struct {
		op   string
		call func(h *house) call
	}{
		{"Keys.List", func(*house) call { return adminCall("GET", "", "") }},
		{"Keys.Put", func(*house) call { return adminCall("POST", "", goodKey) }},
		{"Keys.Find", func(h *house) call { return adminCall("POST", "/"+h.keyID("acme read")+"/disable", "") }},
		{"Keys.Disable", func(h *house) call { return adminCall("POST", "/"+h.keyID("acme read")+"/disable", "") }},
		{"Keys.Rotate", func(h *house) call { return adminCall("POST", "/"+h.keyID("acme read")+"/rotate", "") }},
	} {
		t.Run(c.op, func(t *testing.T) {
			h := newHouse(t)
			h.faults.Before(c.op, 0, memory.Fail(nil))
			h.do(c.call(h)).refused(503, "service_unavailable", "")
		})
	}
}

// Of a rotation whose answer was lost nobody has the secret. Asked again the successor
// is named; it is rotated in its turn, and the first key works until then.
func TestRotationWhoseAnswerIsLost(t *testing.T) {
	h := newHouse(t)
	id := h.keyID("acme read")
	h.faults.After("Keys.Rotate", 1, memory.Fail(nil))
	h.do(adminCall("POST", "/"+id+"/rotate", "")).refused(503, "service_unavailable", "")
	h.do(adminCall("POST", "/"+id+"/rotate", "")).refused(400, "key_replaced", "key_id")
	var l keyPage
	h.do(adminCall("GET", "", "")).ok(&l)
	lost := slices.IndexFunc(l.Data, func(k openai.APIKey) bool { return k.Replaces != nil && *k.Replaces == id })
	if lost < 0 || len(l.Data) != 5 {
		t.Fatalf("%+v", l.Data)
	}
	var k openai.APIKey
	h.do(adminCall("POST", "/"+l.Data[lost].ID+"/rotate", `{"grace_seconds":0}`)).ok(&k)
	h.key["third"] = k.Secret
	for _, as := range []string{"third", "acme read"} {
		h.do(call{method: "GET", path: "/v1/batches", as: as}).ok(&struct{}{})
	}
}

// No answer but the one that makes a key, and no line of the log, holds a secret; and
// nothing at all holds a hash.
func TestKeysLeakNothing(t *testing.T) {
	h := newHouse(t)
	h.addKey("strong", "acme", access.Admin, access.BatchReplay)
	var made, next openai.APIKey
	a := h.do(adminCall("POST", "", goodKey))
	a.ok(&made)
	rotated := h.do(adminCall("POST", "/"+made.ID+"/rotate", `{"grace_seconds":60}`))
	rotated.ok(&next)
	h.key["made"], h.key["next"] = made.Secret, next.Secret
	if n := strings.Count(a.Body.String(), made.Secret) + strings.Count(rotated.Body.String(), next.Secret); n != 2 || strings.Contains(rotated.Body.String(), made.Secret) {
		t.Errorf("secrets are told %d times", n)
	}
	said := []string{strings.ReplaceAll(a.Body.String(), made.Secret, ""), strings.ReplaceAll(rotated.Body.String(), next.Secret, "")}
	for _, key := range []string{"made", "next", "strong", "other read", "acme admin"} {
		secret := h.key[key]
		for _, named := range []string{h.keyID(key), secret, access.HashSecret(secret)} {
			for _, verb := range []string{"/disable", "/rotate"} {
				// A client may well show what it shouldn't: nobody repeats more of it than the
				// client sees.
				body := h.do(adminCall("POST", "/"+named+verb, "")).Body.String()
				if named == h.keyID(key) {
					said = append(said, body)
				}
			}
		}
	}
	for _, failing := range []string{"Keys.List", "Keys.Put", "Keys.Disable", "Keys.Rotate", "Keys.Get", "Keys.Touch"} {
		h.now = h.now.Add(25 * time.Hour)
		h.faults.Before(failing, 0, memory.Fail(nil))
		for _, c := range []call{adminCall("GET", "", ""), adminCall("POST", "", `{"principal":"p","name":"n","scopes":["read"]}`), {method: "GET", path: "/v1/batches", as: "acme read"}} {
			body := h.do(c).Body.String()
			if c.method == "GET" {
				said = append(said, body)
			}
		}
	}
	said = append(said, h.log.String())
	for name, secret := range h.key {
		for _, text := range said {
			if strings.Contains(text, secret) || strings.Contains(text, secret[3:]) {
				t.Errorf("the secret of %q is told: %.200s", name, text)
			}
			if strings.Contains(text, access.HashSecret(secret)) {
				t.Errorf("the hash of %q is told: %.200s", name, text)
			}
		}
	}
}
