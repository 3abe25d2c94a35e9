package gateway_test

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
)

// What may stand nowhere but where it is going: planted in everything that a client
// or an upstream says, and looked for in everything that is written.
const planted = "PLANTED-7f3a"

func TestNothingLeaks(t *testing.T) {
	h := newHouse(t)
	hostile := http.Header{}
	for _, name := range []string{"X-Custom", "X-Forwarded-For", "User-Agent", "Cookie", "X-Batch-ID", "X-Batch-Line", "X-Request-Id", "Traceparent"} {
		hostile.Set(name, planted)
	}
	asserting := hostile.Clone()
	asserting.Set("X-Tenant-ID", planted)
	body := `{"model":"sim","messages":[{"content":"` + planted + `"}],"` + planted + `":1}`
	models := []http.HandlerFunc{
		func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("X-Thing", planted)
			_, _ = io.WriteString(w, `{"text":"`+planted+`"}`)
		},
		func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(500)
			_, _ = io.WriteString(w, planted)
		},
		func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(401)
			_, _ = io.WriteString(w, planted+secret)
		},
		func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, planted)
			http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		},
		func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
	}
	for _, m := range models {
		h.plays(m)
		for _, c := range []call{
			{as: "ann", body: body, header: hostile}, {as: "ann", body: body + planted, header: hostile}, {as: "fleet", body: body, header: asserting},
			{as: "ann", body: body, header: asserting}, {as: "ann", path: "/v1/" + planted, header: hostile}, {as: "ann", method: planted, header: hostile},
			{body: body, header: http.Header{"Authorization": {"Bearer " + planted}}}, {as: "fleet", body: body, header: replay("").header},
			{as: "ann", body: `{"model":"sim","model":"` + planted + `"}`}, {as: "ann", path: chat + "?" + planted, body: body},
		} {
			h.do(c)
			h.pass(time.Second)
		}
	}
	written := h.says(`"msg":"request"`, 10*len(models))
	for _, shelf := range []string{today, acmes} {
		b, err := json.Marshal(h.receipts("acme", shelf))
		if err != nil {
			t.Fatal(err)
		}
		written += string(b)
	}
	secrets := []string{planted, secret}
	for _, s := range h.key {
		secrets = append(secrets, s)
	}
	for _, s := range secrets {
		if at := strings.Index(written, s); at >= 0 {
			t.Errorf("%s is written: …%s", s, written[max(0, at-200):min(len(written), at+100)])
		}
	}
	if strings.Count(written, `"request_sha256"`) < 2*len(models) {
		t.Errorf("not everything was looked at: %s", written)
	}
}
