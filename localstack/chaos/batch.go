package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"time"

	"holdfast/internal/batch"
	"holdfast/internal/openai"
)

// endpoint is what every line calls: its requests are the shortest.
const endpoint = "/v1/completions"

// poisonModel never answers: whoever sends a poison line is killed for it.
const poisonModel = "sim-hang"

// input is what a batch is asked to do.
type input struct {
	lines  int
	model  string
	poison map[int]bool // lines that kill their worker
}

func (in input) body(i int) string {
	model := in.model
	if in.poison[i] {
		model = poisonModel
	}
	return fmt.Sprintf(`{"model":%q,"prompt":"%d"}`, model, i)
}

func customID(i int) string { return fmt.Sprintf("line-%06d", i) }

func (in input) file() []byte {
	var b bytes.Buffer
	for i := range in.lines {
		fmt.Fprintf(&b, `{"custom_id":%q,"method":"POST","url":%q,"body":%s}`+"\n", customID(i), endpoint, in.body(i))
	}
	return b.Bytes()
}

// run is a batch under way.
type run struct {
	*client
	in    input
	id    string
	begun time.Time
}

func over(status string) bool {
	switch status {
	case openai.StatusCompleted, openai.StatusFailed, openai.StatusExpired, openai.StatusCancelled:
		return true
	}
	return false
}

func (r *run) state(ctx context.Context) (b openai.Batch, err error) {
	err = r.call(ctx, "GET", "/v1/batches/"+r.id, "", nil, &b)
	return b, err
}

// still is how long a batch may stand still before something is said about it.
const still = 10 * time.Second

// ended waits until the batch is over, by itself. say is told where it stands when it
// stands still.
func (r *run) ended(ctx context.Context, say func(string, ...any)) (b openai.Batch, err error) {
	done, since := -1, time.Now()
	err = every(ctx, 250*time.Millisecond, func() (bool, error) {
		if b, err = r.state(ctx); err != nil || over(b.Status) {
			return true, err
		}
		if n := b.RequestCounts.Completed + b.RequestCounts.Failed; n > done {
			done, since = n, time.Now()
		}
		if time.Since(since) < still {
			return false, nil
		}
		since = time.Now()
		where, err := r.where(ctx)
		say("%s with %d of %d lines over; %s", b.Status, done, r.in.lines, where)
		return false, err
	})
	if err != nil {
		err = fmt.Errorf("batch %s is %s, %d of %d lines over: %w", r.id, b.Status, done, r.in.lines, err)
	}
	return b, err
}

// where says what the parts that aren't over are doing.
func (r *run) where(ctx context.Context) (string, error) {
	parts, err := r.parts(ctx, r.id)
	if err != nil {
		return "", err
	}
	states := map[batch.State]int{}
	some := ""
	for _, p := range parts {
		states[p.State]++
		if !p.Over() && len(some) < 300 {
			some += fmt.Sprintf("; part %d %s, %d of %d lines, attempts %d, due in %.0f s", p.N, p.State, p.Processed, p.Lines, p.Attempts, time.Until(p.Due).Seconds())
		}
	}
	return fmt.Sprint(states) + some, nil
}

// verdict is what became of a batch.
type verdict struct {
	Batch     string   `json:"batch"`
	What      string   `json:"what"`
	Status    string   `json:"status"`
	Seconds   float64  `json:"seconds"` // from create to its end
	Lines     int      `json:"lines"`
	Lost      int      `json:"lost"`    // lines without a result
	Doubled   int      `json:"doubled"` // results beyond one a line
	Wrong     int      `json:"wrong"`   // results out of order, of no line, or with another line's reply
	Cancelled int      `json:"cancelled_lines"`
	Blamed    []int    `json:"blamed"` // lines that ended as line_crashed_worker
	Dead      int      `json:"dead_parts"`
	DeadLines int      `json:"dead_lines"` // lines that ended as part_dead
	Lapses    int      `json:"lapses"`
	Steals    int      `json:"steals"`
	Repeats   int      `json:"repeats"` // requests beyond one a line, as the model counted
	Allowed   int      `json:"repeats_allowed"`
	Faults    []string `json:"faults,omitempty"`
}

func (v *verdict) fault(format string, args ...any) {
	if len(v.Faults) < 20 {
		v.Faults = append(v.Faults, fmt.Sprintf(format, args...))
	}
}

