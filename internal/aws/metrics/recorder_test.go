package metrics

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"holdfast/internal/batch"
)

var now = time.UnixMilli(1_790_000_000_123)

// parsed is a line read by the rules of the format, and not by the types that
// wrote it.
type parsed struct {
	names   []string
	units   map[string]string
	numbers map[string]float64
	other   map[string]string
}

// parse fails the test where a line breaks a rule of the format: members that it
// doesn't know, of another type or out of bounds; a metric that is named and isn't
// there as a number.
func parse(t *testing.T, line []byte) parsed {
	t.Helper()
	if !bytes.HasSuffix(line, []byte("\n")) || bytes.Count(line, []byte("\n")) != 1 {
		t.Fatalf("not one line: %q", line)
	}
	var root map[string]json.RawMessage
	if err := json.Unmarshal(line, &root); err != nil {
		t.Fatalf("%v: %s", err, line)
	}
	strict := func(raw json.RawMessage, into any) {
		t.Helper()
		d := json.NewDecoder(bytes.NewReader(raw))
		d.DisallowUnknownFields()
		if err := d.Decode(into); err != nil {
			t.Fatalf("%v: %s", err, raw)
		}
	}
	var meta struct {
		Timestamp         *int64
		CloudWatchMetrics []json.RawMessage
	}
	strict(root["_aws"], &meta)
	if meta.Timestamp == nil || *meta.Timestamp != now.UnixMilli() || len(meta.CloudWatchMetrics) != 1 {
		t.Fatalf("metadata %s", root["_aws"])
	}
	var directive struct {
		Namespace  string
		Dimensions json.RawMessage
		Metrics    []struct{ Name, Unit string }
	}
	strict(meta.CloudWatchMetrics[0], &directive)
	// An array of sets of names. null, which means nothing there, would pass as an
	// empty slice.
	if directive.Namespace != Namespace || string(directive.Dimensions) != "[[]]" || len(directive.Metrics) == 0 || len(directive.Metrics) > 100 {
		t.Fatalf("directive %s", meta.CloudWatchMetrics[0])
	}
	p := parsed{units: map[string]string{}, numbers: map[string]float64{}, other: map[string]string{}}
	delete(root, "_aws")
	for _, m := range directive.Metrics {
		var n float64
		if err := json.Unmarshal(root[m.Name], &n); err != nil {
			t.Fatalf("metric %q: %v in %s", m.Name, err, line)
		}
		if m.Name == "" || len(m.Name) > 1024 || slices.Contains(p.names, m.Name) {
			t.Fatalf("names a metric %q: %s", m.Name, line)
		}
		p.names, p.units[m.Name], p.numbers[m.Name] = append(p.names, m.Name), m.Unit, n
		delete(root, m.Name)
	}
	for name, raw := range root {
		var s string
		if err := json.Unmarshal(raw, &s); err != nil {
			t.Fatalf("member %q, which no metric names: %s", name, raw)
		}
		p.other[name] = s
	}
	return p
}

func TestLine(t *testing.T) {
	t.Setenv("_X_AMZN_TRACE_ID", "Root=PLANTED;Sampled=1")
	t.Setenv("AWS_LAMBDA_FUNCTION_NAME", "PLANTED")
	var out bytes.Buffer
	r := New("work", &out, nil)
	tell := r.Observer()
	tell.Add(batch.MetricClaims, 1)
	tell.Add(batch.MetricClaims, 1)
	tell.Add(batch.MetricSteals, 1)
	tell.Add(batch.MetricCompleted, 499)
	tell.Add(batch.MetricSlotUse, 90)
	tell.Add(batch.MetricSlotUse, 95.00049)
	tell.Add(batch.MetricOverdue, 3)
	tell.Add(batch.MetricOverdue, 2)
	if out.Len() != 0 {
		t.Fatalf("written before its time: %s", &out)
	}
	r.Flush(now)
	p := parse(t, out.Bytes())
	want := map[string]float64{"Claims": 2, "Steals": 1, "LinesCompleted": 499, "SlotUse": 92.5, "OverdueBatches": 2}
	for name, n := range want {
		if p.numbers[name] != n {
			t.Errorf("%s is %v, want %v", name, p.numbers[name], n)
		}
	}
	if len(p.numbers) != len(want) || p.units["Claims"] != "Count" || p.units["SlotUse"] != "Percent" {
		t.Errorf("%+v", p)
	}
	if len(p.other) != 1 || p.other["Function"] != "work" || strings.Contains(out.String(), "PLANTED") {
		t.Errorf("beside the metrics: %s", &out)
	}
	out.Reset()
	if r.Flush(now); out.Len() != 0 {
		t.Errorf("written twice: %s", &out)
	}
}

