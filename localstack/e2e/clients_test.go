package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// observed is what a client made of the scenario: what each step gave, or how it
// failed.
type observed struct {
	Client     string                     `json:"client"`
	Results    map[string]json.RawMessage `json:"results"`
	Failures   map[string]failure         `json:"failures"`
	RequestIDs map[string]string          `json:"request_ids"` // as the client tells them, where it does
	Invalid    map[string]string          `json:"invalid"`     // results that the client's own schema refuses
}

// failure is an error as a client tells it. Absent texts are "".
type failure struct {
	Class     string `json:"class"`
	Status    int    `json:"status"`
	Code      string `json:"code"`
	Param     string `json:"param"`
	Type      string `json:"type"`
	Message   string `json:"message"`
	RequestID string `json:"request_id"`
}

// classes are the names of errors in Python and Node; Go has one for all.
var classes = map[int]string{400: "BadRequestError", 401: "AuthenticationError", 404: "NotFoundError", 503: "InternalServerError"}

// step is one call of the scenario, or several of them: what the front does to
// it, how many requests it takes, and how it has to fail, if so.
type step struct {
	name     string
	fault    fault
	requests int // 1 if not set; -1 for none at the front
	status   int
	code     string
	param    string
}

// steps are the scenario, the same for each client.
var steps = []step{
	{name: "upload stream"}, {name: "upload buffer"}, {name: "upload failing"}, {name: "upload slow"},
	{name: "upload wrong purpose", status: 400, code: "invalid_purpose", param: "purpose"},
	{name: "upload wrong expiry", status: 400, code: "invalid_expires_after", param: "expires_after"},
	{name: "file"},
	{name: "file missing", status: 404, code: "file_not_found", param: "file_id"},
	{name: "content missing", status: 404, code: "file_not_found", param: "file_id"},
	{name: "content"},
	{name: "content watched", fault: watch},
	{name: "content direct", requests: -1},

	{name: "parts create"}, {name: "part 0"}, {name: "part 1"}, {name: "part 2"},
	{name: "complete", fault: lost, requests: 2},
	{name: "complete again"},
	{name: "complete otherwise", status: 400, code: "upload_completed", param: "upload_id"},
	{name: "part after complete", status: 400, code: "upload_completed", param: "upload_id"},
	{name: "content of parts"},
	{name: "spoilt create"}, {name: "spoilt part"}, {name: "spoilt second part"},
	{name: "complete wrong md5", status: 400, code: "md5_mismatch", param: "md5"},
	{name: "complete unknown part", status: 400, code: "invalid_part_id", param: "part_ids"},
	{name: "complete wrong bytes", status: 400, code: "bytes_mismatch", param: "part_ids"},
	{name: "cancel upload", fault: lost, requests: 2},
	{name: "cancel upload again"},
	{name: "part after cancel", status: 400, code: "upload_cancelled", param: "upload_id"},
	{name: "complete after cancel", status: 400, code: "upload_cancelled", param: "upload_id"},
	{name: "part of nothing", status: 404, code: "upload_not_found", param: "upload_id"},

	{name: "create"}, {name: "create failing"}, {name: "create slow"}, {name: "create twin"},
	{name: "create lost", fault: lost, requests: 2},
	{name: "create refused", fault: refuse, requests: 2},
	{name: "create keyed", fault: lost, requests: 2},
	{name: "create keyed again"},
	{name: "create keyed otherwise", status: 400, code: "idempotency_conflict", param: "Idempotency-Key"},
	{name: "create without window", status: 400, code: "missing_required_parameter", param: "completion_window"},
	{name: "create wrong endpoint", status: 400, code: "invalid_endpoint", param: "endpoint"},
	{name: "create wrong window", status: 400, code: "invalid_completion_window", param: "completion_window"},
	{name: "create wrong metadata", status: 400, code: "invalid_metadata", param: "metadata"},
	{name: "create missing file", status: 400, code: "file_not_found", param: "input_file_id"},
	{name: "list", requests: 3},
	{name: "list unknown cursor", status: 400, code: "invalid_cursor", param: "after"},

	{name: "slow started", requests: -1},
	{name: "delete in use", status: 400, code: "file_in_use", param: "file_id"},
	{name: "cancel", fault: lost, requests: 2},
	{name: "cancel again"},
	{name: "completed", requests: -1},
	{name: "cancel over"},
	{name: "cancel missing", status: 404, code: "batch_not_found", param: "batch_id"},
	{name: "batch missing", status: 404, code: "batch_not_found", param: "batch_id"},
	{name: "output"}, {name: "errors"}, {name: "all errors"}, {name: "cancelled errors"},
	{name: "all failed", requests: -1}, {name: "lost over", requests: -1}, {name: "keyed over", requests: -1}, {name: "cancelled", requests: -1},

	{name: "files"},
	{name: "files ascending", requests: 3}, // the five inputs are no multiple of two
	{name: "files after"}, {name: "files of results"},
	{name: "files unknown cursor", status: 400, code: "invalid_cursor", param: "after"},
	{name: "delete", fault: lost, requests: 2},
	{name: "delete again", status: 404, code: "file_not_found", param: "file_id"},
	{name: "file deleted", status: 404, code: "file_not_found", param: "file_id"},

	{name: "models"}, {name: "model"},
	{name: "model missing", status: 404, code: "model_not_found", param: "model"},
	{name: "wrong key", status: 401, code: "invalid_api_key"},
	{name: "down", fault: down, requests: 3, status: 503, code: "service_unavailable"},
}

