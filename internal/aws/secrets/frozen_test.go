package secrets

import (
	"context"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/secretsmanager"

	"holdfast/internal/frozen"
)

type instant string

func (v *instant) GetSecretValue(context.Context, *secretsmanager.GetSecretValueInput, ...func(*secretsmanager.Options)) (*secretsmanager.GetSecretValueOutput, error) {
	text := string(*v)
	return &secretsmanager.GetSecretValueOutput{SecretString: &text}, nil
}

// A secret is read anew five minutes after it was read, also where the function was
// frozen all that time; and where the clock was set back.
func TestKeptWhileFrozen(t *testing.T) {
	began := time.Now()
	v := instant("one")
	s := newSecrets(&v)
	s.now = func() time.Time { return began }
	get(t, s, "one")
	v = "two"
	get(t, s, "one")
	s.now = func() time.Time { return frozen.Thawed(t, began, keep) }
	get(t, s, "two")
	v = "three"
	s.now = func() time.Time { return began.Add(-time.Hour) }
	get(t, s, "three")
}

// Nor is a secret out of reach for longer where the clock was set back.
func TestTroubleOfALaterHour(t *testing.T) {
	began := time.Now()
	v := instant("")
	s := newSecrets(&v)
	s.now = func() time.Time { return began }
	if got, err := s.Get(t.Context(), "upstream"); err == nil {
		t.Errorf("%q", got)
	}
	v = "one"
	s.now = func() time.Time { return began.Add(-time.Hour) }
	get(t, s, "one")

	s.now = func() time.Time { return began }
	get(t, s, "one")
	for range renewals + 1 {
		renew(t, s, "one", "one")
	}
	v = "two"
	renew(t, s, "one", "one") // it was asked for too often
	s.now = func() time.Time { return began.Add(-time.Hour) }
	renew(t, s, "one", "two")
}
