package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"holdfast/internal/config"
	"holdfast/internal/openai"
)

// house is as much of an API, a store and a model as a load run asks: every batch
// is over when it is created.
type house struct {
	mu     sync.Mutex
	inputs [][]byte
	url    string
	output func(lines []string) []string // what becomes of the result lines
	twice  int                           // requests too many
}

func (h *house) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h.mu.Lock()
	defer h.mu.Unlock()
	answer := func(v any) { _ = json.NewEncoder(w).Encode(v) }
	n := func(prefix string) (i int) {
		fmt.Sscanf(strings.TrimPrefix(r.URL.Path+r.URL.Query().Get("batch"), prefix), "%d", &i)
		return i
	}
	switch path := r.URL.Path; {
	case path == "/v1/files":
		file, _, err := r.FormFile("file")
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		b, _ := io.ReadAll(file)
		h.inputs = append(h.inputs, b)
		answer(openai.File{ID: fmt.Sprint(len(h.inputs) - 1)})
	case path == "/v1/batches":
		var c struct {
			File string `json:"input_file_id"`
		}
		_ = json.NewDecoder(r.Body).Decode(&c)
		answer(openai.Batch{ID: c.File, Status: openai.StatusValidating})
	case strings.HasPrefix(path, "/v1/batches/"):
		out := fmt.Sprint(n("/v1/batches/"))
		answer(openai.Batch{Status: openai.StatusCompleted, OutputFileID: &out})
	case strings.HasPrefix(path, "/v1/files/"):
		w.Header().Set("Location", fmt.Sprintf("%s/store/%d", h.url, n("/v1/files/")))
		w.WriteHeader(http.StatusFound)
	case strings.HasPrefix(path, "/store/"):
		if r.Header.Get("Authorization") != "" {
			http.Error(w, "two ways to sign", http.StatusBadRequest)
			return
		}
		io.WriteString(w, strings.Join(h.output(resultsOf(h.inputs[n("/store/")])), ""))
	case path == "/sim/stats":
		now := time.Now()
		lines := bytes.Count(h.inputs[n("/sim/stats")], []byte("\n"))
		answer(map[string]any{"requests": lines + h.twice, "max_answered": 3, "first_request_at": now, "last_reply_at": now.Add(time.Millisecond)})
	default:
		http.NotFound(w, r)
	}
}

// resultsOf is the output file of an input, by lines.
func resultsOf(input []byte) (lines []string) {
	for line := range bytes.Lines(input) {
		var in struct {
			ID   string          `json:"custom_id"`
			Body json.RawMessage `json:"body"`
		}
		_ = json.Unmarshal(line, &in)
		sum := sha256.Sum256(in.Body)
		lines = append(lines, fmt.Sprintf(`{"id":"x","custom_id":%q,"response":{"status_code":200,"body":{"text":"You sent %s"}}}`+"\n", in.ID, hex.EncodeToString(sum[:])))
	}
	return lines
}

func TestWaitsCountsWhatIsWrong(t *testing.T) {
	for name, tt := range map[string]struct {
		output func([]string) []string
		twice  int
		wrong  float64 // a batch
	}{
		"nothing":           {func(l []string) []string { return l }, 0, 0},
		"the last is lost":  {func(l []string) []string { return l[:len(l)-1] }, 0, 1},
		"all are lost":      {func(l []string) []string { return nil }, 0, 20},
		"the last is twice": {func(l []string) []string { return append(l, l[len(l)-1]) }, 0, 1},
		"two are exchanged": {func(l []string) []string { l[3], l[4] = l[4], l[3]; return l }, 0, 2},
		"another's reply": {func(l []string) []string {
			l[5] = strings.Replace(l[6], "line-000006", "line-000005", 1)
			return l
		}, 0, 1},
		"not a result":   {func(l []string) []string { l[0] = "?\n"; return l }, 0, 1},
		"a reply failed": {func(l []string) []string { l[0] = strings.Replace(l[0], "200", "500", 1); return l }, 0, 1},
		"sent again":     {func(l []string) []string { return l }, 3, 3},
	} {
		t.Run(name, func(t *testing.T) {
			h := &house{output: tt.output, twice: tt.twice}
			s := httptest.NewServer(h)
			t.Cleanup(s.Close)
			h.url = s.URL
			r := &loadRun{stack: &stack{api: s.URL, key: "k", model: s.URL, http: s.Client()}, batches: 2, watch: &watch{}}
			figures, err := r.waits(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			last := figures[len(figures)-1]
			if last.Value != 2*tt.wrong || last.OK != (tt.wrong == 0) {
				t.Errorf("%+v, want %g of each of two batches", last, tt.wrong)
			}
		})
	}
}

func TestWhatIsWaitedForIsSaid(t *testing.T) {
	h := &house{output: func(l []string) []string { return l }, twice: -1}
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	r := &loadRun{stack: &stack{api: s.URL, key: "k", model: s.URL, http: s.Client()}, batches: 1, watch: &watch{}}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := r.waits(ctx); err == nil || !strings.Contains(err.Error(), "19 requests of 20 lines") {
		t.Errorf("%v", err)
	}
}

func TestPartsAreOfTheSettingsSize(t *testing.T) {
	h := &house{output: func(l []string) []string { return l }}
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	h.url = s.URL
	r := &loadRun{stack: &stack{api: s.URL, key: "k", model: s.URL, http: s.Client()}, parts: 70, settings: config.Settings{PartLines: 7}, watch: &watch{}}
	figures, err := r.wide(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var lines []int
	for _, in := range h.inputs {
		lines = append(lines, bytes.Count(in, []byte("\n")))
	}
	if fmt.Sprint(lines) != "[420 490]" {
		t.Errorf("batches of %v lines", lines)
	}
	for _, f := range figures {
		if !f.OK {
			t.Errorf("%+v", f)
		}
	}
}

func TestLoadNeedsAStack(t *testing.T) {
	t.Setenv("HOLDFAST_URL", "")
	for _, phases := range [][]string{nil, {"waits"}} {
		if _, err := (&loadRun{slots: 1, batches: 1, lines: 1, parts: 1}).measure("", phases); err == nil {
			t.Errorf("%v were measured on nothing", phases)
		}
	}
}

func TestCounted(t *testing.T) {
	for n, want := range map[int]string{7: "7 x", 999: "999 x", 1000: "1,000 x", 3000000: "3,000,000 x"} {
		if got := counted(n, "x"); got != want {
			t.Errorf("%d: %q", n, got)
		}
	}
}
