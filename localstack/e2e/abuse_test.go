package e2e

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/aws-sdk-go-v2/service/s3"
)

// wire is a connection to the API's door, below any HTTP client: it sends what
// no client would.
type wire struct {
	address string
	path    string // of the API's root
	key     string
}

func newWire(t *testing.T, c *client) wire {
	t.Helper()
	u, err := url.Parse(c.base)
	if err != nil {
		t.Fatal(err)
	}
	return wire{u.Host, u.EscapedPath(), c.key}
}

func (w wire) dial() (net.Conn, error) {
	conn, err := tls.DialWithDialer(&net.Dialer{Timeout: 10 * time.Second}, "tcp", w.address, &tls.Config{NextProtos: []string{"http/1.1"}})
	if err != nil {
		return nil, err
	}
	return conn, conn.SetDeadline(time.Now().Add(60 * time.Second))
}

// send sends raw bytes and reads one answer.
func (w wire) send(raw []byte) (*http.Response, []byte, error) {
	conn, err := w.dial()
	if err != nil {
		return nil, nil, err
	}
	defer conn.Close()
	go conn.Write(raw) // the answer may come before all of it is read
	method, _, _ := strings.Cut(string(raw[:min(len(raw), 20)]), " ")
	resp, err := http.ReadResponse(bufio.NewReader(conn), &http.Request{Method: method})
	if err != nil {
		return nil, nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return resp, body, err
}

// request is a request as text: extra are whole header lines.
func (w wire) request(method, path, body string, extra ...string) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s %s%s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n", method, w.path, path, w.address)
	authorized := false
	for _, line := range extra {
		authorized = authorized || strings.HasPrefix(strings.ToLower(line), "authorization:")
		if line != "" {
			b.WriteString(line + "\r\n")
		}
	}
	if !authorized {
		b.WriteString("Authorization: Bearer " + w.key + "\r\n")
	}
	if body != "" {
		fmt.Fprintf(&b, "Content-Length: %d\r\n", len(body))
	}
	b.WriteString("\r\n" + body)
	return b.Bytes()
}

// abuse is a request that must be refused.
type abuse struct {
	name   string
	raw    []byte
	status int    // 0: any refusal
	code   string // "": any
	front  bool   // it is no HTTP, or no request the door lets through: the answer is the door's
}

const (
	formType = "Content-Type: multipart/form-data; boundary=b"
	jsonType = "Content-Type: application/json"
)

// formFile is a form's part with a file, without the closing boundary.
const formFile = "--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"f.jsonl\"\r\nContent-Type: application/octet-stream\r\n\r\n{}\r\n"

func formField(name, value string) string {
	return "--b\r\nContent-Disposition: form-data; name=\"" + name + "\"\r\n\r\n" + value + "\r\n"
}

