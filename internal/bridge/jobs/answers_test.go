package jobs

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"holdfast/internal/bridge"
)

// Every row of the package's table, and what is made of it.
func TestAnswers(t *testing.T) {
	const no = `{"error":{"code":"bad_input","message":"no"}}`
	one := func(status int, body string) []reply { return []reply{{status, body, ""}} }
	sure := errors.New("a job")
	for name, c := range map[string]struct {
		posts, gets []reply
		want        error // sure: job-1
		posted, got int
	}{
		"200":                             {one(200, ours("running")), nil, sure, 1, 0},
		"201":                             {one(201, ours("queued")), nil, sure, 1, 0},
		"its id alone":                    {one(201, `{"id":"job-1"}`), nil, sure, 1, 0},
		"a job that failed since":         {one(200, ours("failed")), nil, sure, 1, 0},
		"what it also says":               {one(200, `{"id":"job-1","status":"queued","x":{"status":"refused"}}`), nil, sure, 1, 0},
		"202, then accepted":              {one(202, ours("queued")), []reply{{200, ours("pending"), ""}, {200, ours("queued"), ""}}, sure, 1, 2},
		"202 without a word":              {one(202, `{}`), one(200, ours("queued")), sure, 1, 1},
		"pending, then accepted":          {one(200, ours("pending")), one(200, ours("queued")), sure, 1, 1},
		"pending, then refused":           {one(202, ours("pending")), one(200, ours("refused")), bridge.ErrRefused, 1, 1},
		"pending, trouble, then accepted": {one(202, ours("pending")), []reply{{500, "", ""}, {0, "", ""}, {404, no, ""}, {429, "", "1"}, {200, ours("queued"), ""}}, sure, 1, 5},
		"pending, then another's":         {one(202, ours("pending")), one(200, `{"id":"job-2","status":"queued"}`), ErrAnswer, 1, 1},
		"pending, then denied":            {one(202, ours("pending")), one(401, no), ErrInstallation, 1, 1},
		"pending, then nonsense":          {one(202, ours("pending")), one(200, `queued`), ErrAnswer, 1, 1},
		"refused at once":                 {one(200, ours("refused")), nil, bridge.ErrRefused, 1, 1},

		"400":                              {one(400, no), nil, bridge.ErrRefused, 1, 1},
		"431":                              {one(431, no), nil, bridge.ErrRefused, 1, 1},
		"a message and no code":            {one(422, `{"error":{"message":"no"}}`), nil, bridge.ErrRefused, 1, 1},
		"404 with a code":                  {one(404, no), nil, bridge.ErrRefused, 1, 1},
		"410":                              {one(410, no), nil, bridge.ErrRefused, 1, 1},
		"413":                              {one(413, no), nil, bridge.ErrRefused, 1, 1},
		"422":                              {one(422, no), nil, bridge.ErrRefused, 1, 1},
		"451":                              {one(451, no), nil, bridge.ErrRefused, 1, 1},
		"400, but it has it":               {one(400, no), one(200, ours("running")), sure, 1, 1},
		"400, but it is at it":             {one(400, no), []reply{{200, ours("pending"), ""}, {200, ours("queued"), ""}}, sure, 1, 2},
		"400, and refused before":          {one(400, no), one(200, ours("refused")), bridge.ErrRefused, 1, 1},
		"400, and no answer":               {one(400, no), one(503, ""), ErrUnavailable, 1, 4},
		"400, and another's refused":       {one(400, no), one(200, `{"id":"job-2","idempotency_key":"x","status":"refused"}`), ErrAnswer, 1, 1},
		"pending, then another's refused":  {one(202, ours("pending")), one(200, `{"id":"job-2","status":"refused"}`), ErrAnswer, 1, 1},
		"400, and no look at present":      {one(400, no), one(409, no), ErrUnavailable, 1, 4},
		"400, and another's":               {one(400, no), one(200, `{"id":"job-2","idempotency_key":"x"}`), ErrAnswer, 1, 1},
		"400, and its look refused":        {one(400, no), one(400, no), ErrAnswer, 1, 1},
		"400, and 410 with a code":         {one(400, no), one(410, no), bridge.ErrRefused, 1, 1},
		"400, and nobody's 404":            {one(400, no), one(404, "<html>"), ErrInstallation, 1, 1},
		"400, and nobody's 410":            {one(400, no), one(410, ""), ErrAnswer, 1, 1},
		"400, and 404 with a message":      {one(400, no), one(404, `{"error":{"message":"no such job"}}`), bridge.ErrRefused, 1, 1},
		"409, and it is ours":              {one(409, no), one(200, hashed("running")), sure, 1, 1},
		"409, and is decided later":        {one(409, no), []reply{{200, hashed("pending"), ""}, {200, hashed("queued"), ""}}, sure, 1, 2},
		"409, and it doesn't say of what":  {one(409, no), one(200, ours("running")), ErrAnswer, 1, 1},
		"409, pending, and of what?":       {one(409, no), one(200, ours("pending")), ErrAnswer, 1, 1},
		"409, and it is another's":         {one(409, no), one(200, `{"id":"job-1","idempotency_key":"x","status":"x"}`), ErrAnswer, 1, 1},
		"409, and it doesn't say whose":    {one(409, no), one(200, `{"id":"job-1","status":"x"}`), ErrAnswer, 1, 1},
		"409, and not there":               {one(409, no), nil, ErrUnavailable, 1, 1},
		"409, and refused":                 {one(409, no), one(200, ours("refused")), bridge.ErrRefused, 1, 1},
		"409, for another request of ours": {one(409, no), one(200, `{"id":"job-1","idempotency_key":"`+id+`","request_hash":"x"}`), bridge.ErrConflict, 1, 1},
		"another request of ours":          {one(200, `{"id":"job-1","request_hash":"x"}`), nil, bridge.ErrConflict, 1, 0},

		"408, then started":      {[]reply{{408, "", ""}, {201, ours("queued"), ""}}, nil, sure, 2, 0},
		"425, then started":      {[]reply{{425, "", ""}, {201, ours("queued"), ""}}, nil, sure, 2, 0},
		"429, then started":      {[]reply{{429, no, ""}, {201, ours("queued"), ""}}, nil, sure, 2, 0},
		"500, then started":      {[]reply{{500, "", ""}, {201, ours("queued"), ""}}, nil, sure, 2, 0},
		"torn, then started":     {[]reply{{0, "", ""}, {201, ours("queued"), ""}}, nil, sure, 2, 0},
		"408":                    {one(408, no), nil, ErrUnavailable, 4, 0},
		"425":                    {one(425, no), nil, ErrUnavailable, 4, 0},
		"429":                    {one(429, no), nil, ErrUnavailable, 4, 0},
		"500":                    {one(500, no), nil, ErrUnavailable, 4, 0},
		"501":                    {one(501, no), nil, ErrUnavailable, 4, 0},
		"599":                    {one(599, no), nil, ErrUnavailable, 4, 0},
		"torn":                   {one(0, ""), nil, ErrUnavailable, 4, 0},
		"423":                    {one(423, no), nil, ErrUnavailable, 4, 0},
		"499":                    {one(499, no), nil, ErrUnavailable, 4, 0},
		"400 of somebody else":   {one(400, "<html>"), nil, ErrAnswer, 1, 0},
		"406 of somebody else":   {one(406, ""), nil, ErrAnswer, 1, 0},
		"413 of somebody else":   {one(413, `{"detail":"no"}`), nil, ErrAnswer, 1, 0},
		"415 of somebody else":   {one(415, `{"error":{}}`), nil, ErrAnswer, 1, 0},
		"431 of somebody else":   {one(431, `{"error":null}`), nil, ErrAnswer, 1, 0},
		"451 of somebody else":   {one(451, `{"error":{"code":17}}`), nil, ErrAnswer, 1, 0},
		"402":                    {one(402, no), nil, ErrInstallation, 1, 0},
		"401":                    {one(401, no), nil, ErrInstallation, 1, 0},
		"403":                    {one(403, no), nil, ErrInstallation, 1, 0},
		"404 of somebody else":   {one(404, `{"detail":"Not Found"}`), nil, ErrInstallation, 1, 0},
		"404 without a code":     {one(404, `{"error":{"message":"Invalid URL","code":null}}`), nil, ErrInstallation, 1, 0},
		"405":                    {one(405, no), nil, ErrInstallation, 1, 0},
		"407":                    {one(407, no), nil, ErrInstallation, 1, 0},
		"421":                    {one(421, no), nil, ErrInstallation, 1, 0},
		"426":                    {one(426, no), nil, ErrInstallation, 1, 0},
		"301":                    {one(301, ""), nil, ErrInstallation, 1, 0},
		"204":                    {one(204, ""), nil, ErrAnswer, 1, 0},
		"206":                    {one(206, ours("queued")), nil, ErrAnswer, 1, 0},
		"no JSON":                {one(200, "<html>"), nil, ErrAnswer, 1, 0},
		"cut JSON":               {one(200, ours("queued")[:20]), nil, ErrAnswer, 1, 0},
		"a list":                 {one(200, "["+ours("queued")+"]"), nil, ErrAnswer, 1, 0},
		"null":                   {one(200, "null"), nil, ErrAnswer, 1, 0},
		"two ids":                {one(200, `{"id":"job-1","id":"job-2"}`), nil, ErrAnswer, 1, 0},
		"an id that is a number": {one(200, `{"id":1}`), nil, ErrAnswer, 1, 0},
		"no id":                  {one(200, `{"status":"queued"}`), nil, ErrAnswer, 1, 0},
		"an id of two lines":     {one(200, `{"id":"a\nb"}`), nil, ErrAnswer, 1, 0},
		"an id with a space":     {one(200, `{"id":"a b"}`), nil, ErrAnswer, 1, 0},
		"an id beyond ASCII":     {one(200, `{"id":"jöb"}`), nil, ErrAnswer, 1, 0},
		"an id that goes up":     {one(200, `{"id":".."}`), nil, ErrAnswer, 1, 0},
		"an id too long":         {one(200, `{"id":"`+strings.Repeat("x", 513)+`"}`), nil, ErrAnswer, 1, 0},
		"a status of two lines":  {one(200, `{"id":"job-1","status":"a\nb"}`), nil, ErrAnswer, 1, 0},
		"another's job":          {one(200, `{"id":"job-1","idempotency_key":"x"}`), nil, ErrAnswer, 1, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				service := &script{posts: c.posts, gets: c.gets}
				job, err := submit(t, over(t, service, nil), request())
				switch {
				case c.want == sure:
					if job != "job-1" || err != nil {
						t.Errorf("%q, %v", job, err)
					}
				case !errors.Is(err, c.want) || job != "":
					t.Errorf("%q, %v, want %v", job, err, c.want)
				}
				if refused := c.want == bridge.ErrRefused || c.want == bridge.ErrConflict; refused != errors.Is(err, bridge.ErrRefused) {
					t.Errorf("refused: %v", err)
				}
				if service.posted != c.posted || service.gotten != c.got {
					t.Errorf("%d posts and %d reads, want %d and %d", service.posted, service.gotten, c.posted, c.got)
				}
			})
		})
	}
}

