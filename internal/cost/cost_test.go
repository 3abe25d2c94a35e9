package cost

import (
	"encoding/json"
	"errors"
	"math"
	"strings"
	"testing"
)

func near(a, b float64) bool { return math.Abs(a-b) < 1e-9*math.Max(1, math.Abs(b)) }

func TestEveryKindHasOnePrice(t *testing.T) {
	seen := map[Kind]bool{}
	for _, p := range Prices {
		if seen[p.Kind] {
			t.Errorf("%s is priced twice", p.Kind)
		}
		seen[p.Kind] = true
		if p.Dollars <= 0 || p.Per < 1 || p.Unit == "" || p.Name == "" || !strings.Contains(p.Source, "aws.amazon.com/") {
			t.Errorf("row %+v", p)
		}
	}
	for k := range (Idle{}).Monthly() {
		if !seen[k] {
			t.Errorf("%s has no price", k)
		}
	}
}

// The design's own sum: a million lines of a second each, 32 at once, cost 21
// cents of waiting; a store write for every line 63 cents; a state for every one
// 25 dollars at least.
func TestPricesAgreeWithTheDesign(t *testing.T) {
	w := Work{Lines: 1e6, Parts: 2000, Waiting: 1e9, Slots: 32, Memory: 512, CheckpointLines: 100}
	if got := w.Floor().Price(nil).Line(Compute).Dollars; got < 0.205 || got > 0.215 {
		t.Errorf("waiting costs $%.4f", got)
	}
	if got := (Usage{TableWrites: 1e6}).Price(nil).Total; !near(got, 0.625) {
		t.Errorf("a million writes cost $%.4f", got)
	}
	if got := (Usage{Transitions: 1e6}).Price(nil).Total; !near(got, 25) {
		t.Errorf("a million transitions cost $%.4f", got)
	}
}

func TestFloor(t *testing.T) {
	w := Work{Lines: 1200, Parts: 3, Waiting: 64_000, Slots: 32, Memory: 1024, CheckpointLines: 100}
	want := Usage{Compute: 2, ObjectPuts: 12, TableWrites: 6 + 12, QueueRequests: 9, Transitions: 3}
	check := func(w Work, want Usage) {
		t.Helper()
		got := w.Floor()
		for k, n := range want {
			if !near(got[k], n) {
				t.Errorf("%s: %v, want %v", k, got[k], n)
			}
		}
		if len(got) != len(want) {
			t.Errorf("floor %v", got)
		}
	}
	check(w, want)
	w.Wide = true
	want[Transitions] = 6
	check(w, want)
	// A part has a chunk, however few its lines.
	check(Work{Lines: 2, Parts: 2, CheckpointLines: 100}, Usage{ObjectPuts: 2, TableWrites: 6, QueueRequests: 6, Transitions: 2})
}

func TestBillAddsUp(t *testing.T) {
	b := Usage{Compute: 3, TableWrites: 2e6, QueueRequests: 5e6}.Price(Usage{Compute: 2, ObjectPuts: 1000})
	if len(b.Lines) != 4 || b.Region != Region || b.Date != Date {
		t.Fatalf("bill %+v", b)
	}
	if want := 3*0.0000133334 + 2*0.625 + 5*0.40; !near(b.Total, want) {
		t.Errorf("total %v, want %v", b.Total, want)
	}
	if want := 2*0.0000133334 + 0.005; !near(b.Floor, want) {
		t.Errorf("floor %v, want %v", b.Floor, want)
	}
}

const sample = `{"time":"2026-11-29T10:00:00Z","level":"INFO","msg":"usage","v":1,"function":"work","mb":512,"ms":8000,"init_ms":200,"k":32,` +
	`"batches":[{"calls":{"SQS.ReceiveMessage":{"n":4}}},` +
	`{"tenant":"acme","batch":"batch_a","part":0.75,"lines":300,"calls":{"DynamoDB.UpdateItem":{"n":5,"w":14},"DynamoDB.GetItem":{"n":2,"r":2},"S3.PutObject":{"n":3,"f":1,"out":999},"S3.GetObject":{"n":1,"in":5},"S3.DeleteObjects":{"n":9},"SQS.DeleteMessage":{"n":1,"f":1},"SFN.SendTaskSuccess":{"n":1}},"upstream":{"n":310,"ms":64000}},` +
	`{"tenant":"acme","batch":"batch_b","part":0.25,"lines":100,"calls":{"S3.PutObject":{"n":1}}}]}`

