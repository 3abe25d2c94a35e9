package secrets

import (
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
)

func renew(t *testing.T, s *Secrets, used, want string) {
	t.Helper()
	if got, err := s.Renew(t.Context(), "upstream", used); got != want || err != nil {
		t.Errorf("renewed %q: %q, %v; want %q", used, got, err, want)
	}
}

// A rotated secret is there at the first refusal, for all who were refused, and for
// one fetch.
func TestRenewIsOneFetchForAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := &vault{value: aws.String("one")}
		s := newSecrets(v)
		get(t, s, "one")
		v.set("two", nil)
		var wg sync.WaitGroup
		for range 100 {
			wg.Go(func() { renew(t, s, "one", "two") })
		}
		wg.Wait()
		v.wants(t, 2)
		renew(t, s, "one", "two") // who was refused late
		get(t, s, "two")
		v.wants(t, 2)
	})
}

// A secret that is wrong, and stays so, is asked for three times in five minutes.
func TestRenewIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := &vault{value: aws.String("wrong")}
		s := newSecrets(v)
		get(t, s, "wrong")
		for range 1000 {
			renew(t, s, "wrong", "wrong")
		}
		v.wants(t, 1+renewals)
		time.Sleep(keep)
		for range 1000 {
			renew(t, s, "wrong", "wrong")
		}
		v.wants(t, 1+2*renewals)
		// Another secret has its own bound.
		if _, err := s.Renew(t.Context(), "other", "wrong"); err != nil {
			t.Error(err)
		}
		v.wants(t, 2+2*renewals)
	})
}

func TestRenewFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		trouble := errors.New("trouble")
		v := &vault{value: aws.String("one")}
		s := newSecrets(v)
		get(t, s, "one")
		v.set("two", trouble)
		if _, err := s.Renew(t.Context(), "upstream", "one"); !errors.Is(err, trouble) {
			t.Errorf("error %v", err)
		}
		get(t, s, "one") // what is kept is kept
	})
}
