package e2e

import (
	"bufio"
	"bytes"
	"context"
	"crypto/md5"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"holdfast/internal/openai"
)

// createUpload opens an upload of so many bytes.
func (c *client) createUpload(t *testing.T, name string, size int) openai.Upload {
	t.Helper()
	return post[openai.Upload](t, c, "/v1/uploads", openai.CreateUpload{Filename: name, Purpose: "batch", Bytes: int64(size), MimeType: "application/jsonl"})
}

func post[T any](t *testing.T, c *client, path string, v any) T {
	t.Helper()
	body, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	status, _, reply := c.do(t, "POST", path, "application/json", body)
	return decode[T](t, status, reply)
}

// addPart sends one part through the API. It may be called beside itself.
func (c *client) addPart(t *testing.T, upload string, data []byte) openai.UploadPart {
	t.Helper()
	var b bytes.Buffer
	w := multipart.NewWriter(&b)
	part, err := w.CreateFormFile("data", "blob")
	if err == nil {
		_, err = part.Write(data)
	}
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		t.Error(err)
		return openai.UploadPart{}
	}
	status, _, reply := c.do(t, "POST", "/v1/uploads/"+upload+"/parts", w.FormDataContentType(), b.Bytes())
	var p openai.UploadPart
	if err := json.Unmarshal(reply, &p); err != nil || status != http.StatusOK || p.UploadID != upload {
		t.Errorf("add part: %d %s", status, reply)
	}
	return p
}

func md5Of(data []byte) string {
	sum := md5.Sum(data)
	return hex.EncodeToString(sum[:])
}

// inputObjects are the keys of the inputs bucket below a folder.
func inputObjects(t *testing.T, folder string) []string {
	t.Helper()
	out, err := s3client(t).ListObjectsV2(t.Context(), &s3.ListObjectsV2Input{Bucket: aws.String(env(t, "HOLDFAST_INPUTS_BUCKET")), Prefix: &folder})
	if err != nil {
		t.Fatal(err)
	}
	var keys []string
	for _, o := range out.Contents {
		keys = append(keys, *o.Key)
	}
	return keys
}

// Parts through the API, in parallel and sent in any order; completed twice; a
// batch runs on the file; nothing of the parts stays.
func TestUploadOfDirectParts(t *testing.T) {
	t.Parallel()
	reqs := mixed(300)
	data := file(reqs)
	c := newTenant(t, "submit,read")
	u := c.createUpload(t, "in.jsonl", len(data))
	const parts = 7
	var ids [parts]string
	var wg sync.WaitGroup
	size := len(data)/parts + 1
	for i := range ids {
		wg.Go(func() { ids[i] = c.addPart(t, u.ID, data[i*size:min((i+1)*size, len(data))]).ID })
	}
	wg.Wait()
	c.addPart(t, u.ID, []byte("sent, but not named"))
	if got := get[openai.Upload](t, c, "/v1/uploads/"+u.ID); got.Status != "pending" || got.Parts == nil || len(*got.Parts) != parts+1 {
		t.Errorf("before: %+v", got)
	}
	status, _, reply := c.do(t, "POST", "/v1/uploads/"+u.ID+"/complete", "application/json",
		[]byte(fmt.Sprintf(`{"part_ids":["%s"],"md5":"%s"}`, strings.Join(ids[:], `","`), md5Of(nil))))
	if status != http.StatusBadRequest || !bytes.Contains(reply, []byte("md5_mismatch")) {
		t.Errorf("wrong md5: %d %s", status, reply)
	}
	complete := openai.CompleteUpload{PartIDs: ids[:], MD5: md5Of(data)}
	done := post[openai.Upload](t, c, "/v1/uploads/"+u.ID+"/complete", complete)
	if again := post[openai.Upload](t, c, "/v1/uploads/"+u.ID+"/complete", complete); again.File == nil || done.File == nil || again.File.ID != done.File.ID {
		t.Fatalf("completed %+v, again %+v", done, again)
	}
	if got := c.content(t, done.File.ID); !bytes.Equal(got, data) {
		t.Errorf("%d other bytes came back than the %d sent", len(got), len(data))
	}
	if left := append(inputObjects(t, "uploads/"+c.tenant+"/"), inputObjects(t, "files/"+c.tenant+"/")...); len(left) != 1 {
		t.Errorf("objects %v, want the file alone", left)
	}
	b := c.wait(t, c.create(t, done.File.ID, "/v1/chat/completions").ID, time.Minute)
	if b.Status != openai.StatusCompleted || b.RequestCounts.Total != len(reqs) {
		t.Errorf("batch %s, %+v", b.Status, b.RequestCounts)
	}
}

