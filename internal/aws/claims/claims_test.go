package claims

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"

	"holdfast/internal/access"
	"holdfast/internal/batch"
	"holdfast/internal/bridge"
	"holdfast/internal/bridge/jobs"
	"holdfast/internal/config"
	"holdfast/internal/memory"
)

// cloud is a jobs service and the Secrets Manager that has its token.
type cloud struct {
	tokens  []string // of each post
	fetches int
}

func (c *cloud) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if strings.HasSuffix(r.Header.Get("X-Amz-Target"), "GetSecretValue") {
		c.fetches++
		body, _ := io.ReadAll(r.Body)
		if !strings.Contains(string(body), `"holdfast/jobs"`) {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		_, _ = io.WriteString(w, `{"SecretString": "sk-vault"}`)
		return
	}
	c.tokens = append(c.tokens, r.Header.Get("Authorization"))
	_, _ = io.WriteString(w, `{"id": "job-1"}`)
}

// A request of the external service goes there, with the token that is configured; and
// without one nobody is asked for it.
func TestServices(t *testing.T) {
	for name, c := range map[string]struct {
		jobs    config.Jobs
		token   string
		fetches int
	}{
		"neither": {config.Jobs{}, "", 0},
		"key":     {config.Jobs{Key: "sk-key"}, "Bearer sk-key", 0},
		"secret":  {config.Jobs{Secret: "holdfast/jobs", Key: "sk-key"}, "Bearer sk-vault", 1},
	} {
		t.Run(name, func(t *testing.T) {
			seen := &cloud{}
			server := httptest.NewServer(seen)
			defer server.Close()
			c.jobs.URL = server.URL
			cfg := aws.Config{Region: "us-east-1", BaseEndpoint: &server.URL, Credentials: credentials.NewStaticCredentialsProvider("id", "secret", "")}
			services, err := Services(nil, nil, c.jobs, cfg)
			if err != nil || !services.Serves("") || !services.Serves(jobs.Service) {
				t.Fatalf("%v, %v", services, err)
			}
			o := bridge.Object{Bucket: "inputs", Key: "in/acme/x", Version: "v1"}
			r := bridge.Request{Tenant: "acme", CorrelationID: "k", Submitter: "ann", FileID: o.FileID("acme"), Object: &o, Service: jobs.Service}
			for range 2 {
				if job, err := services.Submit(t.Context(), bridge.BatchID("acme", "k"), r, time.Now()); err != nil || job != "job-1" {
					t.Fatalf("%q, %v", job, err)
				}
			}
			if len(seen.tokens) != 2 || seen.tokens[0] != c.token || seen.tokens[1] != c.token || seen.fetches != c.fetches {
				t.Errorf("sent %q, after %d fetches", seen.tokens, seen.fetches)
			}
		})
	}
	if services, err := Services(nil, nil, config.Jobs{}, aws.Config{}); err != nil || !services.Serves("") || services.Serves(jobs.Service) {
		t.Errorf("no external service: %v, %v", services, err)
	}
	if _, err := Services(nil, nil, config.Jobs{URL: "jobs.example"}, aws.Config{}); err == nil {
		t.Error("no URL is accepted")
	}
}

// enough is a tenant's limits.
type enough access.Limits

func (e enough) Limits(context.Context, string, time.Time) (access.Limits, error) {
	return access.Limits(e), nil
}

// A tenant that has as many batches running as it may gets no more of them, whoever
// submits; what the settings don't offer nobody gets.
func TestOwn(t *testing.T) {
	table, machine, now := memory.NewTable(nil), memory.NewWorkflow(nil), time.Now()
	if err := table.Files.Put(t.Context(), batch.File{Tenant: "acme", ID: "file-1", Purpose: "batch", CreatedAt: now}); err != nil {
		t.Fatal(err)
	}
	s := config.Default()
	own, err := Own(Ports{table.Batches, table.Parts, table.Files, machine, enough{RunningBatches: 1}}, s)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		id, endpoint string
		want         error
	}{{"a", s.Endpoints[0], nil}, {"b", s.Endpoints[0], bridge.ErrLater}, {"c", "/v1/none", bridge.ErrRefused}} {
		r := bridge.Request{Tenant: "acme", CorrelationID: c.id, Submitter: "ann", FileID: "file-1", Endpoint: c.endpoint, Window: s.Windows[0]}
		if _, err := own.Submit(t.Context(), bridge.BatchID("acme", c.id), r, now); !errors.Is(err, c.want) {
			t.Errorf("%s: %v", c.id, err)
		}
	}
}

// The bridge lives as the settings say, and what it takes from others is counted apart.
func TestOptions(t *testing.T) {
	seen := map[batch.Metric]float64{}
	o := Options(config.Settings{ClaimStale: time.Minute, SubmitTimeout: 7 * time.Second}, func(m batch.Metric, n float64) { seen[m] += n }, nil)
	if o.ClaimStale != time.Minute || o.SubmitTimeout != 7*time.Second {
		t.Errorf("%+v", o)
	}
	o.Stolen()
	o.Retaken()
	o.Retaken()
	if len(seen) != 2 || seen[batch.MetricClaimSteals] != 1 || seen[batch.MetricClaimRetries] != 2 {
		t.Errorf("counted %v", seen)
	}
}

// What the settings allow at the most, a bridge takes: both leave the same room between a
// submit's end and its claim's.
func TestTimesAtTheirBounds(t *testing.T) {
	for _, c := range []struct {
		stale, submit string
		allowed       bool
	}{{"30s", "20s", true}, {"30s", "21s", false}, {"55s", "45s", true}, {"54s", "45s", false}, {"1h", "1s", true}} {
		env := map[string]string{"HOLDFAST_CLAIM_STALE": c.stale, "HOLDFAST_SUBMIT_TIMEOUT": c.submit}
		s, err := config.Parse(func(name string) string { return env[name] })
		if (err == nil) != c.allowed {
			t.Errorf("%v: %v", env, err)
		}
		if _, err := bridge.New(nil, nil, Options(s, nil, nil)); c.allowed && err != nil {
			t.Errorf("%v: %v", env, err)
		}
	}
}
