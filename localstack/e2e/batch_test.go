package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/sfn"
	sfntypes "github.com/aws/aws-sdk-go-v2/service/sfn/types"

	"holdfast/internal/openai"
)

// The slice whole: 2,000 lines of every outcome go through every service and
// come back conserved, in order, with bodies that nobody touched, and the model
// saw each line as often as it should (promises 1 and 2, no crash).
func TestMixedBatchComesBackWholeAndInOrder(t *testing.T) {
	t.Parallel()
	reqs := mixed(2000)
	c := newTenant(t, "submit,read")
	in := file(reqs)
	up := c.upload(t, "mixed é.jsonl", in)
	if up.Bytes != int64(len(in)) || up.Purpose != "batch" || up.Filename != "mixed é.jsonl" {
		t.Errorf("file %+v, sent %d bytes", up, len(in))
	}
	if got := c.content(t, up.ID); !bytes.Equal(got, in) {
		t.Error("the input came back other than it was sent")
	}
	created := c.create(t, up.ID, "/v1/chat/completions")
	if created.Status != openai.StatusValidating || created.InputFileID != up.ID || created.CompletionWindow != "24h" {
		t.Errorf("created %+v", created)
	}
	b := c.wait(t, created.ID, 3*time.Minute)

	var wantOK, wantErr []int
	var usageIn, usageOut int64
	for i, r := range reqs {
		if r.ok() {
			wantOK = append(wantOK, i)
			usageIn += int64(len(r.body)/4 + 1)
			usageOut += 12
		} else {
			wantErr = append(wantErr, i)
		}
	}
	if b.Status != openai.StatusCompleted || b.RequestCounts != (openai.RequestCounts{Total: 2000, Completed: len(wantOK), Failed: len(wantErr)}) {
		t.Fatalf("status %s, counts %+v, want %d and %d", b.Status, b.RequestCounts, len(wantOK), len(wantErr))
	}
	if b.OutputFileID == nil || b.ErrorFileID == nil {
		t.Fatalf("file ids %v, %v", b.OutputFileID, b.ErrorFileID)
	}
	if b.Usage == nil || b.Usage.InputTokens != usageIn || b.Usage.OutputTokens != usageOut || b.Usage.TotalTokens != usageIn+usageOut {
		t.Errorf("usage %+v, want %d in, %d out", b.Usage, usageIn, usageOut)
	}
	for name, at := range map[string]*int64{"in_progress_at": b.InProgressAt, "finalizing_at": b.FinalizingAt, "completed_at": b.CompletedAt, "expires_at": b.ExpiresAt} {
		if at == nil {
			t.Errorf("%s is null", name)
		}
	}

	ids := map[string]bool{}
	checkFile(t, reqs, wantOK, results(t, c, *b.OutputFileID), ids)
	checkFile(t, reqs, wantErr, results(t, c, *b.ErrorFileID), ids)
	checkModel(t, reqs, b.ID)
	if f := get[openai.File](t, c, "/v1/files/"+*b.OutputFileID); f.Purpose != "batch_output" || f.Filename != b.ID+"_output.jsonl" {
		t.Errorf("output file %+v", f)
	}
	if f := get[openai.File](t, c, "/v1/files/"+*b.ErrorFileID); f.Purpose != "batch_output" || f.Filename != b.ID+"_error.jsonl" {
		t.Errorf("error file %+v", f)
	}
	checkReceipts(t, c, b.ID, reqs)
	checkLeftovers(t, c, b.ID)
}

// results downloads and splits a result file.
func results(t *testing.T, c *client, file string) []result {
	t.Helper()
	data := c.content(t, file)
	if !bytes.HasSuffix(data, []byte("\n")) {
		t.Error("result file does not end with a newline")
	}
	var out []result
	for i, line := range bytes.Split(bytes.TrimSuffix(data, []byte("\n")), []byte("\n")) {
		var r result
		if err := json.Unmarshal(line, &r); err != nil {
			t.Fatalf("result line %d: %v: %.200s", i+1, err, line)
		}
		out = append(out, r)
	}
	return out
}

