package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"holdfast/internal/access"
	"holdfast/internal/aws/dynamo"
	"holdfast/internal/batch"
)

// endpoint is a method of a path, and what the contract says of it. An object in the
// path is {file}, {upload}, {batch} or {key}, and in a body too.
type endpoint struct {
	method, path string
	needs        string // the one scope that opens it
	body         string // "": none
	own          int    // to who has the scope, about an object of the tenant's, or about none
	code         string // of that, where it is an error
	missing      int    // about another tenant's object, and about one that isn't there; 0: it has none
	missingCode  string
}

// chosen is a form with a part of an upload.
const chosen = "--b\r\nContent-Disposition: form-data; name=\"data\"; filename=\"d\"\r\n\r\nx\r\n--b--\r\n"

const newFile = formFile + "--b\r\nContent-Disposition: form-data; name=\"purpose\"\r\n\r\nbatch\r\n--b--\r\n"

// apiEndpoints is every route of the API (docs, README): written down here and not
// taken from the code.
var apiEndpoints = []endpoint{
	{"GET", "/v1/files", "read", "", 200, "", 0, ""},
	{"POST", "/v1/files", "submit", newFile, 200, "", 0, ""},
	{"GET", "/v1/files/{file}", "read", "", 200, "", 404, "file_not_found"},
	{"DELETE", "/v1/files/{file}", "submit", "", 200, "", 404, "file_not_found"},
	{"GET", "/v1/files/{file}/content", "read", "", 302, "", 404, "file_not_found"},
	{"GET", "/v1/models", "read", "", 200, "", 0, ""},
	{"GET", "/v1/models/sim", "read", "", 200, "", 0, ""},
	{"POST", "/v1/uploads", "submit", `{"filename":"f","purpose":"batch","bytes":1,"mime_type":"application/jsonl"}`, 200, "", 0, ""},
	{"GET", "/v1/uploads/{upload}", "submit", "", 200, "", 404, "upload_not_found"},
	{"POST", "/v1/uploads/{upload}/parts", "submit", chosen, 200, "", 404, "upload_not_found"},
	{"POST", "/v1/uploads/{upload}/part_urls", "submit", `{"part_numbers":[1]}`, 200, "", 404, "upload_not_found"},
	{"POST", "/v1/uploads/{upload}/complete", "submit", `{"part_ids":["part_none"]}`, 400, "invalid_part_id", 404, "upload_not_found"},
	{"POST", "/v1/uploads/{upload}/cancel", "submit", "", 200, "", 404, "upload_not_found"},
	{"GET", "/v1/batches", "read", "", 200, "", 0, ""},
	{"POST", "/v1/batches", "submit", `{"input_file_id":"{file}","endpoint":"/v1/chat/completions","completion_window":"24h"}`, 200, "", 400, "file_not_found"},
	{"GET", "/v1/batches/{batch}", "read", "", 200, "", 404, "batch_not_found"},
	{"POST", "/v1/batches/{batch}/cancel", "submit", "", 200, "", 404, "batch_not_found"},
	{"GET", "/v1/batches/{batch}/events", "read", "", 200, "", 404, "batch_not_found"},
	{"GET", "/v1/batches/{batch}/receipts", "read", "", 302, "", 404, "batch_not_found"},
	{"GET", "/v1/batches/{batch}/receipts/gateway", "read", "", 200, "", 404, "batch_not_found"},
	{"GET", "/v1/receipts", "read", "", 200, "", 0, ""},
	{"POST", "/v1/admin/reclaim", "admin", "", 200, "", 0, ""},
	{"GET", "/v1/admin/dead", "admin", "", 200, "", 0, ""},
	{"GET", "/v1/admin/dead/{batch}/0", "admin", "", 200, "", 404, "batch_not_found"},
	{"POST", "/v1/admin/redrive", "admin", `{"batch_id":"{batch}","part":0}`, 400, "batch_not_running", 404, "batch_not_found"},
	{"GET", "/v1/admin/keys", "admin", "", 200, "", 0, ""},
	{"POST", "/v1/admin/keys", "admin", `{"principal":"p","name":"n","scopes":["read"]}`, 200, "", 0, ""},
	{"POST", "/v1/admin/keys/{key}/disable", "admin", "", 200, "", 404, "key_not_found"},
	{"POST", "/v1/admin/keys/{key}/rotate", "admin", "", 200, "", 404, "key_not_found"},
}

