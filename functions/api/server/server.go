package server

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"net/http"
	"path"
	"slices"
	"strings"
	"time"

	"holdfast/internal/access"
	"holdfast/internal/batch"
	"holdfast/internal/bridge"
	"holdfast/internal/bridge/batches"
	"holdfast/internal/config"
	"holdfast/internal/openai"
	"holdfast/internal/reap"
	"holdfast/internal/upload"
)

// Authenticator tells who shows a value of the Authorization header, from which
// address; its errors are those of *access.Cache, which is one.
type Authenticator interface {
	Authenticate(ctx context.Context, header, source string, now time.Time) (access.Caller, error)
}

// Presigner makes URLs that hand out one object for a while.
type Presigner interface {
	// Presign returns a URL whose GET gives o's bytes, without credentials and
	// whatever headers come along, until ttl has passed: as a download under
	// filename (any text) with this Content-Type. It does not look whether o
	// exists.
	Presign(ctx context.Context, o batch.Object, filename, contentType string, ttl time.Duration) (string, error)
}

// Ports is what the API stands on; all are required.
type Ports struct {
	Keys    Authenticator
	KeyBook access.Store // where an admin key manages its tenant's keys
	Tenants Tenants
	Batches batch.Batches
	Parts   batch.Parts
	Files   batch.Files
	Objects batch.Objects
	Links   Presigner
	Uploads *upload.Uploads

	Ender  *batch.Ender
	Events batch.Events
	Reaper *reap.Reaper

	Receipts Receipts
	Calls    Calls // that the gateway made

	// How a batch is created: Jobs does it, Bridge once a key, Resends once for
	// all that an official client sends again.
	Jobs    *batches.Submitter
	Bridge  *bridge.Bridge
	Resends *bridge.Resends
}

// Options adjust a Server. The zero value works.
type Options struct {
	Log      *slog.Logger     // discarded by default
	Now      func() time.Time // time.Now by default; read once a request
	Observer batch.Observer   // told of refused replays; nobody by default
}

// Server is the API. Safe for concurrent use.
type Server struct {
	ports    Ports
	settings config.Settings
	inputs   string // bucket
	observer batch.Observer
	log      *slog.Logger
	now      func() time.Time
	rates    access.Rates
	mux      *http.ServeMux
}

var _ http.Handler = (*Server)(nil)

// New returns the API. Uploads go to the bucket inputs.
func New(p Ports, s config.Settings, inputs string, opts *Options) *Server {
	if opts == nil {
		opts = &Options{}
	}
	srv := &Server{ports: p, settings: s, inputs: inputs, observer: opts.Observer, log: opts.Log, now: opts.Now, mux: http.NewServeMux()}
	if srv.log == nil {
		srv.log = slog.New(slog.DiscardHandler)
	}
	if srv.now == nil {
		srv.now = time.Now
	}
	// Patterns name no method, so that a wrong one is answered by us, in the
	// contract's shape.
	for _, rt := range routes {
		srv.mux.HandleFunc(rt.path, func(w http.ResponseWriter, r *http.Request) { srv.serve(w.(*exchange), r, rt) })
	}
	srv.mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		w.(*exchange).err = srv.unknown(r)
	})
	return srv
}

// route is one path and what its methods do.
type route struct {
	path    string
	methods map[string]action // GET answers HEAD too
}

// action is what a caller with the scope may have done. An action answers
// itself, or returns an error and has written nothing.
type action struct {
	scope access.Scope
	do    func(*Server, http.ResponseWriter, *request) error
}

// request is one call of a known caller.
type request struct {
	*http.Request
	id     string
	caller access.Caller
	now    time.Time
}

