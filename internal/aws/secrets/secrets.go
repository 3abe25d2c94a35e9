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

	// renewals is how often in the time of keep a secret is asked for because a value
	// was refused: enough for one that is rotated twice in a row, and all that a wrong
	// one costs, however many lines are refused.
	renewals = 3
)

// ErrEmpty: the secret exists but holds no string.
var ErrEmpty = errors.New("secret holds no string")

// Secrets serves the strings of secrets. It is safe for concurrent use: callers
// who need the same one at once share one fetch. Failures aren't kept.
type Secrets struct {
	client client
	calls  singleflight.Group

	mu      sync.Mutex
	held    map[string]value
	renewed map[string][]time.Time // the latest of each name's renewals, at most so many
}

type value struct {
	text  string
	until time.Time
}

// client is what Secrets calls of *secretsmanager.Client.
type client interface {
	GetSecretValue(context.Context, *secretsmanager.GetSecretValueInput, ...func(*secretsmanager.Options)) (*secretsmanager.GetSecretValueOutput, error)
}

// New returns Secrets over Secrets Manager. It makes no call. Get needs
// secretsmanager:GetSecretValue.
func New(cfg aws.Config) *Secrets { return newSecrets(secretsmanager.NewFromConfig(cfg)) }

func newSecrets(c client) *Secrets {
	return &Secrets{client: c, held: map[string]value{}, renewed: map[string][]time.Time{}}
}

// Get returns the current string of the secret with this name, at most five
// minutes old. ErrEmpty. No error ever holds the value.
func (s *Secrets) Get(ctx context.Context, name string) (string, error) {
	if v, ok := s.kept(name); ok {
		return v, nil
	}
	// A fetch may have ended between the look above and this one.
	return s.once(ctx, name, name, func() (string, bool) { return s.kept(name) })
}

// Renew returns the string of the secret after used, which Get or Renew gave, was
// refused by whom it is for: another one if somebody renewed it since, else as Secrets
// Manager has it now. That is asked three times in five minutes at most; beyond it,
// and where nothing changed, the answer is used. No error ever holds the value.
func (s *Secrets) Renew(ctx context.Context, name, used string) (string, error) {
	return s.once(ctx, name, "renew\x00"+name, func() (string, bool) {
		if v, ok := s.kept(name); ok && v != used {
			return v, true
		}
		return used, !s.mayRenew(name, time.Now())
	})
}

// once answers with what known has, else with one fetch for all who come under this
// key meanwhile.
func (s *Secrets) once(ctx context.Context, name, key string, known func() (string, bool)) (string, error) {
	fetched := s.calls.DoChan(key, func() (any, error) {
		if v, ok := known(); ok {
			return v, nil
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
func (s *Secrets) mayRenew(name string, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	lately := slices.DeleteFunc(s.renewed[name], func(at time.Time) bool { return now.Sub(at) >= keep })
	ok := len(lately) < renewals
	if ok {
		lately = append(lately, now)
	}
	s.renewed[name] = lately
	return ok
}

func (s *Secrets) kept(name string) (string, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	v, ok := s.held[name]
	return v.text, ok && time.Now().Before(v.until)
}

func (s *Secrets) fetch(ctx context.Context, name string) (string, error) {
	out, err := s.client.GetSecretValue(ctx, &secretsmanager.GetSecretValueInput{SecretId: &name})
	if err != nil {
		return "", err
	}
	if aws.ToString(out.SecretString) == "" {
		return "", ErrEmpty
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held[name] = value{*out.SecretString, time.Now().Add(keep)}
	return *out.SecretString, nil
}