// abuses is every kind there is; file is one that exists.
func abuses(w wire, file string) []abuse {
	const end = "--b--\r\n"
	form := func(body string, extra ...string) []byte {
		return w.request("POST", "/v1/files", body, append([]string{formType}, extra...)...)
	}
	create := func(body string, extra ...string) []byte {
		return w.request("POST", "/v1/batches", body, append([]string{jsonType}, extra...)...)
	}
	get := func(path string, extra ...string) []byte { return w.request("GET", path, "", extra...) }
	good := `"input_file_id":"` + file + `","endpoint":"/v1/chat/completions","completion_window":"24h"`
	return []abuse{
		{"form cut in its file", form(formFile[:len(formFile)-8]), 400, "invalid_multipart", false},
		{"form cut behind its file", form(formFile), 400, "invalid_multipart", false},
		{"form cut in a header", form(formFile + "--b\r\nContent-Dispo"), 400, "invalid_multipart", false},
		{"form without purpose", form(formFile + end), 400, "missing_required_parameter", false},
		{"form with a wrong purpose behind its file", form(formFile + formField("purpose", "x") + end), 400, "invalid_purpose", false},
		{"form without file", form(formField("purpose", "batch") + end), 400, "missing_required_parameter", false},
		{"form of another boundary", form(strings.ReplaceAll(formFile+end, "--b", "--c")), 400, "invalid_multipart", false},
		{"form of nothing", form("\r\n"), 400, "invalid_multipart", false},
		{"form with a bad header", form("--b\r\nContent-Disposition form-data\r\n\r\n{}\r\n" + end), 400, "invalid_multipart", false},
		{"form of 100 parts", form(strings.Repeat(formField("x", "y"), 100) + end), 400, "invalid_multipart", false},
		{"form in base64", form("--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"f\"\r\nContent-Transfer-Encoding: base64\r\n\r\ne30=\r\n" + end), 400, "invalid_multipart", false},
		{"form with a filename of 1,000", form(strings.Replace(formFile, "f.jsonl", strings.Repeat("f", 1000), 1) + formField("purpose", "batch") + end), 400, "invalid_filename", false},
		{"form with a bad expiry", form(formFile + formField("purpose", "batch") + formField("expires_after[anchor]", "created_at") + formField("expires_after[seconds]", "-1") + end), 400, "invalid_expires_after", false},
		{"form that is JSON", w.request("POST", "/v1/files", `{"purpose":"batch"}`, jsonType), 400, "invalid_multipart", false},
		{"form without a type", w.request("POST", "/v1/files", formFile+end), 400, "invalid_multipart", false},
		{"form without a boundary", w.request("POST", "/v1/files", formFile+end, "Content-Type: multipart/form-data"), 400, "invalid_multipart", false},
		{"form without a body", w.request("POST", "/v1/files", "", formType), 400, "invalid_multipart", false},
		{"form too large", form(strings.Replace(formFile, "{}", strings.Repeat("x", 4<<20+1), 1) + formField("purpose", "batch") + end), 413, "file_too_large_for_direct_upload", false},

		{"no JSON", create(`{` + good), 400, "invalid_json", false},
		{"JSON and more", create(`{` + good + `}{}`), 400, "invalid_json", false},
		{"JSON twice the same key", create(`{` + good + `,"endpoint":"/v1/embeddings"}`), 400, "invalid_json", false},
		{"JSON of another encoding", create("{\"input_file_id\":\"\xff\xfe\"}"), 400, "", false}, // the door may have made U+FFFD of it
		{"JSON with a BOM", create("\ufeff{" + good + "}"), 400, "invalid_json", false},
		{"deep JSON", create(strings.Repeat(`{"a":[`, 50_000)), 400, "invalid_json", false},
		{"deep JSON, whole", create(`{"x":` + strings.Repeat(`[`, 100_000) + strings.Repeat(`]`, 100_000) + `}`), 400, "invalid_json", false},
		{"huge JSON", create(`{` + good + `,"x":"` + strings.Repeat("y", 2<<20) + `"}`), 413, "request_too_large", false},
		{"huge number", create(`{"input_file_id":` + strings.Repeat("9", 100_000) + `}`), 400, "invalid_type", false},
		{"an array", create(`[{` + good + `}]`), 400, "invalid_json", false},
		{"a form for JSON", w.request("POST", "/v1/batches", "input_file_id="+file, "Content-Type: application/x-www-form-urlencoded"), 400, "invalid_json", false},
		{"XML", w.request("POST", "/v1/batches", "<batch/>", "Content-Type: application/xml"), 400, "invalid_json", false},
		{"metadata of 17", create(`{` + good + `,"metadata":{` + strings.TrimSuffix(manyPairs(17), ",") + `}}`), 400, "invalid_metadata", false},
		{"an id with CR and LF", create(`{"input_file_id":"file-a\r\nX-Evil: 1","endpoint":"/v1/chat/completions","completion_window":"24h"}`), 400, "file_not_found", false},
		{"an id with NUL", create(`{"input_file_id":"file-\u0000","endpoint":"/v1/chat/completions","completion_window":"24h"}`), 400, "file_not_found", false},
		{"an id of half a character", create(`{"input_file_id":"file-\ud800","endpoint":"/v1/chat/completions","completion_window":"24h"}`), 400, "", false},
		{"an id of 100,000", create(`{"input_file_id":"file-` + strings.Repeat("a", 100_000) + `","endpoint":"/v1/chat/completions","completion_window":"24h"}`), 400, "file_not_found", false},
		{"an id of 900,000 under a key", create(`{"input_file_id":"file-`+strings.Repeat("a", 900_000)+`","endpoint":"/v1/chat/completions","completion_window":"24h"}`, "Idempotency-Key: large"), 400, "file_not_found", false},
		{"an empty idempotency key", create(`{`+good+`}`, "Idempotency-Key:"), 400, "", false},
		{"an idempotency key of 256", create(`{`+good+`}`, "Idempotency-Key: "+strings.Repeat("k", 256)), 400, "invalid_idempotency_key", false},

		{"unknown path", get("/v1/assistants"), 404, "unknown_url", false},
		{"root", get("/"), 404, "", false},
		{"a long path", get("/v1/" + strings.Repeat("a/", 2000)), 404, "", false},
		{"dots", get("/v1/files/../../etc/passwd"), 404, "", false},
		{"encoded dots", get("/v1/files/%2e%2e/%2e%2e/etc"), 404, "", false},
		{"double slash", get("/v1//files"), 404, "", false},
		{"an encoded slash", get("/v1/files/file-a%2Fcontent"), 404, "", false},
		{"CR and LF in an id", get("/v1/files/file-a%0d%0aX-Evil:1"), 404, "file_not_found", false},
		{"NUL in an id", get("/v1/batches/batch_%00"), 404, "batch_not_found", false},
		{"bad percent-encoding", get("/v1/files/file-%zz"), 404, "file_not_found", false},
		{"half a percent-encoding", get("/v1/files/file-%"), 404, "file_not_found", false},
		{"no UTF-8", get("/v1/files/file-%ff%fe"), 404, "file_not_found", false},
		{"a wrong limit", get("/v1/files?limit=1e9"), 400, "invalid_limit", false},
		{"a cursor with CR and LF", get("/v1/files?after=%0d%0aX-Evil:1"), 400, "invalid_cursor", false},
		{"a cursor of 5,000", get("/v1/batches?after=" + strings.Repeat("a", 5000)), 400, "invalid_cursor", false},

		{"PUT", w.request("PUT", "/v1/files", "x"), 405, "method_not_allowed", false},
		{"PATCH of a batch", w.request("PATCH", "/v1/batches/batch_aaaaaaaaaaaaaaaaaaaaaaaaaa", "{}", jsonType), 405, "method_not_allowed", false},
		{"DELETE of all", w.request("DELETE", "/v1/files", ""), 405, "method_not_allowed", false},
		{"DELETE of nothing", w.request("DELETE", "/v1/files/file-none", ""), 404, "file_not_found", false},
		{"TRACE", w.request("TRACE", "/v1/files", ""), 0, "", true},
		{"a method nobody knows", w.request("BREW", "/v1/files", ""), 0, "", true},
		{"cancel of nothing", w.request("POST", "/v1/batches/batch_aaaaaaaaaaaaaaaaaaaaaaaaaa/cancel", ""), 404, "batch_not_found", false},

		{"an upload of nothing", w.request("POST", "/v1/uploads", "{}", jsonType), 400, "missing_required_parameter", false},
		{"an upload of less than nothing", w.request("POST", "/v1/uploads", `{"filename":"f","purpose":"batch","bytes":-1,"mime_type":"x"}`, jsonType), 400, "", false},
		{"an upload of too much", w.request("POST", "/v1/uploads", `{"filename":"f","purpose":"batch","bytes":99000000000,"mime_type":"x"}`, jsonType), 413, "file_too_large", false},
		{"a part of no upload", w.request("POST", "/v1/uploads/upload_none/parts", "--b\r\nContent-Disposition: form-data; name=\"data\"; filename=\"d\"\r\n\r\nx\r\n"+end, formType), 404, "upload_not_found", false},
		{"complete of no upload", w.request("POST", "/v1/uploads/upload_none/complete", `{"part_ids":["part_none"]}`, jsonType), 404, "upload_not_found", false},

		{"no key", get("/v1/files", "Authorization:"), 401, "invalid_api_key", false},
		{"a key of 5,000", get("/v1/files", "Authorization: Bearer hf_"+strings.Repeat("a", 5000)), 401, "invalid_api_key", false},
		{"two keys in one", get("/v1/files", "Authorization: Bearer "+w.key+", Bearer "+w.key), 401, "invalid_api_key", false},
		{"two headers of keys", get("/v1/files", "Authorization: Bearer "+w.key, "Authorization: Bearer "+w.key), 0, "", true},
		{"upload without a key", w.request("POST", "/v1/files", formFile+formField("purpose", "batch")+end, formType, "Authorization: Bearer hf_wrong"), 401, "invalid_api_key", false},

		{"oversized headers", get("/v1/nothing", "X-Large: "+strings.Repeat("a", 200_000)), 0, "", true},
		{"many headers", get("/v1/nothing", manyHeaders(300)...), 0, "", true},
		{"no HTTP", []byte("\x16\x03\x01\x00\xff\x00\r\n\r\n"), 0, "", true},
		{"a request line of one word", []byte("GET\r\n\r\n"), 0, "", true},
		{"a negative length", []byte("POST " + w.path + "/v1/batches HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: -1\r\n\r\n"), 0, "", true},
		{"a chunk of no size", []byte("POST " + w.path + "/v1/batches HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAuthorization: Bearer " + w.key + "\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"), 0, "", true},
	}
}