// A job goes by the service's name where it has one, and by ours where that is it.
func TestNames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		service := &script{posts: []reply{{409, "", ""}}, gets: []reply{{200, `{"id":"` + id + `","status":"x","request_hash":"` + request().Hash() + `"}`, ""}}}
		if job, err := submit(t, over(t, service, nil), request()); job != id || err != nil {
			t.Errorf("%q, %v", job, err)
		}
		odd := strings.Repeat("a/b?c#%2e&", 51) + ".."
		service = &script{posts: []reply{{202, `{"id":"` + odd + `"}`, ""}}, gets: []reply{{200, `{"id":"` + odd + `","status":"x"}`, ""}}}
		if job, err := submit(t, over(t, service, nil), request()); job != odd || err != nil {
			t.Errorf("%q, %v", job, err)
		}
		if got := service.paths[1]; got != "GET /v1/jobs/"+strings.Repeat("a%2Fb%3Fc%23%252e&", 51)+".." {
			t.Errorf("%s", got)
		}
		service = &script{posts: []reply{{202, `{}`, ""}}, gets: []reply{{200, ours("x"), ""}}}
		if _, err := submit(t, over(t, service, nil), request()); err != nil || !slices.Equal(service.paths, []string{"POST /v1/jobs", "GET /v1/jobs/" + id}) {
			t.Errorf("%v, %v", service.paths, err)
		}
	})
}