// gatewayEndpoints is every route of the gateway. Their object is the tenant, or the
// batch, that a request says it acts for.
var gatewayEndpoints = []endpoint{
	{"POST", "/v1/chat/completions", "submit", `{"model":"sim","messages":[]}`, 200, "", 403, "tenant_not_authorized"},
	{"POST", "/v1/completions", "submit", `{"model":"sim","prompt":""}`, 200, "", 403, "tenant_not_authorized"},
	{"POST", "/v1/embeddings", "submit", `{"model":"sim","input":""}`, 200, "", 403, "tenant_not_authorized"},
	{"POST", "/v1/responses", "submit", `{"model":"sim","input":""}`, 200, "", 403, "tenant_not_authorized"},
	{"GET", "/v1/models", "read", "", 200, "", 403, "tenant_not_authorized"},
}

// whose tells of which tenant the object of a request is.
type whose string

const (
	own     whose = "own"
	foreign whose = "foreign"
	nobodys whose = "no such"
)

// shown is what a request is made with. A key that is good has one scope.
type shown struct{ name, scope, key string }

// cell is one request, and what must come of it.
type cell struct {
	endpoint
	gateway bool
	of      whose
	as      shown
	status  int
	code    string
}

// runs is the endpoint that the batches call which somebody could act for.
const runs = "/v1/chat/completions"

// judged is the whole rule.
func (c cell) judged() cell {
	switch {
	case c.as.scope == "":
		c.status, c.code = 401, "invalid_api_key"
	case c.as.scope == "batch_replay" && c.gateway && c.of == own && c.path == runs:
		c.status, c.code = c.own, c.endpoint.code
	case c.as.scope == "batch_replay":
		c.status, c.code = 403, "batch_replay_not_authorized"
	case c.gateway && c.of != own: // whoever it is
		c.status, c.code = c.missing, c.missingCode
	case c.as.scope != c.needs:
		c.status, c.code = 403, "insufficient_permissions"
	case c.of == own:
		c.status, c.code = c.own, c.endpoint.code
	default:
		c.status, c.code = c.missing, c.missingCode
	}
	return c
}

func (c cell) String() string {
	return fmt.Sprintf("%s %s as %s, object %s", c.method, c.path, c.as.name, c.of)
}

// estate is a tenant with an object of each kind for each endpoint that has one.
type estate struct {
	*client
	table   *dynamo.Store
	running string // a batch that runs
}

func newEstate(t *testing.T) *estate {
	t.Helper()
	e := &estate{client: newTenant(t, "submit"), table: dynamo.Open(awsConfig(t), env(t, "HOLDFAST_TABLE"))}
	e.running = e.seed(t, batch.InProgress, "")
	return e
}

// object makes one of the kind that the text names, and gives its ID.
func (e *estate) object(t *testing.T, kind string) string {
	t.Helper()
	switch kind {
	case "file":
		return e.upload(t, "f.jsonl", []byte(oneLine)).ID
	case "upload":
		return e.createUpload(t, "f", 1).ID
	case "key":
		id, _ := e.stored(t, access.Key{Scopes: []access.Scope{access.Read}}, time.Now())
		return id
	}
	id := e.seed(t, batch.Failed, "")
	if err := e.table.Parts.Insert(t.Context(), []batch.Part{{PartKey: batch.PartKey{Tenant: e.tenant, Batch: id}, State: batch.Pending, Lines: 1, To: 1}}); err != nil {
		t.Fatal(err)
	}
	if _, err := s3client(t).PutObject(t.Context(), &s3.PutObjectInput{
		Bucket: aws.String(env(t, "HOLDFAST_RESULTS_BUCKET")), Key: aws.String(batch.ResultKey(e.tenant, id, batch.ReceiptsFile)), Body: strings.NewReader("{}\n"),
	}); err != nil {
		t.Fatal(err)
	}
	return id
}