// verify holds a batch that is over to the promises about its results.
func (r *run) verify(ctx context.Context, b openai.Batch) (v verdict, err error) {
	v = verdict{Batch: r.id, Status: b.Status, Lines: r.in.lines, Seconds: time.Since(r.begun).Seconds()}
	seen := make([]int, r.in.lines)
	outputs := 0
	for _, f := range []struct {
		id     *string
		output bool
	}{{b.OutputFileID, true}, {b.ErrorFileID, false}} {
		if f.id == nil {
			continue
		}
		content, err := r.get(ctx, "GET", "/v1/files/"+*f.id+"/content", "", nil)
		if err != nil {
			return v, err
		}
		if f.output {
			outputs = bytes.Count(content, []byte("\n"))
		}
		v.results(r.in, content, f.output, seen)
	}
	v.count(seen)
	if c := b.RequestCounts; c.Total != r.in.lines || c.Completed != outputs || c.Completed+c.Failed != c.Total {
		v.fault("counts are %+v, with %d lines and %d of them in the output file", c, r.in.lines, outputs)
	}
	if v.Cancelled > 0 && b.Status != openai.StatusCancelled || b.Status != openai.StatusCancelled && b.Status != openai.StatusCompleted {
		v.fault("it is %s, with %d lines cancelled", b.Status, v.Cancelled)
	}
	for i := range r.in.poison {
		if b.Status == openai.StatusCompleted && !slices.Contains(v.Blamed, i) {
			v.fault("line %d kills its worker and isn't blamed", i)
		}
	}
	parts, err := r.parts(ctx, r.id)
	for _, p := range parts {
		v.Lapses += p.Lapses
		v.Steals += p.Steals
		if !p.DeadAt.IsZero() {
			v.Dead++
		}
		if !p.Over() {
			v.fault("part %d is %s", p.N, p.State)
		}
	}
	return v, err
}

// count sums up how many results each line has.
func (v *verdict) count(seen []int) {
	for _, n := range seen {
		if n == 0 {
			v.Lost++
		}
		v.Doubled += max(n-1, 0)
	}
}

// results goes through one result file. seen counts each line's results.
func (v *verdict) results(in input, content []byte, output bool, seen []int) {
	last := -1
	for raw := range bytes.Lines(content) {
		var got struct {
			CustomID string `json:"custom_id"`
			Response *struct {
				StatusCode int             `json:"status_code"`
				Body       json.RawMessage `json:"body"`
			} `json:"response"`
			Error *struct{ Code string } `json:"error"`
		}
		i := -1
		if json.Unmarshal(raw, &got) == nil && len(got.CustomID) > len("line-") {
			if n, err := strconv.Atoi(got.CustomID[len("line-"):]); err == nil && n < in.lines && got.CustomID == customID(n) {
				i = n
			}
		}
		if i < 0 || i <= last {
			v.Wrong++
			v.fault("after line %d comes %.100q", last, got.CustomID)
		}
		if i < 0 {
			continue
		}
		seen[i]++
		last = i
		switch {
		case output:
			sum := sha256.Sum256([]byte(in.body(i)))
			if got.Response == nil || got.Response.StatusCode != 200 || !bytes.Contains(got.Response.Body, []byte("You sent "+hex.EncodeToString(sum[:]))) {
				v.Wrong++
				v.fault("line %d hasn't its own reply", i)
			}
		case got.Error == nil:
			v.Wrong++
			v.fault("line %d was refused by a model that refuses nothing", i)
		case got.Error.Code == openai.CodeLineCrashedWorker:
			v.Blamed = append(v.Blamed, i)
		case got.Error.Code == openai.CodePartDead:
			v.DeadLines++
		case got.Error.Code == openai.CodeBatchCancelled:
			v.Cancelled++
		default:
			v.Wrong++
			v.fault("line %d ended as %s", i, got.Error.Code)
		}
	}
}

// judge holds the batch to the promise about repeats and blame: what was sent
// again is what the blows account for, and who is blamed was alone in two of them.
func (v *verdict) judge(a account, blows []*blow, bound int) {
	v.Repeats = a.Requests - len(a.Lines)
	struck := 0
	alone := map[int]int{}
	for _, b := range blows {
		for _, h := range b.held {
			if h.part.Batch == v.Batch && h.claimed {
				v.Allowed += h.lost
				struck++
			}
		}
		if b.alone.batch == v.Batch {
			alone[b.alone.line]++
		}
	}
	// Leases that ended without a blow: a worker that this machine had no time for.
	others := max(v.Lapses-struck, 0)
	v.Allowed += others * bound
	if v.Repeats > v.Allowed {
		v.fault("the model got %d requests beyond one a line; the blows and %d other lapses account for %d", v.Repeats, others, v.Allowed)
	}
	for _, i := range v.Blamed {
		if alone[i] < 2 {
			v.fault("line %d is blamed and was alone in %d deaths", i, alone[i])
		}
	}
}
