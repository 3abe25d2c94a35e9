package e2e

import (
	"encoding/json"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"holdfast/internal/openai"
)

const oneLine = `{"custom_id":"a","method":"POST","url":"/v1/chat/completions","body":{"model":"sim"}}` + "\n"

// deleted asks for a file to be deleted.
func (c *client) deleted(t *testing.T, id string) (int, string) {
	t.Helper()
	status, _, b := c.do(t, "DELETE", "/v1/files/"+id, "", nil)
	var e struct {
		Deleted bool
		Error   struct{ Code string }
	}
	if err := json.Unmarshal(b, &e); err != nil {
		t.Fatalf("DELETE: %d %v: %s", status, err, b)
	}
	if status == http.StatusOK && !e.Deleted {
		t.Errorf("DELETE: %s", b)
	}
	return status, e.Error.Code
}

// The index by tenant is eventually consistent: ids polls until the list is
// long enough, or short enough.
func (c *client) ids(t *testing.T, query string, want int) (ids []string) {
	t.Helper()
	poll(t, 10*time.Second, func() bool {
		ids = nil
		for _, f := range get[openai.List[openai.File]](t, c, "/v1/files"+query).Data {
			ids = append(ids, f.ID)
		}
		return len(ids) == want
	}, func() string { return strings.Join(ids, " ") })
	return ids
}

func TestFilesAreListedInPages(t *testing.T) {
	t.Parallel()
	c := newTenant(t, "submit,read")
	var want []string
	for range 6 {
		want = append(want, c.upload(t, "f.jsonl", []byte(oneLine)).ID)
	}
	if got := c.ids(t, "?order=asc", 6); !slices.Equal(got, want) {
		t.Errorf("oldest first %v, want %v", got, want)
	}
	slices.Reverse(want)
	var got []string
	pages, after := 0, ""
	for more := true; more; pages++ {
		l := get[openai.List[openai.File]](t, c, "/v1/files?limit=2&purpose=batch&after="+after)
		if len(l.Data) != 2 {
			t.Fatalf("page %d has %d files", pages, len(l.Data))
		}
		got = append(got, l.Data[0].ID, l.Data[1].ID)
		after, more = *l.LastID, l.HasMore
	}
	if pages != 3 || !slices.Equal(got, want) {
		t.Errorf("%d pages of %v, want 3 of %v", pages, got, want)
	}
	if l := get[openai.List[openai.File]](t, c, "/v1/files?purpose=batch_output"); len(l.Data) != 0 {
		t.Errorf("%d outputs", len(l.Data))
	}
	for _, query := range []string{"after=file-none", "limit=0", "limit=10001", "order=up"} {
		if status, _, b := c.do(t, "GET", "/v1/files?"+query, "", nil); status != http.StatusBadRequest {
			t.Errorf("%s: %d %s", query, status, b)
		}
	}
}