// stored makes a key as it could be in the table.
func (e *estate) stored(t *testing.T, k access.Key, made time.Time) (id, secret string) {
	t.Helper()
	k.Tenant, k.Principal, k.Name = e.tenant, "somebody@example.com", t.Name()
	disabled := k.DisabledAt
	k.DisabledAt = time.Time{}
	k, secret, err := access.New(k, made)
	if err == nil {
		err = e.table.Keys.Put(t.Context(), k)
	}
	if err == nil && !disabled.IsZero() {
		_, err = e.table.Keys.Disable(t.Context(), e.tenant, k.Hash, disabled)
	}
	if err != nil {
		t.Fatal(err)
	}
	return k.ID(), secret
}

var objectKind = regexp.MustCompile(`\{(file|upload|batch|key)\}`)

// nothing is an ID of each kind that nobody has.
var nothing = map[string]string{
	"file": "file-00000000000000000000000000", "upload": "upload_00000000000000000000000000",
	"batch": "batch_00000000000000000000000000", "key": "key_000000000000000000000000",
}

// do makes the request of a cell with the object, or about none.
func (c cell) do(t *testing.T, base, tenant, object string) (int, string, []byte, error) {
	body := strings.NewReader(objectKind.ReplaceAllString(c.body, object))
	req, err := http.NewRequestWithContext(t.Context(), c.method, base+objectKind.ReplaceAllString(c.path, object), body)
	if err != nil {
		return 0, "", nil, err
	}
	if c.as.key != "" {
		req.Header.Set("Authorization", "Bearer "+c.as.key)
	}
	switch {
	case strings.HasPrefix(c.body, "--b"):
		req.Header.Set("Content-Type", "multipart/form-data; boundary=b")
	case c.body != "":
		req.Header.Set("Content-Type", "application/json")
	}
	if c.gateway {
		req.Header.Set("X-Tenant-ID", tenant)
		req.Header.Set("X-Batch-ID", object)
	}
	resp, err := noRedirect().Do(req)
	if err != nil {
		return 0, "", nil, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	var said struct{ Error struct{ Code string } }
	_ = json.Unmarshal(b, &said) // what is no error has none
	return resp.StatusCode, said.Error.Code, b, err
}

// Every endpoint, with every scope and every kind of key that is none, about an object
// of the tenant's, of another's, and of nobody's. What is another's looks as if it
// weren't there.
func TestWhoMayDoWhat(t *testing.T) {
	t.Parallel()
	api, gateway := env(t, "HOLDFAST_URL"), strings.TrimRight(env(t, "HOLDFAST_GATEWAY_URL"), "/")
	mine, other := newEstate(t), newEstate(t)
	var as []shown
	for _, scope := range []access.Scope{"submit", "read", "admin", "batch_replay", "work"} {
		_, secret := mine.stored(t, access.Key{Scopes: []access.Scope{scope}}, time.Now())
		as = append(as, shown{"scope " + string(scope), string(scope), secret})
	}
	all := []access.Scope{"submit", "read", "admin", "work"} // batch_replay is a key's only scope
	_, disabled := mine.stored(t, access.Key{Scopes: all, DisabledAt: time.Now()}, time.Now())
	_, expired := mine.stored(t, access.Key{Scopes: all, ExpiresAt: time.Now().Add(-time.Second)}, time.Now().Add(-time.Hour))
	as = append(as, shown{name: "no key"}, shown{name: "no key of ours", key: "hf_wrong"}, shown{name: "a disabled key", key: disabled}, shown{name: "an expired key", key: expired})
	// One that could be a key is looked up, and ten of them a minute hold up everybody
	// at this address: so it is tried once at each door.
	unknown := shown{name: "a wrong key", key: "hf_" + strings.Repeat("a", 32)}

	var refused, done []cell
	for _, door := range []struct {
		gateway bool
		of      []endpoint
	}{{false, apiEndpoints}, {true, gatewayEndpoints}} {
		for i, e := range door.of {
			for _, k := range append(as[:len(as):len(as)], unknown) {
				for _, of := range []whose{own, foreign, nobodys} {
					// Who shows no good key is turned away before anything is looked at.
					if of != own && (e.missing == 0 || k.scope == "") || k == unknown && i > 0 {
						continue
					}
					c := cell{endpoint: e, gateway: door.gateway, of: of, as: k}.judged()
					if of == own && c.status == e.own && c.code == e.code {
						done = append(done, c)
					} else {
						refused = append(refused, c)
					}
				}
			}
		}
	}
	// Each endpoint has objects of its own, so that what one does to them is nothing to
	// the others.
	objects := map[string]string{}
	name := func(e endpoint, of whose) string { return e.method + e.path + string(of) }
	foreigners := map[string]string{} // one a kind will do: nothing may happen to it
	for _, e := range apiEndpoints {
		if m := objectKind.FindStringSubmatch(e.path + e.body); m != nil {
			if foreigners[m[1]] == "" {
				foreigners[m[1]] = other.object(t, m[1])
			}
			objects[name(e, own)], objects[name(e, foreign)], objects[name(e, nobodys)] = mine.object(t, m[1]), foreigners[m[1]], nothing[m[1]]
		}
	}
	ask := func(c cell) []byte {
		base, tenant, object := api, "", objects[name(c.endpoint, c.of)]
		if c.gateway {
			base, tenant, object = gateway, mine.tenant, map[whose]string{own: mine.running, foreign: other.running, nobodys: nothing["batch"]}[c.of]
			if c.as.scope != "batch_replay" {
				tenant = map[whose]string{own: mine.tenant, foreign: other.tenant, nobodys: "nobody-at-all"}[c.of]
			}
		}
		status, code, body, err := c.do(t, base, tenant, object)
		if err != nil || status != c.status || code != c.code {
			t.Errorf("%s: %d %q, want %d %q; %v, %s", c, status, code, c.status, c.code, err, body)
		}
		if object == "" {
			return body
		}
		return bytes.ReplaceAll(bytes.ReplaceAll(body, []byte(object), []byte("ID")), []byte(tenant), []byte("TENANT"))
	}
	began := time.Now()
	answers := map[string][]byte{}
	var mu sync.Mutex
	each(refused, func(c cell) {
		body := ask(c)
		mu.Lock()
		defer mu.Unlock()
		answers[c.String()] = body
	})
	// Now: what was refused must have left everything as it was.
	each(done, func(c cell) { ask(c) })
	t.Logf("%d refused and %d done in %v", len(refused), len(done), time.Since(began).Round(time.Millisecond))
	if want := len(apiEndpoints) + len(gatewayEndpoints) + 1; len(done) != want {
		t.Errorf("%d are done, want each endpoint's one, and that of a batch: %d", len(done), want)
	}
	for _, c := range refused {
		if c.of == foreign {
			none := c
			none.of = nobodys
			if got, want := answers[c.String()], answers[none.String()]; !bytes.Equal(got, want) {
				t.Errorf("%s: %s; %s: %s", c, got, none, want)
			}
		}
	}
}

// each calls do for every cell, eight at a time.
func each(cells []cell, do func(cell)) {
	next := make(chan cell)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for c := range next {
				do(c)
			}
		})
	}
	for _, c := range cells {
		next <- c
	}
	close(next)
	wg.Wait()
}

