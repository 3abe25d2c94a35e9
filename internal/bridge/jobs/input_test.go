package jobs

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"holdfast/internal/bridge"
	"holdfast/internal/bridge/jobs/jobsim"
	"holdfast/internal/memory"
	"holdfast/internal/openai"
)

// What is posted is the sample that docs/jobs.md shows, byte for byte but for
// white space.
func TestSample(t *testing.T) {
	object := bridge.Object{Bucket: "inputs", Key: "in/acme/März 1+2.jsonl", Version: "3sL4kqtJlcpXroDTDmJ+rmSpXd3dIbrHY",
		ETag: `"9bb58f26192e4ba00f01e2e7b136bbd8"`, Bytes: 48213}
	r := bridge.Request{Tenant: "acme", CorrelationID: object.CorrelationID(), RequestID: "req_01", Submitter: "ann", Object: &object, FileID: object.FileID("acme"),
		Endpoint: "/v1/chat/completions", Window: "24h", Metadata: map[string]string{"team": "search"}, OutputExpiry: 7 * 24 * time.Hour}
	got, err := over(t, jobsim.New(jobsim.Options{}), nil).compose(t.Context(), bridge.BatchID("acme", r.CorrelationID), r, start)
	if err != nil {
		t.Fatal(err)
	}
	sample, err := os.ReadFile("../../../events/jobs-post.json")
	if err != nil {
		t.Fatal(err)
	}
	var want, have any
	if json.Unmarshal(sample, &want) != nil || json.Unmarshal(got, &have) != nil {
		t.Fatal("no JSON")
	}
	a, _ := json.Marshal(want)
	b, _ := json.Marshal(have)
	if !bytes.Equal(a, b) {
		t.Errorf("posted\n%s\nthe sample is\n%s", b, a)
	}
}

// The sample of an answer is one.
func TestSampleOfAnAnswer(t *testing.T) {
	for file, status := range map[string]string{"jobs-job.json": "queued", "jobs-refused.json": "refused"} {
		body, err := os.ReadFile("../../../events/" + file)
		if err != nil {
			t.Fatal(err)
		}
		j, err := parse(body, 200, "")
		if err != nil || j.ID == "" || j.IdempotencyKey == "" || len(j.RequestHash) != 64 || j.Status != status || (j.Refusal != nil) != (status == "refused") {
			t.Errorf("%s: %+v, %v", file, j, err)
		}
		if j.Refusal != nil && (j.Refusal.Code == "" || j.Refusal.Message == "") {
			t.Errorf("%+v", j.Refusal)
		}
	}
}

// posted is what a request looks like on the wire.
func posted(t *testing.T, r bridge.Request) (p post) {
	t.Helper()
	body, err := over(t, http.NotFoundHandler(), nil).compose(t.Context(), id, r, start)
	if err != nil || json.Unmarshal(body, &p) != nil {
		t.Fatalf("%s, %v", body, err)
	}
	return p
}

// A file's object is found, so that the service can read it; an object needs no file.
func TestInput(t *testing.T) {
	want := input{FileID: "file-1", Bucket: "inputs", Key: "files/acme/file-1", Version: "v7", ETag: `"e"`, Bytes: 42}
	if got := posted(t, request()).Input; got != want {
		t.Errorf("%+v", got)
	}
	r, o := request(), bridge.Object{Bucket: "b", Key: "k", ETag: `"f"`, Bytes: 1}
	r.Object, r.FileID = &o, o.FileID("acme")
	if got := posted(t, r).Input; got != (input{FileID: r.FileID, Bucket: "b", Key: "k", ETag: `"f"`, Bytes: 1}) {
		t.Errorf("%+v", got)
	}
	if got := posted(t, request()); got.Metadata["k"] != "v" || got.OutputExpires != nil || got.V != 1 || got.ID != id || got.RequestHash != request().Hash() {
		t.Errorf("%+v", got)
	}
}

func TestInputThatIsNotThere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		service := jobsim.New(jobsim.Options{})
		s := over(t, service, nil)
		for name, c := range map[string]struct {
			file string
			at   time.Time
			code string
		}{
			"no file":      {"file-none", start, "file_not_found"},
			"expired":      {"file-1", start.Add(time.Hour), "file_not_found"},
			"not for it":   {"file-out", start, "invalid_purpose"},
			"no id at all": {"", start, "file_not_found"},
		} {
			r := request()
			r.FileID = c.file
			_, err := s.Submit(t.Context(), id, r, c.at)
			if e, ok := errors.AsType[*openai.Error](err); !ok || e.Code != c.code || !errors.Is(err, bridge.ErrRefused) {
				t.Errorf("%s: %v", name, err)
			}
		}
		held(t, service, 0, 0)
		// What was started while it was there is no refusal, though it is gone by now.
		if _, err := submit(t, s, request()); err != nil {
			t.Fatal(err)
		}
		if job, err := s.Submit(t.Context(), id, request(), start.Add(time.Hour)); err != nil || job != "job-1" {
			t.Errorf("%q, %v", job, err)
		}
		// And without the service's word it isn't one either.
		deaf := over(t, &script{gets: []reply{{503, "", ""}}}, nil)
		if _, err := deaf.Submit(t.Context(), id, request(), start.Add(time.Hour)); !errors.Is(err, ErrUnavailable) || errors.Is(err, bridge.ErrRefused) {
			t.Errorf("%v", err)
		}
	})
}

func TestTroubleWithFilesIsNoRefusal(t *testing.T) {
	f := memory.NewFaults()
	f.Before("Files.Get", 0, memory.Fail(context.DeadlineExceeded))
	service := jobsim.New(jobsim.Options{})
	s := over(t, service, nil)
	s.files = files(t, f)
	if _, err := submit(t, s, request()); !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, bridge.ErrRefused) {
		t.Errorf("%v", err)
	}
	held(t, service, 0, 0)
}
