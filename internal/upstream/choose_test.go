package upstream

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"holdfast/internal/batch"
)

func TestServicesByModel(t *testing.T) {
	s, err := Open([]Service{
		{Models: []string{"gpt-4*", "o3"}, URL: "https://a.test"},
		{Models: []string{"gpt-4o-mini", "gpt-4o*", "meta/Llama:free"}, URL: "https://b.test"},
		{URL: "https://rest.test"},
	}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	for model, want := range map[string]string{
		"gpt-4": "a", "gpt-4.1": "a", "o3": "a", "o3-mini": "rest", "gpt-4o": "b", "gpt-4o-2024": "b", "gpt-4o-mini": "b",
		"meta/Llama:free": "b", "meta/llama:free": "rest", "": "rest", "gpt-": "rest", "gpt-4*": "a", "\xed\xa0\x80": "rest",
	} {
		if c, err := s.For(model); err != nil || c.base != "https://"+want+".test" {
			t.Errorf("%q goes to %v, %v, want %s", model, c, err, want)
		}
	}

	only, err := Open([]Service{{Models: []string{"gpt-4*"}, URL: "https://a.test"}}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, model := range []string{"", "o3", "gpt-", "xgpt-4"} {
		if _, err := only.Call(t.Context(), batch.Call{Model: model}); !errors.Is(err, batch.ErrModelNotFound) {
			t.Errorf("%q: %v", model, err)
		}
	}
	all, err := Open([]Service{{Models: []string{"*"}, URL: "https://a.test"}}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := all.For(""); err != nil {
		t.Errorf("* doesn't take a request without a model: %v", err)
	}
}

func TestOpenRefuses(t *testing.T) {
	for say, services := range map[string][]Service{
		"no upstream":      nil,
		"upstream 2: ":     {{URL: "https://a.test"}, {Models: []string{"m"}, URL: "https://user:pw@b.test"}},
		"upstream 1: ":     {{URL: "http://169.254.169.254"}},
		"all other models": {{URL: "https://a.test"}, {URL: "https://b.test"}},
		`the model "m"`:    {{Models: []string{"m"}, URL: "https://a.test"}, {Models: []string{"x", "m"}, URL: "https://b.test"}},
		`the model "m*"`:   {{Models: []string{"m*", "m"}, URL: "https://a.test"}, {Models: []string{"m*"}, URL: "https://b.test"}},
	} {
		if _, err := Open(services, nil, nil); err == nil || !strings.Contains(err.Error(), say) || strings.Contains(err.Error(), "pw") {
			t.Errorf("%s: %v", say, err)
		}
	}
}

// vault is a secret store whose secrets were rotated to fresh.
type vault struct {
	renewed     int
	held, fresh string
	err         error
}

func (v *vault) Get(context.Context, string) (string, error) {
	return v.held, v.err
}

func (v *vault) Renew(context.Context, string, string, int) (string, error) {
	v.renewed++
	return v.fresh, v.err
}

// tokens is a server that knows one token, and notes what it was shown.
func tokens(t *testing.T, right string, status int) (url string, shown *[]string) {
	shown = new([]string)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		*shown = append(*shown, r.Header.Get("Authorization")+" "+string(body))
		if r.Header.Get("Authorization") != right {
			w.WriteHeader(status)
		}
		io.WriteString(w, "{}")
	}))
	t.Cleanup(s.Close)
	return s.URL, shown
}

// Each service is shown its own secret, and no other.
func TestSecretOfEach(t *testing.T) {
	v := &spelled{}
	a, atA := tokens(t, "", 418)
	b, atB := tokens(t, "", 418)
	c, atC := tokens(t, "", 418)
	s, err := Open([]Service{
		{Models: []string{"a"}, URL: a, Secret: "sa"}, {Models: []string{"b"}, URL: b, Secret: "sb"}, {URL: c, Key: "sk-local"},
	}, func() Secrets { return v }, local)
	if err != nil {
		t.Fatal(err)
	}
	for _, model := range []string{"a", "b", "c", "a"} {
		if _, err := s.Call(t.Context(), batch.Call{Model: model, Endpoint: "/v1/x", Body: []byte(model)}); err != nil {
			t.Fatal(err)
		}
	}
	for got, want := range map[string]string{
		strings.Join(*atA, ","): "Bearer of-sa a,Bearer of-sa a", strings.Join(*atB, ","): "Bearer of-sb b", strings.Join(*atC, ","): "Bearer sk-local c",
	} {
		if got != want {
			t.Errorf("shown %q, want %q", got, want)
		}
	}
}

// spelled is a store of secrets with a line end, as files and shells leave it.
type spelled struct{}

func (*spelled) Get(_ context.Context, name string) (string, error) { return " of-" + name + "\n", nil }
func (*spelled) Renew(_ context.Context, _, used string, _ int) (string, error) {
	return used, nil
}