// No route is missing in the table, nor a method of one.
func TestTableHasEveryRoute(t *testing.T) {
	source, err := os.ReadFile("../../functions/api/server/server.go")
	if err != nil {
		t.Fatal(err)
	}
	inTable := map[string]bool{}
	for _, e := range apiEndpoints {
		path := strings.NewReplacer("{batch}/0", "{batch}/{part}", "/models/sim", "/models/{id...}").Replace(e.path)
		if !strings.Contains(path, "{part}") {
			path = objectKind.ReplaceAllString(path, "{id}")
		}
		inTable[e.method+" "+path] = true
	}
	_, list, _ := strings.Cut(string(source), "\nvar routes = ")
	list, _, ended := strings.Cut(list, "\n}\n")
	path, found := "", 0
	for _, m := range regexp.MustCompile(`\{"(/v1/[^"]*)"|http\.Method(\w+):`).FindAllStringSubmatch(list, -1) {
		if m[1] != "" {
			path = m[1]
			continue
		}
		found++
		if name := strings.ToUpper(m[2]) + " " + path; !inTable[name] {
			t.Errorf("%s isn't tried", name)
		} else {
			delete(inTable, name)
		}
	}
	if !ended || found < 25 || len(inTable) > 0 {
		t.Errorf("%d methods found, and of the table not: %v", found, inTable)
	}
}
