package gateway

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"time"

	"holdfast/internal/access"
	"holdfast/internal/batch"
	"holdfast/internal/config"
	"holdfast/internal/openai"
)

// Keys tells who shows a value of the Authorization header, from which address; its
// errors are those of *access.Cache, which is one, and so is what by is for.
type Keys interface {
	AuthenticateBy(ctx context.Context, header, source string, now time.Time, by access.Pairs) (access.Caller, error)
}

// Tenants knows what tenants may use up. *access.TenantCache is one.
type Tenants interface {
	// Pace are the limits of the tenant of this name for a request of the caller's, as
	// far as that costs no second read.
	Pace(ctx context.Context, c access.Caller, name string, now time.Time) (access.Limits, error)
	// Fresh reports whether Pace would read nothing, Learn is told what else read.
	Fresh(name string, now time.Time) bool
	Learn(name string, t access.Tenant, now time.Time)
}

// Batches reads a batch, strongly consistent. batch.ErrNotFound. Every batch.Batches
// is one.
type Batches interface {
	Get(ctx context.Context, tenant, id string) (batch.Batch, error)
}

// Replays reads what the first replay with a key needs.
type Replays interface {
	// Replay reads in one call, all strongly consistent, the key with this hash ("": none
	// is asked for), the tenant's batch, and the records of the tenants of these names,
	// each different. access.ErrNotFound where there is no such key, whatever else there
	// is. A batch that isn't there is zero, and a tenant without a record is not in the
	// map.
	Replay(ctx context.Context, hash, tenant, batch string, records ...string) (access.Key, batch.Batch, map[string]access.Tenant, error)
}

// Upstream calls models.
type Upstream interface {
	// Open posts body to endpoint ("/v1/…") of the service that has the model ("": one
	// that names none), with header and what the service needs besides, and returns the
	// answer as soon as its status is there, whatever that is. The caller closes its
	// body, and says by ctx how long it may take. ready is asked as batch.Call's, and its
	// error is Open's where nothing was sent. Others: batch.ErrModelNotFound,
	// batch.ErrNoCredential, batch.ErrUnreachable, *batch.Withheld; none holds a URL, a
	// header, a token or a body. Reading the body fails with a *batch.Withheld where it
	// must not go on, and with batch.ErrTimeout where it stood still for too long.
	Open(ctx context.Context, model, endpoint string, header http.Header, body []byte, ready func(context.Context) error) (*http.Response, error)
}

// Ports is what the gateway stands on; all are required.
type Ports struct {
	Keys     Keys
	Tenants  Tenants
	Batches  Batches
	Replays  Replays
	Receipts access.Receipts
	Upstream Upstream
}

// Options adjust a Gateway. The zero value works.
type Options struct {
	Log      *slog.Logger     // discarded by default
	Now      func() time.Time // time.Now by default
	Observer batch.Observer   // told of refused replays; nobody by default
}

// Gateway is the handler. Safe for concurrent use.
type Gateway struct {
	ports    Ports
	settings config.Settings
	views    *views
	rates    access.Rates
	refusals *access.Refusals
	observer batch.Observer
	log      *slog.Logger
	now      func() time.Time
}

// refusedAMinute is how many refused replays a key has in this process before it is
// held up. When a batch ends its workers are refused once each, and who waits for that
// waits a second.
const refusedAMinute = 60

var _ http.Handler = (*Gateway)(nil)

// New returns a gateway with the endpoints, bounds and times of s.
func New(p Ports, s config.Settings, opts *Options) *Gateway {
	g := &Gateway{ports: p, settings: s, refusals: access.NewRefusals(refusedAMinute), log: slog.New(slog.DiscardHandler), now: time.Now}
	if opts != nil {
		g.observer = opts.Observer
	}
	if opts != nil && opts.Log != nil {
		g.log = opts.Log
	}
	if opts != nil && opts.Now != nil {
		g.now = opts.Now
	}
	// The wall clock: the monotonic one stands still while Lambda has the function frozen,
	// and a view of before would let somebody act for a batch that is long over.
	clock := g.now
	g.now = func() time.Time { return clock().Round(0) }
	g.views = newViews(p.Batches, s.Drain, g.now)
	return g
}

const modelsPath = "/v1/models"

// requestIDKey is how a door in front of the gateway names its own id.
type requestIDKey struct{}

// WithRequestID makes id the x-request-id of requests with this context, so that the
// door's log and ours can be joined. Without it one is made up; a client's is no
// one's.
func WithRequestID(ctx context.Context, id string) context.Context {
	return context.WithValue(ctx, requestIDKey{}, id)
}

