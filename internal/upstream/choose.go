package upstream

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"holdfast/internal/batch"
)

// Service is one configured upstream.
type Service struct {
	Models []string // whole names, or beginnings of names and a *; none: every model that no other has
	URL    string   // as [New] takes it
	Secret string   // name of the secret with the bearer token, or empty
	Key    string   // the token itself, where there is no secret, or empty
}

// Services is a batch.Model that sends each call to the service of its model. It is
// safe for concurrent use.
type Services struct {
	exact    map[string]*Client
	prefixes []prefix // longest first
	rest     *Client  // nil: there is none
}

type prefix struct {
	text   string
	client *Client
}

var _ batch.Model = (*Services)(nil)

// Open makes a client of each service; it makes no call. Which service a model has:
// the one that names it, else the one with the longest beginning, else the one
// without Models. Tokens of services with a Secret are read through secrets, which is
// called when the first is needed; Options.Key is not used. It refuses what [New]
// refuses, a model that two services name, and two services without Models; the error
// says which, counted from 1.
func Open(services []Service, secrets func() Secrets, o *Options) (*Services, error) {
	if o == nil {
		o = &Options{}
	}
	all := &Services{exact: map[string]*Client{}}
	var faults []error
	for i, s := range services {
		c, err := New(s.URL, o)
		if err != nil {
			faults = append(faults, fmt.Errorf("upstream %d: %w", i+1, err))
			continue
		}
		c.key, c.credential = nil, credential{name: s.Secret, secrets: secrets, token: s.Key}
		if err := all.add(s.Models, c); err != nil {
			faults = append(faults, fmt.Errorf("upstream %d: %w", i+1, err))
		}
	}
	if len(services) == 0 {
		faults = append(faults, errors.New("no upstream"))
	}
	slices.SortFunc(all.prefixes, func(a, b prefix) int { return len(b.text) - len(a.text) })
	return all, errors.Join(faults...)
}

func (s *Services) add(models []string, c *Client) error {
	if len(models) == 0 {
		if s.rest != nil {
			return errors.New("another answers for all other models already")
		}
		s.rest = c
	}
	for _, m := range models {
		text, begins := strings.CutSuffix(m, "*")
		_, there := s.exact[m]
		if begins {
			there = slices.ContainsFunc(s.prefixes, func(p prefix) bool { return p.text == text })
		}
		switch {
		case there:
			return fmt.Errorf("another has the model %q already", m)
		case begins:
			s.prefixes = append(s.prefixes, prefix{text, c})
		default:
			s.exact[m] = c
		}
	}
	return nil
}

// For returns the client of the model's service ("" is a request that names none).
// batch.ErrModelNotFound.
func (s *Services) For(model string) (*Client, error) {
	if c, ok := s.exact[model]; ok {
		return c, nil
	}
	for _, p := range s.prefixes {
		if strings.HasPrefix(model, p.text) {
			return p.client, nil
		}
	}
	if s.rest == nil {
		return nil, batch.ErrModelNotFound
	}
	return s.rest, nil
}

// Call implements batch.Model. batch.ErrModelNotFound where no service has the
// call's model.
func (s *Services) Call(ctx context.Context, c batch.Call) (batch.Reply, error) {
	client, err := s.For(c.Model)
	if err != nil {
		return batch.Reply{}, err
	}
	return client.Call(ctx, c)
}

// Open is [Client.Open] of the model's service. batch.ErrModelNotFound where none has
// it.
func (s *Services) Open(ctx context.Context, model, endpoint string, header http.Header, body []byte, ready func(context.Context) error) (*http.Response, error) {
	client, err := s.For(model)
	if err != nil {
		return nil, err
	}
	return client.Open(ctx, endpoint, header, body, ready)
}