func TestNothingButNamesOfTheTable(t *testing.T) {
	var out bytes.Buffer
	r := New("work", &out, nil)
	tell := r.Observer()
	for _, n := range []float64{math.NaN(), math.Inf(1), math.Inf(-1), -1, math.MaxFloat64} {
		tell.Add(batch.MetricClaims, n)
	}
	tell.Add("somebody's text", 1)
	tell.Add("_aws", 1)
	if r.Flush(now); out.Len() != 0 {
		t.Errorf("written: %s", &out)
	}
	tell.Add(batch.MetricClaims, most)
	tell.Add(batch.MetricClaims, most)
	if r.Flush(now); parse(t, out.Bytes()).numbers["Claims"] != 2*most {
		t.Errorf("written: %s", &out)
	}
}

// What kills a worker must not take the news of it along.
func TestAtOnce(t *testing.T) {
	for _, atOnce := range []bool{true, false} {
		var out bytes.Buffer
		r := New("work", &out, &Options{AtOnce: atOnce})
		r.Observer().Add(batch.MetricClaims, 1)
		r.Observer().Add(batch.MetricSteals, 1)
		if strings.Contains(out.String(), `"Steals":1`) != atOnce || strings.Contains(out.String(), `"Claims":1`) != atOnce {
			t.Errorf("at once %v: %s", atOnce, &out)
		}
		out.Reset()
		if r.Flush(now); (out.Len() == 0) != atOnce {
			t.Errorf("at once %v, and at the end: %s", atOnce, &out)
		}
	}
}

type broken struct{ err error }

func (b *broken) Write(p []byte) (int, error) { return len(p), b.err }

func TestWhatCouldNotBeWrittenStays(t *testing.T) {
	b := &broken{errors.New("no log")}
	r := New("work", b, nil)
	r.Observer().Add(batch.MetricClaims, 1)
	r.Flush(now)
	r.Observer().Add(batch.MetricClaims, 1)
	if line, err := r.line(now); err != nil || parse(t, line).numbers["Claims"] != 2 {
		t.Errorf("%s, %v", line, err)
	}
}

func TestNilRecordsNothing(t *testing.T) {
	var r *Recorder
	r.Observer().Add(batch.MetricClaims, 1)
	r.Flush(now)
}

// Log lines cost by the byte: the longest that a function can write is short, too.
func TestSize(t *testing.T) {
	for _, function := range []string{"work", "reap", "api", "finish"} {
		var out bytes.Buffer
		r := New(function, &out, nil)
		for _, row := range Table {
			if slices.Contains(row.By, function) {
				r.Observer().Add(row.Name, 123_456_789.125)
			}
		}
		r.Flush(now)
		parse(t, out.Bytes())
		t.Logf("%s: %d bytes", function, out.Len())
		if out.Len() >= 1000 {
			t.Errorf("%s: a line of %d bytes: %s", function, out.Len(), &out)
		}
	}
}

func TestConcurrentUse(t *testing.T) {
	var out bytes.Buffer
	r := New("work", &out, &Options{AtOnce: true})
	done := make(chan bool)
	for range 8 {
		go func() {
			for range 100 {
				r.Observer().Add(batch.MetricSteals, 1)
				r.Observer().Add(batch.MetricClaims, 1)
			}
			done <- true
		}()
	}
	for range 8 {
		<-done
	}
	r.Flush(time.Now())
	sums := map[string]float64{}
	for line := range bytes.Lines(out.Bytes()) {
		var n map[string]any
		if err := json.Unmarshal(line, &n); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"Steals", "Claims"} {
			v, _ := n[name].(float64)
			sums[name] += v
		}
	}
	if sums["Steals"] != 800 || sums["Claims"] != 800 {
		t.Errorf("%v", sums)
	}
}
