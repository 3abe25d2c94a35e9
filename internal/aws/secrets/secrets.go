// Package secrets reads secrets by name from Secrets Manager. It is the only
// importer of that client.
package secrets

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/secretsmanager"
	"golang.org/x/sync/singleflight"
)

const (
	// keep is how long a value is served without asking again: so long can a
	// rotated secret's predecessor still be sent.
	keep = 5 * time.Minute

	// fetchTimeout bounds one fetch. It belongs to all who wait for it, so it
	// doesn't end with the one who came first.
	fetchTimeout = 10 * time.Second

	// lastResort is how long a value is served that can't be read again: Secrets Manager
	// in trouble is no reason to stop what works. A token that shall end is revoked at
	// its service.
	lastResort = 30 * time.Minute

	// firstPause and longestPause are how long after a failed fetch nobody tries again:
	// doubled with each.
	firstPause   = time.Second
	longestPause = 5 * time.Second

	// renewals is how often in the time of keep a secret is asked for at once because a
	// value was refused: enough for one that is rotated twice in a row. Beyond them it is
	// once in slow: so much a wrong one costs, however many lines are refused, and so long
	// a rotation can go unseen that comes after many refusals.
	renewals = 3
	slow     = 10 * time.Second
)

// ErrEmpty: the secret exists but holds no string.
var ErrEmpty = errors.New("secret holds no string")

// Secrets serves the strings of secrets. It is safe for concurrent use: callers
// who need the same one at once share one fetch.
type Secrets struct {
	client client
	now    func() time.Time
	calls  singleflight.Group

	mu      sync.Mutex
	held    map[string]value
	failed  map[string]failure
	renewed map[refusal][]time.Time // the latest renewals of each, at most so many
}

type value struct {
	text string
	at   time.Time // when it was read
}

// failure is the last fetch, where that failed.
type failure struct {
	err   error
	until time.Time // nobody tries before
	pause time.Duration
}

// refusal is what renewals are counted by. A 403 can be had for the asking, for a model
// that the token may not use, and a 401 can't: so whoever asks for it uses up nobody's
// renewals but those of 403.
type refusal struct {
	name   string
	status int
}

// client is what Secrets calls of *secretsmanager.Client.
type client interface {
	GetSecretValue(context.Context, *secretsmanager.GetSecretValueInput, ...func(*secretsmanager.Options)) (*secretsmanager.GetSecretValueOutput, error)
}

// New returns Secrets over Secrets Manager. It makes no call. Get needs
// secretsmanager:GetSecretValue.
func New(cfg aws.Config) *Secrets { return newSecrets(secretsmanager.NewFromConfig(cfg)) }

func newSecrets(c client) *Secrets {
	return &Secrets{client: c, now: time.Now, held: map[string]value{}, failed: map[string]failure{}, renewed: map[refusal][]time.Time{}}
}

// Get returns the current string of the secret with this name, at most five
// minutes old; where it can't be read, at most half an hour. Who comes within 1 to 5 s
// of a failure has its error, or that old string. ErrEmpty. No error ever holds the value.
func (s *Secrets) Get(ctx context.Context, name string) (string, error) {
	if v, ok := s.kept(name, keep); ok {
		return v, nil
	}
	// A fetch may have ended between the look above and this one.
	v, err := s.once(ctx, name, name, func() (string, error, bool) { return s.known(name) })
	if err != nil && ctx.Err() == nil {
		if old, ok := s.kept(name, lastResort); ok {
			return old, nil
		}
	}
	return v, err
}

// Renew returns the string of the secret after used, which Get or Renew gave, was
// refused by whom it is for with this HTTP status: another one if somebody renewed it
// since, else as Secrets Manager has it now. That is asked three times in five minutes
// for each status, then every 10 s; else, and where nothing changed, the answer is
// used. No error ever holds the value.
func (s *Secrets) Renew(ctx context.Context, name, used string, status int) (string, error) {
	why := refusal{name, status}
	return s.once(ctx, name, fmt.Sprint("renew\x00", status, "\x00", name), func() (string, error, bool) {
		if v, ok := s.kept(name, keep); ok && v != used {
			return v, nil, true
		}
		return used, nil, !s.mayRenew(why, s.wall())
	})
}

// once answers with what known has, else with one fetch for all who come under this
// key meanwhile.
func (s *Secrets) once(ctx context.Context, name, key string, known func() (string, error, bool)) (string, error) {
	fetched := s.calls.DoChan(key, func() (any, error) {
		if v, err, ok := known(); ok {
			return v, err
		}
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), fetchTimeout)
		defer cancel()
		return s.fetch(ctx, name)
	})
	select {
	case <-ctx.Done():
		return "", fmt.Errorf("read secret %s: %w", name, ctx.Err())
	case r := <-fetched:
		if r.Err != nil {
			return "", fmt.Errorf("read secret %s: %w", name, r.Err)
		}
		return r.Val.(string), nil
	}
}

// mayRenew reports whether the secret may be asked for once more, and counts it.
func (s *Secrets) mayRenew(why refusal, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	lately := slices.DeleteFunc(s.renewed[why], func(at time.Time) bool { return now.Before(at) || now.Sub(at) >= keep })
	ok := len(lately) < renewals || now.Sub(lately[len(lately)-1]) >= slow
	if ok {
		lately = append(lately, now)
		lately = lately[max(len(lately)-renewals, 0):]
	}
	s.renewed[why] = lately
	return ok
}

// known is what Get answers without a fetch, if it does.
func (s *Secrets) known(name string) (string, error, bool) {
	if v, ok := s.kept(name, keep); ok {
		return v, nil, true
	}
	s.mu.Lock()
	f, failed := s.failed[name]
	s.mu.Unlock()
	if left := f.until.Sub(s.wall()); !failed || left <= 0 || left > f.pause { // longer: the clock was set back
		return "", nil, false
	}
	if old, ok := s.kept(name, lastResort); ok {
		return old, nil, true
	}
	return "", f.err, true
}

// kept is what was read of the secret less than most ago.
func (s *Secrets) kept(name string, most time.Duration) (string, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	v, ok := s.held[name]
	age := s.wall().Sub(v.at)
	return v.text, ok && age >= 0 && age < most // a clock that was set back makes nothing eternal
}

// wall is the time by the wall clock: the monotonic one stands still while Lambda has a
// function frozen, and what was read before would be believed for as long after.
func (s *Secrets) wall() time.Time { return s.now().Round(0) }

func (s *Secrets) fetch(ctx context.Context, name string) (string, error) {
	out, err := s.client.GetSecretValue(ctx, &secretsmanager.GetSecretValueInput{SecretId: &name})
	if err == nil && aws.ToString(out.SecretString) == "" {
		err = ErrEmpty
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		pause := min(max(2*s.failed[name].pause, firstPause), longestPause)
		s.failed[name] = failure{err, s.wall().Add(pause), pause}
		return "", err
	}
	delete(s.failed, name)
	s.held[name] = value{*out.SecretString, s.wall()}
	return *out.SecretString, nil
}
