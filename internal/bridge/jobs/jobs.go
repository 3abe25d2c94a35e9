package jobs

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/cenkalti/backoff/v5"

	"holdfast/internal/batch"
	"holdfast/internal/bridge"
	"holdfast/internal/openai"
	"holdfast/internal/outbound"
)

// Service is bridge.Request.Service of a request whose job is the external
// service's.
const Service = "jobs"

// Options tune a Submitter; the zero value works.
type Options struct {
	// Token gives the bearer token for each call, so that a rotated secret is
	// picked up; nil or "" sends no Authorization header.
	Token func(context.Context) (string, error)
	// Timeout bounds one HTTP call; default 10 s. A whole Submit is bounded by its
	// ctx (bridge.Options.SubmitTimeout), which should leave room for two.
	Timeout time.Duration
	// PollFirst and PollLongest bound the pauses before a call is repeated, whether
	// to look at a pending job or because the service was not available: they begin
	// at PollFirst (default 250 ms) and double up to PollLongest (default 5 s), give
	// or take a half. What an answer's Retry-After asks for is added.
	PollFirst, PollLongest time.Duration
	// Transport makes the calls; nil: outbound.NewClient's. Redirects are followed
	// with neither.
	Transport http.RoundTripper
}

// Files finds the object that a request means by a file id. batch.Files is one.
type Files interface {
	// Get is batch.Files.Get.
	Get(ctx context.Context, tenant, id string) (batch.File, error)
}

// Submitter is bridge.Submitter over a service of docs/jobs.md. Safe for
// concurrent use.
type Submitter struct {
	base  string
	files Files
	http  *http.Client
	o     Options
}

var (
	_ bridge.Submitter = (*Submitter)(nil)
	_ Files            = batch.Files(nil)
)

// connections is how many idle ones are kept: as many as a drain has letters.
const connections = 10

// New returns a Submitter to the service at base ("https://host[:port][/prefix]",
// without /v1). It refuses what outbound.Base refuses, and makes no call.
func New(base string, files Files, o *Options) (*Submitter, error) {
	prefix, err := outbound.Base("jobs URL", base)
	if err != nil {
		return nil, err
	}
	s := &Submitter{base: prefix, files: files, http: outbound.NewClient(connections)}
	if o != nil {
		s.o = *o
	}
	or := func(d *time.Duration, def time.Duration) {
		if *d <= 0 {
			*d = def
		}
	}
	or(&s.o.Timeout, 10*time.Second)
	or(&s.o.PollFirst, 250*time.Millisecond)
	or(&s.o.PollLongest, max(5*time.Second, s.o.PollFirst))
	if s.o.PollFirst > s.o.PollLongest {
		return nil, fmt.Errorf("jobs: the first pause, %s, is above the longest, %s", s.o.PollFirst, s.o.PollLongest)
	}
	if s.o.Transport != nil {
		s.http.Transport = s.o.Transport
	}
	return s, nil
}

// Submit is bridge.Submitter.Submit; the job's name is the service's. It returns
// once the service has decided, or when ctx ends or won't last until the next try.
//
// A refusal is bridge.ErrRefused with a *JobError, and what that says as a
// *bridge.RefusedError, for the sender; with an *openai.Error where the
// input isn't there; with bridge.ErrConflict where the service says that the id
// stands for another request. After any other error, those of this package among
// them, the fate is unknown.
func (s *Submitter) Submit(ctx context.Context, id string, r bridge.Request, now time.Time) (string, error) {
	if !fit(id) {
		return "", errors.New("jobs: the id is no idempotency key")
	}
	body, err := s.compose(ctx, id, r, now)
	var v verdict
	switch _, gone := errors.AsType[*openai.Error](err); {
	case gone:
		v = verdict{kind: refused, err: err}
	case err != nil:
		return "", fmt.Errorf("job %s: %w", id, err)
	default:
		v = s.insist(ctx, func() verdict { return s.post(ctx, id, body).about(id, id, true) })
	}
	if v.kind == refused || v.kind == exists {
		v = s.confirm(ctx, id, v)
	}
	if v.kind == pending {
		v = s.poll(ctx, id, v)
	}
	return v.name(id, r)
}

// Find is bridge.Submitter.Find, by our id. A job that the service hasn't decided
// on, or refused, wasn't started.
func (s *Submitter) Find(ctx context.Context, id string, r bridge.Request) (string, error) {
	if !fit(id) {
		return "", errors.New("jobs: the id is no idempotency key")
	}
	v := s.insist(ctx, func() verdict { return s.get(ctx, id).about(id, id, false) })
	if v.kind == pending || v.kind == refused {
		return "", fmt.Errorf("%w: job %s is %s", bridge.ErrNotFound, id, v.job.Status)
	}
	return v.name(id, r)
}

