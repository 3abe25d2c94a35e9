package access_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"holdfast/internal/access"
	"holdfast/internal/batch"
)

const (
	acmes  = "batch_acme00000000000000000"
	others = "batch_other0000000000000000"
	chat   = "/v1/chat/completions"
)

var ended = time.Date(2026, 10, 12, 9, 0, 0, 0, time.UTC)

// keys is each set of scopes that makes a difference; replay is the oracle's.
var keys = []struct {
	name   string
	scopes []access.Scope
	replay bool
}{
	{"no scope", nil, false},
	{"submit", []access.Scope{access.Submit}, false},
	{"everything but batch_replay", []access.Scope{access.Submit, access.Read, access.Admin, access.Work}, false},
	{"batch_replay", []access.Scope{access.BatchReplay}, true},
	{"batch_replay and submit", []access.Scope{access.Submit, access.BatchReplay}, true},
	{"everything", access.Scopes, true},
}

// tenantHeaders is each way to say X-Tenant-ID. The keys are tenant fleet's. names is the
// tenant that the header names in good form, "" if it names none.
var tenantHeaders = []struct {
	name   string
	values []string
	names  string
}{
	{"absent", nil, ""},
	{"the batch's", []string{"acme"}, "acme"},
	{"another's", []string{"other"}, "other"},
	{"the key's own", []string{"fleet"}, "fleet"},
	{"nobody's", []string{"nobody"}, "nobody"},
	{"empty", []string{""}, ""},
	{"twice the same", []string{"acme", "acme"}, ""},
	{"its own twice", []string{"fleet", "fleet"}, ""},
	{"two", []string{"acme", "other"}, ""},
	{"a list", []string{"acme,acme"}, ""},
	{"a list of its own", []string{"fleet, fleet"}, ""},
	{"padded", []string{" acme"}, ""},
	{"padded behind", []string{"acme\t"}, ""},
	{"its own, padded", []string{"fleet "}, ""},
	{"upper case", []string{"ACME"}, ""},
	{"a line end", []string{"acme\n"}, ""},
	{"another header", []string{"acme\r\nX-Batch-ID: " + acmes}, ""},
	{"a NUL", []string{"acme\x00"}, ""},
	{"a path", []string{"../acme"}, ""},
	{"a key of the table", []string{"acme#B#x"}, ""},
	{"not UTF-8", []string{"acme\xff"}, ""},
	{"too long", []string{strings.Repeat("a", 64)}, ""},
}

// batchHeaders is each way to say X-Batch-ID; of is whose batch it names in good
// form.
var batchHeaders = []struct {
	name   string
	values []string
	of     string
}{
	{"absent", nil, ""},
	{"acme's", []string{acmes}, "acme"},
	{"other's", []string{others}, "other"},
	{"unknown", []string{"batch_unknown00000000000000"}, "nobody's"},
	{"empty", []string{""}, ""},
	{"twice the same", []string{acmes, acmes}, ""},
	{"two", []string{acmes, others}, ""},
	{"a list", []string{acmes + "," + acmes}, ""},
	{"padded", []string{" " + acmes}, ""},
	{"a line end", []string{acmes + "\n"}, ""},
	{"a NUL", []string{acmes + "\x00"}, ""},
	{"upper case", []string{strings.ToUpper(acmes)}, ""},
	{"no prefix", []string{strings.TrimPrefix(acmes, "batch_")}, ""},
	{"a path", []string{"batch_/../acme0000000000000000"}, ""},
	{"too short", []string{"batch_acme"}, ""},
	{"too long", []string{"batch_" + strings.Repeat("a", 75)}, ""},
}

