package upstream

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"holdfast/internal/batch"
)

// Secrets serves the strings of secrets by name. *secrets.Secrets is one.
type Secrets interface {
	// Get returns the secret's string, which may be some minutes old.
	Get(ctx context.Context, name string) (string, error)
	// Renew returns the secret's string after used was refused with this HTTP status: a
	// newer one, or used again where there is none, or where it was asked too often.
	Renew(ctx context.Context, name, used string, status int) (string, error)
}

// credential is where a service's token comes from; the zero value is none.
type credential struct {
	name    string // of a secret
	secrets func() Secrets
	token   string // itself, where there is no name
}

// get fails where a secret holds white space alone: whoever configured one doesn't mean
// requests without a token.
func (c credential) get(ctx context.Context) (string, error) {
	if c.name == "" {
		return c.token, nil
	}
	token, err := c.secrets().Get(ctx, c.name)
	if err == nil && strings.TrimSpace(token) == "" {
		err = errors.New("it is empty")
	}
	return token, err
}

// renew is what to send instead of used; used itself where there is nothing else. What
// can't be sent is nothing else: the first answer would be lost, and with it that there
// was a request.
func (c credential) renew(ctx context.Context, used string, status int) string {
	if c.name == "" {
		return used
	}
	fresh, err := c.secrets().Renew(ctx, c.name, used, status)
	if authorization, bad := bearer(fresh); err != nil || bad != nil || authorization == "" {
		return used // the refusal says more to whoever asks
	}
	return fresh
}

// bearer is the header that a token makes. Secrets are pasted, and written by
// programs that end a line: white space around one is nobody's token. No error holds
// any of it.
func bearer(token string) (string, error) {
	token = strings.TrimSpace(token)
	if strings.HasPrefix(token, "{") {
		return "", fmt.Errorf("%w: it is JSON, where the token alone is wanted", batch.ErrNoCredential)
	}
	if strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r >= 0x7f }) {
		return "", fmt.Errorf("%w: it holds what no token has", batch.ErrNoCredential)
	}
	if token == "" {
		return "", nil
	}
	return "Bearer " + token, nil
}

// refused reports whether an answer may mean that the token is another by now. Some
// services say 403 where the rule is 401 (Bedrock does).
func refused(status int) bool {
	return status == http.StatusUnauthorized || status == http.StatusForbidden
}