// Status tells how a job is, by the service's name for it or by our id.
// bridge.ErrNotFound, and the errors of this package. It takes as long as three calls at
// most, whatever the service asks to wait.
func (s *Submitter) Status(ctx context.Context, job string) (Job, error) {
	ctx, cancel := context.WithTimeout(ctx, 3*s.o.Timeout)
	defer cancel()
	if !fit(job) {
		return Job{}, fmt.Errorf("%w: a job's name is printable ASCII of at most 512 bytes", bridge.ErrNotFound)
	}
	v := s.insist(ctx, func() verdict { return s.get(ctx, job).about(job, "", false) })
	switch v.kind {
	case started, pending, refused:
		return v.job, nil
	case missing:
		return Job{}, fmt.Errorf("%w: job %s", bridge.ErrNotFound, job)
	}
	return Job{}, fmt.Errorf("job %s: %w", job, v.err)
}

// name turns a verdict into what the port answers.
func (v verdict) name(id string, r bridge.Request) (string, error) {
	switch {
	case v.kind == started && v.job.RequestHash != "" && v.job.RequestHash != r.Hash():
		return "", fmt.Errorf("%w: job %s: %w", bridge.ErrRefused, id, bridge.ErrConflict)
	case v.kind == started:
		return v.job.ID, nil
	case v.kind == refused:
		if said, ok := errors.AsType[*JobError](v.err); ok {
			return "", fmt.Errorf("job %s: %w: %w", id, said.refused(), v.err)
		}
		return "", fmt.Errorf("%w: job %s: %w", bridge.ErrRefused, id, v.err)
	case v.kind == missing:
		return "", fmt.Errorf("%w: job %s", bridge.ErrNotFound, id)
	}
	return "", fmt.Errorf("job %s: %w", id, v.err)
}

// about holds an answer to the job that was asked for, by name: the service's own,
// or id, which is ours ("" where the caller doesn't know it). loose lets an answer
// pass that doesn't say whose it is: the one to a post, which can be of nothing else.
func (v verdict) about(name, id string, loose bool) verdict {
	j := v.job
	switch {
	case v.kind != started && v.kind != pending && j.Status != statusRefused:
	case id != "" && j.IdempotencyKey != "" && j.IdempotencyKey != id:
		return fault("%w: it answered with another's job", ErrAnswer)
	case j.ID == name, j.IdempotencyKey == name, id != "" && j.IdempotencyKey == id:
	case loose, v.kind == pending && j.ID == "":
	default:
		return fault("%w: its answer doesn't say that it is about the job that was asked for", ErrAnswer)
	}
	return v
}

// confirm looks for the job that a post was refused for, or that is said to exist.
func (s *Submitter) confirm(ctx context.Context, id string, v verdict) verdict {
	seen := s.insist(ctx, func() verdict { return s.get(ctx, id).about(id, id, false) })
	switch {
	case seen.kind == missing && v.kind == exists:
		return fault("%w: it has the job and doesn't show it yet: %w", ErrUnavailable, v.err)
	case seen.kind == missing:
		return v
	case v.kind == exists && (seen.kind == started || seen.kind == pending) && seen.job.RequestHash == "":
		// A conflict is answered so, and a copy.
		return fault("%w: it has a job of that key and doesn't say of which request_hash: %w", ErrAnswer, v.err)
	}
	return seen
}

// poll looks at a pending job until it isn't.
func (s *Submitter) poll(ctx context.Context, id string, v verdict) verdict {
	name := v.job.ID
	if name == "" {
		name = id
	}
	for pause := s.pauses(); ; {
		if !rest(ctx, pause.NextBackOff()+v.after) {
			return fault("%w: %w", ErrPending, undecided(ctx, v.err))
		}
		switch next := s.get(ctx, name).about(name, id, false); next.kind {
		case pending, later:
			v.err, v.after = next.err, next.after
		case missing: // a service may be slow to see what it took
			v.err, v.after = errors.New("it doesn't know the job that it took"), 0
		default:
			return next
		}
	}
}

// undecided is why a wait ended: the end of ctx, else what was last heard.
func undecided(ctx context.Context, last error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return last
}

// patience is how often a service that is not available is asked in one go. Then
// it is the turn of the claim's thief: a drain that waits costs money.
const patience = 4

// insist repeats a call while the service is not available.
func (s *Submitter) insist(ctx context.Context, call func() verdict) verdict {
	pause := s.pauses()
	for n := 1; ; n++ {
		v := call()
		if v.kind != later || n == patience || !rest(ctx, pause.NextBackOff()+v.after) {
			return v
		}
	}
}

func (s *Submitter) pauses() *backoff.ExponentialBackOff {
	return &backoff.ExponentialBackOff{InitialInterval: s.o.PollFirst, RandomizationFactor: 0.5, Multiplier: 2, MaxInterval: s.o.PollLongest}
}

// rest waits for d and reports whether there is time left then. It doesn't begin a
// wait that ctx won't outlast.
func rest(ctx context.Context, d time.Duration) bool {
	if end, limited := ctx.Deadline(); limited && time.Until(end) <= d {
		return false
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}