func manyPairs(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `"k%d":"v",`, i)
	}
	return b.String()
}

func manyHeaders(n int) (lines []string) {
	for i := range n {
		lines = append(lines, fmt.Sprintf("X-Many-%d: %d", i, i))
	}
	return lines
}

// refused sends an abuse and says what was wrong about its answer.
func (w wire) refused(a abuse) error {
	resp, body, err := w.send(a.raw)
	if a.front {
		// The door may close the connection on what is no request, or let us answer.
		if err == nil && (resp.StatusCode >= 500 && resp.StatusCode != http.StatusNotImplemented && resp.StatusCode != http.StatusHTTPVersionNotSupported || resp.StatusCode < 400) {
			return fmt.Errorf("%d: %.300s", resp.StatusCode, body)
		}
		return nil
	}
	if err != nil {
		return err
	}
	var e struct {
		Error map[string]any `json:"error"`
	}
	if err := json.Unmarshal(body, &e); err != nil {
		return fmt.Errorf("%d, %w: %.300s", resp.StatusCode, err, body)
	}
	for _, k := range []string{"message", "type", "param", "code"} {
		if _, ok := e.Error[k]; !ok {
			return fmt.Errorf("%d without %q: %.300s", resp.StatusCode, k, body)
		}
	}
	switch {
	case resp.StatusCode != a.status && a.status != 0, resp.StatusCode < 400 || resp.StatusCode >= 500, a.code != "" && e.Error["code"] != a.code:
		return fmt.Errorf("%d, want %d %s: %.300s", resp.StatusCode, a.status, a.code, body)
	case resp.Header.Get("X-Request-Id") == "", resp.Header.Get("X-Should-Retry") != "false", resp.Header.Get("X-Evil") != "":
		return fmt.Errorf("%d, headers %v", resp.StatusCode, resp.Header)
	}
	return nil
}

