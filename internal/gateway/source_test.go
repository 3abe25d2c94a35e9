package gateway_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// Where wrong keys come from is the door's own view: who guesses can't choose another
// address with each, nor use up somebody else's.
func TestWrongKeysByAddress(t *testing.T) {
	h := newHouse(t)
	guess := func(n int) answer {
		from := fmt.Sprintf("198.51.100.%d", n)
		return h.do(call{method: http.MethodGet, path: "/v1/models", header: http.Header{
			"Authorization":   {"Bearer hf_" + strings.Repeat(string(rune('a'+n)), 32)},
			"X-Forwarded-For": {from}, "Forwarded": {"for=" + from}, "X-Real-Ip": {from}, "True-Client-Ip": {from},
		}})
	}
	h.do(call{as: "reader", method: http.MethodGet, path: "/v1/models"})
	for n := range 10 {
		guess(n).is(t, fmt.Sprint("guess ", n), http.StatusUnauthorized, "invalid_api_key")
	}
	a := guess(10)
	a.is(t, "one more", http.StatusTooManyRequests, "rate_limit_exceeded")
	if got := a.Header.Get("Retry-After"); got != "6" {
		t.Errorf("retry-after %q", got)
	}
	if a := h.do(call{as: "reader", method: http.MethodGet, path: "/v1/models"}); a.StatusCode != http.StatusOK {
		t.Errorf("who is known at this address: %d %s", a.StatusCode, a.body)
	}
}
