package metrics

import (
	"bytes"
	"encoding/json"
	"io"
	"math"
	"sync"
	"time"

	"github.com/prozz/aws-embedded-metrics-golang/emf"

	"holdfast/internal/batch"
)

// Recorder adds up what it is told until the next [Recorder.Flush]. One serves a
// process: Lambda runs one invocation at a time in it, and what is told between
// two is in the next one's line. A nil Recorder records nothing. It is safe for
// concurrent use.
//
// What wasn't written when a process is killed is lost; see [Row]. Metrics are the
// operator's view, and never what decides.
type Recorder struct {
	function string
	out      io.Writer
	o        Options

	mu     sync.Mutex
	values []value // by row of Table
}

type value struct {
	sum   float64
	count int
}

// Options tune a Recorder.
type Options struct {
	// AtOnce: rows that are marked so are written when they happen. It is for the
	// function that foreign lines may kill. Others have one line an invocation.
	AtOnce bool
}

// New returns the recorder of a function that writes lines to out, each in one
// call of Write. For a Lambda that is os.Stdout.
func New(function string, out io.Writer, o *Options) *Recorder {
	r := &Recorder{function: function, out: out, values: make([]value, len(Table))}
	if o != nil {
		r.o = *o
	}
	return r
}

// most is above everything that is counted here, and far below what a sum of it
// could take JSON or CloudWatch out of their bounds with.
const most = 1e15

// Observer is what a Runner, a Reaper or a Finisher is given. It takes no longer
// than a line takes to write.
func (r *Recorder) Observer() batch.Observer {
	if r == nil {
		return nil
	}
	return r.add
}

func (r *Recorder) add(m batch.Metric, n float64) {
	i := find(m)
	if i < 0 || !(n >= 0 && n <= most) {
		return // nor NaN: JSON has none, and the line would be lost with all the others
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	v := &r.values[i]
	if Table[i].How == Last {
		*v = value{}
	}
	v.sum += n
	v.count++
	if r.o.AtOnce && Table[i].AtOnce {
		r.flush(time.Now())
	}
}

// Flush writes what was told since the last time, as of now, unless it was
// nothing. What could not be written stays for the next time. Defer it, so that a
// handler that fails or panics has its line as well.
func (r *Recorder) Flush(now time.Time) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.flush(now)
}

func (r *Recorder) flush(now time.Time) {
	line, err := r.line(now)
	if err != nil || line == nil {
		return // a test holds that every value can be written
	}
	if _, err := r.out.Write(line); err != nil {
		return // there is nowhere to say so: this is the log
	}
	clear(r.values)
}

// line is the document and a newline, nil if there is nothing to say.
func (r *Recorder) line(now time.Time) ([]byte, error) {
	directive := emf.MetricDirective{
		Namespace:  Namespace,
		Dimensions: []emf.DimensionSet{{}}, // one set, and it is empty
	}
	members := map[string]any{"Function": r.function} // a property, to search by
	for i, row := range Table {
		v := r.values[i]
		if v.count == 0 {
			continue
		}
		n := v.sum
		if row.How == Mean {
			n /= float64(v.count)
		}
		directive.Metrics = append(directive.Metrics, emf.MetricDefinition{Name: string(row.Name), Unit: row.Unit})
		members[string(row.Name)] = math.Round(n*1000) / 1000 // shorter, and nobody reads more
	}
	if directive.Metrics == nil {
		return nil, nil
	}
	members["_aws"] = emf.Metadata{Timestamp: now.UnixMilli(), Metrics: []emf.MetricDirective{directive}}
	var b bytes.Buffer
	if err := json.NewEncoder(&b).Encode(members); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}