// What a service says comes with the error, and nothing else of it.
func TestRefusalSaysWhy(t *testing.T) {
	for name, c := range map[string]struct {
		body string
		want JobError
	}{
		"contract":       {`{"error":{"code":"bad_input","message":"line 7 is no request"}}`, JobError{Status: 422, Code: "bad_input", Message: "line 7 is no request"}},
		"text":           {`{"error":"no"}`, JobError{Status: 422, Message: "no"}},
		"numeric code":   {`{"error":{"code":17,"message":"no"}}`, JobError{Status: 422, Message: "no"}},
		"code":           {`{"error":{"code":"bad_input"}}`, JobError{Status: 422, Code: "bad_input"}},
		"control":        {`{"error":{"code":"a b","message":"one\r\n2026 INFO two\u001b[31m\u0000\u2028\u202ethree"}}`, JobError{Status: 422, Message: "one 2026 INFO two [31m three"}},
		"long":           {`{"error":{"code":"` + strings.Repeat("c", 65) + `","message":"x` + strings.Repeat("é", 300) + `"}}`, JobError{Status: 422, Message: "x" + strings.Repeat("é", 249)}},
		"our own secret": {`{"error":{"code":"sk-1.secret","message":"key sk-1.secret is weak"}}`, JobError{Status: 422, Message: "key [token] is weak"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := over(t, &script{posts: []reply{{422, c.body, ""}}}, &Options{Token: func(context.Context) (string, error) { return "sk-1.secret", nil }})
				_, err := submit(t, s, request())
				if e, ok := errors.AsType[*JobError](err); !ok || *e != c.want || !errors.Is(err, bridge.ErrRefused) {
					t.Errorf("%v", err)
				}
				// The same for whoever asked, with words where the service had none.
				told, ok := errors.AsType[*bridge.RefusedError](err)
				if !ok || told.Code == "" || told.Reason == "" || c.want.Code != "" && told.Code != c.want.Code || c.want.Message != "" && told.Reason != c.want.Message {
					t.Errorf("told %+v", told)
				}
				if strings.Contains(err.Error(), "sk-1") || strings.ContainsAny(err.Error(), "\r\n\x1b") {
					t.Errorf("%q", err.Error())
				}
			})
		})
	}
}