// checkFile holds one result file to the lines it must have, in order.
func checkFile(t *testing.T, reqs []request, want []int, got []result, ids map[string]bool) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%d result lines, want %d", len(got), len(want))
	}
	for k, i := range want {
		req, r := reqs[i], got[k]
		if string(r.CustomID) != req.rawID {
			t.Fatalf("result %d is %s, want %s: order or id lost", k, r.CustomID, req.rawID)
		}
		if ids[r.ID] || !strings.HasPrefix(r.ID, "batch_req_") {
			t.Errorf("line %d: id %q is not a fresh one", i, r.ID)
		}
		ids[r.ID] = true
		if r.Response == nil {
			t.Errorf("line %d: no response, error %+v", i, r.Error)
			continue
		}
		wantStatus := map[string]int{"sim": 200, "sim-429-once": 200, "sim-400": 400, "sim-500": 500, "sim-nonjson": 200}[req.model]
		if r.Response.StatusCode != wantStatus || r.Response.RequestID == "" {
			t.Errorf("line %d (%s): %+v", i, req.model, r.Response)
		}
		switch {
		case req.model == "sim-nonjson":
			var s string
			if r.Error == nil || r.Error.Code != "invalid_response" || json.Unmarshal(r.Response.Body, &s) != nil || s != "<html>\n\t<body>\"not\" JSON\\</body>\n</html>\n" {
				t.Errorf("line %d: %+v, body %s", i, r.Error, r.Response.Body)
			}
		case r.Error != nil:
			t.Errorf("line %d: error %+v beside a reply", i, r.Error)
		case req.ok() && !bytes.Contains(r.Response.Body, []byte("You sent "+req.sum())):
			t.Errorf("line %d: the reply is another line's: %s", i, r.Response.Body)
		}
	}
}

// checkModel compares what the model was sent with what it should have been.
func checkModel(t *testing.T, reqs []request, batch string) {
	t.Helper()
	a := modelAccount(t, batch)
	total := 0
	for i, r := range reqs {
		total += r.wantTries()
		line := a.Lines[strconv.Itoa(i)]
		if line.Tries != r.wantTries() {
			t.Errorf("line %d (%s) was sent %d times, want %d", i, r.model, line.Tries, r.wantTries())
		}
		if line.Sum != r.sum() {
			t.Errorf("line %d: its body arrived changed", i)
		}
	}
	if a.Requests != total || len(a.Lines) != len(reqs) || a.InFlight != 0 {
		t.Errorf("the model saw %d requests for %d lines (%d still open), want %d for %d", a.Requests, len(a.Lines), a.InFlight, total, len(reqs))
	}
}

// checkReceipts reads the receipts object: one a line, in order, in the
// submitter's name (promise 7).
func checkReceipts(t *testing.T, c *client, batch string, reqs []request) {
	t.Helper()
	obj, err := s3client(t).GetObject(t.Context(), &s3.GetObjectInput{
		Bucket: aws.String(env(t, "HOLDFAST_RESULTS_BUCKET")), Key: aws.String(fmt.Sprintf("%s/out/%s_receipts.jsonl", c.tenant, batch)),
	})
	if err != nil {
		t.Fatal(err)
	}
	defer obj.Body.Close()
	dec := json.NewDecoder(obj.Body)
	for i, r := range reqs {
		var got struct {
			Tenant     string          `json:"tenant"`
			Batch      string          `json:"batch_id"`
			Line       int             `json:"line"`
			CustomID   json.RawMessage `json:"custom_id"`
			OnBehalfOf string          `json:"on_behalf_of"`
			Worker     string          `json:"worker"`
			Attempt    int             `json:"attempt"`
			Request    string          `json:"request_sha256"`
			Reply      string          `json:"reply_sha256"`
		}
		if err := dec.Decode(&got); err != nil {
			t.Fatalf("receipt %d: %v", i, err)
		}
		if got.Line != i || got.Tenant != c.tenant || got.Batch != batch || string(got.CustomID) != r.rawID || got.OnBehalfOf != "somebody@example.com" ||
			got.Worker == "" || got.Attempt != r.wantTries() || got.Request != r.sum() || len(got.Reply) != 64 {
			t.Fatalf("receipt %d: %+v", i, got)
		}
	}
	if dec.More() {
		t.Error("more receipts than lines")
	}
}

