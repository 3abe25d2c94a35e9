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
	if got, err := s.Renew(t.Context(), "upstream", used, 401); got != want || err != nil {
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

// A secret that is wrong, and stays so, is asked for three times at once, then every
// 10 s, and at once again when nobody was refused for five minutes.
func TestRenewIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := &vault{value: aws.String("wrong")}
		s := newSecrets(v)
		get(t, s, "wrong")
		refuse := func(asked int) {
			t.Helper()
			for range 1000 {
				renew(t, s, "wrong", "wrong")
			}
			v.wants(t, asked)
		}
		refuse(1 + renewals)
		time.Sleep(slow - time.Second - time.Nanosecond) // the last one took a second
		refuse(1 + renewals)
		time.Sleep(time.Nanosecond)
		refuse(2 + renewals)
		refuse(2 + renewals)
		time.Sleep(keep)
		refuse(2 + 2*renewals)
		// Another secret has its own bound.
		if _, err := s.Renew(t.Context(), "other", "wrong", 401); err != nil {
			t.Error(err)
		}
		v.wants(t, 3+2*renewals)
	})
}

// Who makes the upstream say 403, for a model that the token may not use, uses up
// nobody's renewal after a rotation: a 401 has its own, and a 403 waits 10 s.
func TestRenewalsUsedUpBySomebodyElse(t *testing.T) {
	for status, wait := range map[int]time.Duration{401: 0, 403: slow} {
		synctest.Test(t, func(t *testing.T) {
			v := &vault{value: aws.String("one")}
			s := newSecrets(v)
			get(t, s, "one")
			for range 100 {
				if _, err := s.Renew(t.Context(), "upstream", "one", 403); err != nil {
					t.Fatal(err)
				}
			}
			v.set("two", nil)
			time.Sleep(wait)
			if got, err := s.Renew(t.Context(), "upstream", "one", status); got != "two" || err != nil {
				t.Errorf("%d: %q, %v", status, got, err)
			}
		})
	}
}

func TestRenewFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		trouble := errors.New("trouble")
		v := &vault{value: aws.String("one")}
		s := newSecrets(v)
		get(t, s, "one")
		v.set("two", trouble)
		if _, err := s.Renew(t.Context(), "upstream", "one", 401); !errors.Is(err, trouble) {
			t.Errorf("error %v", err)
		}
		get(t, s, "one") // what is kept is kept
	})
}
