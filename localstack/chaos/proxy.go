package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"io"
	"log"
	"maps"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"slices"
	"sync"
	"time"

	"holdfast/internal/lease"
)

// proxy stands between the functions and the local AWS. It knows which process
// makes which call, and holds one back where it is told to: so that the process can
// be killed, or stopped beyond its lease, between two steps of the protocol. The
// code under test has no hook and doesn't know.
type proxy struct {
	forward *httputil.ReverseProxy
	server  *http.Server

	mu      sync.Mutex
	traps   []*trap
	flying  map[int]int         // calls under way by process, without those that are held
	holders map[lease.Token]int // who made a claim
	seen    map[string]bool     // receipts whose visibility was set
}

// side says where a call is held.
type side int

const (
	before side = iota // it hasn't taken effect
	after              // it has, and the process doesn't know
)

// trap catches the first call that it wants, or all.
type trap struct {
	wants func(call) bool
	side  side
	off   chan struct{} // closed when one for all calls is disarmed; nil: it is for the first
	hit   chan *held
}

// held is a call that was caught. It waits until let go.
type held struct {
	call
	status int // of the answer, where that is what is held
	once   sync.Once
	on     chan bool
}

// release lets the call go on. With land false it never happened, or, after it
// has, its answer is lost. Only the first release counts.
func (h *held) release(land bool) { h.once.Do(func() { h.on <- land }) }

// newProxy listens on a loopback address and forwards to the local AWS.
func newProxy(listen, endpoint, certificate, key string, w processes) (*proxy, error) {
	to, err := url.Parse(endpoint)
	if err != nil {
		return nil, err
	}
	pair, err := tls.LoadX509KeyPair(certificate, key)
	if err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", listen)
	if err != nil {
		return nil, err
	}
	p := forwarding(to)
	p.server = &http.Server{
		Handler: p, ErrorLog: quietly, ReadHeaderTimeout: 10 * time.Second,
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			port := c.RemoteAddr().(*net.TCPAddr).Port
			return context.WithValue(ctx, clientKey{}, sync.OnceValue(func() process { return w.at(port) }))
		},
	}
	go p.server.Serve(tls.NewListener(l, &tls.Config{Certificates: []tls.Certificate{pair}, NextProtos: []string{"http/1.1"}}))
	return p, nil
}

// quietly: workers that are killed break connections all the time.
var quietly = log.New(io.Discard, "", 0)

// forwarding is a proxy without a server.
func forwarding(to *url.URL) *proxy {
	return &proxy{
		flying: map[int]int{}, holders: map[lease.Token]int{}, seen: map[string]bool{},
		forward: &httputil.ReverseProxy{
			// The host stays as the client wrote it: it has signed that.
			Rewrite: func(r *httputil.ProxyRequest) { r.Out.URL.Scheme, r.Out.URL.Host = to.Scheme, to.Host },
			// It trusts SSL_CERT_FILE, and drops a connection before the local AWS does (75 s).
			Transport: &http.Transport{MaxIdleConnsPerHost: 256, IdleConnTimeout: 30 * time.Second, DisableCompression: true},
			ErrorLog:  quietly,
		},
	}
}

// clientKey is under what a connection's process is known.
type clientKey struct{}

// close ends the proxy at once. What is held is lost.
func (p *proxy) close() { p.server.Close() }

// ServeHTTP forwards one call.
func (p *proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	who := r.Context().Value(clientKey{}).(func() process)()
	if who.pid == 0 {
		p.forward.ServeHTTP(w, r)
		return
	}
	var body []byte
	if bodied(r.Header) {
		var err error
		if body, err = io.ReadAll(r.Body); err != nil {
			panic(http.ErrAbortHandler)
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
	}
	c := callOf(r.Method, r.URL.Path, r.Header, body)
	if c.process = who; who.role != working && !c.step.starting() {
		c.step = other // what a worker's step looks like isn't one in others
	}
	t := p.begin(&c)
	defer p.end(c.pid)
	if t == nil {
		p.forward.ServeHTTP(w, r)
		return
	}
	h := &held{call: c, on: make(chan bool, 1)}
	// Whatever became of the worker: a call that is on its way arrives.
	r = r.WithContext(context.WithoutCancel(r.Context()))
	if t.side == before {
		if !p.hold(t, h) {
			panic(http.ErrAbortHandler)
		}
		p.forward.ServeHTTP(w, r)
		return
	}
	a := &answer{header: http.Header{}}
	p.forward.ServeHTTP(a, r)
	h.status = a.status
	if !p.hold(t, h) {
		panic(http.ErrAbortHandler)
	}
	maps.Copy(w.Header(), a.header)
	w.WriteHeader(a.status)
	w.Write(a.body.Bytes())
}

// answer keeps a reply until its worker may have it.
type answer struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (a *answer) Header() http.Header         { return a.header }
func (a *answer) WriteHeader(status int)      { a.status = status }
func (a *answer) Write(b []byte) (int, error) { return a.body.Write(b) }

// begin takes note of a call and answers who wants it held.
func (p *proxy) begin(c *call) *trap {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.flying[c.pid]++
	for _, t := range c.tokens {
		if p.holders[t] == 0 {
			p.holders[t] = c.pid
		}
	}
	if c.step == arrival {
		if p.seen[c.receipt] {
			c.step = other // a heartbeat
		}
		p.seen[c.receipt] = true
	}
	for i, t := range p.traps {
		if t.wants(*c) {
			if t.off != nil {
				return t
			}
			p.traps = append(p.traps[:i], p.traps[i+1:]...)
			return t
		}
	}
	return nil
}

func (p *proxy) end(pid int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.flying[pid]--
}

// hold tells the one whose trap it was, and waits until it lets go.
func (p *proxy) hold(t *trap, h *held) (land bool) {
	p.end(h.pid)
	defer func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.flying[h.pid]++
	}()
	select {
	case t.hit <- h:
		return <-h.on
	case <-t.off:
		return true
	}
}

// arm sets a trap for the first call that wants describes.
func (p *proxy) arm(s side, wants func(call) bool) *trap {
	return p.set(&trap{wants: wants, side: s, hit: make(chan *held, 1)})
}

// armAll sets a trap for every call that wants describes, until it is disarmed. Each
// of them is held until somebody has taken it from hit.
func (p *proxy) armAll(s side, wants func(call) bool) *trap {
	return p.set(&trap{wants: wants, side: s, off: make(chan struct{}), hit: make(chan *held)})
}

func (p *proxy) set(t *trap) *trap {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.traps = append(p.traps, t)
	return t
}

// disarm takes a trap for every call away. What it holds and nobody has taken goes
// on.
func (p *proxy) disarm(t *trap) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.traps = slices.DeleteFunc(p.traps, func(other *trap) bool { return other == t })
	close(t.off)
}

// caught waits for what a trap catches, and takes the trap away when ctx ends
// first.
func (p *proxy) caught(ctx context.Context, t *trap) (*held, error) {
	select {
	case h := <-t.hit:
		return h, nil
	case <-ctx.Done():
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, other := range p.traps {
		if other == t {
			p.traps = append(p.traps[:i], p.traps[i+1:]...)
			return nil, ctx.Err()
		}
	}
	go func() { (<-t.hit).release(true) }() // caught in this very moment: nobody waits for it
	return nil, ctx.Err()
}

// holder is the worker that made a claim; 0: none that is known.
func (p *proxy) holder(t lease.Token) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.holders[t]
}

// quiet reports whether no call of the worker is under way.
func (p *proxy) quiet(pid int) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.flying[pid] <= 0
}