// putPart sends bytes to a presigned URL, without the key.
func putPart(t *testing.T, url string, data []byte) int {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, url, bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode
}

// Parts straight to the store: out of order, one of them twice, a small one last.
// Then another upload is cancelled, and its URLs are worth nothing.
func TestUploadOfPresignedParts(t *testing.T) {
	t.Parallel()
	c := newTenant(t, "submit,read")
	reqs := mixed(40)
	data := append(file(reqs), '\n')
	data = append(data, bytes.Repeat([]byte("\n"), 5<<20)...) // blank lines are skipped
	u := c.createUpload(t, "in.jsonl", len(data))
	urls := post[openai.PartURLs](t, c, "/v1/uploads/"+u.ID+"/part_urls", map[string][]int{"part_numbers": {2, 1}}).Data
	if len(urls) != 2 || urls[0].Number != 2 {
		t.Fatalf("URLs %+v", urls)
	}
	for _, p := range []struct {
		url  string
		data []byte
	}{{urls[0].URL, data[5<<20:]}, {urls[1].URL, []byte("not this")}, {urls[1].URL, data[:5<<20]}} {
		if status := putPart(t, p.url, p.data); status != http.StatusOK {
			t.Fatalf("PUT: %d", status)
		}
	}
	if got := get[openai.Upload](t, c, "/v1/uploads/"+u.ID); got.Parts == nil || len(*got.Parts) != 2 || (*got.Parts)[0].Bytes != 5<<20 || (*got.Parts)[0].Number != 1 {
		t.Errorf("arrived: %+v", got)
	}
	done := post[openai.Upload](t, c, "/v1/uploads/"+u.ID+"/complete", openai.CompleteUpload{PartIDs: []string{urls[1].ID, urls[0].ID}, MD5: md5Of(data)})
	if done.File == nil || !bytes.Equal(c.content(t, done.File.ID), data) {
		t.Fatalf("completed %+v", done)
	}
	b := c.wait(t, c.create(t, done.File.ID, "/v1/chat/completions").ID, time.Minute)
	if b.Status != openai.StatusCompleted || b.RequestCounts.Total != len(reqs) {
		t.Errorf("batch %s, %+v", b.Status, b.RequestCounts)
	}

	u = c.createUpload(t, "in.jsonl", 10)
	url := post[openai.PartURLs](t, c, "/v1/uploads/"+u.ID+"/part_urls", map[string][]int{"part_numbers": {1}}).Data[0].URL
	putPart(t, url, []byte("0123456789"))
	for range 2 {
		if got := post[openai.Upload](t, c, "/v1/uploads/"+u.ID+"/cancel", nil); got.Status != openai.UploadCancelled {
			t.Errorf("cancelled %+v", got)
		}
	}
	if status := putPart(t, url, []byte("0123456789")); status == http.StatusOK {
		t.Error("a cancelled upload takes parts")
	}
}