// Retry-After is waited for where there is time for it, and told where there isn't.
func TestRetryAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		s := over(t, &script{posts: []reply{{503, "", "7"}, {201, ours("x"), ""}}}, nil)
		if _, err := submit(t, s, request()); err != nil || time.Since(began) < 7*time.Second || time.Since(began) > 8*time.Second {
			t.Errorf("after %s: %v", time.Since(began), err)
		}
		began = time.Now()
		s = over(t, &script{posts: []reply{{202, ours("pending"), "3"}}, gets: []reply{{200, ours("pending"), "4"}, {200, ours("x"), ""}}}, nil)
		if _, err := submit(t, s, request()); err != nil || time.Since(began) < 7*time.Second || time.Since(began) > 9*time.Second {
			t.Errorf("pending, after %s: %v", time.Since(began), err)
		}
		began = time.Now()
		_, err := submit(t, over(t, &script{posts: []reply{{429, "", "40"}}}, nil), request())
		e, ok := errors.AsType[*JobError](err)
		if !ok || e.RetryAfter != 40*time.Second || !errors.Is(err, ErrUnavailable) || time.Since(began) != 0 {
			t.Errorf("after %s: %v", time.Since(began), err)
		}
	})
}

// Who asks how a job is doesn't wait for as long as a service would like.
func TestStatusOfABusyService(t *testing.T) {
	for _, after := range []string{"999999", "29"} {
		synctest.Test(t, func(t *testing.T) {
			began := time.Now()
			_, err := over(t, &script{gets: []reply{{503, "", after}}}, nil).Status(t.Context(), "job-1")
			if took := time.Since(began); !errors.Is(err, ErrUnavailable) || took > 30*time.Second {
				t.Errorf("Retry-After %s: %v after %s", after, err, took)
			}
		})
	}
}

