package upstream

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"holdfast/internal/batch"
	"holdfast/internal/openai"
)

// errLate is what a test's ready refuses with.
var errLate = errors.New("too late")

// Whether a request may go is asked when the secret is read and the connection there,
// and after a no nothing of it is written: with HTTP/1, with HTTP/2, on a new connection
// and on one that is kept.
func TestNothingIsSentThatIsNotReady(t *testing.T) {
	for _, h2 := range []bool{false, true} {
		var handled, read atomic.Int64
		s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			handled.Add(1)
			b, _ := io.ReadAll(r.Body)
			read.Add(int64(len(b)))
			if h2 != (r.ProtoMajor == 2) {
				t.Errorf("%s", r.Proto)
			}
		}))
		s.EnableHTTP2 = h2
		if s.StartTLS(); !h2 {
			s.Config.ErrorLog = nil
		}
		t.Cleanup(s.Close)
		v := &slowVault{}
		all, err := Open([]Service{{URL: s.URL, Secret: "s"}}, func() Secrets { return v }, local)
		if err != nil {
			t.Fatal(err)
		}
		c, err := all.For("m")
		if err != nil {
			t.Fatal(err)
		}
		ours, servers := c.http.Transport.(*http.Transport), s.Client().Transport.(*http.Transport)
		ours.TLSClientConfig = servers.TLSClientConfig
		ours.ForceAttemptHTTP2 = h2
		var sent int64
		for i, says := range []error{errLate, nil, errLate, nil, errLate} {
			asked := 0
			ready := func(context.Context) error {
				asked++
				if v.reads.Load() != int64(i+1) {
					t.Error("asked before the secret was read")
				}
				return says
			}
			resp, err := c.Open(t.Context(), "/v1/x", nil, []byte("body"), ready)
			if says == nil {
				sent++
			}
			if !errors.Is(err, says) || (err == nil) != (says == nil) || asked == 0 {
				t.Errorf("http2 %v, call %d: %v, asked %d times", h2, i, err, asked)
			}
			if resp != nil {
				resp.Body.Close()
			}
		}
		if handled.Load() != sent || read.Load() != 4*sent {
			t.Errorf("http2 %v: %d requests and %d bytes came, %d were let go", h2, handled.Load(), read.Load(), sent)
		}
	}
}

// A request that is held back takes no other one's connection with it, where they share one.
func TestHeldBackAmongOthers(t *testing.T) {
	goOn := make(chan struct{})
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.NewResponseController(w).Flush()
		select {
		case <-goOn:
			_, _ = io.Copy(w, r.Body)
		case <-r.Context().Done():
		}
	}))
	s.EnableHTTP2 = true
	s.StartTLS()
	t.Cleanup(s.Close)
	c, err := New(s.URL, local)
	if err != nil {
		t.Fatal(err)
	}
	c.http.Transport.(*http.Transport).TLSClientConfig = s.Client().Transport.(*http.Transport).TLSClientConfig
	other, err := c.Open(t.Context(), "/v1/x", nil, []byte("body"), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Body.Close()
	held := func(context.Context) error { return errLate }
	if _, err := c.Open(t.Context(), "/v1/x", nil, []byte("body"), held); !errors.Is(err, errLate) {
		t.Fatal(err)
	}
	close(goOn)
	if got, err := io.ReadAll(other.Body); err != nil || string(got) != "body" || other.ProtoMajor != 2 {
		t.Errorf("%s: %q, %v", other.Proto, got, err)
	}
}

// slowVault counts its reads.
type slowVault struct{ reads atomic.Int64 }

func (v *slowVault) Get(context.Context, string) (string, error) {
	v.reads.Add(1)
	return "old-token", nil
}

func (*slowVault) Renew(context.Context, string, string, int) (string, error) {
	return "new-token", nil
}

// The second time a request goes it is asked for again; after a no the first answer stands.
func TestSecondSendIsAskedFor(t *testing.T) {
	for _, says := range []error{nil, errLate} {
		url, shown := tokens(t, "Bearer new-token", 401)
		v := &slowVault{}
		s, err := Open([]Service{{URL: url, Secret: "s"}}, func() Secrets { return v }, local)
		if err != nil {
			t.Fatal(err)
		}
		asked := 0
		ready := func(context.Context) error {
			if asked++; asked == 1 {
				return nil
			}
			return says
		}
		reply, err := s.Call(t.Context(), batch.Call{Endpoint: "/v1/x", Body: []byte("body"), Ready: ready})
		want := map[bool]int{true: 200, false: 401}[says == nil]
		if err != nil || reply.Status != want || asked != 2 || len(*shown) != map[int]int{200: 2, 401: 1}[want] {
			t.Errorf("ready says %v: %+v, %v, asked %d times, shown %q", says, reply, err, asked, *shown)
		}
		if want == 401 && (reply.Withheld == nil || reply.Withheld.Code != openai.CodeUpstreamDenied || reply.Withheld.Bytes != 2) {
			t.Errorf("%+v", reply.Withheld)
		}
		asked = 0
		_, err = s.Open(t.Context(), "m", "/v1/x", nil, []byte("body"), ready)
		if w, denied := errors.AsType[*batch.Withheld](err); denied != (want == 401) || denied && w.Status != 401 || !denied && err != nil {
			t.Errorf("ready says %v: %v", says, err)
		}
	}
}

// A no in a call whose time is over by then, or whose caller has gone, is that.
func TestReadyThatEndsWithItsContext(t *testing.T) {
	waits := func(ctx context.Context) error {
		<-ctx.Done()
		return ctx.Err()
	}
	c := serve(t, &Options{Timeout: 20 * time.Millisecond}, func(http.ResponseWriter, *http.Request) { t.Error("it was sent") })
	b := call("{}")
	b.Ready = waits
	if _, err := c.Call(t.Context(), b); !errors.Is(err, batch.ErrTimeout) {
		t.Errorf("timeout: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	b.Ready = func(ctx context.Context) error {
		cancel()
		return waits(ctx)
	}
	if _, err := c.Call(ctx, b); !errors.Is(err, context.Canceled) || strings.Contains(err.Error(), "127") {
		t.Errorf("caller's end: %v", err)
	}
}

// After a no nothing can be written to a connection that is the request's alone, however
// soon the transport tries.
func TestRefusedConnectionIsClosed(t *testing.T) {
	for _, says := range []error{nil, errLate} {
		ours, theirs := net.Pipe()
		go io.Copy(io.Discard, theirs)
		ctx, cancel := context.WithCancel(t.Context())
		g := &gate{ready: func(context.Context) error { return says }, shut: cancel}
		g.ask(ctx, ours)
		if _, err := ours.Write([]byte("POST")); (err == nil) != (says == nil) || (ctx.Err() == nil) != (says == nil) || (g.refused() == nil) != (says == nil) {
			t.Errorf("ready says %v: wrote %v, context %v, %v", says, err, ctx.Err(), g.refused())
		}
		cancel()
		theirs.Close()
	}
}
