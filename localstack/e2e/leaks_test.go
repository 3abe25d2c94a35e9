package e2e

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatch"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/sfn"

	"holdfast/internal/access"
	"holdfast/internal/aws/logs"
	"holdfast/internal/openai"
)

// planted begins everything that may stand nowhere but where it is going. Behind it is
// what it was: a word, so that a place may hold one kind and no other.
const planted = "PLANTED7f3a"

var plant = regexp.MustCompile(planted + `-([a-z]+)`)

// searcher looks for what was planted.
type searcher struct {
	t       *testing.T
	secrets map[string]string // API keys and their hashes, and tokens: they may be nowhere
	looked  map[string]int    // bytes, by place
}

// in holds a text to the kinds that it may hold. A place is "<kind>: <which>".
func (s *searcher) in(place, text string, may ...string) {
	s.t.Helper()
	kind, _, _ := strings.Cut(place, ":")
	s.looked[kind] += len(text)
	around := func(at, n int) string { return text[max(0, at-150):min(len(text), at+n+50)] }
	for _, m := range plant.FindAllStringSubmatchIndex(text, -1) {
		if kind := text[m[2]:m[3]]; !slices.Contains(may, kind) {
			s.t.Errorf("%s holds a %s: …%q", place, kind, around(m[0], m[1]-m[0]))
			break // one is enough to find it by
		}
	}
	for name, secret := range s.secrets {
		if at := strings.Index(text, secret); at >= 0 {
			s.t.Errorf("%s holds %s: …%q", place, name, around(at, len(secret)))
		}
	}
}

func (s *searcher) key(name, secret string) {
	s.secrets[name], s.secrets["the hash of "+name] = secret, access.HashSecret(secret)
}

// hostile sends values in headers that are nobody's business, with every request.
type hostile struct{}

func (hostile) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	for _, name := range []string{"X-Custom", "X-Forwarded-For", "User-Agent", "Cookie", "Referer", "X-Request-Id", "Traceparent", "X-On-Behalf-Of", "X-Api-Key", "Priority"} {
		r.Header.Set(name, planted+"-header")
	}
	return http1.RoundTrip(r)
}

// asked makes a request of the API or the gateway, and searches the answer. What a
// caller named wrongly (a path, a parameter) may be quoted to him, and nobody else.
func (s *searcher) asked(c *client, base, method, path, contentType, body string, may ...string) (int, []byte) {
	s.t.Helper()
	as := *c
	as.base, as.http = base, &http.Client{Transport: hostile{}, CheckRedirect: noRedirect().CheckRedirect}
	req, err := http.NewRequestWithContext(s.t.Context(), method, base+path, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+as.key)
	if contentType != "" {
		req.Header.Set("Content-Type", contentType)
	}
	resp, err := as.http.Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	s.in("answer: "+method+" "+path[:min(len(path), 60)], string(b), may...)
	resp.Header.Del("Location") // which names the caller's own object, signed
	s.in("headers: "+method+" "+path[:min(len(path), 60)], fmt.Sprint(resp.Header), "upstream")
	return resp.StatusCode, b
}

// odd are values that somebody hopes to be taken for more than text.
var odd = []string{`\r\nX-Evil: %s`, `\u0000\u001b[2J%s`, `../../%s`, `%s\"},{\"x\":\"`, `\ud83d\ude00 %s \u202e`, `${%s}`, `%%0d%%0aX-Evil:%%20%s`}

// leakyBatch is an input with something planted in everything, for models that answer
// in every way.
func leakyBatch(models []string) []byte {
	var b bytes.Buffer
	for i, model := range models {
		id := fmt.Sprintf(odd[i%len(odd)], planted+"-custom") + fmt.Sprint(i)
		fmt.Fprintf(&b, `{"custom_id":"%s","method":"POST","url":"/v1/chat/completions","body":{"model":%q,"messages":[{"content":"%s-body"}],"%s-body":1}}`+"\n", id, model, planted, planted)
	}
	return b.Bytes()
}

// deep is JSON within JSON, ten thousand times.
var deep = `{"model":"sim","x":` + strings.Repeat("[", 10_000) + strings.Repeat("]", 10_000) + `}`