// lineHeaders is each way to say X-Batch-Line of a batch of 12 lines.
var lineHeaders = []struct {
	name   string
	values []string
	ok     bool
	line   int64
}{
	{"absent", nil, true, access.NoLine},
	{"the first", []string{"0"}, true, 0},
	{"the last", []string{"11"}, true, 11},
	{"behind it", []string{"12"}, false, 0},
	{"beyond int64", []string{"99999999999999999999"}, false, 0},
	{"no line, in digits", []string{"-1"}, false, 0},
	{"signed", []string{"+1"}, false, 0},
	{"a leading zero", []string{"01"}, false, 0},
	{"hex", []string{"0x1"}, false, 0},
	{"a fraction", []string{"1.0"}, false, 0},
	{"padded", []string{" 1"}, false, 0},
	{"a line end", []string{"1\n"}, false, 0},
	{"empty", []string{""}, false, 0},
	{"twice the same", []string{"1", "1"}, false, 0},
	{"other digits", []string{"１"}, false, 0},
}

// endpoints is each thing that may be asked for. Every batch here is of chat
// completions.
var endpoints = []struct {
	name, path string
	ok         bool
}{
	{"the batch's", chat, true},
	{"another of the gateway's", "/v1/images/generations", false},
	{"its models", "/v1/models", false},
	{"one that begins so", chat + "/x", false},
	{"the API", "", false},
}

// states is each state that acme's batch may be in; ok is the oracle's.
var states = []struct {
	status, ending batch.Status
	after          time.Duration // since the end was decided; the drain is 2 min
	ok             bool
}{
	{batch.Validating, "", 0, false},
	{batch.Validating, batch.Cancelled, 0, false},
	{batch.InProgress, "", 0, true},
	{batch.InProgress, batch.Cancelled, 0, true},
	{batch.InProgress, batch.Cancelled, 2*time.Minute - time.Millisecond, true},
	{batch.InProgress, batch.Cancelled, 2 * time.Minute, false},
	{batch.InProgress, batch.Expired, time.Minute, true},
	{batch.InProgress, batch.Expired, time.Hour, false},
	{batch.InProgress, batch.Completed, 0, false},
	{batch.Finalizing, batch.Completed, 0, false},
	{batch.Finalizing, batch.Cancelled, 0, false},
	{batch.Finalizing, batch.Expired, 0, false},
	{batch.Completed, batch.Completed, 0, false},
	{batch.Failed, "", 0, false},
	{batch.Expired, batch.Expired, 0, false},
	{batch.Cancelled, batch.Cancelled, 0, false},
}