// checkLeftovers: the workflow succeeded, and nothing but the three result
// files stays behind.
func checkLeftovers(t *testing.T, c *client, batch string) {
	t.Helper()
	machine := env(t, "HOLDFAST_STATE_MACHINE_ARN")
	execution := strings.Replace(machine, ":stateMachine:", ":execution:", 1) + ":" + batch
	var status sfntypes.ExecutionStatus
	poll(t, 20*time.Second, func() bool {
		out, err := sfn.NewFromConfig(awsConfig(t)).DescribeExecution(t.Context(), &sfn.DescribeExecutionInput{ExecutionArn: &execution})
		if err != nil {
			t.Fatal(err)
		}
		status = out.Status
		return status != sfntypes.ExecutionStatusRunning
	}, func() string { return "execution is still " + string(status) })
	if status != sfntypes.ExecutionStatusSucceeded {
		t.Errorf("execution is %s", status)
	}
	list, err := s3client(t).ListObjectsV2(t.Context(), &s3.ListObjectsV2Input{Bucket: aws.String(env(t, "HOLDFAST_RESULTS_BUCKET")), Prefix: aws.String(c.tenant + "/")})
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range list.Contents {
		if !strings.HasPrefix(*o.Key, c.tenant+"/out/"+batch+"_") {
			t.Errorf("left behind: %s", *o.Key)
		}
	}
	if len(list.Contents) != 3 {
		t.Errorf("%d objects of the tenant, want output, error and receipts", len(list.Contents))
	}
}

func s3client(t *testing.T) *s3.Client {
	return s3.NewFromConfig(awsConfig(t), func(o *s3.Options) { o.UsePathStyle = true })
}

// A file with bad lines is refused whole: failed, reasons with their lines, and
// the model never hears of it.
func TestBadInputFailsTheBatchWithItsLines(t *testing.T) {
	t.Parallel()
	c := newTenant(t, "submit,read")
	good := `{"custom_id":"a","method":"POST","url":"/v1/chat/completions","body":{"model":"sim"}}`
	in := strings.Join([]string{
		good,
		"",
		`{"custom_id":"a","method":"POST","url":"/v1/chat/completions","body":{}}`,
		`not json`,
		`{"custom_id":"b","method":"GET","url":"/v1/chat/completions","body":{}}`,
		`{"custom_id":"c","method":"POST","url":"/v1/embeddings","body":{}}`,
		`{"custom_id":"d","method":"POST","url":"/v1/chat/completions"}`,
		"{\"custom_id\":\"e\xff\",\"method\":\"POST\",\"url\":\"/v1/chat/completions\",\"body\":{}}",
	}, "\n")
	b := c.wait(t, c.create(t, c.upload(t, "bad.jsonl", []byte(in)).ID, "/v1/chat/completions").ID, time.Minute)
	if b.Status != openai.StatusFailed || b.FailedAt == nil || b.Errors == nil {
		t.Fatalf("batch %+v", b)
	}
	want := map[int]string{3: "duplicate_custom_id", 4: "invalid_json_line", 5: "invalid_method", 6: "url_mismatch", 7: "invalid_body", 8: "invalid_encoding"}
	for _, e := range b.Errors.Data {
		if e.Line == nil || want[*e.Line] != e.Code || e.Message == "" {
			t.Errorf("unexpected %+v", e)
			continue
		}
		delete(want, *e.Line)
	}
	if len(want) > 0 {
		t.Errorf("not reported: %v", want)
	}
	if a := modelAccount(t, b.ID); a.Requests != 0 {
		t.Errorf("the model was sent %d requests", a.Requests)
	}
	empty := c.wait(t, c.create(t, c.upload(t, "blank.jsonl", []byte("\n \n")).ID, "/v1/chat/completions").ID, time.Minute)
	if empty.Status != openai.StatusFailed || empty.Errors == nil || len(empty.Errors.Data) != 1 || empty.Errors.Data[0].Code != "empty_file" {
		t.Errorf("blank file: %+v", empty)
	}
}

