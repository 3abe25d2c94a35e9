package openai

import (
	"encoding/json"
	goparser "go/parser"
	"go/token"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strconv"
	"strings"
	"testing"
)

func TestWireShapes(t *testing.T) {
	line, seconds, id := 3, int64(1700000000), "file-2"
	tests := []struct {
		name string
		v    any
		want string
	}{
		{"file", File{ID: "file-1", Bytes: 5, CreatedAt: 1, Filename: "a<b.jsonl", Purpose: "batch", Status: FileProcessed},
			`{"id":"file-1","object":"file","bytes":5,"created_at":1,"filename":"a\u003cb.jsonl","purpose":"batch","status":"processed"}`},
		{"file that expires", &File{ID: "file-1", ExpiresAt: &seconds},
			`{"id":"file-1","object":"file","bytes":0,"created_at":0,"expires_at":1700000000,"filename":"","purpose":"","status":""}`},
		{"deleted", DeletedFile{ID: "file-1", Deleted: true}, `{"id":"file-1","object":"file","deleted":true}`},
		{"new batch", Batch{ID: "batch_1", Endpoint: "/v1/embeddings", InputFileID: "file-1", CompletionWindow: "24h", Status: StatusValidating, CreatedAt: 1},
			`{"id":"batch_1","object":"batch","endpoint":"/v1/embeddings","model":null,"errors":null,"input_file_id":"file-1","completion_window":"24h","status":"validating","output_file_id":null,"error_file_id":null,"created_at":1,"in_progress_at":null,"expires_at":null,"finalizing_at":null,"completed_at":null,"failed_at":null,"expired_at":null,"cancelling_at":null,"cancelled_at":null,"request_counts":{"total":0,"completed":0,"failed":0},"usage":null,"metadata":null,"lease_expired_events":0,"steals":0,"repeats":0,"dead_parts":0}`},
		{"batch", Batch{ID: "batch_1", Status: StatusFailed, OutputFileID: &id, FailedAt: &seconds, Metadata: map[string]string{}, Usage: &Usage{InputTokens: 1},
			Errors: &BatchErrors{Data: []BatchError{{Code: "empty_file", Message: "m"}, {Code: "c", Message: "m", Param: &id, Line: &line}}}},
			`{"id":"batch_1","object":"batch","endpoint":"","model":null,"errors":{"object":"list","data":[{"code":"empty_file","message":"m","param":null,"line":null},{"code":"c","message":"m","param":"file-2","line":3}]},"input_file_id":"","completion_window":"","status":"failed","output_file_id":"file-2","error_file_id":null,"created_at":0,"in_progress_at":null,"expires_at":null,"finalizing_at":null,"completed_at":null,"failed_at":1700000000,"expired_at":null,"cancelling_at":null,"cancelled_at":null,"request_counts":{"total":0,"completed":0,"failed":0},"usage":{"input_tokens":1,"input_tokens_details":{"cached_tokens":0},"output_tokens":0,"output_tokens_details":{"reasoning_tokens":0},"total_tokens":0},"metadata":{},"lease_expired_events":0,"steals":0,"repeats":0,"dead_parts":0}`},
		{"no errors", BatchErrors{}, `{"object":"list","data":[]}`},
		{"empty list", NewList[File](nil, true), `{"object":"list","data":[],"first_id":null,"last_id":null,"has_more":false}`},
		{"zero list", List[Batch]{}, `{"object":"list","data":[],"first_id":null,"last_id":null,"has_more":false}`},
		{"list", NewList([]File{{ID: "file-1"}, {ID: "file-2"}}, true),
			`{"object":"list","data":[{"id":"file-1","object":"file","bytes":0,"created_at":0,"filename":"","purpose":"","status":""},{"id":"file-2","object":"file","bytes":0,"created_at":0,"filename":"","purpose":"","status":""}],"first_id":"file-1","last_id":"file-2","has_more":true}`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := httptest.NewRecorder()
			if err := WriteJSON(w, 200, tt.v); err != nil {
				t.Fatal(err)
			}
			if got := strings.TrimSuffix(w.Body.String(), "\n"); got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
			if h := w.Header(); h.Get("Content-Type") != "application/json" || h.Get("Content-Length") != strconv.Itoa(w.Body.Len()) {
				t.Errorf("headers %v", h)
			}
		})
	}
}