// The command is killed in the middle of a large upload. Run again, it sends what
// is missing. HOLDFAST_E2E_UPLOAD_BYTES makes it larger (make large: 512 MB).
func TestLargeUploadKilledAndResumed(t *testing.T) {
	size := 64_000_000
	if v := os.Getenv("HOLDFAST_E2E_UPLOAD_BYTES"); v != "" {
		var err error
		if size, err = strconv.Atoi(v); err != nil {
			t.Fatal(err)
		}
	} else {
		t.Parallel()
	}
	c := newTenant(t, "submit,read")
	dir := t.TempDir()
	name := filepath.Join(dir, "large.jsonl")
	sum := writeLarge(t, name, size)
	environment := append(os.Environ(), "HOLDFAST_API_KEY="+c.key, "XDG_CACHE_HOME="+filepath.Join(dir, "cache"))
	submit := func(ctx context.Context) *exec.Cmd {
		cmd := exec.CommandContext(ctx, "../../.local/bin/holdfast", "submit", name, "--json")
		cmd.Env = environment
		return cmd
	}

	begun := time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	first := submit(ctx)
	stderr, err := first.StderrPipe()
	if err == nil {
		err = first.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	said := bufio.NewScanner(stderr)
	reached := ""
	for said.Scan() {
		reached = said.Text()
		if m := progress.FindStringSubmatch(reached); m != nil {
			if n, _ := strconv.Atoi(m[1]); n*1_000_000 > size/2 {
				break
			}
		}
	}
	if err := first.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, stderr)
	if first.Wait() == nil || !progress.MatchString(reached) {
		t.Fatalf("the first run ended before it was killed: %s", reached)
	}
	killed := time.Since(begun)

	var out, errOut bytes.Buffer
	second := submit(ctx)
	second.Stdout, second.Stderr = &out, &errOut
	if err := second.Run(); err != nil {
		t.Fatalf("%v: %s", err, errOut.Bytes())
	}
	var b openai.Batch
	if err := json.Unmarshal(out.Bytes(), &b); err != nil {
		t.Fatalf("%v: %s", err, out.Bytes())
	}
	m := resuming.FindStringSubmatch(errOut.String())
	if m == nil {
		t.Fatalf("it did not resume: %s", errOut.Bytes())
	}
	there, _ := strconv.Atoi(m[1])
	all, _ := strconv.Atoi(m[2])
	const part = 8 << 20
	again := int64(size) - int64(there)*part
	t.Logf("%d bytes: killed after %s with %d of %d parts there; the second run sent %d bytes more (%.0f %%) and took %s",
		size, killed.Round(10*time.Millisecond), there, all, again, 100*float64(again)/float64(size), (time.Since(begun) - killed).Round(10*time.Millisecond))
	// Four parts may be under way at once: what is sent twice is less than these.
	if half := all / 2; there < half-4 {
		t.Errorf("only %d of %d parts were kept", there, all)
	}
	f := get[openai.File](t, c, "/v1/files/"+b.InputFileID)
	if f.Bytes != int64(size) {
		t.Errorf("the file has %d bytes, sent %d", f.Bytes, size)
	}
	if got := c.contentSum(t, f.ID); got != sum {
		t.Error("other bytes came back than were sent")
	}
	if b = c.wait(t, b.ID, 2*time.Minute); b.Status != openai.StatusCompleted || b.RequestCounts.Completed != 2 {
		t.Errorf("batch %s, %+v", b.Status, b.RequestCounts)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "cache", "holdfast", "uploads", "*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

var (
	progress = regexp.MustCompile(`^  uploading (\d+)/\d+ MB$`)
	resuming = regexp.MustCompile(`Resuming: (\d+) of (\d+) parts`)
)

// writeLarge writes a valid input of exactly size bytes, cheaply: two requests, and
// blank lines that say where they are. It returns the SHA-256.
func writeLarge(t *testing.T, name string, size int) string {
	t.Helper()
	f, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	sum := sha256.New()
	w := bufio.NewWriterSize(io.MultiWriter(f, sum), 1<<20)
	line := `{"custom_id":"%s","method":"POST","url":"/v1/chat/completions","body":{"model":"sim"}}` + "\n"
	head, tail := fmt.Sprintf(line, "first"), fmt.Sprintf(line, "last")
	w.WriteString(head)
	blank := bytes.Repeat([]byte(" "), 1<<16)
	for left := size - len(head) - len(tail); left > 0; {
		n := min(left, len(blank))
		for i := range 8 { // no block of the file equals another
			blank[i] = " \t\r"[(left>>(3*i))%3]
		}
		blank[n-1] = '\n'
		w.Write(blank[:n])
		blank[n-1] = ' '
		left -= n
	}
	w.WriteString(tail)
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	return hex.EncodeToString(sum.Sum(nil))
}

// contentSum is content's SHA-256, without holding it.
func (c *client) contentSum(t *testing.T, file string) string {
	t.Helper()
	status, h, b := c.do(t, "GET", "/v1/files/"+file+"/content", "", nil)
	if status != http.StatusFound {
		t.Fatalf("content: %d %s", status, b)
	}
	resp, err := http.Get(h.Get("Location"))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	sum := sha256.New()
	if _, err := io.Copy(sum, resp.Body); err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("download: %d, %v", resp.StatusCode, err)
	}
	return hex.EncodeToString(sum.Sum(nil))
}