// Nothing of a caller's ends up in a header or a path that isn't fit for one.
func TestHostileIDs(t *testing.T) {
	service := &script{posts: []reply{{201, ours("x"), ""}}}
	s := over(t, service, nil)
	for _, id := range []string{"", ".", "..", "a b", "a\r\nX-Evil: 1", "a\x00", "bätch", "\x7f", strings.Repeat("x", 513)} {
		if job, err := s.Submit(t.Context(), id, request(), start); err == nil || errors.Is(err, bridge.ErrRefused) || job != "" {
			t.Errorf("%q: %q, %v", id, job, err)
		}
		if job, err := s.Find(t.Context(), id, request()); err == nil || errors.Is(err, bridge.ErrNotFound) || job != "" {
			t.Errorf("%q: %q, %v", id, job, err)
		}
		if _, err := s.Status(t.Context(), id); !errors.Is(err, bridge.ErrNotFound) {
			t.Errorf("%q: %v", id, err)
		}
	}
	if len(service.paths) != 0 {
		t.Errorf("asked %v", service.paths)
	}
}

func TestToken(t *testing.T) {
	for name, c := range map[string]struct {
		token string
		err   error
		want  string // Authorization
		fails bool
	}{
		"none":     {"", nil, "", false},
		"sent":     {"sk-1.secret", nil, "Bearer sk-1.secret", false},
		"a line":   {"sk-1.secret\n", nil, "", true},
		"two":      {"sk-1.secret\r\nX: y", nil, "", true},
		"denied":   {"", errors.New("denied"), "", true},
		"not text": {"sk-1.secret\xff", nil, "", true},
	} {
		t.Run(name, func(t *testing.T) {
			var got http.Header
			s := over(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				got = r.Header
				w.Write([]byte(ours("x")))
			}), &Options{Token: func(context.Context) (string, error) { return c.token, c.err }})
			_, err := submit(t, s, request())
			if c.fails {
				if !errors.Is(err, ErrInstallation) || errors.Is(err, bridge.ErrRefused) || c.err != nil && !errors.Is(err, c.err) || got != nil || strings.Contains(err.Error(), "sk-1") {
					t.Errorf("%v, sent %v", err, got)
				}
				return
			}
			if err != nil || got.Get("Authorization") != c.want || got.Get("Idempotency-Key") != id || got.Get("Content-Type") != "application/json" || got.Get("User-Agent") != "holdfast" {
				t.Errorf("%v, sent %v", err, got)
			}
		})
	}
	// A caller who hangs up meanwhile is no fault of the secret's.
	ctx, cancel := context.WithCancel(t.Context())
	s := over(t, &script{}, &Options{Token: func(ctx context.Context) (string, error) { cancel(); return "", ctx.Err() }})
	if _, err := s.Submit(ctx, id, request(), start); !errors.Is(err, ErrUnavailable) || errors.Is(err, ErrInstallation) || !errors.Is(err, context.Canceled) {
		t.Errorf("hung up: %v", err)
	}
}