// A file goes with its bytes, not while its batch runs, and its results go alone.
func TestFilesAreDeletedWithTheirBytes(t *testing.T) {
	t.Parallel()
	c := newTenant(t, "submit,read")
	unused := c.upload(t, "unused.jsonl", []byte(oneLine)).ID
	if status, code := c.deleted(t, unused); status != http.StatusOK {
		t.Fatalf("unused: %d %s", status, code)
	}
	if status, code := c.deleted(t, unused); status != http.StatusNotFound || code != "file_not_found" {
		t.Errorf("deleted twice: %d %s", status, code)
	}
	for _, path := range []string{"/v1/files/" + unused, "/v1/files/" + unused + "/content"} {
		if status, _, b := c.do(t, "GET", path, "", nil); status != http.StatusNotFound {
			t.Errorf("GET %s: %d %s", path, status, b)
		}
	}
	body := `{"input_file_id":"` + unused + `","endpoint":"/v1/chat/completions","completion_window":"24h"}`
	if status, _, b := c.do(t, "POST", "/v1/batches", "application/json", []byte(body)); status != http.StatusBadRequest {
		t.Errorf("batch of a deleted file: %d %s", status, b)
	}

	slow := strings.Replace(oneLine, `"sim"`, `"sim-slow-3000"`, 1)
	input := c.upload(t, "slow.jsonl", []byte(slow)).ID
	b := c.create(t, input, "/v1/chat/completions")
	poll(t, 10*time.Second, func() bool { // until the index shows the batch
		return len(get[openai.List[openai.Batch]](t, c, "/v1/batches").Data) == 1
	}, func() string { return "the batch isn't listed" })
	if status, code := c.deleted(t, input); status != http.StatusBadRequest || code != "file_in_use" {
		t.Errorf("input of a live batch: %d %s", status, code)
	}
	done := c.wait(t, b.ID, time.Minute)
	if done.Status != openai.StatusCompleted || done.OutputFileID == nil {
		t.Fatalf("batch %+v", done)
	}
	for _, id := range []string{input, *done.OutputFileID} {
		if status, code := c.deleted(t, id); status != http.StatusOK {
			t.Errorf("%s: %d %s", id, status, code)
		}
	}
	c.ids(t, "", 0)
	for bucket, prefix := range map[string]string{env(t, "HOLDFAST_INPUTS_BUCKET"): "files/" + c.tenant + "/", env(t, "HOLDFAST_RESULTS_BUCKET"): c.tenant + "/"} {
		list, err := s3client(t).ListObjectsV2(t.Context(), &s3.ListObjectsV2Input{Bucket: aws.String(bucket), Prefix: aws.String(prefix)})
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range list.Contents {
			if !strings.HasSuffix(*o.Key, "_receipts.jsonl") { // these stay
				t.Errorf("left behind: %s", *o.Key)
			}
		}
	}
}

// Whatever a name holds, the download suggests it and nothing else.
func TestFilenamesInDownloads(t *testing.T) {
	t.Parallel()
	c := newTenant(t, "submit,read")
	for _, name := range []string{"plain.jsonl", "é 日本 👩‍🚀.jsonl", `"; evil="1.jsonl`, "100%41;x=y.jsonl", strings.Repeat("n", 255), "tab\t'.jsonl"} {
		f := c.upload(t, name, []byte(oneLine))
		if f.Filename != name {
			t.Errorf("%q came back as %q", name, f.Filename)
		}
		status, h, b := c.do(t, "GET", "/v1/files/"+f.ID+"/content", "", nil)
		if status != http.StatusFound {
			t.Fatalf("%q: %d %s", name, status, b)
		}
		// What S3 is asked to say; it is part of what was signed. (The local one doesn't say it.)
		link, err := url.Parse(h.Get("Location"))
		if err != nil {
			t.Fatal(err)
		}
		suggested := link.Query().Get("response-content-disposition")
		kind, params, err := mime.ParseMediaType(suggested)
		if err != nil || kind != "attachment" || params["filename"] != name || len(params) != 1 {
			t.Errorf("%q: Content-Disposition %q: %v %v", name, suggested, params, err)
		}
		if got := c.content(t, f.ID); string(got) != oneLine {
			t.Errorf("%q: downloaded %q", name, got)
		}
	}
}

func TestModelsAreListed(t *testing.T) {
	t.Parallel()
	c := newTenant(t, "read")
	status, _, b := c.do(t, "GET", "/v1/models", "", nil)
	var l struct {
		Object string
		Data   []openai.Model
	}
	if err := json.Unmarshal(b, &l); err != nil || status != http.StatusOK || l.Object != "list" || l.Data == nil {
		t.Fatalf("%d %v: %s", status, err, b)
	}
	for _, m := range l.Data {
		if got := get[openai.Model](t, c, "/v1/models/"+m.ID); got != m {
			t.Errorf("%+v, listed as %+v", got, m)
		}
	}
	if status, _, b := c.do(t, "GET", "/v1/models/none/such", "", nil); status != http.StatusNotFound || !strings.Contains(string(b), "model_not_found") {
		t.Errorf("unknown: %d %s", status, b)
	}
}