// serves demands that an ordinary request is answered as ever.
func (c *client) serves(t *testing.T, behind string) {
	t.Helper()
	if status, _, b := c.do(t, "GET", "/v1/batches?limit=1", "", nil); status != http.StatusOK {
		t.Fatalf("behind %q an ordinary request gets %d: %.300s", behind, status, b)
	}
}

// Each kind once: the right refusal, and the next request is served.
func TestAbuseIsRefusedAndTheNextRequestServed(t *testing.T) {
	t.Parallel()
	c := newTenant(t, "submit,read")
	w := newWire(t, c)
	file := c.upload(t, "f.jsonl", []byte(oneLine)).ID
	for _, a := range abuses(w, file) {
		if err := w.refused(a); err != nil {
			t.Errorf("%s: %v", a.name, err)
		}
		c.serves(t, a.name)
	}
	if got := c.ids(t, "", 1); got[0] != file {
		t.Errorf("the file is %v now", got)
	}
}

// Clients that stop in the middle of a request hold up nobody, and what they
// sent is forgotten when they go.
func TestStalledRequestsHoldUpNobody(t *testing.T) {
	t.Parallel()
	c := newTenant(t, "submit,read")
	w := newWire(t, c)
	whole := w.request("POST", "/v1/files", formFile+formField("purpose", "batch")+"--b--\r\n", formType)
	head := "POST " + w.path + "/v1/files HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + w.key + "\r\n" + formType + "\r\n"
	for _, part := range []string{
		string(whole[:20]),
		string(whole[:len(whole)-10]),
		head + "Content-Length: 1000000\r\n\r\n" + formFile,
		head + "Transfer-Encoding: chunked\r\n\r\n1000\r\n" + formFile,
		head + "Transfer-Encoding: chunked\r\nExpect: 100-continue\r\n\r\n",
	} {
		for range 5 {
			conn, err := w.dial()
			if err != nil {
				t.Fatal(err)
			}
			if _, err := io.WriteString(conn, part); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { conn.Close() })
		}
		c.serves(t, part[:20])
		c.upload(t, "f.jsonl", []byte(oneLine))
	}
	c.ids(t, "", 5) // those, and none of the stalled ones
}