// All lines failing is a completed batch with an error file and no output file.
func TestAllLinesFailing(t *testing.T) {
	t.Parallel()
	c := newTenant(t, "submit,read")
	in := `{"custom_id":"a","method":"POST","url":"/v1/chat/completions","body":{"model":"sim-400"}}`
	b := c.wait(t, c.create(t, c.upload(t, "f.jsonl", []byte(in)).ID, "/v1/chat/completions").ID, time.Minute)
	if b.Status != openai.StatusCompleted || b.OutputFileID != nil || b.ErrorFileID == nil || b.RequestCounts.Failed != 1 {
		t.Errorf("%+v", b)
	}
}

// Every id of another tenant is 404, as if it did not exist.
func TestAnotherTenantSeesNothing(t *testing.T) {
	t.Parallel()
	c, other := newTenant(t, "submit,read"), newTenant(t, "submit,read")
	f := c.upload(t, "f.jsonl", []byte(`{"custom_id":"a","method":"POST","url":"/v1/chat/completions","body":{"model":"sim"}}`))
	b := c.create(t, f.ID, "/v1/chat/completions")
	for _, path := range []string{"/v1/files/" + f.ID, "/v1/files/" + f.ID + "/content", "/v1/batches/" + b.ID} {
		status, _, got := other.do(t, "GET", path, "", nil)
		missing := strings.Replace(strings.Replace(path, f.ID, "file-none", 1), b.ID, "batch_none", 1)
		wantStatus, _, want := other.do(t, "GET", missing, "", nil)
		got = bytes.ReplaceAll(bytes.ReplaceAll(got, []byte(f.ID), []byte("file-none")), []byte(b.ID), []byte("batch_none"))
		if status != http.StatusNotFound || wantStatus != http.StatusNotFound || !bytes.Equal(got, want) {
			t.Errorf("%s: %d %s; a missing one: %d %s", path, status, got, wantStatus, want)
		}
	}
	body := fmt.Sprintf(`{"input_file_id":%q,"endpoint":"/v1/chat/completions","completion_window":"24h"}`, f.ID)
	if status, _, reply := other.do(t, "POST", "/v1/batches", "application/json", []byte(body)); status != http.StatusBadRequest || !bytes.Contains(reply, []byte(`"param":"input_file_id"`)) {
		t.Errorf("create on another's file: %d %s", status, reply)
	}
	if l := get[openai.List[openai.Batch]](t, other, "/v1/batches"); len(l.Data) != 0 {
		t.Errorf("the other tenant lists %d batches", len(l.Data))
	}
	c.wait(t, b.ID, time.Minute)
}

// No key, no entry; and every answer has the contract's shape.
func TestNoKeyNoEntry(t *testing.T) {
	t.Parallel()
	c := newTenant(t, "read")
	valid := c.key
	for _, tt := range []struct {
		name, key, method, path string
		status                  int
		code                    string
	}{
		{"no key", "", "GET", "/v1/batches", 401, "invalid_api_key"},
		{"wrong key", "hf_wrong", "GET", "/v1/batches", 401, "invalid_api_key"},
		{"no key, unknown path", "", "GET", "/v1/nothing", 404, "unknown_url"},
		{"no key, another's id", "", "GET", "/v1/files/file-none/content", 401, "invalid_api_key"},
		{"unknown path", valid, "GET", "/v1/nothing", 404, ""},
		{"wrong method", valid, "PUT", "/v1/batches", 405, ""},
		{"no scope", valid, "POST", "/v1/batches", 403, ""},
		{"unknown batch", valid, "GET", "/v1/batches/batch_none", 404, "batch_not_found"},
		{"unknown cursor", valid, "GET", "/v1/batches?after=batch_none", 400, "invalid_cursor"},
		{"bad limit", valid, "GET", "/v1/batches?limit=0", 400, ""},
	} {
		c.key = tt.key
		status, h, b := c.do(t, tt.method, tt.path, "", nil)
		var e struct {
			Error map[string]any `json:"error"`
		}
		if err := json.Unmarshal(b, &e); err != nil || status != tt.status || h.Get("x-request-id") == "" {
			t.Errorf("%s: %d %v %s", tt.name, status, err, b)
			continue
		}
		for _, k := range []string{"message", "type", "param", "code"} {
			if _, ok := e.Error[k]; !ok {
				t.Errorf("%s: error has no %q: %s", tt.name, k, b)
			}
		}
		if tt.code != "" && e.Error["code"] != tt.code {
			t.Errorf("%s: code %v", tt.name, e.Error["code"])
		}
	}
}