// TestDecide is the decision table: every key with every way to say each header, in
// every state. What a row of the tables above says decides alone, for the other rows
// are all there as they should be, too.
func TestDecide(t *testing.T) {
	cases, allowed := 0, map[string]int{}
	for _, s := range states {
		b := batch.Batch{Tenant: "acme", ID: acmes, Status: s.status, Ending: s.ending, EndingAt: ended, Submitter: "ann@acme", Lines: 12}
		running := batch.Batch{Tenant: "other", ID: others, Status: batch.InProgress, Submitter: "bob@other", Lines: 12}
		for _, k := range keys {
			c := access.NewCaller("fleet", "worker-7", k.scopes...)
			for _, th := range tenantHeaders {
				for _, bh := range batchHeaders {
					for n := range len(lineHeaders) * len(endpoints) {
						lh, e := lineHeaders[n%len(lineHeaders)], endpoints[n/len(lineHeaders)]
						asked := 0
						runs := func(_ context.Context, tenant, id string) (access.Run, error) {
							if asked++; asked > 1 || tenant != th.names || id != bh.values[0] {
								t.Errorf("asked for %q of %q, time %d", id, tenant, asked)
							}
							for _, b := range []batch.Batch{b, running} {
								if b.Tenant == tenant && b.ID == id {
									return access.Run{Submitter: b.Submitter, Lines: b.Lines, Endpoint: chat, Replayable: b.Replayable(ended.Add(s.after), 2*time.Minute)}, nil
								}
							}
							return access.Run{}, access.ErrNoRun
						}
						got, err := access.Decide(t.Context(), c, access.Asserted{Tenant: th.values, Batch: bh.values, Line: lh.values, Endpoint: e.path}, runs)

						var want access.Identity
						var refusal error
						inOrder := th.names != "" && bh.of != "" && lh.ok
						inOrder = inOrder || th.names != "" && bh.of != "" && lh.name == "behind it" // which only the batch says
						inOrder = inOrder && e.path != ""
						switch {
						case !k.replay && (th.name == "absent" || th.name == "the key's own"):
							want = access.Identity{Tenant: "fleet", OnBehalfOf: "worker-7", Line: access.NoLine}
						case !k.replay:
							refusal = access.ErrForeign
						case e.ok && lh.ok && th.names == "acme" && bh.of == "acme" && s.ok:
							want = access.Identity{Tenant: "acme", OnBehalfOf: "ann@acme", Batch: acmes, Line: lh.line, Replay: true}
						case e.ok && lh.ok && th.names == "other" && bh.of == "other":
							want = access.Identity{Tenant: "other", OnBehalfOf: "bob@other", Batch: others, Line: lh.line, Replay: true}
						default:
							refusal = access.ErrReplay
						}
						what := func() string {
							return fmt.Sprintf("%s; tenant %s; batch %s; line %s; endpoint %s; %s ending %q after %v", k.name, th.name, bh.name, lh.name, e.name, s.status, s.ending, s.after)
						}
						if got != want || !errors.Is(err, refusal) || (err == nil) != (refusal == nil) {
							t.Errorf("%s: %+v, %v; want %+v, %v", what(), got, err, want, refusal)
						}
						if refusal != nil && err != refusal {
							t.Errorf("%s: the refusal says more than that it is one: %v", what(), err)
						}
						if lookup := k.replay && inOrder; (asked == 1) != lookup {
							t.Errorf("%s: asked for the batch %d times", what(), asked)
						}
						cases++
						if err == nil {
							allowed[k.name]++
						}
					}
				}
			}
		}
	}
	t.Logf("%d cases; allowed: %v", cases, allowed)
	if want := len(states) * len(keys) * len(tenantHeaders) * len(batchHeaders) * len(lineHeaders) * len(endpoints); cases != want || t.Failed() {
		t.Errorf("%d cases, want %d", cases, want)
	}
}

// Trouble with the table refuses nobody, and lets nobody in.
func TestDecideWithoutAnAnswer(t *testing.T) {
	c := access.NewCaller("fleet", "worker-7", access.BatchReplay)
	trouble := errors.New("throttled")
	got, err := access.Decide(t.Context(), c, access.Asserted{Tenant: []string{"acme"}, Batch: []string{acmes}, Endpoint: chat},
		func(context.Context, string, string) (access.Run, error) {
			return access.Run{Submitter: "ann", Lines: 1, Endpoint: chat, Replayable: true}, trouble
		})
	if !errors.Is(err, trouble) || errors.Is(err, access.ErrReplay) || got != (access.Identity{}) {
		t.Errorf("%+v, %v", got, err)
	}
}

// The form of a batch id is package batch's, letter for letter.
func TestBatchIDs(t *testing.T) {
	ids := []string{"", "batch_", acmes, strings.ToUpper(acmes), "batch_" + strings.Repeat("a", 17), "batch_" + strings.Repeat("a", 18), "batch_" + strings.Repeat("Z", 74), "batch_" + strings.Repeat("9", 75), batch.NewID()}
	for r := range rune(0x250) {
		ids = append(ids, "batch_aaaaaaaaaaaaaaaaa"+string(r), string(r)+acmes, acmes+string(r))
	}
	for _, id := range ids {
		asked := false
		_, _ = access.Decide(t.Context(), access.NewCaller("fleet", "w", access.BatchReplay), access.Asserted{Tenant: []string{"acme"}, Batch: []string{id}, Endpoint: chat},
			func(context.Context, string, string) (access.Run, error) { asked = true; return access.Run{}, nil })
		if asked != batch.ValidID(id) {
			t.Errorf("%q: a batch id to the rule: %v, to package batch: %v", id, asked, batch.ValidID(id))
		}
	}
}