func TestBatchReadsBack(t *testing.T) {
	in := NewList([]Batch{{ID: "batch_1", Status: StatusCompleted, RequestCounts: RequestCounts{3, 2, 1}}}, false)
	b, err := json.Marshal(in)
	if err != nil {
		t.Fatal(err)
	}
	var out List[Batch]
	if err := json.Unmarshal(b, &out); err != nil || out.Data[0].RequestCounts != in.Data[0].RequestCounts || *out.LastID != "batch_1" {
		t.Errorf("got %+v, %v", out, err)
	}
}

func TestWriteJSONThatCannotBe(t *testing.T) {
	w := httptest.NewRecorder()
	if err := WriteJSON(w, 200, make(chan int)); err == nil || w.Code != http.StatusInternalServerError || !strings.Contains(w.Body.String(), `"code":"server_error"`) {
		t.Errorf("got %d %s, %v", w.Code, w.Body, err)
	}
}

func TestParsePage(t *testing.T) {
	tests := []struct {
		query string
		want  Page
		code  string
		param string
	}{
		{"", Page{Limit: 20}, "", ""},
		{"limit=1", Page{Limit: 1}, "", ""},
		{"limit=100&after=batch_1&order=asc", Page{Limit: 100, After: "batch_1", Ascending: true}, "", ""},
		{"order=desc&after=&unknown=1", Page{Limit: 20}, "", ""},
		{"limit=0", Page{}, "invalid_limit", "limit"},
		{"limit=-1", Page{}, "invalid_limit", "limit"},
		{"limit=101", Page{}, "invalid_limit", "limit"},
		{"limit=", Page{}, "invalid_limit", "limit"},
		{"limit=ten", Page{}, "invalid_limit", "limit"},
		{"limit=1.5", Page{}, "invalid_limit", "limit"},
		{"limit=99999999999999999999", Page{}, "invalid_limit", "limit"},
		{"order=up", Page{}, "invalid_order", "order"},
		{"after=" + strings.Repeat("x", 300), Page{}, "invalid_cursor", "after"},
	}
	for _, tt := range tests {
		q, err := url.ParseQuery(tt.query)
		if err != nil {
			t.Fatal(err)
		}
		got, err := ParsePage(q, 20, 100)
		if got != tt.want {
			t.Errorf("%s: got %+v", tt.query, got)
		}
		checkRefusal(t, tt.query, err, 400, tt.code, tt.param)
	}
}

func FuzzParsePage(f *testing.F) {
	for _, s := range []string{"", "limit=1&after=x", "order=asc", "limit=%zz", "limit=1;order=desc", "limit=+5"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, query string) {
		q, err := url.ParseQuery(query)
		if err != nil {
			return
		}
		if p, err := ParsePage(q, 20, 100); err == nil && (p.Limit < 1 || p.Limit > 100 || len(p.After) > maxCursor) {
			t.Fatalf("got %+v", p)
		} else if err != nil {
			checkRefusal(t, query, err, 400, err.(*Error).Code, err.(*Error).Param)
		}
	})
}

// TestImports holds that this package stays free of AWS and of everything else.
func TestImports(t *testing.T) {
	files, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if !strings.HasSuffix(file.Name(), ".go") {
			continue
		}
		f, err := goparser.ParseFile(token.NewFileSet(), file.Name(), nil, goparser.ImportsOnly)
		if err != nil {
			t.Fatal(err)
		}
		for _, i := range f.Imports {
			path, _ := strconv.Unquote(i.Path.Value)
			first, _, _ := strings.Cut(path, "/")
			if (strings.Contains(first, ".") || first == "holdfast") && !strings.HasPrefix(path, "github.com/go-json-experiment/json") {
				t.Errorf("%s imports %s", file.Name(), path)
			}
		}
	}
}