func TestUsageOfALine(t *testing.T) {
	i, err := ParseLine("2026-11-29T10:00:00Z\t" + sample) // some runtimes put a time before it
	if err != nil {
		t.Fatal(err)
	}
	s := NewSum("acme", "batch_a")
	if !s.Add(i, 1500) {
		t.Fatal("the line isn't of the batch")
	}
	want := Usage{
		Compute: 0.75 * 0.5 * 8.2, Invocations: 0.75, LogBytes: 0.75 * 2000 / gb,
		TableWrites: 14, TableReads: 2, ObjectPuts: 3, ObjectGets: 1,
		// Its own delete, twice tried; three quarters of four receives that were nobody's
		// and of the poller's two calls.
		QueueRequests: 2 + 3 + 1.5,
	}
	for k, n := range want {
		if !near(s.Usage[k], n) {
			t.Errorf("%s: %v, want %v", k, s.Usage[k], n)
		}
	}
	for k, n := range s.Usage {
		if _, ok := want[k]; !ok && n != 0 {
			t.Errorf("%s: %v, want none", k, n)
		}
	}
	if s.Lines != 300 || s.Upstream != (Upstream{310, 64000}) || s.Slots != 32 || s.Memory != 512 || s.Runs["work"] != 1 {
		t.Errorf("sum %+v", s)
	}
	// Both batches together bear the whole of the invocation.
	other := NewSum("acme", "batch_b")
	other.Add(i, 1500)
	if both := s.Usage[Compute] + other.Usage[Compute]; !near(both, 0.5*8.2) {
		t.Errorf("compute of both: %v", both)
	}
	for _, who := range [][2]string{{"acme", "batch_c"}, {"other", "batch_a"}} {
		if NewSum(who[0], who[1]).Add(i, 1) {
			t.Errorf("the line counts for %v", who)
		}
	}
}

// The API knows the batch that it is asked for, and not whose it is.
func TestAPILine(t *testing.T) {
	i, err := ParseLine(`{"msg":"usage","v":1,"function":"api","mb":512,"ms":4,"batches":[{"batch":"batch_a","part":1}]}`)
	if err != nil {
		t.Fatal(err)
	}
	s := NewSum("acme", "batch_a")
	if !s.Add(i, 100) || s.Usage[HTTPRequests] != 1 || s.Usage[Compute] != 0 || !near(s.Usage[OtherCompute], 0.002) {
		t.Errorf("usage %v", s.Usage)
	}
}

func TestWorkflow(t *testing.T) {
	s := NewSum("acme", "batch_a")
	s.Workflow(7, 3)
	if s.Usage[Transitions] != 7 || s.Usage[QueueRequests] != 3 || s.Usage[LogBytes] <= 0 {
		t.Errorf("usage %v", s.Usage)
	}
}

func TestOtherLines(t *testing.T) {
	for _, line := range []string{
		"", "START RequestId: 1", `{"msg":"ran","batch":"batch_a"}`, `{"msg":"usage"`, `{"msg":"usage","v":0}`, `{"msg":"usage","v":2}`, `{"msg":"usage","v":1,"mb":"x"}`,
	} {
		if _, err := ParseLine(line); !errors.Is(err, ErrLine) {
			t.Errorf("%q: %v", line, err)
		}
	}
}

// A month counted by hand: a polled queue, and a function that is called each
// minute.
func TestIdle(t *testing.T) {
	one := Idle{Queues: 1}.Monthly().Price(nil).Total
	if one < 0.2 || one > 0.3 {
		t.Errorf("a polled queue costs $%.2f a month", one)
	}
	got := Idle{Queues: 1, Secrets: 2, Metrics: 3, Runs: 1000, RunMemory: 512, RunTime: 100, RunReads: 16, RunRequests: 2, RunLog: gb / 500,
		LogStored: 4, TableGB: 5, ObjectsGB: 6}.Monthly()
	want := Usage{
		QueueRequests: 5*730*180 + 2000, Secrets: 2, Metrics: 3, Invocations: 1000, OtherCompute: 50, TableReads: 16_000,
		LogBytes: 1000.0 * (gb / 500) / gb, LogStorage: 4 + 1000.0*(gb/500)/gb, TableStorage: 5, ObjectStorage: 6,
	}
	for k, n := range want {
		if !near(got[k], n) {
			t.Errorf("%s: %v, want %v", k, got[k], n)
		}
	}
	if len(got) != len(want) {
		t.Errorf("usage %v", got)
	}
}

// What is written is what is read.
func TestInvocationSurvivesJSON(t *testing.T) {
	in, err := ParseLine(sample)
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(in)
	if err != nil {
		t.Fatal(err)
	}
	out, err := ParseLine(string(text))
	if err != nil || len(out.Batches) != 3 || out.Batches[1].Calls["S3.PutObject"] != (Calls{Answered: 3, Failed: 1, Sent: 999}) {
		t.Errorf("%+v, %v", out, err)
	}
}