// What people and models say, and what opens doors, is found nowhere that it wasn't
// put to: not in a log, a metric, an event, a receipt, an error, an alarm, the
// workflow or a header to the upstream.
func TestNothingLeaksDeployed(t *testing.T) {
	t.Parallel()
	since := time.Now().Add(-time.Second)
	two := second(t)
	api, gate := env(t, "HOLDFAST_URL"), strings.TrimRight(env(t, "HOLDFAST_GATEWAY_URL"), "/")
	c := newTenant(t, "submit,read,admin")
	fleet := newTenant(t, "batch_replay")
	s := &searcher{t, map[string]string{"the upstream's token": planted + "-token"}, map[string]int{}}
	s.key("a key", c.key)
	s.key("a replay key", fleet.key)

	// A batch.
	models := []string{"second-ok", "second-400", "second-500", "denied-403", "second-echo", "second-more", "sim", "sim-nonjson", "second-ok"}
	up := c.upload(t, planted+"-file.jsonl", leakyBatch(models))
	meta := fmt.Sprintf(`{"%s-meta":"%s"}`, planted, fmt.Sprintf(odd[0], planted+"-meta"))
	create := func(file, metadata string) string {
		return fmt.Sprintf(`{"input_file_id":%q,"endpoint":"/v1/chat/completions","completion_window":"24h","metadata":%s}`, file, metadata)
	}
	status, b := s.asked(c, api, "POST", "/v1/batches", "application/json", create(up.ID, meta), "meta")
	id := decode[openai.Batch](t, status, b).ID
	// One that gets no whole reply, or none but that our token is no good, which is no
	// line's fault: so it waits.
	stuck := c.create(t, c.upload(t, "stuck.jsonl", leakyBatch([]string{"second-torn", "sim-reset", "denied-401"})).ID, "/v1/chat/completions").ID
	// One whose lines are none.
	bad := c.upload(t, "bad.jsonl", []byte(fmt.Sprintf(`{"custom_id":"%[1]s-custom","method":"%[1]s-param","url":"/v1/%[1]s-param","body":{}}`+"\n"+`{"custom_id":"a","method":"POST","url":"/v1/chat/completions","body":%[2]s}`+"\n%[1]s-body\n", planted, deep)))
	refused := c.create(t, bad.ID, "/v1/chat/completions").ID

	// The doors.
	c.enable(t, dropper)
	for name, metadata := range map[string]map[string]string{
		"a.jsonl": {"metadata": `{"x":` + planted + "-meta"}, "b.jsonl": {"endpoint": "/v1/" + planted + "-param"}, "c.jsonl": nil,
	} {
		s.in("refusal: "+name, fmt.Sprintf("%+v", c.refusal(t, c.put(t, name, []byte(planted+"-body"), metadata))), "param")
	}
	message := fmt.Sprintf(`{"v":1,"tenant":%q,"principal":"%s-body\r\n","x":"%s-body"}`, c.tenant, planted, planted)
	send(t, message)
	code, reason := letter(t, message)
	s.in("reason: of a dead letter", code+reason)

	// The keys.
	s.asked(c, api, "POST", "/v1/admin/keys", "application/json", fmt.Sprintf(`{"principal":"%s-param\r\n","name":"n","scopes":["read"]}`, planted), "param")
	var made openai.APIKey
	for _, step := range []string{"", "/rotate", "/disable"} {
		path, body := "/v1/admin/keys", `{"principal":"p","name":"n","scopes":["read"]}`
		if step != "" {
			path, body = "/v1/admin/keys/"+made.ID+step, ""
		}
		status, b := s.asked(c, api, "POST", path, "application/json", body)
		if made = decode[openai.APIKey](t, status, b); made.Secret != "" {
			s.key("a key that was made", made.Secret) // the answer was looked through before it is a secret
		}
	}

	// The gateway.
	line := `{"model":"%s","messages":[{"content":"` + planted + `-body"}]}`
	for model, want := range map[string]int{"second-ok": 200, "second-400": 400, "second-500": 500, "denied-401": 502, "denied-403": 502, "second-echo": 502, "second-more": 200, "sim-reset": 502, "sim-nonjson": 200} {
		if status, b := s.asked(c, gate, "POST", "/v1/chat/completions?x="+planted+"-query", "application/json", fmt.Sprintf(line, model), "reply"); status != want {
			t.Errorf("%s through the gateway: %d %s", model, status, b)
		}
	}
	for what, r := range map[string]struct {
		c          *client
		path, body string
		status     int
	}{
		"half a JSON":    {c, "/v1/chat/completions", fmt.Sprintf(line, "sim") + planted + "-body", 400},
		"a member twice": {c, "/v1/chat/completions", `{"model":"sim","model":"` + planted + `-body"}`, 400},
		"deep JSON":      {c, "/v1/chat/completions", deep, 400},
		"controls":       {c, "/v1/chat/completions", "{\"model\":\"\x00\x1b" + planted + "-body\"}", 400},
		"a model's name": {c, "/v1/chat/completions", `{"model":"` + strings.Repeat(planted+"-body", 100) + `"}`, 400},
		"dots":           {c, "/v1/chat/completions/../" + planted + "-path", "{}", 404},
		"encoded":        {c, "/v1/chat%2fcompletions%0d%0aX-Evil:" + planted + "-path", "{}", 404},
		"no right":       {fleet, "/v1/chat/completions", fmt.Sprintf(line, "sim"), 403},
		"no key":         {&client{key: planted + "-key"}, "/v1/chat/completions", fmt.Sprintf(line, "sim"), 401},
	} {
		if status, b := s.asked(r.c, gate, "POST", r.path, "application/json", r.body, "path"); status != r.status {
			t.Errorf("%s through the gateway: %d %s, want %d", what, status, b, r.status)
		}
	}
	if status, b := s.asked(c, api, "POST", "/v1/batches", "application/json", deep); status != 400 {
		t.Errorf("deep JSON: %d %s", status, b)
	}
	s.asked(c, api, "POST", "/v1/batches", "application/json", create(planted+"-param\\r\\n", "{}"), "param")
	s.asked(c, api, "GET", "/v1/files/"+planted+"-path%0d%0a", "", "", "path")
	s.asked(&client{key: planted + "-key"}, api, "GET", "/v1/files", "", "")

	// How it ends.
	if got := c.wait(t, refused, time.Minute); got.Status != openai.StatusFailed || got.Errors == nil || len(got.Errors.Data) != 3 {
		t.Errorf("the bad input: %s, %+v", got.Status, got.Errors)
	} else {
		s.in("errors: of a batch", fmt.Sprintf("%+v", got.Errors), "param")
	}
	done := c.wait(t, id, 2*time.Minute)
	if done.Status != openai.StatusCompleted || done.RequestCounts != (openai.RequestCounts{Total: len(models), Completed: 4, Failed: 5}) {
		t.Errorf("the batch: %s, %+v", done.Status, done.RequestCounts)
	}
	s.asked(c, api, "GET", "/v1/batches/"+id+"/events", "", "")
	s.asked(c, api, "GET", "/v1/admin/keys", "", "")
	c.cancel(t, stuck) // unless its lines had tries enough by then
	if got := c.wait(t, stuck, time.Minute); got.Status != openai.StatusCancelled && got.Status != openai.StatusCompleted || got.OutputFileID != nil {
		t.Errorf("without replies: %+v", got)
	}
	s.results(c)
	s.table(c, fleet)
	s.aws(id, refused, stuck)
	s.logs(since, c)
	two.mu.Lock()
	defer two.mu.Unlock()
	for _, h := range two.calls {
		for name, values := range h.header {
			if name != "Authorization" {
				s.in("upstream's headers: "+name, fmt.Sprint(values))
			}
			if name == "X-Evil" {
				t.Errorf("a header was injected: %v", values)
			}
		}
	}
	t.Logf("looked through, in bytes: %v", s.looked)
	for _, kind := range []string{"answer", "event or other item", "receipt item", "log of api", "log of work", "log of plan", "log of finish", "log of ingest", "log of gateway", "log of reap", "error object", "output", "error", "receipts", "workflow", "upstream's headers", "alarms"} {
		if s.looked[kind] == 0 {
			t.Errorf("nothing of %s was looked through: %v", kind, slices.Sorted(maps.Keys(s.looked)))
		}
	}
}