// ServeHTTP answers one request, and logs one line. An answer that broke off after
// its status was sent ends with a panic of http.ErrAbortHandler, which a server takes
// to cut the connection: a torn reply must not look like a whole one.
func (g *Gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	id, _ := r.Context().Value(requestIDKey{}).(string)
	if id == "" {
		id = "req_" + strings.ToLower(rand.Text())
	}
	h := w.Header()
	h.Set("X-Request-Id", id)
	h.Set("Cache-Control", "no-store")
	x := &exchange{ResponseWriter: w, id: id, began: g.now()}
	x.err = g.serve(x, r)
	torn := x.err != nil && x.status != 0
	if x.err != nil {
		e := answer(x.err)
		x.err = e
		if !torn {
			if e.Status == http.StatusUnauthorized {
				h.Set("WWW-Authenticate", "Bearer")
			}
			openai.WriteError(x, e)
		}
	}
	g.report(r, x)
	if torn {
		panic(http.ErrAbortHandler)
	}
}

// serve finds the route, and lets do who may.
func (g *Gateway) serve(x *exchange, r *http.Request) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = panicked(p)
		}
	}()
	method, allow := http.MethodPost, []string{http.MethodOptions, http.MethodPost}
	scope, do := access.Submit, g.call
	switch path := r.URL.Path; {
	case path == modelsPath:
		method, allow = http.MethodGet, []string{http.MethodGet, http.MethodHead, http.MethodOptions}
		scope, do = access.Read, g.models
	case !slices.Contains(g.settings.Endpoints, path):
		return openai.UnknownURL(r.Method, path, elsewhere(path))
	}
	x.route = r.URL.Path
	switch {
	case r.Method == http.MethodOptions:
		x.Header().Set("Allow", strings.Join(allow, ", "))
		x.WriteHeader(http.StatusNoContent)
		return nil
	case r.Method != method && (r.Method != http.MethodHead || method != http.MethodGet):
		return openai.MethodNotAllowed(r.Method, allow...)
	}
	// With two headers, a door could have checked one and we the other.
	var header string
	if values := r.Header.Values("Authorization"); len(values) == 1 {
		header = values[0]
	}
	// The address is the door's own view. What a header says of it anybody can write.
	asserted := assertedBy(r.Header, r.URL.Path)
	look := g.lookOf(asserted, x.began)
	caller, err := g.ports.Keys.AuthenticateBy(r.Context(), header, r.RemoteAddr, x.began, look.pairs())
	if err != nil {
		return err
	}
	x.who = access.Identity{Tenant: caller.Tenant, OnBehalfOf: caller.Principal, Key: caller.Key, Line: access.NoLine}
	q := &request{Request: r, caller: caller, asserted: asserted, look: look}
	if err := g.decide(q, x.began); err != nil {
		return err
	}
	x.who = q.who
	if q.who.Replay { // whom the calls from here on are for, to whoever counts them
		q.Request = r.WithContext(batch.WithSubject(r.Context(), q.who.Tenant, q.who.Batch))
	} else {
		if err := caller.Require(scope); err != nil {
			return err
		}
	}
	return do(x, q)
}

// request is one request of somebody who may make it.
type request struct {
	*http.Request
	caller   access.Caller
	asserted access.Asserted
	look     *look
	who      access.Identity
	seen     time.Time // when the look at the batch of a replay began
}

// decide tells whom a request counts as, and holds to their requests a minute the
// tenant of the key, whatever is asked, and the one that it acts for. A key that leaked
// can look for batches no faster than that, nor for long: who is refused again and
// again is held up before anything is read.
func (g *Gateway) decide(q *request, now time.Time) error {
	if wait := g.refusals.Wait(q.caller.Key, now); wait > 0 {
		g.observer.Add(batch.MetricReplayRefused, 1)
		return openai.RateLimited(wait)
	}
	if q.caller.Require(access.BatchReplay) == nil {
		if err := q.look.settle(q.Context(), q.caller.Tenant, now); err != nil {
			return err
		}
	}
	if err := g.pace(q.Context(), q.caller, q.caller.Tenant, now); err != nil {
		return err
	}
	who, err := access.Decide(q.Context(), q.caller, q.asserted, g.views.runs(q.look, &q.seen))
	if errors.Is(err, access.ErrReplay) {
		g.refusals.Count(q.caller.Key, now)
		g.observer.Add(batch.MetricReplayRefused, 1)
	}
	if err != nil {
		return err
	}
	q.who = who
	if who.Tenant == q.caller.Tenant {
		return nil
	}
	q.look.teach(now)
	return g.pace(q.Context(), q.caller, who.Tenant, now)
}

// pace counts a request towards a tenant's requests a minute.
func (g *Gateway) pace(ctx context.Context, c access.Caller, tenant string, now time.Time) error {
	limits, err := g.ports.Tenants.Pace(ctx, c, tenant, now)
	if err != nil {
		return err
	}
	if wait := g.rates.Take(tenant, limits.RequestsPerMinute, now); wait > 0 {
		return openai.RateLimited(wait)
	}
	return nil
}

// models answers with the models that the installation names, as the API does.
func (g *Gateway) models(x *exchange, _ *request) error {
	models := make([]openai.Model, len(g.settings.Models))
	for i, id := range g.settings.Models {
		models[i] = openai.Model{ID: id, OwnedBy: "upstream"}
	}
	return openai.WriteJSON(x, http.StatusOK, openai.Models{Data: models})
}
