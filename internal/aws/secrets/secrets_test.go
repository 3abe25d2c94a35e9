package secrets

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/secretsmanager"

	"holdfast/internal/aws/awstest"
)

// vault takes a second for each answer.
type vault struct {
	mu    sync.Mutex
	value *string
	err   error
	asked int
}

func (v *vault) GetSecretValue(ctx context.Context, in *secretsmanager.GetSecretValueInput, _ ...func(*secretsmanager.Options)) (*secretsmanager.GetSecretValueOutput, error) {
	v.mu.Lock()
	v.asked++
	v.mu.Unlock()
	select {
	case <-time.After(time.Second):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	return &secretsmanager.GetSecretValueOutput{SecretString: v.value}, v.err
}

func (v *vault) set(value string, err error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.value, v.err = &value, err
}

func (v *vault) wants(t *testing.T, asked int) {
	t.Helper()
	if v.asked != asked {
		t.Errorf("asked %d times, want %d", v.asked, asked)
	}
}

func get(t *testing.T, s *Secrets, want string) {
	t.Helper()
	if got, err := s.Get(t.Context(), "upstream"); got != want || err != nil {
		t.Errorf("got %q, %v; want %q", got, err, want)
	}
}

func TestKeptForFiveMinutes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := &vault{value: aws.String("one")}
		s := newSecrets(v)
		get(t, s, "one")
		v.set("two", nil)
		time.Sleep(5*time.Minute - time.Nanosecond)
		get(t, s, "one")
		v.wants(t, 1)
		time.Sleep(time.Nanosecond)
		get(t, s, "two")
		v.wants(t, 2)
	})
}

func TestOneFetchForAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := &vault{value: aws.String("one")}
		s := newSecrets(v)
		first, leave := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() {
			if _, err := s.Get(first, "upstream"); !errors.Is(err, context.Canceled) {
				t.Errorf("the one who left: %v", err)
			}
		})
		synctest.Wait() // it has asked
		for range 100 {
			wg.Go(func() { get(t, s, "one") })
		}
		synctest.Wait()
		leave() // and takes nobody along
		wg.Wait()
		v.wants(t, 1)
	})
}

// A failure is kept for a second, doubled each time up to five: who comes meanwhile
// has it at once.
func TestFailuresAreKeptForSeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		trouble := errors.New("trouble")
		v := &vault{err: trouble}
		s := newSecrets(v)
		fails := func(want error) {
			t.Helper()
			for range 10 {
				if _, err := s.Get(t.Context(), "upstream"); !errors.Is(err, want) || !strings.Contains(err.Error(), "upstream") {
					t.Errorf("error %v, want %v", err, want)
				}
			}
		}
		for asked, pause := range []time.Duration{1, 2, 4, 5, 5} {
			fails(trouble)
			v.wants(t, asked+1)
			time.Sleep(pause*time.Second - time.Nanosecond)
			fails(trouble)
			v.wants(t, asked+1)
			time.Sleep(time.Nanosecond)
		}
		v.set("", nil)
		fails(ErrEmpty)
		v.set("one", nil)
		fails(ErrEmpty)
		time.Sleep(longestPause)
		get(t, s, "one")
		v.wants(t, 7)
	})
}

// What can't be read again is served for half an hour, and not waited for each time.
func TestOldStringServesInTrouble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		trouble := errors.New("trouble")
		v := &vault{value: aws.String("one")}
		s := newSecrets(v)
		get(t, s, "one")
		read := time.Now()
		v.set("two", trouble)
		time.Sleep(keep)
		get(t, s, "one")
		for range 100 {
			get(t, s, "one")
		}
		v.wants(t, 2)
		time.Sleep(time.Until(read.Add(lastResort - 2*time.Second)))
		get(t, s, "one")
		v.wants(t, 3)
		time.Sleep(time.Until(read.Add(lastResort)))
		if got, err := s.Get(t.Context(), "upstream"); !errors.Is(err, trouble) {
			t.Errorf("%q, %v", got, err)
		}
		v.set("two", nil)
		time.Sleep(longestPause)
		get(t, s, "two")
	})
}

func TestFetchEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSecrets(stuck{})
		began := time.Now()
		if _, err := s.Get(t.Context(), "upstream"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("error %v", err)
		}
		if d := time.Since(began); d != fetchTimeout {
			t.Errorf("took %v", d)
		}
	})
}

type stuck struct{}

func (stuck) GetSecretValue(ctx context.Context, _ *secretsmanager.GetSecretValueInput, _ ...func(*secretsmanager.Options)) (*secretsmanager.GetSecretValueOutput, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func TestSecretsManager(t *testing.T) {
	cfg := awstest.Config(t)
	client := secretsmanager.NewFromConfig(cfg)
	name := awstest.Name("secret")
	if _, err := client.CreateSecret(t.Context(), &secretsmanager.CreateSecretInput{Name: &name, SecretString: aws.String("s3cret")}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		// The test's own context is over by now.
		_, err := client.DeleteSecret(context.WithoutCancel(t.Context()), &secretsmanager.DeleteSecretInput{SecretId: &name, ForceDeleteWithoutRecovery: aws.Bool(true)})
		if err != nil {
			t.Errorf("delete secret: %v", err)
		}
	})
	s := New(cfg)
	if got, err := s.Get(t.Context(), name); got != "s3cret" || err != nil {
		t.Errorf("got %q, %v", got, err)
	}
	if _, err := s.Get(t.Context(), name+"-not"); err == nil {
		t.Error("a secret that isn't there was read")
	}
}