// results looks through every object that was written for the tenant. custom_id is the
// person's own, and may be where it belongs.
func (s *searcher) results(c *client) {
	s.t.Helper()
	bucket := env(s.t, "HOLDFAST_RESULTS_BUCKET")
	list, err := s3client(s.t).ListObjectsV2(s.t.Context(), &s3.ListObjectsV2Input{Bucket: &bucket, Prefix: aws.String(c.tenant + "/")})
	if err != nil {
		s.t.Fatal(err)
	}
	for _, o := range list.Contents {
		out, err := s3client(s.t).GetObject(s.t.Context(), &s3.GetObjectInput{Bucket: &bucket, Key: o.Key})
		if err != nil {
			s.t.Fatal(err)
		}
		data, err := io.ReadAll(out.Body)
		out.Body.Close()
		if err != nil {
			s.t.Fatal(err)
		}
		s.in("metadata: "+*o.Key, fmt.Sprint(out.Metadata, aws.ToString(out.ContentDisposition)))
		kind := strings.TrimSuffix((*o.Key)[strings.LastIndex(*o.Key, "_")+1:], ".jsonl")
		if !strings.Contains(*o.Key, "/out/") {
			s.in("error object: "+*o.Key, string(data), "param")
			continue
		}
		may := map[string][]string{"output": {"reply", "upstream"}, "error": {"reply", "upstream"}}[kind]
		for line := range bytes.Lines(data) {
			m := members(s.t, line)
			delete(m, "custom_id")
			s.in(kind+": "+*o.Key, fmt.Sprint(m), may...)
		}
	}
}