// A thousand requests of every bad kind, sixteen at a time, leave nothing that
// doesn't expire: no record, no object, no open upload, no reservation.
func TestAThousandAbusesLeaveNothing(t *testing.T) {
	t.Parallel()
	c := newTenant(t, "submit,read")
	w := newWire(t, c)
	file := c.upload(t, "f.jsonl", []byte(oneLine)).ID
	before := c.leftovers(t)
	kinds := abuses(w, file)
	const requests = 1000
	next := make(chan abuse)
	var workers sync.WaitGroup
	for range 16 {
		workers.Go(func() {
			for a := range next {
				if err := w.refused(a); err != nil {
					t.Errorf("%s: %v", a.name, err)
				}
			}
		})
	}
	began := time.Now()
	for i := range requests {
		next <- kinds[i%len(kinds)]
	}
	close(next)
	workers.Wait()
	t.Logf("%d requests of %d kinds in %s", requests, len(kinds), time.Since(began).Round(time.Millisecond))
	c.serves(t, "a thousand abuses")
	if after := c.leftovers(t); after != before {
		t.Errorf("before:\n%s\nafter:\n%s", before, after)
	}
}

// leftovers names everything of the tenant's that doesn't expire by itself.
func (c *client) leftovers(t *testing.T) string {
	t.Helper()
	var found []string
	items := dynamodb.NewScanPaginator(dynamodb.NewFromConfig(awsConfig(t)), &dynamodb.ScanInput{
		TableName: aws.String(env(t, "HOLDFAST_TABLE")), ConsistentRead: aws.Bool(true),
		FilterExpression:          aws.String("contains(pk, :t) AND (attribute_not_exists(#ttl) OR begins_with(pk, :f))"),
		ExpressionAttributeNames:  map[string]string{"#ttl": "ttl"},
		ExpressionAttributeValues: map[string]types.AttributeValue{":t": &types.AttributeValueMemberS{Value: c.tenant}, ":f": &types.AttributeValueMemberS{Value: "F#"}},
	})
	for items.HasMorePages() {
		page, err := items.NextPage(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, i := range page.Items {
			found = append(found, fmt.Sprint(i["pk"].(*types.AttributeValueMemberS).Value, " ", i["sk"].(*types.AttributeValueMemberS).Value))
		}
	}
	client := s3client(t)
	for _, name := range []string{"HOLDFAST_INPUTS_BUCKET", "HOLDFAST_RESULTS_BUCKET"} {
		bucket := env(t, name)
		versions, err := client.ListObjectVersions(t.Context(), &s3.ListObjectVersionsInput{Bucket: &bucket})
		if err != nil {
			t.Fatal(err)
		}
		for _, v := range versions.Versions {
			if strings.Contains(*v.Key, c.tenant) {
				found = append(found, name+" "+*v.Key)
			}
		}
		uploads, err := client.ListMultipartUploads(t.Context(), &s3.ListMultipartUploadsInput{Bucket: &bucket})
		if err != nil {
			t.Fatal(err)
		}
		for _, u := range uploads.Uploads {
			if strings.Contains(*u.Key, c.tenant) {
				found = append(found, name+" upload of "+*u.Key)
			}
		}
	}
	return strings.Join(found, "\n")
}
