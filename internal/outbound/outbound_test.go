package outbound

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"holdfast/internal/deptest"
)

func TestImports(t *testing.T) { deptest.Only(t) }

func TestBase(t *testing.T) {
	for _, raw := range []string{"", "host", "ftp://x", "http://", "https://user:pw@host", "https://host?x=1", "https://host#f", "https://host?", "https://host/a#", "https://host/v1", "http://[::1"} {
		if _, err := Base("jobs URL", raw); err == nil || !strings.HasPrefix(err.Error(), "jobs URL") || strings.Contains(err.Error(), "pw") {
			t.Errorf("%q: %v", raw, err)
		}
	}
	for raw, want := range map[string]string{"https://host": "https://host", "http://127.0.0.1:4567//": "http://127.0.0.1:4567", "https://host/a/b/": "https://host/a/b"} {
		if got, err := Base("jobs URL", raw); got != want || err != nil {
			t.Errorf("%q: %q, %v", raw, got, err)
		}
	}
}

func TestRetryAfter(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for _, tt := range []struct {
		key, value string
		want       time.Duration
	}{
		{"Retry-After", "3", 3 * time.Second},
		{"Retry-After", "0.5", 500 * time.Millisecond},
		{"Retry-After-Ms", "250", 250 * time.Millisecond},
		{"Retry-After", "Fri, 02 Jan 2026 03:04:15 GMT", 10 * time.Second},
		{"Retry-After", "Fri, 02 Jan 2026 03:04:00 GMT", 0},
		{"Retry-After", "Fri, 02 Jan 2099 03:04:00 GMT", 24 * time.Hour},
		{"Retry-After", "-1", 0},
		{"Retry-After", "soon", 0},
		{"Retry-After", "NaN", 0},
		{"Retry-After", "1e300", 24 * time.Hour},
		{"Retry-After", "Inf", 24 * time.Hour},
		{"X", "", 0},
	} {
		h := http.Header{}
		h.Set(tt.key, tt.value)
		if got := RetryAfter(h, now); got != tt.want {
			t.Errorf("%s: %s = %v, want %v", tt.key, tt.value, got, tt.want)
		}
	}
}