var routes = []*route{
	{"/v1/files", map[string]action{
		http.MethodPost: {access.Submit, (*Server).uploadFile},
		http.MethodGet:  {access.Read, (*Server).listFiles},
	}},
	{"/v1/files/{id}", map[string]action{
		http.MethodGet:    {access.Read, (*Server).getFile},
		http.MethodDelete: {access.Submit, (*Server).deleteFile},
	}},
	{"/v1/files/{id}/content", map[string]action{http.MethodGet: {access.Read, (*Server).getContent}}},
	{"/v1/models", map[string]action{http.MethodGet: {access.Read, (*Server).listModels}}},
	{"/v1/models/{id...}", map[string]action{http.MethodGet: {access.Read, (*Server).getModel}}},
	{"/v1/uploads", map[string]action{http.MethodPost: {access.Submit, (*Server).createUpload}}},
	{"/v1/uploads/{id}", map[string]action{http.MethodGet: {access.Submit, (*Server).getUpload}}},
	{"/v1/uploads/{id}/parts", map[string]action{http.MethodPost: {access.Submit, (*Server).addPart}}},
	{"/v1/uploads/{id}/part_urls", map[string]action{http.MethodPost: {access.Submit, (*Server).partURLs}}},
	{"/v1/uploads/{id}/complete", map[string]action{http.MethodPost: {access.Submit, (*Server).completeUpload}}},
	{"/v1/uploads/{id}/cancel", map[string]action{http.MethodPost: {access.Submit, (*Server).cancelUpload}}},
	{"/v1/batches", map[string]action{
		http.MethodPost: {access.Submit, (*Server).createBatch},
		http.MethodGet:  {access.Read, (*Server).listBatches},
	}},
	{"/v1/batches/{id}", map[string]action{http.MethodGet: {access.Read, (*Server).getBatch}}},
	{"/v1/batches/{id}/cancel", map[string]action{http.MethodPost: {access.Submit, (*Server).cancelBatch}}},
	{"/v1/batches/{id}/events", map[string]action{http.MethodGet: {access.Read, (*Server).listEvents}}},
	{"/v1/batches/{id}/receipts", map[string]action{http.MethodGet: {access.Read, (*Server).getReceipts}}},
	{"/v1/batches/{id}/receipts/gateway", map[string]action{http.MethodGet: {access.Read, (*Server).listCallsOfBatch}}},
	{"/v1/receipts", map[string]action{http.MethodGet: {access.Read, (*Server).listCallsOfDay}}},
	{"/v1/admin/reclaim", map[string]action{http.MethodPost: {access.Admin, (*Server).reclaim}}},
	{"/v1/admin/dead", map[string]action{http.MethodGet: {access.Admin, (*Server).listDead}}},
	{"/v1/admin/dead/{batch}/{part}", map[string]action{http.MethodGet: {access.Admin, (*Server).showDead}}},
	{"/v1/admin/redrive", map[string]action{http.MethodPost: {access.Admin, (*Server).redrive}}},
	{"/v1/admin/keys", map[string]action{
		http.MethodGet:  {access.Admin, (*Server).listKeys},
		http.MethodPost: {access.Admin, (*Server).createKey},
	}},
	{"/v1/admin/keys/{id}/disable", map[string]action{http.MethodPost: {access.Admin, (*Server).disableKey}}},
	{"/v1/admin/keys/{id}/rotate", map[string]action{http.MethodPost: {access.Admin, (*Server).rotateKey}}},
}

// allow lists the route's methods, in a fixed order.
func (r *route) allow() []string {
	methods := []string{http.MethodOptions}
	for m := range r.methods {
		methods = append(methods, m)
		if m == http.MethodGet {
			methods = append(methods, http.MethodHead)
		}
	}
	slices.Sort(methods)
	return methods
}

// requestIDKey is how a door in front of the server names its own id.
type requestIDKey struct{}

// WithRequestID makes id the x-request-id of requests with this context, so
// that the door's log and ours can be joined. Without it one is made up.
func WithRequestID(ctx context.Context, id string) context.Context {
	return context.WithValue(ctx, requestIDKey{}, id)
}