// The three official clients, written for OpenAI's API, do the same to ours with
// another base URL, and all they learn is what the contract says.
func TestOfficialClients(t *testing.T) {
	t.Parallel()
	clients := "../../.local/tools/clients"
	if _, err := os.Stat(clients); err != nil {
		t.Fatalf("%v: `bash localstack/tools.sh clients` installs them, as `make test` does", err)
	}
	for name, run := range map[string]func(t *testing.T, f *front, key, dir string) observed{
		"go": runOfficialGo,
		"python": func(t *testing.T, f *front, key, dir string) observed {
			return script(t, f, key, nil, filepath.Join(clients, "venv/bin/python"), "clients/scenario.py", dir)
		},
		"node": func(t *testing.T, f *front, key, dir string) observed {
			modules, err := filepath.Abs(filepath.Join(clients, "node_modules"))
			if err != nil {
				t.Fatal(err)
			}
			return script(t, f, key, []string{"NODE_PATH=" + modules}, "node", "clients/scenario.cjs", dir)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			began := time.Now()
			dir := scenarioInputs(t)
			c := newTenant(t, "submit,read")
			faults := map[string]fault{}
			for _, s := range steps {
				faults[s.name] = s.fault
			}
			f := newFront(t, faults)
			t.Cleanup(func() {
				if t.Failed() {
					t.Log("what came by:\n" + f.dump())
				}
			})
			o := run(t, f, c.key, dir)
			t.Logf("%s took %.1f s", o.Client, time.Since(began).Seconds())
			checkSteps(t, f, o)
			checkFiles(t, f, o, dir)
			checkUploads(t, o, dir)
			checkBatches(t, f, o)
			checkCancel(t, o)
		})
	}
}

// script runs a scenario that prints what it observed.
func script(t *testing.T, f *front, key string, more []string, args ...string) observed {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Env = append(append(os.Environ(), "HOLDFAST_FRONT="+f.URL, "HOLDFAST_API_KEY="+key, "PYTHONDONTWRITEBYTECODE=1"), more...)
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	if err := cmd.Run(); err != nil {
		t.Errorf("%s: %v\n%s", args[1], err, errOut.Bytes())
	}
	var o observed
	if err := json.Unmarshal(out.Bytes(), &o); err != nil {
		t.Fatalf("%s printed %v: %.2000s", args[1], err, out.Bytes())
	}
	return o
}

// Lines of the inputs: what comes back whole and in part, and what can't be done
// before it is cancelled.
const (
	mainLines, mainFailing = 6, 2
	failingLines           = 3
	slowLines              = 600
)

func scenarioInputs(t *testing.T) (dir string) {
	t.Helper()
	dir = t.TempDir()
	line := func(i int, model string) string {
		return fmt.Sprintf(`{"custom_id":"é %d","method":"POST","url":"/v1/chat/completions","body":{"model":%q,"messages":[{"role":"user","content":"%d"}]}}`+"\n", i, model, i)
	}
	var in, failing, slow strings.Builder
	for i := range mainLines {
		in.WriteString(line(i, map[bool]string{true: "sim-400", false: "sim"}[i < mainFailing]))
	}
	for i := range failingLines {
		failing.WriteString(line(i, "sim-400"))
	}
	for i := range slowLines {
		slow.WriteString(line(i, "sim-slow-1000"))
	}
	for name, text := range map[string]string{"input.jsonl": in.String(), "failing.jsonl": failing.String(), "slow.jsonl": slow.String()} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}