// A rotated secret is sent at the first refusal, once, with the same body; one that
// is wrong leaves the refusal.
func TestRefusedSecretIsRenewedOnce(t *testing.T) {
	for _, c := range []struct {
		name    string
		v       vault
		refusal int
		status  int
		shown   int
		renewed int
	}{
		{"rotated", vault{held: "old", fresh: "new"}, 401, 200, 2, 1},
		{"rotated, 403", vault{held: "old", fresh: "new"}, 403, 200, 2, 1},
		{"rotated to a wrong one", vault{held: "old", fresh: "newer"}, 401, 401, 2, 1},
		{"rotated to JSON", vault{held: "old", fresh: `{"key":"new"}`}, 401, 401, 1, 1},
		{"rotated to no token", vault{held: "old", fresh: "new\nnewer"}, 403, 403, 1, 1},
		{"emptied", vault{held: "old", fresh: " \n"}, 401, 401, 1, 1},
		{"not rotated", vault{held: "old", fresh: "old"}, 401, 401, 1, 1},
		{"another refusal", vault{held: "old", fresh: "new"}, 400, 400, 1, 0},
		{"trouble of the moment", vault{held: "old", fresh: "new"}, 503, 503, 1, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			url, shown := tokens(t, "Bearer new", c.refusal)
			s, err := Open([]Service{{URL: url, Secret: "s"}}, func() Secrets { return &c.v }, local)
			if err != nil {
				t.Fatal(err)
			}
			reply, err := s.Call(t.Context(), batch.Call{Endpoint: "/v1/x", Body: []byte("body")})
			if err != nil || reply.Status != c.status || len(*shown) != c.shown || c.v.renewed != c.renewed {
				t.Errorf("%+v, %v, shown %q, renewed %d times", reply, err, *shown, c.v.renewed)
			}
			for _, what := range *shown {
				if !strings.HasSuffix(what, " body") {
					t.Errorf("shown %q", what)
				}
			}
		})
	}
	// Without a secret there is nothing to renew.
	url, shown := tokens(t, "Bearer new", 401)
	s, err := Open([]Service{{URL: url, Key: "old"}}, nil, local)
	if err != nil {
		t.Fatal(err)
	}
	if reply, err := s.Call(t.Context(), batch.Call{Endpoint: "/v1/x"}); err != nil || reply.Status != 401 || len(*shown) != 1 {
		t.Errorf("%+v, %v", reply, err)
	}
}

// What goes wrong with a secret holds none of it, and reaches nobody.
func TestSecretTrouble(t *testing.T) {
	url, shown := tokens(t, "", 401)
	for name, store := range map[string]Secrets{
		"can't be read": &vault{err: errors.New("denied")},
		"is no token":   &vault{held: "pass\x00word"},
		"is JSON":       &vault{held: `{"key":"pass"}`},
		"is empty":      &vault{held: "\n"},
	} {
		s, err := Open([]Service{{URL: url, Secret: "s"}}, func() Secrets { return store }, local)
		if err != nil {
			t.Fatal(err)
		}
		_, err = s.Call(t.Context(), batch.Call{Endpoint: "/v1/x"})
		if !errors.Is(err, batch.ErrNoCredential) || strings.Contains(err.Error(), "pass") || strings.Contains(err.Error(), url) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if len(*shown) != 0 {
		t.Errorf("the server was shown %q", *shown)
	}
}

// Whatever name leads there: the guard looks at the address, and the error names
// neither.
func TestRefusedAddress(t *testing.T) {
	url, shown := tokens(t, "", 401)
	c, err := New(url, local)
	if err != nil {
		t.Fatal(err)
	}
	guarded, err := New("http://names.example", nil)
	if err != nil {
		t.Fatal(err)
	}
	c.http = guarded.http // as if the name had come to mean this machine
	_, err = c.Call(t.Context(), batch.Call{Endpoint: "/v1/x"})
	if !errors.Is(err, batch.ErrRefusedAddress) || !errors.Is(err, batch.ErrUnreachable) || strings.Contains(err.Error(), "127.0.0.1") || len(*shown) != 0 {
		t.Errorf("%v, shown %q", err, *shown)
	}
}

// Open hands an answer out as it comes: whoever streams it reads the first bytes
// before the last are written.
func TestOpenStreams(t *testing.T) {
	more := make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, "one")
		http.NewResponseController(w).Flush()
		<-more
		io.WriteString(w, "two")
	}))
	t.Cleanup(s.Close)
	all, err := Open([]Service{{URL: s.URL}}, nil, &Options{Guard: local.Guard, Timeout: time.Nanosecond})
	if err != nil {
		t.Fatal(err)
	}
	c, err := all.For("m")
	if err != nil {
		t.Fatal(err)
	}
	resp, err := c.Open(t.Context(), "/v1/x", http.Header{"Authorization": {"Bearer client's"}}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	first := make([]byte, 3)
	if _, err := io.ReadFull(resp.Body, first); err != nil || string(first) != "one" {
		t.Fatalf("%q, %v", first, err)
	}
	close(more)
	if rest, err := io.ReadAll(resp.Body); string(rest) != "two" || err != nil {
		t.Errorf("%q, %v", rest, err)
	}
	if got := resp.Request.Header.Get("Authorization"); got != "" {
		t.Errorf("a client's token was passed on: %s", got)
	}
}