// ServeHTTP answers one request. It never panics and logs one line.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	id, _ := r.Context().Value(requestIDKey{}).(string)
	if id == "" {
		id = "req_" + strings.ToLower(rand.Text())
	}
	w.Header().Set("X-Request-Id", id)
	x := &exchange{ResponseWriter: w, id: id, now: s.now()}
	if path.Clean(r.URL.Path) == r.URL.Path {
		s.mux.ServeHTTP(x, r)
	} else {
		// The mux would redirect to the clean path, in HTML.
		x.err = s.unknown(r)
	}
	if x.err != nil {
		e := answer(x.err)
		x.err = e
		if e.Status == http.StatusUnauthorized {
			x.Header().Set("WWW-Authenticate", "Bearer")
		}
		// After the first byte there is nothing to take back: the client sees a
		// body that ends early.
		if x.status == 0 {
			openai.WriteError(x, e)
		}
	}
	s.report(r, x)
}

// unknown is about a path that isn't here, and says of a model's whose it is.
func (s *Server) unknown(r *http.Request) error {
	elsewhere := ""
	if slices.Contains(s.settings.Endpoints, r.URL.Path) {
		elsewhere = "Models are called at the gateway's URL (the stack's output GatewayUrl, if it has one); this is the API's, for files and batches."
	}
	return openai.UnknownURL(r.Method, r.URL.Path, elsewhere)
}

// serve runs what the route has for the method, for a caller who may.
func (s *Server) serve(x *exchange, r *http.Request, rt *route) {
	defer func() {
		if p := recover(); p != nil {
			x.err = panicked(p)
		}
	}()
	x.route = rt.path
	x.err = s.act(x, r, rt)
}

func (s *Server) act(x *exchange, r *http.Request, rt *route) (err error) {
	method := r.Method
	switch method {
	case http.MethodOptions:
		x.Header().Set("Allow", strings.Join(rt.allow(), ", "))
		x.WriteHeader(http.StatusNoContent)
		return nil
	case http.MethodHead:
		method = http.MethodGet // net/http and the Lambda door drop the body
	}
	act, ok := rt.methods[method]
	if !ok {
		return openai.MethodNotAllowed(r.Method, rt.allow()...)
	}
	// With two headers, a door could have checked one and we the other.
	var header string
	if values := r.Header.Values("Authorization"); len(values) == 1 {
		header = values[0]
	}
	// The address is the door's own view. What a header says of it anybody can write.
	if x.caller, err = s.ports.Keys.Authenticate(r.Context(), header, r.RemoteAddr, x.now); err != nil {
		return err
	}
	if err := s.pace(r.Context(), x.caller, x.now); err != nil {
		return err
	}
	if err := s.actsForItself(x.caller, r); err != nil {
		return err
	}
	if err := x.caller.Require(act.scope); err != nil {
		return err
	}
	return act.do(s, x, &request{Request: r, id: x.id, caller: x.caller, now: x.now})
}

// actsForItself is the replay rule here, where nobody may act for another: no request
// calls a model, so that a key with batch_replay has nothing to do, and who asserts a
// tenant must be that one's.
func (s *Server) actsForItself(c access.Caller, r *http.Request) error {
	asserted := access.Asserted{Tenant: r.Header.Values("X-Tenant-ID"), Batch: r.Header.Values("X-Batch-ID"), Line: r.Header.Values("X-Batch-Line")}
	_, err := access.Decide(r.Context(), c, asserted, func(context.Context, string, string) (access.Run, error) { return access.Run{}, access.ErrNoRun })
	if errors.Is(err, access.ErrReplay) {
		s.observer.Add(batch.MetricReplayRefused, 1)
	}
	return err
}

// exchange is one request's way through the server: the writer of its answer,
// and what the log will say of it.
type exchange struct {
	http.ResponseWriter
	id     string
	now    time.Time
	route  string // "" if there is none
	caller access.Caller
	status int // 0 until something is written
	err    error
}

// WriteHeader notes the first status.
func (x *exchange) WriteHeader(status int) {
	if x.status == 0 {
		x.status = status
	}
	x.ResponseWriter.WriteHeader(status)
}

// Write implies a 200 as net/http does.
func (x *exchange) Write(b []byte) (int, error) {
	if x.status == 0 {
		x.status = http.StatusOK
	}
	return x.ResponseWriter.Write(b)
}