// table looks through every item of the tenants. A batch's metadata and a file's name
// are the person's own, and what was wrong with an input is told by quoting it.
func (s *searcher) table(tenants ...*client) {
	s.t.Helper()
	for _, c := range tenants {
		pages := dynamodb.NewScanPaginator(dynamodb.NewFromConfig(awsConfig(s.t)), &dynamodb.ScanInput{
			TableName: aws.String(env(s.t, "HOLDFAST_TABLE")), FilterExpression: aws.String("contains(pk, :t) OR tenant = :t OR contains(tenant_pk, :t)"),
			ExpressionAttributeValues: map[string]types.AttributeValue{":t": &types.AttributeValueMemberS{Value: c.tenant}},
		})
		for pages.HasMorePages() {
			page, err := pages.NextPage(s.t.Context())
			if err != nil {
				s.t.Fatal(err)
			}
			for _, item := range page.Items {
				text := func(name string) string { return fmt.Sprint(jsonOf(s.t, item[name])) }
				pk := item["pk"].(*types.AttributeValueMemberS).Value
				kind, _, _ := strings.Cut(pk, "#")
				if kind == "KEY" { // which is found by its hash
					for _, name := range []string{"pk", "hash", "tenant_sk"} {
						delete(item, name)
					}
				}
				place := map[string]string{"RC": "receipt item"}[kind]
				if place == "" {
					place = "event or other item"
				}
				for name := range item {
					own := map[string][]string{"T/metadata": {"meta"}, "F/filename": {"file"}, "BR/request": {"meta"},
						"T/errors": {"param"}, "T/reason": {"param"}}[kind+"/"+name]
					s.in(place+": "+kind+" "+text("sk")+" "+name, text(name), own...)
				}
			}
		}
	}
}

// aws looks through what the workflow was told, and the alarms.
func (s *searcher) aws(batches ...string) {
	s.t.Helper()
	for _, id := range batches {
		execution := strings.Replace(env(s.t, "HOLDFAST_STATE_MACHINE_ARN"), ":stateMachine:", ":execution:", 1) + ":" + id
		history, err := sfn.NewFromConfig(awsConfig(s.t)).GetExecutionHistory(s.t.Context(), &sfn.GetExecutionHistoryInput{ExecutionArn: &execution, MaxResults: 1000})
		if err != nil {
			s.t.Fatal(err)
		}
		s.in("workflow: "+id, jsonOf(s.t, history.Events))
	}
	for name, a := range alarms(s.t) {
		s.in("alarms: "+name, jsonOf(s.t, a))
	}
	past, err := cloudwatch.NewFromConfig(awsConfig(s.t)).DescribeAlarmHistory(s.t.Context(), &cloudwatch.DescribeAlarmHistoryInput{})
	if err != nil {
		s.t.Fatal(err)
	}
	s.in("alarms: history", jsonOf(s.t, past.AlarmHistoryItems))
}

// logs looks through all that every function wrote meanwhile, metrics among it, when
// the last of it that concerns the tenant is there.
func (s *searcher) logs(since time.Time, c *client) {
	s.t.Helper()
	reader := logs.New(awsConfig(s.t))
	// What net/http says of a server that goes on behind the end of its answer, but for what
	// that went on with.
	const more = "Unsolicited response"
	waits := map[string][]string{"api": {c.tenant}, "plan": {c.tenant}, "work": {c.tenant, more}, "finish": {c.tenant}, "ingest": {c.tenant}, "gateway": {c.tenant, more}, "reap": nil}
	for function, texts := range waits {
		var all strings.Builder
		poll(s.t, 30*time.Second, func() bool {
			all.Reset()
			for line, err := range reader.Find(s.t.Context(), "/holdfast/"+function, since, time.Now().Add(time.Minute)) {
				if err != nil {
					s.t.Fatal(err)
				}
				all.WriteString(line + "\n")
			}
			there := !slices.ContainsFunc(texts, func(text string) bool { return !strings.Contains(all.String(), text) })
			if !there && function == "ingest" {
				flush(s.t)
			}
			return there
		}, func() string { return fmt.Sprintf("the log of %s has not all of %q", function, texts) })
		s.in("log of "+function+": "+function, all.String())
	}
	if s.looked["log of reap"] == 0 { // none of its minutes fell into this
		tick(s.t)
		for line, err := range reader.Find(s.t.Context(), "/holdfast/reap", since, time.Now().Add(time.Minute)) {
			if err != nil {
				s.t.Fatal(err)
			}
			s.in("log of reap: reap", line)
		}
	}
}
